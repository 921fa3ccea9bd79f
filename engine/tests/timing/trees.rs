//! Call trees like a kernel's, with a model of each: the result of a call, and how often the hooked blocks execute.

use std::rc::Rc;

use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, bl, cl, eax, ebp, ebx, ecx, edi, ptr, qword_ptr, r8, r9, r10, r11, rax, rbp,
    rbx, rcx, rdi, rdx, rsi,
};

use super::numbers::Random;
use super::random;
use super::small::Code;
use super::target::{CALLS, TEXT};
use super::unwinder::Stacks;

/// The five bytes at the start of every compiled function.
pub(crate) const FTRACE_NOP: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// Bytes before an entry that count calls.
const CALL_COUNT_BYTES: u64 = 16;
/// Bytes of `inc qword ptr gs:[CALLS]`.
const COUNT_BYTES: u64 = 9;

/// The name of the function with the hooks.
pub(crate) const LEAF: &str = "leaf";

/// The result of a call of a function with these arguments, and executions of its hooked blocks.
pub(crate) type Model = fn(u64, u64) -> (u64, u64);

/// A function that ends the chains of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// A few instructions; few registers are live, and no flags.
    Plain,
    /// Flags are live at the start of block 1.
    FlagsLive,
    /// Nine registers are live at the start of block 1.
    RegistersLive,
    /// Block 1 is a loop of sixteen passes.
    Loop,
    /// A branch that no predictor knows, to blocks 1 and 2.
    Branch,
    /// Block 1 is a call.
    CallFirst,
    /// Block 1 is an instruction of two bytes and a call.
    CallShort,
    /// Block 1 is an instruction of five bytes and a call.
    CallLong,
    /// Ten blocks: branches, a loop and a call.
    Blocks,
    /// A loop of eight calls.
    CallLoop,
    /// A loop of eight calls of a function that calls another.
    DeepCallLoop,
}

/// Functions that call each other, the root last.
pub(crate) struct Tree {
    pub(crate) functions: Vec<Code>,
    /// The root, in the plan.
    pub(crate) root: u64,
    /// The first address that the next function may have, in the plan.
    end: u64,
    depth: u64,
    model: Model,
    /// True if calls of the helper are counted, one for each hit.
    pub(crate) counts_calls: bool,
    /// Stacks that the root is called on, in turns, instead of the process's.
    pub(crate) stacks: Option<Rc<Stacks>>,
}

impl Tree {
    /// A chain of so many calls, the last of which is of the leaf.
    pub(crate) fn chain(depth: u64, leaf: Leaf) -> Self {
        Self::ending(
            depth,
            leaf.model(),
            leaf == Leaf::DeepCallLoop,
            leaf.writer(),
        )
    }

    /// The same, whose leaf calls its helper at the code before its entry that counts calls, as kernels do that track the
    /// depth of calls (`retbleed=stuff`, arch/x86/kernel/callthunks.c).
    pub(crate) fn counting_calls(depth: u64, leaf: Leaf) -> Self {
        let mut tree = Self {
            counts_calls: true,
            ..Self::empty(depth, leaf.model())
        };
        tree.add_code("__pfx_helper", |a, _| {
            a.inc(qword_ptr(CALLS).gs())?;
            a.nops_with_size((CALL_COUNT_BYTES - COUNT_BYTES) as usize)
        });
        let helper = tree.add("helper", Leaf::Plain.writer());
        tree.end_with(helper - CALL_COUNT_BYTES, leaf.writer());
        tree
    }

    /// A leaf in the place of the function that stacks end in.
    pub(crate) fn on(stacks: Rc<Stacks>) -> Self {
        let mut tree = Self {
            end: stacks.function,
            stacks: Some(stacks),
            ..Self::empty(1, Leaf::Plain.model())
        };
        tree.add(LEAF, Leaf::Plain.writer());
        tree
    }

    /// A chain that ends with a random function, without a model.
    pub(crate) fn random(depth: u64, random: &mut Random) -> Self {
        Self::ending(
            depth,
            |_, _| (0, 0),
            false,
            |a, helper| random::write(random, a, helper),
        )
    }

    fn ending(
        depth: u64,
        model: Model,
        helper_calls: bool,
        write: impl FnOnce(&mut CodeAssembler, u64) -> Result<(), IcedError>,
    ) -> Self {
        let mut tree = Self::empty(depth, model);
        let mut helper = tree.add("helper", Leaf::Plain.writer());
        if helper_calls {
            helper = tree.add("calling_helper", caller);
        }
        tree.end_with(helper, write);
        tree
    }

