//! What a person wants to know of an instruction and its operands do not say: which field of which
//! structure it reads or writes, and which text it points at.
//!
//! A remark is a fact, not a guess. The arguments that the kernel's types name are in their registers
//! at the entry, and what a function returns behind its calls; from there they are followed through
//! moves, additions of constants, and loads of fields that are pointers, as long as every way to an instruction brings the same. What is believed:
//! that pointers lead to what C declares, and that what compiled C calls keeps the calling
//! convention. Where several functions have one name nothing is said, for types know names alone.

use gilk_instruments::{Pointee, Types};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::cfg::Cfg;
use crate::code::{FunctionId, Why};
use crate::isa::abi::ARGUMENTS;
use crate::isa::decode::branch_target;
use crate::liveness::{Effects, RegisterSet};
use crate::{Addr, Image, Span};

mod strings;
#[cfg(test)]
mod tests;

/// Letters of a text that are shown.
const SHOWN: usize = 48;

/// What a register holds: the address of a structure, and so many bytes more.
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

/// What is known of each register, by its number.
type Registers = [Option<Pointer>; 16];

/// Remarks on the instructions of one function.
#[derive(Clone, Debug, Default)]
pub struct Remarks {
    /// By address.
    texts: Vec<(Addr, String)>,
}

impl Remarks {
    /// Looks through one function.
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

    /// What there is to say of the instruction at `at`.
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

/// One instruction and the registers that it may change.
type Step = (Instruction, RegisterSet);

/// Finds the fields that instructions name.
struct Fields<'i> {
    image: &'i Image,
    types: &'i Types,
}

impl Fields<'_> {
    /// Adds what is known of one function's.
    fn remark(&self, cfg: &Cfg, texts: &mut Vec<(Addr, String)>) {
        let mut effects = Effects::new(self.image, cfg.span);
        let steps: Vec<Vec<Step>> = cfg
            .blocks
            .iter()
            .map(|block| {
                let written = effects.written(block);
                block.instructions.iter().zip(written).collect()
            })
            .collect();
        // Known at the start of each block; `None` until a way to it has been found.
        let mut starts: Vec<Option<Registers>> = cfg
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
            for (index, (block, steps)) in cfg.blocks.iter().zip(&steps).enumerate() {
                let Some(mut known) = starts.get(index).copied().flatten() else {
                    continue;
                };
                for step in steps {
                    known = self.after(step, &known);
                }
                for edge in cfg.successors(block.index) {
                    let Some(start) = starts.get_mut(edge.to.0 as usize) else {
                        continue;
                    };
                    let met = start.map_or(known, |start| both(&start, &known));
                    changed |= *start != Some(met);
                    *start = Some(met);
                }
            }
        }
        for (steps, start) in steps.iter().zip(starts) {
            let Some(mut known) = start else { continue };
            for step in steps {
                if let Some(text) = said(self.types, &step.0, &known) {
                    texts.push((Addr(step.0.ip()), text));
                }
                known = self.after(step, &known);
            }
        }
    }

    /// Whether no other function has the name.
    fn alone(&self, name: &str, function: FunctionId) -> bool {
        self.image
            .function_named(name)
            .is_ok_and(|found| found.id == function)
    }

    /// What registers hold when a function is entered.
    fn at_entry(&self, cfg: &Cfg) -> Registers {
        let mut known = [None; 16];
        if self.alone(&cfg.name, cfg.function) {
            let passed = self.types.passed(&cfg.name);
            for (register, to) in ARGUMENTS.into_iter().zip(passed) {
                set(&mut known, register, to.map(|to| Pointer { to, offset: 0 }));
            }
        }
        known
    }

    /// What a call returns.
    fn returned(&self, to: Addr) -> Option<Pointer> {
        let called = self.image.function_at(to)?;
        let whole = called.span.start == to && self.alone(&called.name, called.id);
        let to = self.types.returned(&called.name).filter(|_| whole)?;
        Some(Pointer { to, offset: 0 })
    }

    /// What registers hold behind an instruction.
    fn after(&self, (instruction, written): &Step, before: &Registers) -> Registers {
        let mut known = *before;
        for register in written.iter() {
            set(&mut known, register, None);
        }
        if instruction.mnemonic() == Mnemonic::Call {
            let here = Span::new(Addr(instruction.ip()), 1);
            let mut sites = self.image.fixed().overlapping(here);
            let plain = sites.all(|site| site.why == Why::Forbidden);
            if let Some(to) = branch_target(instruction).filter(|_| plain) {
                set(&mut known, Register::RAX, self.returned(to));
            }
            return known;
        }
        let first = instruction.op0_register();
        // What is special, a static call for example, may do more than it seems to.
        let only = *written == RegisterSet::of(&[first]);
        if !(instruction.op0_kind() == OpKind::Register && first.is_gpr64() && only) {
            return known;
        }
        set(&mut known, first, self.made(instruction, before));
        known
    }

    /// What an instruction leaves in the whole register that it writes.
    fn made(&self, instruction: &Instruction, before: &Registers) -> Option<Pointer> {
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

/// What two ways agree on.
fn both(one: &Registers, other: &Registers) -> Registers {
    let mut met = *one;
    for (met, other) in met.iter_mut().zip(other) {
        if met != other {
            *met = None;
        }
    }
    met
}

fn set(known: &mut Registers, register: Register, value: Option<Pointer>) {
    if let Some(slot) = known.get_mut(register.number()) {
        *slot = value;
    }
}

/// What a whole register holds.
fn get(known: &Registers, register: Register) -> Option<Pointer> {
    let whole = register.is_gpr64();
    known
        .get(register.number())
        .copied()
        .flatten()
        .filter(|_| whole)
}

/// Where an operand in memory is, if that is a known pointer and a constant.
fn place(instruction: &Instruction, known: &Registers) -> Option<Pointer> {
    let plain = instruction.memory_index() == Register::None
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    let base = get(known, instruction.memory_base()).filter(|_| plain)?;
    base.moved(instruction.memory_displacement64().cast_signed())
}

/// What an instruction's operand in memory is.
fn said(types: &Types, instruction: &Instruction, known: &Registers) -> Option<String> {
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
