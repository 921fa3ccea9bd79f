//! The abstract state at one point of a patch, on every path to it.

use crate::verify::symbolic::atom::{Atom, Source, SymValue};
use crate::verify::symbolic::value::SymValues;
use crate::verify::text::effects::{Mask, STATUS};

/// Number of rsp.
pub(crate) const RSP: u8 = 4;
/// Number of rax.
pub(crate) const RAX: u8 = 0;
/// Number of rcx.
pub(crate) const RCX: u8 = 1;
/// Number of rdx.
pub(crate) const RDX: u8 = 2;

/// The operands that the flags compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compare {
    /// No comparison of known operands.
    Unknown,
    /// `cmp`, all 64 bits.
    Of(SymValue, SymValue),
    /// ZF is whether this value is zero, all 64 bits, and SF is its sign.
    Zero(SymValue),
    /// ZF is whether this value is zero, and the other flags are unknown.
    OnlyZero(SymValue),
}

/// A fact that a branch has proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fact {
    /// The ring has a free slot for this head.
    Room(SymValue),
    /// The ring is full.
    Full(SymValue),
    /// The value is zero.
    Zero(SymValue),
    /// The value is not zero.
    NonZero(SymValue),
    /// The truth value is 1.
    Holds(SymValue),
    /// The value was read from an entry of the table of storage while the hit held its lock, and no
    /// lock was taken since.
    Mine(SymValue),
}

impl Fact {
    fn value(self) -> SymValue {
        match self {
            Self::Room(value)
            | Self::Full(value)
            | Self::Zero(value)
            | Self::NonZero(value)
            | Self::Holds(value)
            | Self::Mine(value) => value,
        }
    }
}

/// The reads since the head was read last. A reservation fails if another sample came in between:
/// so a clock that was read since keeps samples in order, and a limit that was read since is up to
/// date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) tsc: Option<SymValue>,
    pub(crate) limit: Option<SymValue>,
}

/// Registers, flags, pushed words, and facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AbstractState {
    registers: [SymValue; 16],
    /// Words that the patch has pushed, the top last. If empty, the stack is that of the original
    /// code.
    pub(crate) stack: Vec<SymValue>,
    /// Bytes between the stack pointer of the original code and the first of those words: the red zone, after
    /// a step over it.
    pub(crate) red_zone: u8,
    /// Status flags with their value of the original code.
    pub(crate) flags: u32,
    /// The `lahf` that executed last, and the flags that had their value of the original code then.
    pub(crate) saved_flags: Option<(u64, u32)>,
    pub(crate) compare: Compare,
    pub(crate) since_head: Since,
    /// The truth value that the last branch has proven.
    pub(crate) branch_fact: Option<SymValue>,
    /// A load has just faulted: the value that it stands for.
    pub(crate) faulted: Option<SymValue>,
    /// A failed load was counted: the value that it stands for, which is 0.
    pub(crate) zero: Option<SymValue>,
    /// The clock that a step of the program has read, with the index of the step.
    pub(crate) clock: Option<(u16, SymValue)>,
    facts: Vec<Fact>,
    /// Sources that steps of the program have read, sorted.
    read: Vec<(Source, u16)>,
}

impl AbstractState {
    /// Returns the state of the original code, except for the registers and flags of `spoilt`.
    pub(crate) fn original(spoilt: Mask) -> Self {
        let mut registers = [SymValue::UNKNOWN; 16];
        for (number, register) in (0u8..).zip(&mut registers) {
            if number != RSP && !spoilt.has_register(number) {
                *register = SymValue::original(number);
            }
        }
        Self {
            registers,
            stack: Vec::new(),
            red_zone: 0,
            flags: STATUS & !spoilt.flags(),
            saved_flags: None,
            compare: Compare::Unknown,
            since_head: Since::default(),
            branch_fact: None,
            faulted: None,
            zero: None,
            clock: None,
            facts: Vec::new(),
            read: Vec::new(),
        }
    }

    /// Returns the bytes from the stack pointer to that of the original code.
    pub(crate) fn depth(&self) -> u64 {
        8 * self.stack.len() as u64 + u64::from(self.red_zone)
    }

    /// Records that a step reads a source; returns whether it is the first time.
    pub(crate) fn reads(&mut self, source: Source, step: u16) -> bool {
        match self.read.binary_search(&(source, step)) {
            Ok(_) => false,
            Err(place) => {
                self.read.insert(place, (source, step));
                true
            }
        }
    }

    pub(crate) fn register(&self, number: u8) -> SymValue {
        self.registers
            .get(usize::from(number))
            .copied()
            .unwrap_or(SymValue::UNKNOWN)
    }

    /// Sets a register other than rsp, which moves by pushes and pops only.
    pub(crate) fn set(&mut self, number: u8, value: SymValue) {
        match self.registers.get_mut(usize::from(number)) {
            Some(register) => *register = value,
            None => {
                debug_assert!(false, "register {number}");
                self.registers = [SymValue::UNKNOWN; 16];
            }
        }
    }

    /// Returns the registers and flags without their value of the original code.
    pub(crate) fn spoilt(&self) -> Mask {
        let mut spoilt = Mask::of_flags(STATUS & !self.flags);
        for (number, &value) in (0u8..).zip(&self.registers) {
            if number != RSP && value != SymValue::original(number) {
                spoilt = spoilt.union(Mask::of_register(number));
            }
        }
        spoilt
    }

