//! Numbers that are not known, only where they come from: sums of bit fields, modulo 2⁶⁴.
//!
//! A [`Value`] is `constant + Σ factor × field`, where a field is some bits in a row of an [`Atom`].
//! Shifts and masks of such sums are such sums again wherever the fields do not meet, and two equal
//! sums get the same number. So "is this the address of the slot that was reserved?" is a
//! comparison, whatever instructions made the address. Where a sum cannot be had, the operation
//! itself becomes an atom, or the value is [`Value::UNKNOWN`], which equals nothing that is asked for.

use std::collections::HashMap;

use super::sum::{Sum, Term, normal};

/// A number; equal ones have the same identity. Lives in its [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Value(u32);

impl Value {
    /// Nothing is known of it, not even that it equals itself.
    pub(super) const UNKNOWN: Self = Self(0);

    pub(super) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }
}

/// Where bits come from. What is read from memory or a clock is named by the instruction that read
/// it last: see [`State::forget`](super::state::State::forget).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Atom {
    /// What the original code would have in this register, by number.
    Register(u8),
    /// The flags register, of which these flags are what the original code would have.
    Flags(u32),
    /// `gs:[head]`.
    Head(u64),
    /// One of several reads of `gs:[head]`, in rax, where ways of the code meet at this address.
    Joined(u64),
    /// `gs:[limit]`.
    Limit(u64),
    /// The time-stamp counter.
    Tsc(u64),
    /// The pointer to the running task.
    Task,
    /// A word of the entry of the table of timers that is `entry` bytes from its start.
    Timer {
        /// The instruction that read it.
        at: u64,
        /// 0 for the check, 8 for the time.
        word: u8,
        /// The entry.
        entry: Value,
    },
    /// A value whose bits are taken apart though it is no sum of fields that do not meet.
    Whole(Value),
    /// A bitwise or of two values.
    Or(Value, Value),
    /// A bitwise exclusive or of different values.
    Xor(Vec<Value>),
}

/// More terms than any generated address has; beyond it nothing is known.
pub(super) const MOST_TERMS: usize = 16;
/// More atoms in a value than any generated word has.
const MOST_LEAVES: usize = 32;

/// Every number of one proof.
#[derive(Debug)]
pub(super) struct Values {
    sums: Vec<Sum>,
    /// For each sum the atoms that stand for reads, however deep, sorted.
    leaves: Vec<Vec<u32>>,
    by_sum: HashMap<Sum, Value>,
    atoms: Vec<Atom>,
    by_atom: HashMap<Atom, u32>,
}

impl Values {
    pub(super) fn new() -> Self {
        let nothing = Sum {
            constant: 0,
            terms: Vec::new(),
        };
        Self {
            sums: vec![nothing],
            leaves: vec![Vec::new()],
            by_sum: HashMap::new(),
            atoms: Vec::new(),
            by_atom: HashMap::new(),
        }
    }

    pub(super) fn sum(&self, value: Value) -> Option<&Sum> {
        if value.is_unknown() {
            None
        } else {
            self.sums.get(value.0 as usize)
        }
    }

    /// The value that is this sum.
    pub(super) fn intern(&mut self, constant: u64, terms: Vec<Term>) -> Value {
        let terms = normal(terms);
        if terms.len() > MOST_TERMS {
            return Value::UNKNOWN;
        }
        let sum = Sum { constant, terms };
        if let Some(&known) = self.by_sum.get(&sum) {
            return known;
        }
        let mut leaves: Vec<u32> = Vec::new();
        for term in &sum.terms {
            match self.atoms.get(term.atom as usize) {
                Some(Atom::Whole(inner)) => leaves.extend(self.leaves_of(*inner)),
                Some(Atom::Or(a, b)) => {
                    leaves.extend(self.leaves_of(*a).iter().chain(self.leaves_of(*b)));
                }
                Some(Atom::Xor(parts)) => {
                    leaves.extend(parts.iter().flat_map(|&part| self.leaves_of(part)));
                }
                Some(Atom::Timer { entry, .. }) => {
                    leaves.push(term.atom);
                    leaves.extend(self.leaves_of(*entry));
                }
                _ => leaves.push(term.atom),
            }
        }
        leaves.sort_unstable();
        leaves.dedup();
        let Ok(number) = u32::try_from(self.sums.len()) else {
            return Value::UNKNOWN;
        };
        if leaves.len() > MOST_LEAVES {
            return Value::UNKNOWN;
        }
        self.sums.push(sum.clone());
        self.leaves.push(leaves);
        self.by_sum.insert(sum, Value(number));
        Value(number)
    }

