//! Sums of bit fields of atoms, modulo 2⁶⁴, in one form.

/// `factor ×` the `len` bits from bit `lo` of an atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Term {
    /// Its number.
    pub(crate) atom: u32,
    pub(crate) lo: u8,
    pub(crate) len: u8,
    pub(crate) factor: u64,
}

impl Term {
    /// All of an atom.
    pub(crate) fn whole(atom: u32) -> Self {
        Self {
            atom,
            lo: 0,
            len: 64,
            factor: 1,
        }
    }

    /// How far to the left the field stands, if it is only moved.
    pub(crate) fn shift(self) -> Option<u32> {
        self.factor
            .is_power_of_two()
            .then(|| self.factor.trailing_zeros())
    }

    /// The bits it may set, if it is only moved.
    pub(crate) fn occupied(self) -> Option<u64> {
        Some(ones(self.len) << self.shift()?)
    }
}

/// `constant +` the terms, in the form that [`normal`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sum<'a> {
    pub(crate) constant: u64,
    pub(crate) terms: &'a [Term],
}

/// So many ones in the lowest bits.
pub(crate) fn ones(len: u8) -> u64 {
    1u64.checked_shl(len.into())
        .map_or(u64::MAX, |bit| bit.wrapping_sub(1))
}

/// Brings a sum into the one form in which it is kept.
pub(crate) fn normal(terms: &mut Vec<Term>) {
    loop {
        for term in terms.iter_mut() {
            // Bits that a factor moves out at the top count for nothing.
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

/// Merges two terms that are one, if there are any.
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
            let behind = u16::from(a.lo) + u16::from(a.len) == u16::from(b.lo)
                && a.len < 64
                && b.factor == a.factor << a.len;
            let merged = if same {
                Term {
                    factor: a.factor.wrapping_add(b.factor),
                    ..a
                }
            } else if behind {
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
