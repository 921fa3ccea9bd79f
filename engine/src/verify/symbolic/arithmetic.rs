//! Arithmetic on symbolic values.

use super::atom::{Atom, Op, SymValue};
use super::sum::{Term, ones};
use super::value::{MOST_TERMS, SymValues};

impl SymValues {
    pub(crate) fn add(&mut self, a: SymValue, b: SymValue) -> SymValue {
        let mut terms = self.take_terms();
        let (Some(x), Some(y)) = (self.sum(a), self.sum(b)) else {
            return SymValue::UNKNOWN;
        };
        let constant = x.constant.wrapping_add(y.constant);
        terms.extend(x.terms.iter().chain(y.terms));
        self.intern(constant, terms)
    }

    pub(crate) fn sub(&mut self, a: SymValue, b: SymValue) -> SymValue {
        let negative = self.scale(b, u64::MAX);
        self.add(a, negative)
    }

    pub(crate) fn scale(&mut self, a: SymValue, by: u64) -> SymValue {
        let mut terms = self.take_terms();
        let Some(sum) = self.sum(a) else {
            return SymValue::UNKNOWN;
        };
        terms.extend(sum.terms.iter().map(|&term| Term {
            factor: term.factor.wrapping_mul(by),
            ..term
        }));
        let constant = sum.constant.wrapping_mul(by);
        self.intern(constant, terms)
    }

    pub(crate) fn mul(&mut self, a: SymValue, b: SymValue) -> SymValue {
        match (self.as_constant(a), self.as_constant(b)) {
            (_, Some(by)) => self.scale(a, by),
            (Some(by), _) => self.scale(b, by),
            _ => self.made_of_two(Op::Multiply, a, b),
        }
    }

    /// Shifts by less than 64.
    pub(crate) fn shl(&mut self, a: SymValue, by: u32) -> SymValue {
        self.scale(a, 1u64.wrapping_shl(by))
    }

    /// Shifts by less than 64.
    pub(crate) fn shr(&mut self, a: SymValue, by: u32) -> SymValue {
        let Some((constant, terms)) = self.apart(a) else {
            return SymValue::UNKNOWN;
        };
        let mut kept = Vec::new();
        for term in terms {
            let (Some(shift), len) = (term.shift(), u32::from(term.len)) else {
                return SymValue::UNKNOWN;
            };
            if shift >= by {
                kept.push(Term {
                    factor: 1u64.wrapping_shl(shift - by),
                    ..term
                });
            } else if shift + len > by {
                let cut = u8::try_from(by - shift).unwrap_or(u8::MAX);
                kept.push(Term {
                    lo: term.lo.saturating_add(cut),
                    len: term.len.saturating_sub(cut),
                    factor: 1,
                    ..term
                });
            }
        }
        self.intern(constant.wrapping_shr(by), kept)
    }

    /// Selects the bits of a constant mask.
    pub(crate) fn mask(&mut self, a: SymValue, mask: u64) -> SymValue {
        if mask == u64::MAX {
            return a;
        }
        let Some((constant, terms)) = self.apart(a) else {
            return SymValue::UNKNOWN;
        };
        let mut kept = Vec::new();
        for term in terms {
            let Some(shift) = term.shift() else {
                return SymValue::UNKNOWN;
            };
            let mut wanted = mask.wrapping_shr(shift) & ones(term.len);
            // Each run of ones in the mask keeps a field of its own.
            while wanted != 0 {
                let (start, run) = (
                    wanted.trailing_zeros(),
                    (wanted >> wanted.trailing_zeros()).trailing_ones(),
                );
                let (Ok(from), Ok(len)) = (u8::try_from(start), u8::try_from(run)) else {
                    return SymValue::UNKNOWN;
                };
                kept.push(Term {
                    lo: term.lo.saturating_add(from),
                    len,
                    factor: 1u64.wrapping_shl(shift + start),
                    ..term
                });
                wanted &= !(ones(len) << start);
            }
        }
        self.intern(constant & mask, kept)
    }