    fn empty(depth: u64, model: Model) -> Self {
        Self {
            functions: Vec::new(),
            root: TEXT,
            end: TEXT,
            depth,
            model,
            counts_calls: false,
            stacks: None,
        }
    }

    /// Adds the leaf, which may call a helper, and its callers.
    fn end_with(
        &mut self,
        helper: u64,
        write: impl FnOnce(&mut CodeAssembler, u64) -> Result<(), IcedError>,
    ) {
        let leaf = self.add(LEAF, |a, _| write(a, helper));
        self.end = self.end.max(leaf + LEAF_ROOM);
        for number in 1..self.depth {
            self.add(&format!("caller_{number}"), caller);
        }
    }

    /// A root that calls many leaves, each once, in an order that no prefetcher knows.
    pub(crate) fn cold() -> Self {
        let mut tree = Self::empty(0, |_, _| (0, 0));
        let mut entries: Vec<u64> = (0..COLD_LEAVES)
            .map(|number| {
                let entry = tree.add(&format!("{LEAF}_{number}"), Leaf::Plain.writer());
                tree.end = entry + COLD_DISTANCE;
                entry
            })
            .collect();
        let mut state = 1_u64;
        for last in (1..entries.len()).rev() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            entries.swap(last, (state >> 33) as usize % (last + 1));
        }
        tree.add("root", |a, _| {
            for entry in &entries {
                a.call(*entry)?;
                a.mov(rdi, rax)?;
            }
            a.ret()
        });
        tree.model = |mut value, second| {
            for _ in 0..COLD_LEAVES {
                value = plain(value, second).0;
            }
            (value, COLD_LEAVES)
        };
        tree
    }

    /// The result of a call of the root, and executions of the hooked blocks.
    pub(crate) fn call(&self, first: u64, second: u64) -> (u64, u64) {
        let above = self.depth.saturating_sub(1);
        let (result, hits) = (self.model)(first.wrapping_add(above), second);
        let added = (0..above).fold(0_u64, |sum, below| {
            sum.wrapping_add(first.wrapping_add(below))
        });
        (result.wrapping_add(added), hits)
    }

    /// The result of so many calls by the driver, and hits.
    pub(crate) fn run(&self, calls: u64, seed: u64) -> (u64, u64) {
        (1..=calls).rev().fold((seed, 0), |(value, hits), number| {
            let (result, more) = self.call(value, number);
            (value.wrapping_add(result), hits + more)
        })
    }

    /// Adds a function, which may call the one before; returns its address. It becomes the root.
    fn add(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut CodeAssembler, u64) -> Result<(), IcedError>,
    ) -> u64 {
        self.add_code(name, |a, before| {
            a.db(&FTRACE_NOP)?;
            write(a, before)
        })
    }

    /// Adds code without the tracer's nop.
    fn add_code(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut CodeAssembler, u64) -> Result<(), IcedError>,
    ) -> u64 {
        let (before, at) = (self.root, self.end.next_multiple_of(16));
        let mut a = CodeAssembler::new(64).unwrap();
        write(&mut a, before).unwrap();
        let bytes = a.assemble(at).unwrap();
        self.root = at;
        self.end = at + bytes.len() as u64;
        self.functions.push(Code {
            name: name.to_owned(),
            at,
            bytes,
        });
        at
    }
}

/// Bytes for a leaf, so that compiled ones take its place.
pub(crate) const LEAF_ROOM: u64 = 256;

/// Bytes from one function of a cold tree to the next, about the size of a function of a kernel.
const COLD_DISTANCE: u64 = 512;

/// Leaves of a tree that is larger than the first cache of instructions.
pub(crate) const COLD_LEAVES: u64 = 1024;

/// A function that calls another with its arguments, the first of them one larger; it adds its own first to the
/// result.
fn caller(a: &mut CodeAssembler, callee: u64) -> Result<(), IcedError> {
    a.push(rbp)?;
    a.push(rbx)?;
    a.mov(rbx, rdi)?;
    a.lea(rbp, ptr(rsi + 1))?;
    a.inc(rdi)?;
    a.call(callee)?;
    a.add(rax, rbx)?;
    a.pop(rbx)?;
    a.pop(rbp)?;
    a.ret()
}

