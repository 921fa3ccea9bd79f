//! Memory of a process that stands for a kernel: text, patches, and the words of a CPU.

use std::fs;
use std::path::Path;

use gilk_engine::cfg::Cfg;
use gilk_engine::layout::{
    CounterBank, InputLocation, Owner, RingOwner, Rings, RuntimeLayout, SegmentOffset,
};
use gilk_engine::liveness::Live;
use gilk_engine::patch::{Assembler, HookProgram, Hooked};
use gilk_engine::placement::{Point, Site, Splice};
use gilk_engine::plan::{Plan, PokeKind};
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Image, Session, Span};
use gilk_instruments::program::{Half, Input};
use gilk_instruments::{Definition, Library};
use iced_x86::code_asm::{
    AsmRegister64, CodeAssembler, eax, qword_ptr, r12, r13, r14, r15, r15d, rax, rbp, rbx, rcx,
    rdi, rdx, rsi, rsp,
};
use iced_x86::{Code as Op, Decoder, DecoderOptions, FlowControl, IcedError};

use super::host::{Mapping, set_gs};
use super::rivals::object_of_c;
use super::small::{Tables, bounds, parts};
use super::trees::{LEAF, Tree};
use super::unwinder::{Stacks, Unwinder};

/// Distance from an address of this process to the same in the plan.
pub(crate) const SHIFT: u64 = 0xffff_ffff_8000_0000;
/// First function, in the plan.
pub(crate) const TEXT: u64 = 0xffff_ffff_8100_0000;
/// Bytes of the text of a kernel.
pub(crate) const TEXT_BYTES: usize = 16 << 20;
/// Bytes of it that trees are in, except those in the place of a function of a kernel.
const TREE_BYTES: usize = 4 << 20;
/// First patch, in the plan. Text, patches and the loops that call them differ in the low 24 bits of their addresses:
/// branches that agree in those take each other's places in some predictors, and mispredict.
const ARENA: u64 = 0xffff_ffff_a040_0000;
const ARENA_BYTES: usize = 4 << 20;
pub(crate) const RINGS: u64 = 0x3000_0000;
const RING_BYTES: usize = 2 << 20;
pub(crate) const SLOTS_LOG2: u32 = 16;
/// Increment of a head from one sample to the next.
pub(crate) const RING_STEP: u64 = 1 << (32 - SLOTS_LOG2);
/// Samples that the ring holds.
pub(crate) const RING_SLOTS: u64 = 1 << SLOTS_LOG2;
const TIMERS: u64 = 0x3100_0000;
const TIMERS_LOG2: u32 = 12;
/// Base of gs.
pub(crate) const WORDS: u64 = 0x3200_0000;
pub(crate) const HEAD: u64 = 0x100;
pub(crate) const LIMIT: u64 = 0x108;
pub(crate) const LOST_FULL: u64 = 0x110;
const CURRENT: u64 = 0x120;
/// Calls, as counted by code before a function's entry.
pub(crate) const CALLS: u64 = 0x130;
pub(crate) const COUNTERS: u64 = 0x1000;
/// As `ilk.ko` has near the base.
const NEAR_COUNTERS: u32 = 512;
const FAR_COUNTERS: u32 = 1 << 14;
/// Loops that call the trees.
const DRIVER: u64 = 0x10c0_0000;
/// The loop that calls roots on other stacks, the end of a pass of it, and its table: three words for each stack.
const ON_STACKS: u64 = DRIVER + 0x100;
const BACK: u64 = DRIVER + 0x200;
const STACKS: u64 = DRIVER + 0x400;
/// The running thread, as the words have it: an address of a kernel.
const TASK: u64 = 0xffff_8881_0204_5640;
/// A thread whose words can be read.
const READ_TASK: u64 = 0x3300_0000;
/// The process of that thread, and its name.
pub(crate) const PROCESS: u32 = 4711;
pub(crate) const NAME: [u8; 16] = *b"a-name-of-it\0\0\0\0";

