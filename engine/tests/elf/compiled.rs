//! Landing pads, conventions and sequences as compilers write them, in programs that are compiled here.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;

use gilk_engine::cfg::text::listing;
use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_engine::code::Contract;
use gilk_engine::filters::{FilterTest, filter_calls};
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::{Possible, plan_possible};
use gilk_engine::session::Placement;
use gilk_engine::{Addr, HookType, Image, Rule, Session};
use gilk_instruments::Library;
use iced_x86::{Code, Decoder, DecoderOptions};
use tempfile::TempDir;

use crate::image;

/// Compiles a library.
pub(super) fn library(
    folder: &TempDir,
    mut compiler: Command,
    source: &str,
    options: &[&str],
) -> PathBuf {
    let (from, to) = (
        folder.path().join("source.c"),
        folder.path().join("library.so"),
    );
    std::fs::write(&from, source).unwrap();
    let done = compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&to)
        .args(options)
        .arg(&from)
        .output()
        .unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{text}");
    to
}

pub(super) fn compiled(source: &str, options: &[&str]) -> Image {
    let folder = tempfile::tempdir().unwrap();
    image(&library(&folder, Command::new("cc"), source, options))
}

pub(super) fn graph(image: &Image, name: &str) -> Cfg {
    Cfg::of(image, image.function_named(name).unwrap().id)
}

/// Functions with jump tables.
pub(super) const SWITCH: &str = "
int f0(int), f1(int), f2(int), f3(int), f4(int), f5(int), f6(int), f7(int);
int chosen(unsigned which, int value) {
    switch (which) {
    case 3: return f0(value) + 1; case 4: return f1(value) - 2; case 5: return f2(value) * 3;
    case 6: return f3(value) ^ 4; case 7: return f4(value) | 5; case 8: return f5(value) & 6;
    case 9: return f6(value) + 7; case 10: return f7(value) - 8;
    }
    return 0;
}
int letter(const char *text) {
    int sum = 0;
    for (; *text; text++)
        switch (*text) {
        case 'a': sum = f0(sum) + 1; break; case 'b': sum = f1(sum) - 1; break;
        case 'c': sum = f2(sum) * 3; break; case 'd': sum = f3(sum) ^ 9; break;
        case 'e': sum = f4(sum) | 5; break; case 'f': sum = f5(sum) & 7; break;
        case 'g': sum = f6(sum) + 8; break;
        }
    return sum;
}
int masked(unsigned which, int value) {
    switch (which & 7) {
    case 0: return f0(value) + 1; case 1: return f1(value) - 2; case 2: return f2(value) * 3;
    case 3: return f3(value) ^ 4; case 4: return f4(value) | 5; case 5: return f5(value) & 6;
    case 6: return f6(value) + 7; case 7: return f7(value) - 8;
    }
    return 0;
}
";

/// The blocks that are entered, without the first.
pub(super) fn entered(cfg: &Cfg) -> Vec<Addr> {
    let blocks = cfg.blocks.iter().skip(1).filter(|block| block.entered);
    blocks.map(|block| block.span.start).collect()
}

#[test]
fn landing_pads_are_entered() {
    let source = "
struct Held { ~Held(); };
void called(int);
extern \"C\" int guarded(int value) {
    try { Held held; called(value); } catch (int thrown) { return thrown; }
    return 0;
}";
    let folder = tempfile::tempdir().unwrap();
    let path = library(&folder, Command::new("c++"), source, &["-O2", "-x", "c++"]);
    let image = image(&path);
    let parts = image
        .functions()
        .iter()
        .filter(|function| function.name.starts_with("guarded"));
    let pads: usize = parts
        .map(|function| entered(&Cfg::of(&image, function.id)).len())
        .sum();
    assert!(pads >= 1, "the call's pad");
}

