//! Symbolic values: linear sums of bit fields, modulo 2⁶⁴, hash-consed.
//!
//! A [`Value`] is `constant + Σ factor × field`, where a field is a run of bits of an [`Atom`].
//! Shifts and masks of such sums are such sums wherever the fields do not overlap, and equal sums
//! are the same value. So "is this the address of the reserved slot?" is a comparison, whichever
//! instructions computed the address. Where a result is not such a sum, the operation itself
//! becomes an atom, or the value is [`Value::UNKNOWN`], which equals no other.

use std::hash::BuildHasher as _;
use std::ops::Range;
use std::slice::from_ref;

use super::atom::{Atom, REGISTERS, Source, Value};
use super::sum::{Sum, Term, normal};
use crate::verify::hash::Map;

/// Limit of terms of a value; beyond it the value is unknown.
pub(crate) const MOST_TERMS: usize = 16;
/// Limit of atoms that a value depends on; beyond it the value is unknown.
const MOST_LEAVES: usize = 32;

/// The values of one proof. The allocations are reused from proof to proof.
#[derive(Debug)]
pub(crate) struct Values {
    sums: Vec<Kept>,
    /// Terms of each value.
    terms: Vec<Term>,
    /// Atoms that each value depends on, however deep, sorted.
    leaves: Vec<u32>,
    /// The newest value of each hash.
    by_hash: Map<u64, Value>,
    pub(crate) atoms: Vec<Atom>,
    by_atom: Map<Atom, u32>,
    /// A buffer for terms.
    spare: Vec<Term>,
}

/// A value, except its terms and atoms.
#[derive(Debug)]
struct Kept {
    constant: u64,
    terms: Range<u32>,
    leaves: Range<u32>,
    /// The previous value of the same hash.
    older: Value,
}

fn part<'a, T>(all: &'a [T], range: &Range<u32>) -> &'a [T] {
    let range = range.start as usize..range.end as usize;
    all.get(range).unwrap_or_default()
}

impl Values {
    pub(crate) fn new() -> Self {
        let mut values = Self {
            sums: Vec::new(),
            terms: Vec::new(),
            leaves: Vec::new(),
            by_hash: Map::default(),
            atoms: Vec::new(),
            by_atom: Map::default(),
            spare: Vec::new(),
        };
        values.add_registers();
        values
    }

    /// Begins another proof, with the registers of the original code alone. These are in no map.
    pub(crate) fn clear(&mut self) {
        let registers = usize::from(REGISTERS);
        self.by_hash.clear();
        self.by_atom.clear();
        self.sums.truncate(registers + 1);
        self.terms.truncate(registers);
        self.leaves.truncate(registers);
        self.atoms.truncate(registers);
    }

    /// Adds the unknown value and the registers; called by `new` only.
    fn add_registers(&mut self) {
        // The unknown value.
        self.sums.push(Kept {
            constant: 0,
            terms: 0..0,
            leaves: 0..0,
            older: Value::UNKNOWN,
        });
        for number in 0..REGISTERS {
            let atom = u32::from(number);
            self.atoms.push(Atom::Register(number));
            self.terms.push(Term::whole(atom));
            self.leaves.push(atom);
            self.sums.push(Kept {
                constant: 0,
                terms: atom..atom + 1,
                leaves: atom..atom + 1,
                older: Value::UNKNOWN,
            });
        }
    }