/// The memory.
pub(crate) struct Target {
    text: Mapping,
    arena: Mapping,
    words: Mapping,
    far: Mapping,
    timers: Mapping,
    driver: Mapping,
    /// The words of [`READ_TASK`].
    _task: Mapping,
    /// The code that reads stacks, if there is any.
    pub(crate) unwinder: Option<Unwinder>,
    library: Library,
    /// Written by patches alone.
    _rings: Mapping,
}

/// The effect of a number of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Ticks of the time stamp counter.
    pub(crate) ticks: u64,
    /// The sum of the calls' results.
    pub(crate) result: u64,
}

/// Numbers that instruments left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Sum of all counters.
    pub(crate) counts: u64,
    /// Samples in the ring.
    pub(crate) samples: u64,
    /// Samples lost.
    pub(crate) lost: u64,
}

/// Bytes of the text, without an instrument and with it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(pub(crate) Vec<Change>);

/// A change of the text at an address of this process.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: u64,
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

impl Target {
    /// Maps the memory, for this thread.
    pub(crate) fn new() -> Self {
        let mut target = Self {
            text: Mapping::fixed(TEXT - SHIFT, TEXT_BYTES),
            arena: Mapping::fixed(ARENA - SHIFT, ARENA_BYTES),
            words: Mapping::fixed(WORDS, 0x1_0000),
            far: Mapping::anywhere(8 * FAR_COUNTERS as usize),
            timers: Mapping::fixed(TIMERS, 16 << TIMERS_LOG2),
            driver: Mapping::fixed(DRIVER, 0x1000),
            _task: task(),
            unwinder: None,
            library: library(),
            _rings: Mapping::fixed(RINGS, RING_BYTES),
        };
        target.use_thread(false);
        set_gs(WORDS);
        target
    }

    /// Chooses the running thread: one whose words are read, or one that is known by its address alone.
    pub(crate) fn use_thread(&mut self, is_read: bool) {
        let task = if is_read { READ_TASK } else { TASK };
        self.words.write(CURRENT, &task.to_le_bytes());
    }

    /// The layout that plans are made for.
    pub(crate) fn layout(&self) -> RuntimeLayout {
        let counters = vec![
            CounterBank {
                base: SegmentOffset(COUNTERS),
                slots: NEAR_COUNTERS,
            },
            CounterBank {
                base: SegmentOffset(self.far.start().wrapping_sub(WORDS)),
                slots: FAR_COUNTERS,
            },
        ];
        RuntimeLayout {
            arena: Span::new(Addr(ARENA), ARENA_BYTES as u64),
            rings: Rings {
                per: RingOwner::Cpu,
                base: Addr(RINGS),
                stride_log2: SLOTS_LOG2 + 5,
                slots_log2: SLOTS_LOG2,
                head: SegmentOffset(HEAD),
                limit: SegmentOffset(LIMIT),
                lost_full: SegmentOffset(LOST_FULL),
            },
            owner: Owner::kernel(SegmentOffset(CURRENT)),
            shared: RuntimeLayout::supposed_shared(counters.len()),
            counters,
            timers: Addr(TIMERS),
            timers_log2: TIMERS_LOG2,
            stacks: (self.unwinder.as_ref()).map(|unwinder| Addr(unwinder.entry + SHIFT)),
            ..RuntimeLayout::supposed(Addr(ARENA))
        }
    }

