//! Symbolic values: linear sums of bit fields, modulo 2⁶⁴, hash-consed.
//!
//! A [`SymValue`] is `constant + Σ factor × field`, where a field is a run of bits of an [`Atom`].
//! Shifts and masks of such sums are such sums wherever the fields do not overlap, and equal sums
//! are the same value. So "is this the address of the reserved slot?" is a comparison, whichever
//! instructions computed the address. Where a result is not such a sum, the operation itself
//! becomes an atom, or the value is [`SymValue::UNKNOWN`], which equals no other.

use std::hash::BuildHasher as _;
use std::slice::from_ref;

use super::atom::{Atom, AtomId, REGISTERS, Source, SymValue};
use super::sum::{Sum, Term, normal};
use crate::ids::{Id, Ids, Slices};
use crate::layout::Owner;
use crate::verify::hash::Map;

/// Limit of terms of a value; beyond it the value is unknown.
pub(crate) const MOST_TERMS: usize = 16;
/// Limit of atoms that a value depends on; beyond it the value is unknown.
const MOST_LEAVES: usize = 32;

/// Limit of atoms of one proof; beyond it values are unknown.
const MOST_ATOMS: usize = 1 << 24;

/// The values of one proof. The allocations are reused from proof to proof.
#[derive(Debug)]
pub(crate) struct SymValues {
    sums: Ids<SymValue, Interned>,
    /// Terms of each value.
    terms: Slices<SymValue, Term>,
    /// Atoms that each value depends on, however deep, sorted.
    leaves: Slices<SymValue, AtomId>,
    /// The newest value of each hash.
    by_hash: Map<u64, SymValue>,
    pub(crate) atoms: Ids<AtomId, Atom>,
    by_atom: Map<Atom, AtomId>,
    /// A buffer for terms.
    spare: Vec<Term>,
    /// A buffer for leaves.
    spare_leaves: Vec<AtomId>,
}

/// A value, except its terms and atoms.
#[derive(Debug)]
struct Interned {
    constant: u64,
    /// The previous value of the same hash.
    older: SymValue,
}

impl SymValues {
    pub(crate) fn new() -> Self {
        let mut values = Self {
            sums: Ids::new(),
            terms: Slices::new(),
            leaves: Slices::new(),
            by_hash: Map::default(),
            atoms: Ids::new(),
            by_atom: Map::default(),
            spare: Vec::new(),
            spare_leaves: Vec::new(),
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
        self.terms.truncate(registers + 1);
        self.leaves.truncate(registers + 1);
        self.atoms.truncate(registers);
    }

    /// Adds the unknown value and the registers; called by `new` only.
    fn add_registers(&mut self) {
        let unknown = self.push(0, &[], &[], SymValue::UNKNOWN);
        debug_assert!(unknown.is_unknown(), "the first value is the unknown one");
        for number in 0..REGISTERS {
            let atom = self.atoms.push(Atom::Register(number));
            let register = self.push(0, &[Term::whole(atom)], &[atom], SymValue::UNKNOWN);
            debug_assert_eq!(register, SymValue::original(number));
        }
    }

    fn push(
        &mut self,
        constant: u64,
        terms: &[Term],
        leaves: &[AtomId],
        older: SymValue,
    ) -> SymValue {
        self.terms.push(terms);
        self.leaves.push(leaves);
        self.sums.push(Interned { constant, older })
    }

    pub(crate) fn sum(&self, value: SymValue) -> Option<Sum<'_>> {
        (!value.is_unknown()).then(|| Sum {
            constant: self.sums[value].constant,
            terms: &self.terms[value],
        })
    }

    /// Takes the buffer for terms, which [`SymValues::intern`] returns.
    pub(crate) fn take_terms(&mut self) -> Vec<Term> {
        std::mem::take(&mut self.spare)
    }

    /// Returns the value of a sum.
    pub(crate) fn intern(&mut self, constant: u64, mut terms: Vec<Term>) -> SymValue {
        normal(&mut terms);
        let value = self.interned(Sum {
            constant,
            terms: &terms,
        });
        terms.clear();
        if self.spare.capacity() < terms.capacity() {
            self.spare = terms;
        }
        value.unwrap_or(SymValue::UNKNOWN)
    }