    pub(crate) fn sum(&self, value: Value) -> Option<Sum<'_>> {
        let kept = self.sums.get(value.0 as usize)?;
        (!value.is_unknown()).then(|| Sum {
            constant: kept.constant,
            terms: part(&self.terms, &kept.terms),
        })
    }

    /// Takes the buffer for terms, which [`Values::intern`] returns.
    pub(crate) fn room(&mut self) -> Vec<Term> {
        std::mem::take(&mut self.spare)
    }

    /// Returns the value of a sum.
    pub(crate) fn intern(&mut self, constant: u64, mut terms: Vec<Term>) -> Value {
        normal(&mut terms);
        let value = self.interned(Sum {
            constant,
            terms: &terms,
        });
        terms.clear();
        if self.spare.capacity() < terms.capacity() {
            self.spare = terms;
        }
        value.unwrap_or(Value::UNKNOWN)
    }

    /// Returns the value of a sum in normal form, or `None` if it exceeds a limit.
    fn interned(&mut self, sum: Sum<'_>) -> Option<Value> {
        if let (0, &[term]) = (sum.constant, sum.terms)
            && term == Term::whole(term.atom)
            && let Some(&Atom::Register(number)) = self.atoms.get(term.atom as usize)
        {
            return Some(Value::original(number));
        }
        if sum.terms.len() > MOST_TERMS {
            return None;
        }
        let hash = self.by_hash.hasher().hash_one(sum);
        let newest = self.by_hash.get(&hash).copied();
        let mut known = newest.unwrap_or(Value::UNKNOWN);
        while let Some(same) = self.sum(known) {
            if same == sum {
                return Some(known);
            }
            known = self.sums.get(known.0 as usize)?.older;
        }
        let number = u32::try_from(self.sums.len()).ok()?;
        let from = self.leaves.len();
        for term in sum.terms {
            self.add_leaves(term.atom);
        }
        if let [_, _, ..] = self.leaves.get(from..).unwrap_or_default() {
            let mut own = self.leaves.split_off(from);
            own.sort_unstable();
            own.dedup();
            self.leaves.append(&mut own);
        }
        if self.leaves.len() - from > MOST_LEAVES {
            self.leaves.truncate(from);
            return None;
        }
        let to = |length: usize| u32::try_from(length).ok();
        let first = to(self.terms.len())?;
        self.terms.extend_from_slice(sum.terms);
        self.sums.push(Kept {
            constant: sum.constant,
            terms: first..to(self.terms.len())?,
            leaves: to(from)?..to(self.leaves.len())?,
            older: newest.unwrap_or(Value::UNKNOWN),
        });
        self.by_hash.insert(hash, Value(number));
        Some(Value(number))
    }

    /// Appends the atoms that an atom depends on.
    fn add_leaves(&mut self, atom: u32) {
        let pair;
        let (itself, inner): (bool, &[Value]) = match self.atoms.get(atom as usize) {
            Some(Atom::Whole(inner)) => (false, from_ref(inner)),
            Some(&Atom::Or(a, b)) => {
                pair = [a, b];
                (false, &pair)
            }
            Some(Atom::Xor(parts)) => (false, parts),
            Some(Atom::Made(_, parts)) => (false, parts),
            Some(Atom::Timer { entry, .. }) => (true, from_ref(entry)),
            Some(Atom::Read(Source::Memory { address, .. }, _)) => (true, from_ref(address)),
            _ => (true, &[]),
        };
        if itself {
            self.leaves.push(atom);
        }
        for value in inner {
            if let Some(kept) = self.sums.get(value.0 as usize) {
                let range = kept.leaves.start as usize..kept.leaves.end as usize;
                self.leaves.extend_from_within(range);
            }
        }
    }

    fn leaves_of(&self, value: Value) -> &[u32] {
        let kept = self.sums.get(value.0 as usize);
        kept.map_or(&[], |kept| part(&self.leaves, &kept.leaves))
    }

    pub(crate) fn atom_number(&mut self, atom: Atom) -> u32 {
        if let Atom::Register(number) = atom {
            return number.into();
        }
        if let Some(&known) = self.by_atom.get(&atom) {
            return known;
        }
        let number = u32::try_from(self.atoms.len()).unwrap_or(u32::MAX);
        self.atoms.push(atom.clone());
        self.by_atom.insert(atom, number);
        number
    }

    pub(crate) fn constant(&mut self, constant: u64) -> Value {
        let terms = self.room();
        self.intern(constant, terms)
    }

    /// Returns all 64 bits of an atom.
    pub(crate) fn atom(&mut self, atom: Atom) -> Value {
        self.field(atom, 0, 64)
    }

    /// Returns some bits of an atom, shifted right to bit 0.
    pub(crate) fn field(&mut self, atom: Atom, lo: u8, len: u8) -> Value {
        let atom = self.atom_number(atom);
        let mut terms = self.room();
        terms.push(Term {
            atom,
            lo,
            len,
            factor: 1,
        });
        self.intern(0, terms)
    }

    /// Returns the pointer to the running task. It is aligned to a cache line (`L1_CACHE_BYTES`,
    /// kernel/fork.c and init/init_task.c), so that a number below 64 fits into its low bits.
    pub(crate) fn task(&mut self) -> Value {
        let upper = self.field(Atom::Task, 6, 58);
        self.shl(upper, 6)
    }

    /// Returns the constant, if it is one.
    pub(crate) fn as_constant(&self, value: Value) -> Option<u64> {
        self.sum(value)
            .filter(|sum| sum.terms.is_empty())
            .map(|sum| sum.constant)
    }

    /// Returns the constant and the terms.
    pub(crate) fn parts(&self, value: Value) -> Option<(u64, &[Term])> {
        self.sum(value).map(|sum| (sum.constant, sum.terms))
    }

    /// Returns the atom whose 64 bits are the value.
    pub(crate) fn as_atom(&self, value: Value) -> Option<&Atom> {
        match self.sum(value)? {
            Sum {
                constant: 0,
                terms:
                    [
                        Term {
                            atom,
                            lo: 0,
                            len: 64,
                            factor: 1,
                        },
                    ],
            } => self.atoms.get(*atom as usize),
            _ => None,
        }
    }

    /// Evaluates the value for given values of its atoms.
    #[cfg(test)]
    pub(crate) fn meaning(&self, value: Value, atom: &dyn Fn(&Atom) -> u64) -> Option<u64> {
        let sum = self.sum(value)?;
        sum.terms.iter().try_fold(sum.constant, |total, term| {
            let number = match self.atoms.get(term.atom as usize)? {
                Atom::Whole(inner) => self.meaning(*inner, atom)?,
                Atom::Or(a, b) => self.meaning(*a, atom)? | self.meaning(*b, atom)?,
                Atom::Xor(parts) => parts
                    .iter()
                    .try_fold(0, |all, &part| Some(all ^ self.meaning(part, atom)?))?,
                Atom::Made(op, parts) => {
                    let [a, b, c] = parts.map(|part| self.meaning(part, atom));
                    op.of([a?, b?, c?])?
                }
                other => atom(other),
            };
            Some(total.wrapping_add(
                (number >> term.lo & super::sum::ones(term.len)).wrapping_mul(term.factor),
            ))
        })
    }

    /// Returns whether the value depends on the atom.
    pub(crate) fn mentions(&self, value: Value, atom: &Atom) -> bool {
        // Registers of the original code are never read again.
        self.by_atom
            .get(atom)
            .is_some_and(|number| self.leaves_of(value).binary_search(number).is_ok())
    }
}