    /// Writes a tree, and the loop that calls its root.
    pub(crate) fn load(&mut self, tree: &Tree) {
        let (start, end) = bounds(&tree.functions);
        assert!(end - start <= TREE_BYTES as u64);
        self.text.bytes()[..TREE_BYTES].fill(0xcc);
        for code in &tree.functions {
            self.text.write(code.at - TEXT, &code.bytes);
        }
        let mut a = CodeAssembler::new(64).unwrap();
        let kept = [rbx, rbp, r12, r13, r14, r15];
        for register in kept {
            a.push(register).unwrap();
        }
        a.mov(r12, rdi).unwrap();
        a.mov(r13, rsi).unwrap();
        if let Some(stacks) = &tree.stacks {
            a.mov(r14, rsp).unwrap();
            a.xor(r15d, r15d).unwrap();
            a.jmp(ON_STACKS).unwrap();
            self.driver.write(0, &a.assemble(DRIVER).unwrap());
            return self.load_on(stacks, &kept).unwrap();
        }
        let mut again = a.create_label();
        a.set_label(&mut again).unwrap();
        a.mov(rdi, r13).unwrap();
        a.mov(rsi, r12).unwrap();
        a.mov(rdx, r12).unwrap();
        a.call(tree.root - SHIFT).unwrap();
        a.add(r13, rax).unwrap();
        a.dec(r12).unwrap();
        a.jne(again).unwrap();
        a.mov(rax, r13).unwrap();
        for register in kept.into_iter().rev() {
            a.pop(register).unwrap();
        }
        a.ret().unwrap();
        self.driver.write(0, &a.assemble(DRIVER).unwrap());
    }

    /// Writes the loop that calls the root on stacks in turns, and the calls.
    fn load_on(&mut self, stacks: &Stacks, kept: &[AsmRegister64]) -> Result<(), IcedError> {
        let table_bytes = 24 * stacks.stacks.len() as u64;
        assert!(STACKS + table_bytes <= DRIVER + self.driver.bytes().len() as u64);
        let mut a = CodeAssembler::new(64)?;
        a.mov(rdi, r13)?;
        a.mov(rsi, r12)?;
        a.mov(rdx, r12)?;
        let table = i32::try_from(STACKS).unwrap();
        a.mov(rsp, qword_ptr(r15 + table))?;
        a.mov(rbp, qword_ptr(r15 + table + 8))?;
        a.mov(rcx, qword_ptr(r15 + table + 16))?;
        a.xor(eax, eax)?;
        a.add(r15, 24)?;
        a.cmp(r15, i32::try_from(table_bytes).unwrap())?;
        a.cmove(r15, rax)?;
        a.jmp(rcx)?;
        self.driver
            .write(ON_STACKS - DRIVER, &a.assemble(ON_STACKS)?);
        let mut a = CodeAssembler::new(64)?;
        a.mov(rsp, r14)?;
        a.add(r13, rax)?;
        a.dec(r12)?;
        a.jne(ON_STACKS)?;
        a.mov(rax, r13)?;
        for &register in kept.iter().rev() {
            a.pop(register)?;
        }
        a.ret()?;
        self.driver.write(BACK - DRIVER, &a.assemble(BACK)?);
        for (stack, at) in stacks.stacks.iter().zip((STACKS - DRIVER..).step_by(24)) {
            for (word, at) in [stack.rsp, stack.rbp, stack.call]
                .iter()
                .zip((at..).step_by(8))
            {
                self.driver.write(at, &word.to_le_bytes());
            }
            let mut a = CodeAssembler::new(64)?;
            a.call(stacks.function - SHIFT)?;
            a.jmp(BACK)?;
            self.text
                .write(stack.call + SHIFT - TEXT, &a.assemble(stack.call)?);
        }
        Ok(())
    }

