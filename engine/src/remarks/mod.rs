//! Remarks on instructions, for people: the field of a structure that an instruction accesses, and the text
//! that its operand points at.
//!
//! A remark is a fact, not a guess. A forward data-flow analysis propagates typed pointers: arguments, in
//! their registers at the entry, and results, after calls, through moves, additions of constants, and loads
//! of fields that are pointers. Where paths meet, only pointers that are equal on all of them remain.
//! Assumptions: pointers have the types that C declares, and functions that compiled C calls keep the
//! calling convention. Functions that share their name have no remarks, since types are found by name.

use gilk_instruments::{Pointee, Types};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::cfg::{BlockIndex, Cfg};
use crate::code::{FunctionId, Why};
use crate::ids::Ids;
use crate::isa::abi::ARGUMENTS;
use crate::isa::decode::branch_target;
use crate::liveness::{Effects, RegisterSet};
use crate::{Addr, Image, Span};

mod strings;
#[cfg(test)]
mod tests;

/// The most letters of a text that are shown.
const SHOWN: usize = 48;

/// A typed pointer: the address of a structure, plus an offset in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pointer {
    to: Pointee,
    offset: i64,
}

impl Pointer {
    fn moved(self, by: i64) -> Option<Self> {
        Some(Self {
            offset: self.offset.checked_add(by)?,
            ..self
        })
    }
}

/// The known pointers, by number of the register that holds them.
type KnownPointers = [Option<Pointer>; 16];

/// Remarks on the instructions of one function.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// By address.
    texts: Vec<(Addr, String)>,
}

impl Remarks {
    /// Analyses one function.
    #[must_use]
    pub fn of(image: &Image, cfg: &Cfg) -> Self {
        let mut texts: Vec<(Addr, String)> = cfg
            .blocks
            .iter()
            .flat_map(|block| block.instructions.iter())
            .filter_map(|instruction| {
                let text = strings::text(image, &instruction)?;
                Some((Addr(instruction.ip()), quoted(text)))
            })
            .collect();
        if let Some(types) = image.types() {
            Fields { image, types }.remark(cfg, &mut texts);
        }
        texts.sort();
        Self { texts }
    }

    /// The remark on the instruction at `at`.
    #[must_use]
    pub fn at(&self, at: Addr) -> Option<&str> {
        let found = self
            .texts
            .binary_search_by_key(&at, |(known, _)| *known)
            .ok();
        found
            .and_then(|number| self.texts.get(number))
            .map(|(_, text)| text.as_str())
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = (Addr, &str)> {
        self.texts.iter().map(|(at, text)| (*at, text.as_str()))
    }
}

/// A text as C writes it, shortened.
fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    let shown = shown.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", shown.replace('\n', "\\n").replace('\t', "\\t"))
}

/// An instruction and the registers that it may change.
type Writing = (Instruction, RegisterSet);

/// Finds the fields that instructions name.
struct Fields<'i> {
    image: &'i Image,
    types: &'i Types,
}