    pub(crate) fn and(&mut self, a: SymValue, b: SymValue) -> SymValue {
        match (self.as_constant(a), self.as_constant(b)) {
            (_, Some(mask)) if is_plain(mask) => self.mask(a, mask),
            (Some(mask), _) if is_plain(mask) => self.mask(b, mask),
            _ if a == b => a,
            _ => self.made_of_two(Op::And, a, b),
        }
    }

    pub(crate) fn or(&mut self, a: SymValue, b: SymValue) -> SymValue {
        if let (Some(x), Some(y)) = (self.as_constant(a), self.as_constant(b)) {
            return self.constant(x | y);
        }
        match (self.as_constant(a), self.as_constant(b)) {
            (Some(0), _) => return b,
            (_, Some(0)) => return a,
            _ => {}
        }
        match (self.occupied(a), self.occupied(b)) {
            _ if a.is_unknown() || b.is_unknown() => SymValue::UNKNOWN,
            _ if a == b => a,
            (Some(x), Some(y)) if x & y == 0 => self.add(a, b),
            _ => {
                let truths = self.is_truth(a) && self.is_truth(b);
                let bits = if truths { 1 } else { 64 };
                self.field(Atom::Or(a.min(b), a.max(b)), 0, bits)
            }
        }
    }

    pub(crate) fn xor(&mut self, a: SymValue, b: SymValue) -> SymValue {
        if a.is_unknown() || b.is_unknown() {
            return SymValue::UNKNOWN;
        }
        if let (Some(x), Some(y)) = (self.as_constant(a), self.as_constant(b)) {
            return self.constant(x ^ y);
        }
        if let (Some(x), Some(y)) = (self.occupied(a), self.occupied(b))
            && x & y == 0
        {
            return self.add(a, b);
        }
        let mut parts: Vec<SymValue> = Vec::new();
        for part in self.xor_parts(a).into_iter().chain(self.xor_parts(b)) {
            // Equal operands cancel out.
            match parts.iter().position(|&known| known == part) {
                Some(known) => drop(parts.swap_remove(known)),
                None => parts.push(part),
            }
        }
        parts.sort_unstable();
        match parts.as_slice() {
            [] => self.constant(0),
            [one] => *one,
            [..] if parts.len() > MOST_TERMS => SymValue::UNKNOWN,
            [..] => self.atom(Atom::Xor(parts)),
        }
    }

    /// Returns the operands of a symbolic exclusive or, or the value itself.
    pub(crate) fn xor_parts(&self, value: SymValue) -> Vec<SymValue> {
        match self.as_atom(value) {
            Some(Atom::Xor(parts)) => parts.clone(),
            _ => vec![value],
        }
    }

    /// Returns the bits that may be set, if no two terms overlap.
    pub(crate) fn occupied(&self, value: SymValue) -> Option<u64> {
        let sum = self.sum(value)?;
        sum.terms.iter().try_fold(sum.constant, |seen, term| {
            let bits = term.occupied()?;
            (seen & bits == 0).then_some(seen | bits)
        })
    }

    /// Returns the value as shifted terms that do not overlap.
    fn apart(&mut self, value: SymValue) -> Option<(u64, Vec<Term>)> {
        let sum = self.sum(value)?;
        if self.occupied(value).is_some() {
            return Some((sum.constant, sum.terms.to_vec()));
        }
        let atom = self.atom_id(Atom::Whole(value))?;
        Some((
            0,
            vec![Term {
                atom,
                lo: 0,
                len: 64,
                factor: 1,
            }],
        ))
    }
}

/// Returns whether the mask has few runs of ones. With more, the result would exceed the limit of
/// terms.
fn is_plain(mask: u64) -> bool {
    (mask & !(mask << 1)).count_ones() <= 4
}