type Writer = fn(&mut CodeAssembler, u64) -> Result<(), IcedError>;

fn plain(first: u64, second: u64) -> (u64, u64) {
    (first.wrapping_add(second) ^ 0x5a5a, 1)
}

fn hash(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b1) >> 13
}

impl Leaf {
    /// Returns the results of its code, computed otherwise.
    fn model(self) -> Model {
        match self {
            Self::Plain => plain,
            Self::FlagsLive => |first, second| {
                let low = first as u32;
                let sum = second.wrapping_add(5).wrapping_add(first);
                match low.cmp(&100) {
                    std::cmp::Ordering::Less => (0, 0),
                    std::cmp::Ordering::Equal => (sum, 1),
                    std::cmp::Ordering::Greater => (sum ^ 0x77, 1),
                }
            },
            Self::RegistersLive => |first, second| {
                if first as u32 == 0 {
                    return (first, 0);
                }
                let parts = [1, 2, 3, 4].map(|number| second.wrapping_add(number));
                let sum = parts.into_iter().fold(first, u64::wrapping_add);
                (sum.wrapping_add(first).wrapping_add(second), 1)
            },
            Self::Loop => |first, _| {
                let step = |sum: u64, _| sum.wrapping_mul(3).wrapping_add(first);
                ((0..16).fold(0, step), 16)
            },
            Self::Branch => |first, second| {
                if hash(first) & 1 == 0 {
                    (
                        first.wrapping_add(second.wrapping_mul(2)).wrapping_add(77),
                        1,
                    )
                } else {
                    (first.wrapping_add(second) ^ 0x1234, 1)
                }
            },
            Self::CallFirst | Self::CallShort | Self::CallLong => |first, second| {
                if first as u32 == 0 {
                    (second, 0)
                } else {
                    (plain(first, second).0.wrapping_add(9), 1)
                }
            },
            Self::Blocks => blocks,
            Self::CallLoop => |first, second| {
                let step = |sum: u64, _| sum.wrapping_add(plain(first, second).0);
                // The first block, the loop's, and the last.
                ((0..8).fold(0, step), 10)
            },
            Self::DeepCallLoop => |first, second| {
                // The function in between increments its argument, and adds what it was.
                let step = |sum: u64, pass| {
                    let argument = first.wrapping_add(pass);
                    let called = plain(argument.wrapping_add(1), second).0;
                    sum.wrapping_add(called).wrapping_add(argument)
                };
                ((0..8).fold(0, step), 10)
            },
        }
    }

    /// Its code after the tracer's nop; the argument is the address of a function to call.
    fn writer(self) -> Writer {
        match self {
            Self::Plain => |a, _| {
                a.lea(rax, ptr(rdi + rsi))?;
                a.xor(rax, 0x5a5a)?;
                a.ret()
            },
            Self::FlagsLive => |a, _| {
                let (mut less, mut more) = (a.create_label(), a.create_label());
                a.xor(eax, eax)?;
                a.cmp(edi, 100)?;
                a.jb(less)?;
                a.lea(rax, ptr(rsi + 5))?;
                a.lea(rax, ptr(rax + rdi))?;
                a.ja(more)?;
                a.set_label(&mut less)?;
                a.ret()?;
                a.set_label(&mut more)?;
                a.xor(rax, 0x77)?;
                a.ret()
            },
            Self::RegistersLive => |a, _| {
                let mut zero = a.create_label();
                a.lea(rcx, ptr(rsi + 1))?;
                a.lea(rdx, ptr(rsi + 2))?;
                a.lea(r8, ptr(rsi + 3))?;
                a.lea(r9, ptr(rsi + 4))?;
                a.mov(r10, rdi)?;
                a.mov(r11, rsi)?;
                a.mov(rax, rdi)?;
                a.test(edi, edi)?;
                a.je(zero)?;
                a.lea(rax, ptr(rax + rcx))?;
                a.add(rax, rdx)?;
                a.add(rax, r8)?;
                a.add(rax, r9)?;
                a.add(rax, r10)?;
                a.add(rax, r11)?;
                a.set_label(&mut zero)?;
                a.ret()
            },
            Self::Loop => |a, _| {
                let mut again = a.create_label();
                a.xor(eax, eax)?;
                a.mov(ecx, 16)?;
                a.set_label(&mut again)?;
                a.lea(rax, ptr(rax + rax * 2))?;
                a.add(rax, rdi)?;
                a.dec(ecx)?;
                a.jne(again)?;
                a.ret()
            },
            Self::Branch => |a, _| {
                let mut even = a.create_label();
                a.mov(ecx, 0x9e37_79b1_u32)?;
                a.imul_2(rcx, rdi)?;
                a.shr(rcx, 13)?;
                a.test(cl, 1)?;
                a.je(even)?;
                a.lea(rax, ptr(rdi + rsi))?;
                a.xor(rax, 0x1234)?;
                a.ret()?;
                a.set_label(&mut even)?;
                a.lea(rax, ptr(rdi + rsi * 2))?;
                a.add(rax, 77)?;
                a.ret()
            },
            Self::CallFirst => |a, helper| calls(a, helper, |_| Ok(())),
            Self::CallShort => |a, helper| calls(a, helper, |a| a.mov(ecx, edi)),
            Self::CallLong => |a, helper| calls(a, helper, |a| a.mov(ecx, 5)),
            Self::Blocks => write_blocks,
            Self::CallLoop | Self::DeepCallLoop => |a, helper| {
                let mut again = a.create_label();
                a.push(rbx)?;
                a.push(rbp)?;
                a.xor(ebx, ebx)?;
                a.mov(ebp, 8)?;
                a.set_label(&mut again)?;
                a.mov(rax, rdi)?;
                a.add(rsi, 0)?;
                a.call(helper)?;
                a.add(rbx, rax)?;
                a.dec(ebp)?;
                a.jne(again)?;
                a.mov(rax, rbx)?;
                a.pop(rbp)?;
                a.pop(rbx)?;
                a.ret()
            },
        }
    }
}