    pub(crate) fn knows(&self, fact: Fact) -> bool {
        self.facts.binary_search(&fact).is_ok()
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = Fact> {
        self.facts.iter().copied()
    }

    pub(crate) fn learn(&mut self, fact: Fact) {
        if !fact.value().is_unknown()
            && let Err(place) = self.facts.binary_search(&fact)
        {
            self.facts.insert(place, fact);
        }
    }

    /// Drops the facts of earlier locks, before an entry is locked.
    pub(crate) fn disown(&mut self) {
        self.facts.retain(|fact| !matches!(fact, Fact::Mine(_)));
    }

    /// Forgets a read, since its instruction executes again: the values that contain it become
    /// unknown.
    pub(crate) fn forget(&mut self, values: &SymValues, atom: &Atom) {
        let gone = |value: SymValue| values.mentions(value, atom);
        for value in self.registers.iter_mut().chain(&mut self.stack) {
            if gone(*value) {
                *value = SymValue::UNKNOWN;
            }
        }
        self.compare = match self.compare {
            Compare::Of(a, b) if gone(a) || gone(b) => Compare::Unknown,
            Compare::Zero(value) | Compare::OnlyZero(value) if gone(value) => Compare::Unknown,
            known => known,
        };
        self.since_head.tsc = self.since_head.tsc.filter(|&tsc| !gone(tsc));
        self.since_head.limit = self.since_head.limit.filter(|&limit| !gone(limit));
        self.clock = self.clock.filter(|&(_, tsc)| !gone(tsc));
        self.branch_fact = self.branch_fact.filter(|&value| !gone(value));
        self.faulted = self.faulted.filter(|&value| !gone(value));
        self.zero = self.zero.filter(|&value| !gone(value));
        self.facts.retain(|fact| !gone(fact.value()));
    }

    /// Forgets all except original values, constants and those that the next instrument begins with, after an instrument
    /// is complete.
    pub(crate) fn settle(&mut self, values: &SymValues, begun: &[SymValue]) {
        for value in self.registers.iter_mut().chain(&mut self.stack) {
            let kept = value.is_original()
                || begun.contains(value)
                || values.as_constant(*value).is_some()
                || matches!(values.as_atom(*value), Some(Atom::Flags(..)));
            if !kept {
                *value = SymValue::UNKNOWN;
            }
        }
        self.compare = Compare::Unknown;
        self.since_head = Since::default();
        self.clock = None;
        (self.branch_fact, self.faulted, self.zero) = (None, None, None);
        self.facts.clear();
        self.read.clear();
    }

    /// Joins two states that meet at `at`; `None` if their stacks differ in depth.
    pub(crate) fn join(&self, other: &Self, values: &mut SymValues, at: u64) -> Option<Self> {
        if self.depth() != other.depth() || self.red_zone != other.red_zone {
            return None;
        }
        let same = |(&a, &b): (&SymValue, &SymValue)| if a == b { a } else { SymValue::UNKNOWN };
        let mut registers = self.registers;
        for (register, &theirs) in registers.iter_mut().zip(&other.registers) {
            *register = same((register, &theirs));
        }
        let both = |fact: &Fact| other.facts.contains(fact);
        let mut joined = Self {
            registers,
            stack: self.stack.iter().zip(&other.stack).map(same).collect(),
            red_zone: self.red_zone,
            flags: self.flags & other.flags,
            saved_flags: match (self.saved_flags, other.saved_flags) {
                (Some((at, ours)), Some((same, theirs))) if at == same => Some((at, ours & theirs)),
                _ => None,
            },
            compare: if self.compare == other.compare {
                self.compare
            } else {
                Compare::Unknown
            },
            since_head: Since {
                tsc: self
                    .since_head
                    .tsc
                    .filter(|_| self.since_head.tsc == other.since_head.tsc),
                limit: self
                    .since_head
                    .limit
                    .filter(|_| self.since_head.limit == other.since_head.limit),
            },
            branch_fact: self
                .branch_fact
                .filter(|_| self.branch_fact == other.branch_fact),
            faulted: self.faulted.filter(|_| self.faulted == other.faulted),
            zero: self.zero.filter(|_| self.zero == other.zero),
            clock: self.clock.filter(|_| self.clock == other.clock),
            facts: self.facts.iter().copied().filter(both).collect(),
            read: self.read.clone(),
        };
        for &(source, step) in &other.read {
            joined.reads(source, step);
        }
        // A retry has a newer head in rax.
        let head = |value| matches!(values.as_atom(value), Some(Atom::Head(_) | Atom::Joined(_)));
        if self.register(RAX) != other.register(RAX)
            && head(self.register(RAX))
            && head(other.register(RAX))
        {
            let atom = Atom::Joined(at);
            joined.forget(values, &atom);
            joined.since_head = Since::default();
            let head = values.atom(atom);
            joined.set(RAX, head);
        }
        // A retry of a maximum's update has a larger one.
        let largest = |value| matches!(values.as_atom(value), Some(Atom::Largest(_)));
        if self.register(RAX) != other.register(RAX)
            && largest(self.register(RAX))
            && largest(other.register(RAX))
        {
            let atom = Atom::Largest(at);
            joined.forget(values, &atom);
            let kept = values.atom(atom);
            joined.set(RAX, kept);
        }
        Some(joined)
    }
}