    /// Returns the value of a sum in normal form, or `None` if it exceeds a limit.
    fn interned(&mut self, sum: Sum<'_>) -> Option<SymValue> {
        if let (0, &[term]) = (sum.constant, sum.terms)
            && term == Term::whole(term.atom)
            && let Atom::Register(number) = self.atoms[term.atom]
        {
            return Some(SymValue::original(number));
        }
        if sum.terms.len() > MOST_TERMS {
            return None;
        }
        let hash = self.by_hash.hasher().hash_one(sum);
        let newest = self.by_hash.get(&hash).copied();
        let newest = newest.unwrap_or(SymValue::UNKNOWN);
        let mut known = newest;
        while let Some(same) = self.sum(known) {
            if same == sum {
                return Some(known);
            }
            known = self.sums[known].older;
        }
        u32::try_from(self.sums.len()).ok()?;
        let mut leaves = std::mem::take(&mut self.spare_leaves);
        leaves.clear();
        for term in sum.terms {
            self.add_leaves(term.atom, &mut leaves);
        }
        leaves.sort_unstable();
        leaves.dedup();
        let fits = leaves.len() <= MOST_LEAVES;
        let value = fits.then(|| self.push(sum.constant, sum.terms, &leaves, newest));
        self.spare_leaves = leaves;
        let value = value?;
        self.by_hash.insert(hash, value);
        Some(value)
    }

    /// Appends the atoms that an atom depends on.
    fn add_leaves(&self, atom: AtomId, leaves: &mut Vec<AtomId>) {
        let pair;
        let (itself, inner): (bool, &[SymValue]) = match &self.atoms[atom] {
            Atom::Whole(inner) => (false, from_ref(inner)),
            &Atom::Or(a, b) => {
                pair = [a, b];
                (false, &pair)
            }
            Atom::Xor(parts) => (false, parts),
            Atom::Made(_, parts) => (false, parts),
            Atom::Timer { entry, .. } => (true, from_ref(entry)),
            Atom::Read(Source::Memory { address, .. } | Source::User { address, .. }, _) => {
                (true, from_ref(address))
            }
            _ => (true, &[]),
        };
        if itself {
            leaves.push(atom);
        }
        for &value in inner {
            leaves.extend_from_slice(&self.leaves[value]);
        }
    }

    /// Returns the key of an atom, or `None` beyond the limit of atoms.
    pub(crate) fn atom_id(&mut self, atom: Atom) -> Option<AtomId> {
        if let Atom::Register(number) = atom {
            return Some(AtomId::new(number.into()));
        }
        if let Some(&known) = self.by_atom.get(&atom) {
            return Some(known);
        }
        if self.atoms.len() >= MOST_ATOMS {
            return None;
        }
        let id = self.atoms.push(atom.clone());
        self.by_atom.insert(atom, id);
        Some(id)
    }

    pub(crate) fn constant(&mut self, constant: u64) -> SymValue {
        let terms = self.take_terms();
        self.intern(constant, terms)
    }

    /// Returns all 64 bits of an atom.
    pub(crate) fn atom(&mut self, atom: Atom) -> SymValue {
        self.field(atom, 0, 64)
    }

    /// Returns some bits of an atom, shifted right to bit 0.
    pub(crate) fn field(&mut self, atom: Atom, lo: u8, len: u8) -> SymValue {
        let Some(atom) = self.atom_id(atom) else {
            return SymValue::UNKNOWN;
        };
        let mut terms = self.take_terms();
        terms.push(Term {
            atom,
            lo,
            len,
            factor: 1,
        });
        self.intern(0, terms)
    }

    /// Returns the address of the running thread's owner, whose low bits are 0 as far as the layout states.
    pub(crate) fn task(&mut self, owner: Owner) -> SymValue {
        let low = owner.free_bits.min(63);
        let upper = self.field(Atom::Task, low, 64 - low);
        self.shl(upper, low.into())
    }

    /// Returns the constant, if it is one.
    pub(crate) fn as_constant(&self, value: SymValue) -> Option<u64> {
        self.sum(value)
            .filter(|sum| sum.terms.is_empty())
            .map(|sum| sum.constant)
    }

    /// Returns the constant and the terms.
    pub(crate) fn parts(&self, value: SymValue) -> Option<(u64, &[Term])> {
        self.sum(value).map(|sum| (sum.constant, sum.terms))
    }

    /// Returns the atom whose 64 bits are the value.
    pub(crate) fn as_atom(&self, value: SymValue) -> Option<&Atom> {
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
            } => Some(&self.atoms[*atom]),
            _ => None,
        }
    }

    /// Evaluates the value for given values of its atoms.
    #[cfg(test)]
    pub(crate) fn meaning(&self, value: SymValue, atom: &dyn Fn(&Atom) -> u64) -> Option<u64> {
        let sum = self.sum(value)?;
        sum.terms.iter().try_fold(sum.constant, |total, term| {
            let number = match &self.atoms[term.atom] {
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
    pub(crate) fn mentions(&self, value: SymValue, atom: &Atom) -> bool {
        // Registers of the original code are never read again.
        self.by_atom
            .get(atom)
            .is_some_and(|number| self.leaves[value].binary_search(number).is_ok())
    }
}