impl Fields<'_> {
    /// Adds the remarks on the instructions of one function.
    fn remark(&self, cfg: &Cfg, texts: &mut Vec<(Addr, String)>) {
        let mut effects = Effects::new(self.image, cfg.span);
        let steps: Ids<BlockIndex, Vec<Writing>> = cfg
            .blocks
            .iter()
            .map(|block| {
                let written = effects.written(block);
                block.instructions.iter().zip(written).collect()
            })
            .collect();
        // Known at the start of each block; `None` until a way to it has been found.
        let mut starts: Ids<BlockIndex, Option<KnownPointers>> = cfg
            .blocks
            .iter()
            .map(|block| match block.index.0 {
                0 => Some(self.at_entry(cfg)),
                _ => block.entered.then_some([None; 16]),
            })
            .collect();
        let mut changed = true;
        while changed {
            changed = false;
            for (block, steps) in steps.iter() {
                let Some(mut pointers) = starts[block] else {
                    continue;
                };
                for step in steps {
                    pointers = self.after(step, &pointers);
                }
                for edge in cfg.successors(block) {
                    let start = &mut starts[edge.to];
                    let met = start.map_or(pointers, |start| both(&start, &pointers));
                    changed |= *start != Some(met);
                    *start = Some(met);
                }
            }
        }
        for (block, steps) in steps.iter() {
            // No way to the block has been found.
            let Some(mut pointers) = starts[block] else {
                continue;
            };
            for step in steps {
                if let Some(text) = said(self.types, &step.0, &pointers) {
                    texts.push((Addr(step.0.ip()), text));
                }
                pointers = self.after(step, &pointers);
            }
        }
    }

    /// Returns whether no other function has the name.
    fn alone(&self, name: &str, function: FunctionId) -> bool {
        self.image
            .function_named(name)
            .is_ok_and(|found| found.id == function)
    }

    /// The pointers in registers at a function's entry.
    fn at_entry(&self, cfg: &Cfg) -> KnownPointers {
        let mut pointers = [None; 16];
        if self.alone(&cfg.name, cfg.function) {
            let passed = self.types.passed(&cfg.name);
            for (register, to) in ARGUMENTS.into_iter().zip(passed) {
                set(
                    &mut pointers,
                    register,
                    to.map(|to| Pointer { to, offset: 0 }),
                );
            }
        }
        pointers
    }

    /// The pointer that a call returns.
    fn returned(&self, to: Addr) -> Option<Pointer> {
        let called = self.image.function_at(to)?;
        let whole = called.span.start == to && self.alone(&called.name, called.id);
        let to = self.types.returned(&called.name).filter(|_| whole)?;
        Some(Pointer { to, offset: 0 })
    }

    /// Transfer function: the pointers in registers after an instruction.
    fn after(&self, (instruction, written): &Writing, before: &KnownPointers) -> KnownPointers {
        let mut pointers = *before;
        for register in written.iter() {
            set(&mut pointers, register, None);
        }
        if instruction.mnemonic() == Mnemonic::Call {
            let here = Span::new(Addr(instruction.ip()), 1);
            let mut sites = self.image.fixed().overlapping(here);
            let plain = sites.all(|site| site.why == Why::Forbidden);
            if let Some(to) = branch_target(instruction).filter(|_| plain) {
                set(&mut pointers, Register::RAX, self.returned(to));
            }
            return pointers;
        }
        let first = instruction.op0_register();
        // What is special, a static call for example, may do more than it seems to.
        let only = *written == RegisterSet::of(&[first]);
        if !(instruction.op0_kind() == OpKind::Register && first.is_gpr64() && only) {
            return pointers;
        }
        set(&mut pointers, first, self.made(instruction, before));
        pointers
    }

    /// The pointer in the whole register that an instruction writes.
    fn made(&self, instruction: &Instruction, before: &KnownPointers) -> Option<Pointer> {
        let first = instruction.op0_register();
        match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) => get(before, instruction.op1_register()),
            (Mnemonic::Mov, OpKind::Memory) => {
                let at = place(instruction, before)?;
                let offset = u64::try_from(at.offset).ok()?;
                let to = self.types.accessed(at.to, offset, 8)?.leads?;
                Some(Pointer { to, offset: 0 })
            }
            (Mnemonic::Lea, OpKind::Memory) => place(instruction, before),
            (Mnemonic::Add, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                get(before, first)?.moved(instruction.immediate(1).cast_signed())
            }
            (Mnemonic::Sub, OpKind::Immediate8to64 | OpKind::Immediate32to64) => {
                get(before, first)?.moved(instruction.immediate(1).cast_signed().checked_neg()?)
            }
            _ => None,
        }
    }
}

/// Meet: the pointers that two paths agree on.
fn both(one: &KnownPointers, other: &KnownPointers) -> KnownPointers {
    let mut met = *one;
    for (met, other) in met.iter_mut().zip(other) {
        if met != other {
            *met = None;
        }
    }
    met
}

fn set(pointers: &mut KnownPointers, register: Register, value: Option<Pointer>) {
    if let Some(slot) = pointers.get_mut(register.number()) {
        *slot = value;
    }
}

/// The pointer in a whole register.
fn get(pointers: &KnownPointers, register: Register) -> Option<Pointer> {
    let whole = register.is_gpr64();
    pointers
        .get(register.number())
        .copied()
        .flatten()
        .filter(|_| whole)
}

/// The pointer that an operand in memory refers to, if its base is a known pointer with a constant offset.
fn place(instruction: &Instruction, pointers: &KnownPointers) -> Option<Pointer> {
    let plain = instruction.memory_index() == Register::None
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let base = get(pointers, instruction.memory_base()).filter(|_| plain)?;
    base.moved(instruction.memory_displacement64().cast_signed())
}

/// The remark on an instruction's operand in memory.
fn said(types: &Types, instruction: &Instruction, known: &KnownPointers) -> Option<String> {
    let at = place(instruction, known)?;
    let offset = u64::try_from(at.offset).ok()?;
    let reached = if instruction.mnemonic() == Mnemonic::Lea {
        // The start of a structure needs no name.
        types.begins(at.to, offset).filter(|_| offset > 0)?
    } else {
        let bytes = u64::try_from(instruction.memory_size().size()).ok()?;
        types.accessed(at.to, offset, bytes).filter(|_| bytes > 0)?
    };
    let address = if instruction.mnemonic() == Mnemonic::Lea {
        "&"
    } else {
        ""
    };
    Some(format!("{address}{}", reached.text))
}
