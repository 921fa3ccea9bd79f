//! Sums of bit fields of atoms modulo 2⁶⁴, in a normal form.

use super::atom::AtomId;

/// The `len` bits from bit `lo` of an atom, times `factor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term {
    /// The source of the bits.
    pub(crate) atom: AtomId,
    pub(crate) lo: u8,
    pub(crate) len: u8,
    pub(crate) factor: u64,
}

impl Term {
    /// Returns the term of all 64 bits of an atom.
    pub(crate) fn whole(atom: AtomId) -> Self {
        Self {
            atom,
            lo: 0,
            len: 64,
            factor: 1,
        }
    }

    /// Returns the left shift of the field, if the factor is a power of two.
    pub(crate) fn shift(self) -> Option<u32> {
        self.factor
            .is_power_of_two()
            .then(|| self.factor.trailing_zeros())
    }

    /// Returns the bits that it may set, if the factor is a power of two.
    pub(crate) fn occupied(self) -> Option<u64> {
        Some(ones(self.len) << self.shift()?)
    }
}

/// `constant +` the terms, in the form of [`normal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sum<'a> {
    pub(crate) constant: u64,
    pub(crate) terms: &'a [Term],
}

/// Returns a mask of the lowest `len` bits.
pub(crate) fn ones(len: u8) -> u64 {
    1u64.checked_shl(len.into())
        .map_or(u64::MAX, |bit| bit.wrapping_sub(1))
}

/// Brings terms into normal form.
pub(crate) fn normal(terms: &mut Vec<Term>) {
    loop {
        for term in terms.iter_mut() {
            // Bits shifted out at the top have no effect.
            let left = 64u32.saturating_sub(term.factor.trailing_zeros());
            term.len = term.len.min(u8::try_from(left).unwrap_or(64));
        }
        terms.retain(|term| term.factor != 0 && term.len != 0);
        terms.sort_unstable();
        if !merge(terms) {
            return;
        }
    }
}

/// Merges the first pair of terms that can be merged; returns whether there was one.
fn merge(terms: &mut Vec<Term>) -> bool {
    for i in 0..terms.len() {
        for j in i + 1..terms.len() {
            let (Some(&a), Some(&b)) = (terms.get(i), terms.get(j)) else {
                return false;
            };
            if a.atom != b.atom {
                break;
            }
            let same = (a.lo, a.len) == (b.lo, b.len);
            let adjacent = u16::from(a.lo) + u16::from(a.len) == u16::from(b.lo)
                && a.len < 64
                && b.factor == a.factor << a.len;
            let merged = if same {
                Term {
                    factor: a.factor.wrapping_add(b.factor),
                    ..a
                }
            } else if adjacent {
                Term {
                    len: a.len.saturating_add(b.len),
                    ..a
                }
            } else {
                continue;
            };
            terms.swap_remove(j);
            if let Some(first) = terms.get_mut(i) {
                *first = merged;
            }
            return true;
        }
    }
    false
}