/// With -fipa-ra a caller in the same file relies on registers that the convention lets a callee change.
#[test]
fn conventions_are_believed_of_functions_without_callers_of_their_own_only() {
    let source = "
__attribute__((noinline)) static long local(long value) { return value * 3; }
__attribute__((noinline, visibility(\"protected\"))) long shared(long value) { return value * 5; }
long outside(long value);
long alone(long value) { return local(value) + shared(value) + outside(value); }
";
    let image = compiled(source, &["-O2"]);
    let contract = |name: &str| image.function_named(name).unwrap().contract;
    assert_eq!(contract("alone"), Contract::Believed);
    assert_eq!(contract("shared"), Contract::Read);
    assert_eq!(contract("local"), Contract::Read);
    assert_eq!(contract("outside.plt"), Contract::Believed);
}

#[test]
fn restartable_sequences_are_refused_by_name() {
    let source = "
__asm__(\".pushsection __rseq_cs, \\\"aw\\\"; .balign 32; .long 0, 0;\"
        \".quad 1f, 2f - 1f, 3f; .popsection\");
void counted(void) {
    __asm__ volatile(\"1: nop; nop; movl $1, %%eax; 2: jmp 4f; 3: jmp 1b; 4:\" ::: \"eax\");
}
void plain(void) { __asm__ volatile(\"movl $1, %%eax\" ::: \"eax\"); }
";
    let image = compiled(source, &["-O1"]);
    let rule = |name: &str| graph(&image, name).refusal.map(|refusal| refusal.rule);
    assert_eq!(rule("counted"), Some(Rule::Restartable));
    assert_eq!(rule("plain"), None);
}

/// The layout of a process with its counters and its arena at addresses of their own.
fn process() -> RuntimeLayout {
    use gilk_engine::layout::{Abi, CounterBank, Guard, Inputs, Rings, SegmentOffset, Sequences};
    let sequences = Sequences {
        area: Some(SegmentOffset(0xffff_ffff_ffff_f6a0)),
        signature: 0x5305_3053,
        cpus: 8,
        stride_log2: 12,
    };
    RuntimeLayout {
        abi: Abi::PROCESS,
        rings: Rings::none(sequences),
        counters: vec![CounterBank {
            base: SegmentOffset(0x2000_0000),
            slots: 512,
        }],
        shared: Vec::new(),
        inputs: Inputs::default(),
        guard: Guard::Missing,
        faults: 0,
        users: None,
        ..RuntimeLayout::supposed(Addr(0x100_0000))
    }
}

fn counter(function: &str, block: u32, hook: HookType) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: "counter".into(),
        launch: 0.0,
        splash: 1.0,
    }
}

/// Plans for a process what no rule refuses.
fn possible(image: &Image, session: &Session) -> Possible {
    let watch = &mut |_| ControlFlow::Continue(());
    let library = Library::builtin().unwrap();
    plan_possible(image, session, &library, &process(), watch).unwrap()
}

/// Every block of compiled code is counted by a proven plan, or refused by a rule.
#[test]
fn blocks_of_a_program_are_counted_by_the_layout_of_a_process() {
    let image = compiled(SWITCH, &["-O2"]);
    let mut session = Session::empty();
    for function in image.functions() {
        for block in 0..graph(&image, &function.name).blocks.len() {
            session
                .placements
                .push(counter(&function.name, block as u32, HookType::Pre));
        }
    }
    let possible = possible(&image, &session);
    let refused = possible.left_out.len();
    assert!(
        refused * 5 < session.placements.len(),
        "{:?}",
        possible.left_out
    );
    let plan = gilk_engine::verify::verify(&image, possible.plan);
    let plan = plan.unwrap_or_else(|violations| panic!("{violations:?}"));
    let patches = &plan.plan().patches;
    assert!(patches.iter().any(|patch| patch.sequences > 0));
}

/// A breakpoint that a handler may continue after, one at the target of a branch, and one before `ud2`, as Chromium's
/// `IMMEDIATE_CRASH` has it.
const BREAKPOINTS: &str = r#"
int checked(int value) {
    if (value & 1)
        __asm__ volatile("xor $8, %0; int3; add $40, %0" : "+r"(value));
    return value * 5 + 1;
}
int asserted(int value) {
    if (__builtin_expect(value < 0, 0)) {
        __asm__ volatile("int3; ud2");
        __builtin_unreachable();
    }
    return value / 3;
}
"#;

#[test]
fn breakpoints_of_a_programs_own_are_instructions_that_stay() {
    let image = compiled(BREAKPOINTS, &["-O2"]);
    let mut session = Session::empty();
    let mut breakpoints = Vec::new();
    for name in ["checked", "asserted"] {
        let function = image.function_named(name).unwrap();
        let cfg = graph(&image, name);
        assert_eq!(cfg.refusal, None, "{name}");
        let bytes = image.bytes(function.span).unwrap();
        let decoder = Decoder::with_ip(64, bytes, function.span.start.0, DecoderOptions::NONE);
        let traps = decoder.into_iter().filter(|one| one.code() == Code::Int3);
        let traps: Vec<Addr> = traps.map(|trap| Addr(trap.ip())).collect();
        let [trap] = traps[..] else {
            panic!("{}", listing(&image, &cfg));
        };
        let block = cfg.block_at(trap).expect("it is code");
        let end = block.end;
        let falls_through = matches!(
            end,
            BlockEnd::FallThrough | BlockEnd::Jump | BlockEnd::Return
        );
        assert_eq!(falls_through, name == "checked", "{end:?}");
        breakpoints.push(trap);
        for block in 0..cfg.blocks.len() {
            for hook in [HookType::Pre, HookType::Post] {
                session.placements.push(counter(name, block as u32, hook));
            }
        }
    }
    let possible = possible(&image, &session);
    let placed = session.placements.len() - possible.left_out.len();
    assert!(placed >= 6, "{:?}", possible.left_out);
    let plan = gilk_engine::verify::verify(&image, possible.plan);
    let plan = plan.unwrap_or_else(|violations| panic!("{violations:?}"));
    for site in &plan.plan().sites {
        let displaced = |trap: &&Addr| site.displaced.contains(**trap);
        assert_eq!(breakpoints.iter().find(displaced), None, "{site:?}");
    }
}

/// Code that only jumps reach is a part of what jumps there, which may be a part itself, or a part of it. The first
/// block of two of them has one byte, so that its hook is at the jumps to it.
const PARTS: &str = r#"
__asm__(".text; .globl f; .type f, @function; f: .cfi_startproc; mov %edi, %eax; and $3, %edi; cmp $1, %edi; ja 10f;"
    "add $5, %eax; ret; .cfi_endproc; .size f, . - f;"
    ".balign 16; 10: .cfi_startproc; xor $9, %eax; cmp $2, %edi; ja 20f; 11: add $7, %eax; ret; .cfi_endproc;"
    ".balign 16; 20: .cfi_startproc; clc; 21: sub $1, %edi; jnz 21b; inc %eax; jmp 11b; .cfi_endproc;"
    ".balign 16; 30: .cfi_startproc; xor $3, %eax; cmp $5, %edi; ja 40f; 31: add $9, %eax; ret; .cfi_endproc;"
    ".balign 16; 40: .cfi_startproc; clc; 41: sub $1, %edi; jnz 41b; inc %eax; jmp 31b; .cfi_endproc;");
"#;

#[test]
fn parts_of_parts_are_placed_with_their_function() {
    use gilk_engine::placement::Style;
    let image = compiled(PARTS, &["-O2"]);
    let f = image.function_named("f").unwrap().id;
    let members: Vec<String> = image.functions()[f.0 as usize..][..5]
        .iter()
        .map(|function| function.name.clone())
        .collect();
    for style in [Style::InPlace, Style::Whole] {
        let mut session = Session::empty();
        for name in &members {
            session.styles.insert(name.clone(), style);
            for block in 0..graph(&image, name).blocks.len() {
                session
                    .placements
                    .push(counter(name, block as u32, HookType::Pre));
            }
        }
        assert_eq!(session.placements.len(), 12, "{members:?}");
        let possible = possible(&image, &session);
        // No control reaches the two that only branch to each other, so that a function relocated whole has no entrance there.
        let expected = if style == Style::Whole { 7 } else { 12 };
        let left_out = &possible.left_out;
        assert!(
            left_out.iter().all(|one| one.placement >= expected),
            "{left_out:?}"
        );
        let verified = gilk_engine::verify::verify(&image, possible.plan);
        verified.unwrap_or_else(|violations| panic!("{style:?}: {violations:?}"));
    }
}

/// Link-time optimisation leaves jumps to the function that follows, which is not fallen into: its own code says that the
/// flags are dead there.
#[test]
fn a_jump_to_the_function_after_it_is_no_fall_through() {
    let source = r#"
__asm__(".text; .globl g; .type g, @function; g: .cfi_startproc; lea 1(%rdi), %eax; lea 5(%rdi), %edx; jmp 50f;"
    ".cfi_endproc; .size g, . - g; 50: .cfi_startproc; xor %edx, %eax; add $3, %eax; ret; .cfi_endproc;"
    ".pushsection .data.rel, \"aw\"; .balign 8; .quad 50b; .popsection;");
"#;
    let image = compiled(source, &["-O2"]);
    let g = image.function_named("g").unwrap();
    let cfg = Cfg::of(&image, g.id);
    let jump = cfg.blocks.last().unwrap().instructions.last().unwrap();
    assert_eq!(jump.near_branch_target(), jump.next_ip());
    let mut session = Session::empty();
    session.placements.push(counter("g", 0, HookType::Post));
    let possible = possible(&image, &session);
    assert!(possible.left_out.is_empty(), "{:?}", possible.left_out);
    let verified = gilk_engine::verify::verify(&image, possible.plan);
    verified.unwrap_or_else(|violations| panic!("{violations:?}"));
}

/// Stubs that jump to functions of other objects are one indirect jump each, in the forms that linkers write; a patch
/// that jumps by another word is refused.
#[test]
fn stubs_are_counted_and_jump_by_their_own_word() {
    for options in [
        &["-O2"][..],
        &["-O2", "-Wl,-z,now"],
        &["-O2", "-fcf-protection=full", "-Wl,-z,ibtplt"],
    ] {
        let image = compiled(SWITCH, options);
        let mut session = Session::empty();
        let stubs = image.functions().iter();
        for stub in stubs.filter(|function| function.name.ends_with(".plt")) {
            for block in 0..Cfg::of(&image, stub.id).blocks.len() {
                session
                    .placements
                    .push(counter(&stub.name, block as u32, HookType::Pre));
            }
        }
        assert!(session.placements.len() >= 8, "{options:?}");
        let possible = possible(&image, &session);
        assert!(possible.left_out.is_empty(), "{:?}", possible.left_out);
        let mut mutants = 0;
        for patch in 0..possible.plan.patches.len() {
            let mut plan = possible.plan.clone();
            let code = &mut plan.patches[patch].code;
            // jmp qword ptr [rip + displacement]
            let jump = code.windows(2).rposition(|bytes| bytes == [0xff, 0x25]);
            let Some(jump) = jump else { continue };
            code[jump + 2] ^= 8;
            mutants += 1;
            assert!(gilk_engine::verify::verify(&image, plan).is_err());
        }
        assert!(mutants >= 8, "{options:?}: {mutants} stubs jump");
        let verified = gilk_engine::verify::verify(&image, possible.plan);
        verified.unwrap_or_else(|violations| panic!("{options:?}: {violations:?}"));
    }
}

#[test]
fn planning_for_a_program_by_the_layout_of_a_kernel_is_refused_by_name() {
    let image = compiled("int f(int x) { return x * x + 1; }", &["-O2"]);
    let mut session = Session::empty();
    session.placements.push(counter("f", 0, HookType::Pre));
    let layout = RuntimeLayout::supposed(Addr(0x10_0000));
    let refused = gilk_engine::plan::plan(&image, &session, &Library::builtin().unwrap(), &layout);
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("no-runtime"), "{error}");
}

/// A byte that differs from the file is another tool's.
#[test]
fn a_probe_in_a_process_refuses_its_function() {
    use gilk_engine::elf::ElfParts;
    let folder = tempfile::tempdir().unwrap();
    let path = library(&folder, Command::new("cc"), SWITCH, &["-O2"]);
    let file = std::fs::read(&path).unwrap();
    let slide = 0x7f00_0000_0000;
    let of_file = image(&path);
    let chosen = of_file.function_named("chosen").unwrap().span;
    for probed in [false, true] {
        let mut live: Vec<(Addr, Vec<u8>)> = Vec::new();
        let texts = of_file
            .functions()
            .iter()
            .filter_map(|function| of_file.text_at(function.span.start));
        for text in texts {
            let mut bytes = of_file.bytes(text.span).unwrap().to_vec();
            if probed && text.span.contains(chosen.start) {
                let offset = (chosen.start.0 - text.span.start.0) as usize;
                bytes[offset] = 0xcc;
            }
            live.push((text.span.start.add(slide), bytes));
        }
        live.sort();
        live.dedup();
        let parts = ElfParts {
            slide,
            live,
            ..ElfParts::of_file("process", &file)
        };
        let image = Image::from_elf(&parts).unwrap();
        assert!(image.is_live());
        let cfg = graph(&image, "chosen");
        assert_eq!(cfg.span.start, chosen.start.add(slide));
        let rule = cfg.refusal.map(|refusal| refusal.rule);
        assert_eq!(rule, probed.then_some(Rule::Probed));
        assert_eq!(graph(&image, "letter").refusal, None);
    }
}

const SYSTEM_CALLS: &str = "
static long call(long number, long option)
{
    long done;
    __asm__ volatile(\"syscall\" : \"=a\"(done) : \"0\"(number), \"D\"(option) : \"rcx\", \"r11\", \"memory\");
    return done;
}
long named(void) { return call(157, 15); }
long limited(void) { return call(157, 22); }
long filtered(void) { return call(317, 1); }
long control(long option) { return call(157, option); }
long extended(int option) { return call(157, option); }
long any(long number, long option) { return call(number, option); }
long other(long option) { return call(39, option); }
long loaded(const long *number) { return call(*number, 0); }
long stacked(long a, long b, long c, long d, long e, long f, long number) { return call(number, a); }
long stored(long *number, long *other) { *other = 39; return call(*number, 0); }
long moved(long *number) { __asm__(\"add $8, %0\" : \"+r\"(number)); return call(*number, 0); }
long indexed(long *number, long index) { return call(number[index], 0); }
#define SETS(name, number) __asm__(\".globl \" #name \"; .type \" #name \", @function; \" #name \": .cfi_startproc;\" \\
    \"xor %edi, %edi; \" number \"; syscall; ret; .cfi_endproc; .size \" #name \", . - \" #name)
SETS(byte, \"xor %eax, %eax; mov $56, %al\");
SETS(byte_of_another, \"mov %edi, %esi; xor %eax, %eax; syscall; mov %esi, %eax; mov $61, %al\");
SETS(filtering_byte, \"mov $0x100, %eax; mov $61, %al\");
SETS(second_byte, \"mov $61, %eax; mov $1, %ah\");
SETS(unknown_byte, \"mov %dl, %al; mov $56, %al\");
#define TESTS(name, load, number) __asm__(\".globl \" #name \"; .type \" #name \", @function; \" #name \": .cfi_startproc;\" \\
    load \"; test %eax, %eax; jne 1f; \" number \"; mov %rdx, %rdi; syscall; 1: ret; .cfi_endproc; .size \" #name \", . - \" #name)
TESTS(cancellable, \"mov (%rdi), %eax\", \"mov %rsi, %rax\");
TESTS(of_another_word, \"mov 4(%rdi), %eax\", \"mov %rsi, %rax\");
TESTS(of_another_argument, \"mov (%rdi), %eax\", \"mov %rcx, %rax\");
";

/// The registers at the start of a block decide whether its system call may install a filter.
#[test]
fn system_calls_that_may_install_a_filter_are_found_with_their_conditions() {
    let image = compiled(SYSTEM_CALLS, &["-O2"]);
    let found = filter_calls(&image).unwrap();
    let test = |name: &str| {
        let id = image.function_named(name).unwrap().id;
        let mut calls = found.iter().filter(|call| call.function == id);
        let call = calls.next();
        assert!(calls.next().is_none(), "{name}");
        call.map(|call| call.test.clone())
    };
    let condition = |name: &str| match test(name) {
        Some(FilterTest::NumberAt(address)) => panic!("{name}: {address}"),
        Some(FilterTest::Condition(condition)) => Some(condition),
        None => None,
    };
    let address = |name: &str| match test(name) {
        Some(FilterTest::NumberAt(address)) => address,
        other => panic!("{name}: {other:?}"),
    };
    for name in ["named", "other", "byte", "byte_of_another"] {
        assert_eq!(condition(name), None, "{name}");
    }
    for name in ["filtering_byte", "second_byte", "unknown_byte"] {
        assert_eq!(condition(name).as_deref(), Some("1 == 1"), "{name}");
    }
    for (name, is_cancellable) in [
        ("cancellable", true),
        ("of_another_word", false),
        ("of_another_argument", false),
        ("any", false),
    ] {
        let id = image.function_named(name).unwrap().id;
        let call = found.iter().find(|call| call.function == id).unwrap();
        assert_eq!(call.is_cancellable, is_cancellable, "{name}");
    }
    assert_eq!(condition("limited").as_deref(), Some("(1 == 1 && 1 == 1)"));
    assert_eq!(condition("filtered").as_deref(), Some("1 == 1"));
    let control = "(1 == 1 && reg(\"edi\") == 22)";
    for name in ["control", "extended"] {
        assert_eq!(condition(name).as_deref(), Some(control), "{name}");
    }
    let any = "reg(\"edi\") == 317 || (reg(\"edi\") == 157 && reg(\"esi\") == 22)";
    assert_eq!(condition("any").as_deref(), Some(any));
    assert_eq!(address("loaded"), "reg(\"rdi\") + 0");
    assert_eq!(address("stacked"), "reg(\"rsp\") + 8");
    // Another value may be there when the block loads it, or the address is another one.
    for name in ["stored", "moved", "indexed"] {
        assert_eq!(condition(name).as_deref(), Some("1 == 1"), "{name}");
    }
}

#[test]
fn system_calls_of_32_bits_are_refused() {
    let source = "long old(void) { long done; __asm__ volatile(\"int $0x80\" : \"=a\"(done) : \"0\"(20L)); return done; }";
    let error = filter_calls(&compiled(source, &["-O2"]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("unguarded") && error.contains("32 bits"),
        "{error}"
    );
}
