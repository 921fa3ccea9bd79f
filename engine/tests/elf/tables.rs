//! Jump tables as compilers write them, and as they do not: proven, or their function is refused.

use std::process::Command;

use gilk_engine::cfg::text::listing;
use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_engine::{Addr, Image, Rule};

use crate::compiled::{SWITCH, compiled, entered, graph, library};

/// Every entry of the table begins a block that is entered, and there are as many as there are cases.
#[test]
fn jump_tables_are_proven_at_each_optimisation() {
    for options in [
        &["-O2"][..],
        &["-O1"],
        &["-O0"],
        &["-Os"],
        &["-O3", "-fcf-protection=full"],
        &["-O2", "-fcf-protection=none"],
    ] {
        let image = compiled(SWITCH, &[options, &["-fno-jump-tables"]].concat());
        assert!(
            entered(&graph(&image, "chosen")).is_empty(),
            "no table, no entry"
        );
        let image = compiled(SWITCH, options);
        for (name, cases) in [("chosen", 8), ("letter", 7), ("masked", 8)] {
            let cfg = graph(&image, name);
            assert_eq!(cfg.refusal, None, "{name} {options:?}");
            let jumps = cfg
                .blocks
                .iter()
                .filter(|block| block.end == BlockEnd::Indirect);
            if jumps.count() == 0 {
                // A compiler may find comparisons shorter.
                assert_ne!(options, ["-O2"], "{name}");
                continue;
            }
            let entered = entered(&cfg);
            assert!(
                (cases - 1..=cases + 1).contains(&entered.len()),
                "{name} {options:?}: {entered:x?}"
            );
            drawn(&image, &cfg, &entered);
        }
    }
}

/// The blocks of the only table are entered, and the graph's text names it at both ends.
fn drawn(image: &Image, cfg: &Cfg, entered: &[Addr]) {
    let starts: Vec<Addr> = (cfg.tables.iter().map(|edge| cfg[edge.to].span.start)).collect();
    let others = entered.iter().filter(|&at| !starts.contains(at)).count();
    assert_eq!(starts.len() + others, entered.len(), "{}", cfg.name);
    assert!(others < 2, "{starts:x?} of {entered:x?}");
    let listing = listing(image, cfg);
    let from = cfg.tables[0].from.0;
    let to: Vec<String> = (cfg.tables.iter().map(|edge| edge.to.0.to_string())).collect();
    let ends = format!("jumps indirectly by its table to {}", to.join(", "));
    assert_eq!(listing.matches(&ends).count(), 1, "{listing}");
    let begins = format!("; in the table of {from}\n");
    assert_eq!(listing.matches(&begins).count(), to.len(), "{listing}");
}