/// A function whose block 1 is a call, with instructions before it.
fn calls(
    a: &mut CodeAssembler,
    helper: u64,
    before: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
) -> Result<(), IcedError> {
    let (mut zero, mut end) = (a.create_label(), a.create_label());
    a.test(edi, edi)?;
    a.je(zero)?;
    before(a)?;
    a.call(helper)?;
    a.add(rax, 9)?;
    a.jmp(end)?;
    a.set_label(&mut zero)?;
    a.mov(rax, rsi)?;
    a.set_label(&mut end)?;
    a.ret()
}

fn blocks(first: u64, second: u64) -> (u64, u64) {
    let (mut value, mut hits) = (second, 1);
    if hash(first) & 1 != 0 {
        value = value.wrapping_mul(9).wrapping_add(1);
        hits += 1;
    }
    hits += 1;
    if first & 2 != 0 {
        value = value.wrapping_add(first).rotate_right(3);
        hits += 1;
    }
    hits += 1;
    for _ in 0..4 {
        value = value.wrapping_mul(5).wrapping_add(1);
        hits += 1;
    }
    hits += 1;
    value = if first & 4 != 0 {
        plain(value, second).0
    } else {
        value ^ 0x77
    };
    hits += 1;
    (value.wrapping_add(first), hits + 1)
}

fn write_blocks(a: &mut CodeAssembler, helper: u64) -> Result<(), IcedError> {
    let mut labels: Vec<_> = (0..5).map(|_| a.create_label()).collect();
    a.push(rbx)?;
    a.mov(rbx, rdi)?;
    a.mov(rax, rsi)?;
    a.mov(ecx, 0x9e37_79b1_u32)?;
    a.imul_2(rcx, rdi)?;
    a.shr(rcx, 13)?;
    a.test(cl, 1)?;
    a.je(labels[0])?;
    a.lea(rax, ptr(rax + rax * 8 + 1))?;
    a.set_label(&mut labels[0])?;
    a.test(bl, 2)?;
    a.je(labels[1])?;
    a.add(rax, rbx)?;
    a.ror(rax, 3)?;
    a.set_label(&mut labels[1])?;
    a.mov(ecx, 4)?;
    a.set_label(&mut labels[2])?;
    a.lea(rax, ptr(rax + rax * 4 + 1))?;
    a.dec(ecx)?;
    a.jne(labels[2])?;
    a.test(bl, 4)?;
    a.je(labels[3])?;
    a.mov(rdi, rax)?;
    a.call(helper)?;
    a.jmp(labels[4])?;
    a.set_label(&mut labels[3])?;
    a.xor(rax, 0x77)?;
    a.set_label(&mut labels[4])?;
    a.add(rax, rbx)?;
    a.pop(rbx)?;
    a.ret()
}