    fn leaves_of(&self, value: Value) -> &[u32] {
        self.leaves.get(value.0 as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn atom_number(&mut self, atom: Atom) -> u32 {
        if let Some(&known) = self.by_atom.get(&atom) {
            return known;
        }
        let number = u32::try_from(self.atoms.len()).unwrap_or(u32::MAX);
        self.atoms.push(atom.clone());
        self.by_atom.insert(atom, number);
        number
    }

    pub(super) fn constant(&mut self, constant: u64) -> Value {
        self.intern(constant, Vec::new())
    }

    /// All 64 bits of an atom.
    pub(super) fn atom(&mut self, atom: Atom) -> Value {
        self.field(atom, 0, 64)
    }

    /// Some bits of an atom, moved down to bit 0.
    pub(super) fn field(&mut self, atom: Atom, lo: u8, len: u8) -> Value {
        let atom = self.atom_number(atom);
        self.intern(
            0,
            vec![Term {
                atom,
                lo,
                len,
                factor: 1,
            }],
        )
    }

    /// The pointer to the running task: aligned to a cache line (`L1_CACHE_BYTES`, kernel/fork.c and
    /// init/init_task.c), so that a timer number below 64 fits into its low bits.
    pub(super) fn task(&mut self) -> Value {
        let upper = self.field(Atom::Task, 6, 58);
        self.shl(upper, 6)
    }

    /// The number, if it is one.
    pub(super) fn as_constant(&self, value: Value) -> Option<u64> {
        self.sum(value)
            .filter(|sum| sum.terms.is_empty())
            .map(|sum| sum.constant)
    }

    /// The constant and the terms.
    pub(super) fn parts(&self, value: Value) -> Option<(u64, &[Term])> {
        self.sum(value)
            .map(|sum| (sum.constant, sum.terms.as_slice()))
    }

    /// The atom all of which the value is.
    pub(super) fn as_atom(&self, value: Value) -> Option<&Atom> {
        match self.sum(value)? {
            Sum { constant: 0, terms } => match terms.as_slice() {
                [
                    Term {
                        atom,
                        lo: 0,
                        len: 64,
                        factor: 1,
                    },
                ] => self.atoms.get(*atom as usize),
                _ => None,
            },
            _ => None,
        }
    }

    /// The number that the value stands for, given what atoms are; for tests.
    #[cfg(test)]
    pub(super) fn meaning(&self, value: Value, atom: &dyn Fn(&Atom) -> u64) -> Option<u64> {
        let sum = self.sum(value)?;
        sum.terms.iter().try_fold(sum.constant, |total, term| {
            let number = match self.atoms.get(term.atom as usize)? {
                Atom::Whole(inner) => self.meaning(*inner, atom)?,
                Atom::Or(a, b) => self.meaning(*a, atom)? | self.meaning(*b, atom)?,
                Atom::Xor(parts) => parts
                    .iter()
                    .try_fold(0, |all, &part| Some(all ^ self.meaning(part, atom)?))?,
                other => atom(other),
            };
            Some(total.wrapping_add(
                (number >> term.lo & super::sum::ones(term.len)).wrapping_mul(term.factor),
            ))
        })
    }

    /// Whether the value is made of the atom.
    pub(super) fn mentions(&self, value: Value, atom: &Atom) -> bool {
        self.by_atom
            .get(atom)
            .is_some_and(|number| self.leaves_of(value).binary_search(number).is_ok())
    }

    /// Whether the value is made of constants and the pointer to the running task alone, and how, in
    /// words that are equal in every proof; `None` if it is not, or is too large.
    pub(super) fn of_task_alone(&self, value: Value) -> Option<String> {
        let mut words = String::new();
        self.describe(value, 8, &mut words).then_some(words)
    }

    fn describe(&self, value: Value, depth: u32, words: &mut String) -> bool {
        let Some(sum) = self.sum(value).filter(|_| depth > 0 && words.len() < 4096) else {
            return false;
        };
        words.push_str(&format!("{:#x}", sum.constant));
        let mut terms: Vec<String> = Vec::new();
        for term in &sum.terms {
            let mut inner = format!(
                "+{:#x}*[{}..{}]",
                term.factor,
                term.lo,
                term.lo.wrapping_add(term.len)
            );
            let known = match self.atoms.get(term.atom as usize) {
                Some(Atom::Task) => {
                    inner.push_str("task");
                    true
                }
                Some(Atom::Whole(part)) => {
                    inner.push('(');
                    let known = self.describe(*part, depth - 1, &mut inner);
                    inner.push(')');
                    known
                }
                Some(Atom::Xor(parts)) => {
                    let mut all: Vec<String> = Vec::new();
                    for part in parts {
                        let mut one = String::new();
                        if !self.describe(*part, depth - 1, &mut one) {
                            return false;
                        }
                        all.push(one);
                    }
                    all.sort();
                    inner.push_str(&format!("({})", all.join("^")));
                    true
                }
                _ => false,
            };
            if !known {
                return false;
            }
            terms.push(inner);
        }
        terms.sort();
        words.push_str(&terms.concat());
        true
    }
}