/// A table of distances from elsewhere, as the C library has them, is proven by the bound of its index or not at all.
#[test]
fn a_table_without_a_bound_refuses_its_function() {
    let table = |bound: &str| {
        format!(
            "int chosen(unsigned which); int chosen_(void);
__asm__(\".text; .globl chosen; .type chosen, @function; chosen: .cfi_startproc;\"
    \"{bound} mov %edi, %eax; lea 5f(%rip), %rcx; movslq (%rcx,%rax,4), %rax;\"
    \"lea 6f(%rip), %rcx; add %rcx, %rax; jmp *%rax;\"
    \"2: mov $1, %eax; ret; 3: mov $2, %eax; ret; 4: xor %eax, %eax; ret;\"
    \".cfi_endproc; .size chosen, . - chosen;\"
    \".section .rodata; 6: .balign 4; .long 0; 5: .long 2b - 6b, 3b - 6b, 4b - 6b; .long 0x7fffffff; .text\");
int beside(int value) {{ return value + 1; }}"
        )
    };
    for (bound, refused) in [
        ("cmp $2, %edi; ja 4f;", None),
        ("cmp $1, %edi; ja 4f;", None),
        ("and $1, %edi;", None),
        ("xor %edi, %edi;", None),
        // A value on each of two ways, which are bounded both, or not.
        (
            "cmp $2, %edi; ja 4f; test %esi, %esi; je 1f; mov %edx, %edi; cmp $2, %edi; ja 4f; 1:",
            None,
        ),
        (
            "cmp $2, %edi; ja 4f; test %esi, %esi; je 1f; mov %edx, %edi; 1:",
            Some(Rule::JumpUnknown),
        ),
        // The bits of a sum bound those of its part, unless they wrap.
        (
            "lea -7(%rdi), %esi; cmp $2, %sil; ja 4f; movzbl %dil, %edi; sub $7, %edi;",
            None,
        ),
        (
            "lea -7(%rdi), %esi; cmp $2, %sil; ja 4f; movzbl %dil, %edi; sub $8, %edi;",
            Some(Rule::JumpUnknown),
        ),
        (
            "lea 1(%rdi), %esi; cmp $2, %sil; ja 4f; movzbl %dil, %edi;",
            Some(Rule::JumpUnknown),
        ),
        // One more than there are.
        ("cmp $3, %edi; ja 4f;", Some(Rule::JumpUnknown)),
        // Not a bound: of another register, of fewer bits, of the other way, signed, and then changed.
        ("cmp $2, %esi; ja 4f;", Some(Rule::JumpUnknown)),
        ("cmp $2, %dil; ja 4f;", Some(Rule::JumpUnknown)),
        ("cmp $2, %edi; jb 4f;", Some(Rule::JumpUnknown)),
        ("cmp $2, %edi; jg 4f;", Some(Rule::JumpUnknown)),
        (
            "cmp $2, %edi; ja 4f; add $1, %edi;",
            Some(Rule::JumpUnknown),
        ),
        ("", Some(Rule::JumpUnknown)),
    ] {
        let image = compiled(&table(bound), &["-O2"]);
        let cfg = graph(&image, "chosen");
        assert_eq!(
            cfg.refusal.as_ref().map(|refusal| refusal.rule),
            refused,
            "{bound}"
        );
        assert_eq!(cfg.blocks.is_empty(), refused.is_some(), "{bound}");
        assert_eq!(graph(&image, "beside").refusal, None);
    }
}

/// Ways that only another table shows, values that come from before a loop, and sums that were on the stack.
#[test]
fn tables_are_proven_whatever_way_control_comes_to_them() {
    let tables = |code: &str| {
        format!(
            "int chosen(unsigned which, unsigned other);
__asm__(\".text; .globl chosen; .type chosen, @function; chosen: .cfi_startproc; push %r12;\"
    \"cmp $2, %edi; ja 4f; {code} 2: mov $1, %eax; 4: pop %r12; ret;\"
    \".cfi_endproc; .size chosen, . - chosen;\"
    \".section .rodata; .balign 4; 9: .long 0; 5: .long 2b - 9b, 4b - 9b, 2b - 9b; .long 0x7fffffff;\"
    \"6: .long 8b - 6b, 4b - 6b, 8b - 6b; .long 0x7fffffff; .text\");"
        )
    };
    let jump = "mov %edi, %eax; movslq (%r12,%rax,4), %rax; lea 9f(%rip), %rdx; add %rdx, %rax;";
    let to_other = "mov %edi, %eax; lea 6f(%rip), %rcx; movslq (%rcx,%rax,4), %rax; add %rcx, %rax; jmp *%rax;";
    let base = "lea 5f(%rip), %r12;";
    let unknown = Some(Rule::JumpUnknown);
    for (code, refused) in [
        // The table of the first jump has a way around the comparison of the second, or one to it.
        (
            format!(
                "{base} {to_other} 7: mov %esi, %edi; cmp $2, %edi; ja 4f; 8: {jump} jmp *%rax;"
            ),
            None,
        ),
        (
            format!(
                "{base} {to_other} 7: mov %esi, %edi; 8: cmp $2, %edi; ja 4f; {jump} jmp *%rax;"
            ),
            None,
        ),
        (
            format!(
                "{base} mov %edi, %edx; mov %esi, %edi; mov %edx, %eax; lea 6f(%rip), %rcx; \
                     movslq (%rcx,%rax,4), %rax; add %rcx, %rax; jmp *%rax; 7: cmp $2, %edi; ja 4f; \
                     8: {jump} jmp *%rax;"
            ),
            unknown,
        ),
        // The address comes from before a loop, which changes it or does not.
        (
            format!("{base} 8: add $1, %esi; js 8b; {jump} jmp *%rax;"),
            None,
        ),
        (
            format!("{base} 8: add $1, %esi; js 7f; {jump} jmp *%rax; 7: add $4, %r12; jmp 8b;"),
            unknown,
        ),
        (
            format!(
                "{base} 8: add $1, %esi; js 7f; {jump} jmp *%rax; 7: mov (%rsi), %r12; jmp 8b;"
            ),
            unknown,
        ),
        // A sum of an unknown entry is no pointer for having been on the stack.
        (
            format!("{base} 8: mov %esi, %edi; {jump} push %rax; pop %rdx; jmp *%rdx;"),
            unknown,
        ),
        (
            format!(
                "{base} 8: mov %esi, %edi; {jump} mov %rax, -16(%rsp); test %esi, %esi; je 7f; \
                     7: mov -16(%rsp), %rdx; jmp *%rdx;"
            ),
            unknown,
        ),
        (
            format!("{base} 8: mov (%rsi), %rdx; push %rdx; pop %rax; jmp *%rax;"),
            None,
        ),
    ] {
        let cfg = graph(&compiled(&tables(&code), &["-O2"]), "chosen");
        let rule = cfg.refusal.as_ref().map(|refusal| refusal.rule);
        assert_eq!(rule, refused, "{code}");
    }
}

/// Tables of distances from their own labels, whose index nothing bounds: a `switch` that cannot leave its cases has them.
#[test]
fn a_labelled_table_ends_where_no_entry_is_a_target() {
    let table = |jump: &str, further: &str| {
        format!(
            "int chosen(unsigned which); __attribute__((visibility(\"hidden\"))) int beside(int value) {{ return value + 1; }}
__asm__(\".text; .globl chosen; .type chosen, @function; chosen: .cfi_startproc;\"
    \"mov %edi, %eax; lea 5f(%rip), %rcx; lea 8f(%rip), %rsi; {jump}; add %rcx, %rax; jmp *%rax;\"
    \"2: mov $1, %eax; ret; 3: mov $2, %eax; ret; 4: xor %eax, %eax; ret; 7:\"
    \".cfi_endproc; .size chosen, . - chosen; nop; nop;\"
    \".section .rodata; .balign 4; 5: .long 2b - 5b, 7b - 5b, 4b - 5b; {further}; .text\");"
        )
    };
    let load = "movslq (%rcx,%rax,4), %rax";
    let bounded = "and $1, %eax; movslq (%rcx,%rax,4), %rax";
    let end = ".long 0x7fffffff; 8:";
    let unknown = Some(Rule::JumpUnknown);
    for (jump, further, targets, refused) in [
        (load, end, 2, None),
        (load, ".long 2b - 5b, 3b - 5b, 0, 4b - 5b; 8:", 3, None),
        // An entry that may be a target of other code: it may be the table's, unless another begins there.
        (load, ".long beside - 5b; 8:", 0, unknown),
        (load, "8: .long beside - 5b", 2, None),
        (load, ".long 2b + 1 - 5b; 8:", 0, unknown),
        (load, "8: .long 2b + 1 - 5b", 2, None),
        // Bounds still count.
        (bounded, ".long beside - 5b; 8:", 1, None),
        // Its first entry is not at its label, or an entry has another size.
        ("movslq 4(%rcx,%rax,4), %rax", end, 0, unknown),
        ("movslq (%rcx,%rax,2), %rax", end, 0, unknown),
        ("mov (%rcx,%rax,4), %eax", end, 0, unknown),
        ("mov (%rcx,%rax,4), %rax", end, 0, unknown),
    ] {
        let cfg = graph(&compiled(&table(jump, further), &["-O2"]), "chosen");
        let rule = cfg.refusal.as_ref().map(|refusal| refusal.rule);
        assert_eq!(rule, refused, "{jump}, {further}");
        assert_eq!(entered(&cfg).len(), targets, "{jump}, {further}");
    }
}

/// Tables after a call are proven by the instructions of the called function, not only by its convention.
#[test]
fn calls_change_what_their_functions_change() {
    let image = |helper: &str, between: &str| {
        let source = format!(
            "extern \"C\" void chosen(void);
extern \"C\" __attribute__((visibility(\"hidden\"))) int caught(void) {{
    try {{ throw 1; }} catch (int) {{ return 3; }}
}}
__asm__(\".text; .type helper, @function; helper: {helper}; .size helper, . - helper;\"
    \".type other, @function; other: call helper; ret; .size other, . - other;\"
    \".globl chosen; .type chosen, @function; chosen: .cfi_startproc;\"
    \"cmp $2, %edi; ja 4f; lea 5f(%rip), %r10; mov %edi, %eax; {between};\"
    \"movslq (%r10,%rax,4), %rax; lea 6f(%rip), %rcx;\"
    \"add %rcx, %rax; jmp *%rax; 2: mov $1, %eax; ret; 3: mov $2, %eax; ret; 4: xor %eax, %eax; ret;\"
    \".cfi_endproc; .size chosen, . - chosen;\"
    \".section .rodata; 6: .balign 4; .long 0; 5: .long 2b - 6b, 3b - 6b, 4b - 6b; .long 0x7fffffff; .text\");"
        );
        let folder = tempfile::tempdir().unwrap();
        let path = library(&folder, Command::new("c++"), &source, &["-O2", "-x", "c++"]);
        crate::image(&path)
    };
    // The table's address is in a register that a called function may change, and the index on the stack.
    let over = "push %rdi; call helper; pop %rdi; mov %edi, %eax";
    let over_other = "push %rdi; call other; pop %rdi; mov %edi, %eax";
    // The index is another on the way after the call.
    let or = "test %esi, %esi; je 1f; call helper; mov %esi, %eax; 1:";
    let or_other = "test %esi, %esi; je 1f; call other; mov %esi, %eax; 1:";
    let or_caught = "test %esi, %esi; je 1f; call caught; mov %esi, %eax; 1:";
    // A system call changes rax, rcx and r11.
    let system_call = "syscall; mov %edi, %eax";
    let lost_in_rcx = "mov %r10, %rcx; syscall; mov %rcx, %r10; mov %edi, %eax";
    let lost_in_r11 = "mov %r10, %r11; syscall; mov %r11, %r10; mov %edi, %eax";
    let unknown = Some(Rule::JumpUnknown);
    for (helper, between, refused) in [
        ("ret", system_call, None),
        ("ret", "syscall", unknown),
        ("ret", lost_in_rcx, unknown),
        ("ret", lost_in_r11, unknown),
        ("syscall; ret", over, None),
        ("syscall; mov %r11, %r10; ret", over, unknown),
        ("lea 1(%rdi), %eax; ret", over, None),
        ("lea 1(%rdi), %eax; ret", over_other, None),
        ("xor %r10d, %r10d; ret", over, unknown),
        ("xor %r10d, %r10d; ret", over_other, unknown),
        ("call puts@PLT; ret", over, unknown),
        ("call *%rsi; ret", over, unknown),
        ("jmp *%rsi", over, unknown),
        ("push %rsi; ret", over, unknown),
        ("mov %rsi, (%rsp); ret", over, unknown),
        (
            "test %edi, %edi; je 1f; dec %edi; call helper; 1: ret",
            over,
            None,
        ),
        ("jmp other", or, None),
        ("call abort@PLT", or, None),
        ("call abort@PLT", or_other, None),
        ("jmp abort@PLT", or, None),
        ("1: call other; jmp 1b", or, None),
        ("ud2", or, None),
        (
            "test %edi, %edi; je 1f; call abort@PLT; 1: ret",
            or,
            unknown,
        ),
        (
            "test %edi, %edi; je 1f; call abort@PLT; 1: ret",
            or_other,
            unknown,
        ),
        ("ret", or, unknown),
        ("ud2", or_caught, unknown),
    ] {
        let cfg = graph(&image(helper, between), "chosen");
        let rule = cfg.refusal.as_ref().map(|refusal| refusal.rule);
        assert_eq!(rule, refused, "{helper} in {between}");
    }
}