    /// Writes code that is called by changed text; returns its address in this process.
    pub(crate) fn stub(
        &mut self,
        write: &dyn Fn(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> u64 {
        let mut a = CodeAssembler::new(64).unwrap();
        write(&mut a).unwrap();
        let at = ARENA - SHIFT;
        self.arena.write(0, &a.assemble(at).unwrap());
        at
    }

    /// Writes the text with an instrument or without.
    pub(crate) fn set(&mut self, changes: &Changes, on: bool) {
        for change in &changes.0 {
            let bytes = if on { &change.after } else { &change.before };
            self.text.write(change.at + SHIFT - TEXT, bytes);
        }
    }

    /// Calls the root so often, each call with the sum of the results before it: what comes next depends on what
    /// came before, as it does in most code.
    pub(crate) fn run(&mut self, calls: u64, seed: u64) -> Run {
        let head = self.words.word(HEAD);
        let limit = head.wrapping_add(RING_SLOTS * RING_STEP);
        self.words.write(LIMIT, &limit.to_le_bytes());
        #[allow(unsafe_code, reason = "runs the code under test")]
        // SAFETY: the loop follows the C calling convention, and calls functions of the tree and patches, which
        // return. Both are in memory that `self` owns, and write there alone and to the stack.
        unsafe {
            let enter: extern "C" fn(u64, u64) -> u64 = std::mem::transmute(DRIVER as *const ());
            let before = ticks();
            let result = enter(calls, seed);
            Run {
                ticks: ticks() - before,
                result,
            }
        }
    }

    /// Returns what instruments have left since the last time; a count of a counter stands for so many hits as its weight
    /// says, or for one.
    pub(crate) fn taken(&mut self, weights: &[u64]) -> Taken {
        let near = COUNTERS as usize..COUNTERS as usize + 8 * NEAR_COUNTERS as usize;
        let sum = |words: &mut [u8]| {
            let (chunks, _) = words.as_chunks::<8>();
            let weights = weights.iter().copied().chain(std::iter::repeat(1));
            let sum = chunks
                .iter()
                .zip(weights)
                .fold(0, |sum: u64, (word, weight)| {
                    sum.wrapping_add(weight.wrapping_mul(u64::from_le_bytes(*word)))
                });
            words.fill(0);
            sum
        };
        let counts = sum(&mut self.words.bytes()[near]) + sum(self.far.bytes());
        let taken = Taken {
            counts,
            samples: self.words.word(HEAD) >> (32 - SLOTS_LOG2),
            lost: self.words.word(LOST_FULL),
        };
        self.words.write(HEAD, &[0; 8]);
        self.words.write(LOST_FULL, &[0; 8]);
        self.timers.bytes().fill(0);
        taken
    }

    /// Returns the calls that were counted since the last time.
    pub(crate) fn calls(&mut self) -> u64 {
        let calls = self.words.word(CALLS);
        self.words.write(CALLS, &[0; 8]);
        calls
    }

    /// Plans a session, verifies the plan, and writes its patches.
    pub(crate) fn plan(&mut self, tree: &Tree, session: &Session) -> (Plan, Changes) {
        self.plan_at(tree, session, 0)
    }

    /// The same, with the first patch so many bytes after the arena's start.
    pub(crate) fn plan_at(
        &mut self,
        tree: &Tree,
        session: &Session,
        offset: u64,
    ) -> (Plan, Changes) {
        let image = image_of(tree);
        let mut layout = self.layout();
        layout.arena.start = layout.arena.start.add(offset);
        let plan = gilk_engine::plan::plan(&image, session, &self.library, &layout).unwrap();
        if let Err(violations) = verify(&image, plan.clone()) {
            panic!("the plan is not verified: {violations:#?}");
        }
        for native in &plan.natives {
            self.arena.write(native.address.0 - ARENA, &native.bytes);
        }
        for patch in &plan.patches {
            let code = rebased(&patch.code, patch.address);
            self.arena.write(patch.address.0 - ARENA, &code);
        }
        let mut changes = Vec::new();
        let mut change = |at: Addr, after: &[u8]| {
            let before = image.bytes_from(at, after.len()).unwrap();
            changes.push(Change {
                at: at.0 - SHIFT,
                before: before.to_vec(),
                after: after.to_vec(),
            });
        };
        for site in &plan.sites {
            for at in site.filled_bytes() {
                change(at, &[0xcc]);
            }
        }
        for poke in &plan.batches[0].pokes {
            assert_eq!(poke.kind, PokeKind::Install);
            change(poke.at, &poke.write);
        }
        (plan, Changes(changes))
    }

    /// Writes the patch of a jump over the first two instructions of block 1, of which the second is a call, with the session's instrument at its start.
    pub(crate) fn displace(&mut self, tree: &Tree, session: &Session) -> (Vec<u8>, Changes) {
        let (plan, _) = self.plan(tree, session);
        let image = image_of(tree);
        let layout = self.layout();
        let [instrument] = plan.instruments.as_slice() else {
            panic!("one instrument");
        };
        let cfg = Cfg::of(&image, image.function_named(LEAF).unwrap().id);
        let call = cfg.blocks[1].instructions.iter().nth(1).unwrap();
        assert_eq!(call.flow_control(), FlowControl::Call);
        let start = cfg.blocks[1].span.start;
        let displaced = Span::new(start, call.next_ip() - start.0);
        let hooked = [Hooked {
            id: instrument.id,
            program: HookProgram::Probe(instrument.probe.as_ref().unwrap()),
            counter: instrument.counter,
        }];
        let site = Site {
            splice: Splice::Jump,
            displaced,
            overwritten: 2,
            filled: 0,
            continuations: Box::default(),
        };
        let live = |_| Live {
            flags: false,
            ..Live::ALL
        };
        let code = Assembler::new(&image, &layout)
            .assemble(Addr(ARENA), &site, &[(Point::Entry, &hooked)], &live)
            .unwrap();
        self.arena.write(0, &rebased(&code.bytes, Addr(ARENA)));
        let distance = ARENA.wrapping_sub(displaced.start.0 + 5).cast_signed();
        let distance = i32::try_from(distance).unwrap().to_le_bytes();
        let change = Change {
            at: displaced.start.0 - SHIFT,
            before: image.bytes(displaced).unwrap()[..5].to_vec(),
            after: [&[0xe9][..], &distance].concat(),
        };
        (code.bytes, Changes(vec![change]))
    }
}

/// Maps [`READ_TASK`], with the words that the layout says that a thread has.
fn task() -> Mapping {
    let mut task = Mapping::fixed(READ_TASK, 0x1000);
    let inputs = RuntimeLayout::supposed(Addr(ARENA)).inputs;
    for (input, bytes) in [
        (Input::Pid, &PROCESS.to_le_bytes()[..]),
        (Input::Comm(Half::First), &NAME[..8]),
        (Input::Comm(Half::Second), &NAME[8..]),
    ] {
        let Some(InputLocation::Owner(at)) = inputs.get(input) else {
            panic!("{input:?} is no word of a thread");
        };
        task.write(at.into(), bytes);
    }
    task
}

/// The library, with the instruments of the example of native ones.
fn library() -> Library {
    let mut library = Library::builtin().unwrap();
    let natives = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");
    let source = fs::read_to_string(Path::new(natives).join("example.c")).unwrap();
    let object = object_of_c(&source, &["-I", natives]);
    for definition in Definition::natives("example.o", &object).unwrap() {
        library.add(definition).unwrap();
    }
    library
}

fn image_of(tree: &Tree) -> Image {
    Image::from_live(&parts(&tree.functions, &Tables::default())).unwrap()
}

/// Returns a patch whose pushed return addresses are those of this process: the highest bit of 32 is clear.
fn rebased(code: &[u8], at: Addr) -> Vec<u8> {
    let mut rebased = code.to_vec();
    let mut decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let start = decoder.position();
        let one = decoder.decode();
        if one.code() == Op::Pushq_imm32 {
            let at = start + decoder.get_constant_offsets(&one).immediate_offset();
            rebased[at + 3] &= 0x7f;
        }
    }
    rebased
}

/// The time stamp counter, read when all earlier instructions are complete and before any later one.
pub(crate) fn ticks() -> u64 {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    #[allow(unsafe_code, reason = "reads the clock")]
    // SAFETY: every x86-64 processor has both instructions.
    unsafe {
        _mm_lfence();
        let ticks = _rdtsc();
        _mm_lfence();
        ticks
    }
}
