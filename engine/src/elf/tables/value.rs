//! Values of registers and stack slots: hash-consed expressions, and the numbers that they may have.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::ids::{Ids, id};

id!(
    /// An expression, equal to another exactly if both always have one value at one time.
    pub(super) ExpressionId
);

/// The form of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Expression {
    /// The same number at any time.
    Constant(u64),
    /// A value that an instruction produces, or that control brings to one: its address, and which of
    /// the values there.
    Produced { at: u64, which: Which },
    /// The low bits of a value, with zeros above.
    Low { of: ExpressionId, bits: u32 },
    /// The low bits of a value, with their sign above.
    Signed { of: ExpressionId, bits: u32 },
    /// A value and a constant.
    Plus { of: ExpressionId, constant: u64 },
    /// A value times a constant.
    Times { of: ExpressionId, factor: u64 },
    /// The sum of two values, which wraps.
    Sum(ExpressionId, ExpressionId),
    /// Memory at an address, at one state of memory; with zeros above.
    Loaded {
        address: ExpressionId,
        bytes: u32,
        memory: ExpressionId,
    },
}

/// One of the values at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Which {
    /// A register by its number, written there.
    Register(usize),
    /// A register where ways join.
    Joined(usize),
    /// A stack slot where ways join.
    Slot { base: ExpressionId, offset: i64 },
    /// The state of memory.
    Memory,
}

/// All expressions of a function.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    ids: FxHashMap<Expression, ExpressionId>,
    all: Ids<ExpressionId, Expression>,
}

/// The low `bits` set.
pub(super) const fn mask(bits: u32) -> u64 {
    if bits >= 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// The low `bits` of a number, with their sign above.
pub(super) const fn sign_extended(number: u64, bits: u32) -> u64 {
    let unused = 64 - bits;
    ((number << unused).cast_signed() >> unused).cast_unsigned()
}

impl Expressions {
    pub(super) fn intern(&mut self, expression: Expression) -> ExpressionId {
        let all = &mut self.all;
        let id = self.ids.entry(expression);
        *id.or_insert_with(|| all.push(expression))
    }

    /// The number of expressions.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn form(&self, id: ExpressionId) -> Expression {
        self.all[id]
    }

    pub(super) fn constant(&mut self, number: u64) -> ExpressionId {
        self.intern(Expression::Constant(number))
    }

    pub(super) fn produced(&mut self, at: u64, which: Which) -> ExpressionId {
        self.intern(Expression::Produced { at, which })
    }

    pub(super) fn as_constant(&self, id: ExpressionId) -> Option<u64> {
        match self.form(id) {
            Expression::Constant(number) => Some(number),
            _ => None,
        }
    }

    /// Returns the value as a base and a constant.
    pub(super) fn parts(&self, id: ExpressionId) -> (ExpressionId, u64) {
        match self.form(id) {
            Expression::Plus { of, constant } => (of, constant),
            _ => (id, 0),
        }
    }

    pub(super) fn plus(&mut self, of: ExpressionId, constant: u64) -> ExpressionId {
        if let Some(number) = self.as_constant(of) {
            return self.constant(number.wrapping_add(constant));
        }
        let (base, before) = self.parts(of);
        match before.wrapping_add(constant) {
            0 => base,
            constant => self.intern(Expression::Plus { of: base, constant }),
        }
    }

    pub(super) fn times(&mut self, of: ExpressionId, factor: u64) -> ExpressionId {
        match self.as_constant(of) {
            Some(number) => self.constant(number.wrapping_mul(factor)),
            None if factor == 1 => of,
            None => self.intern(Expression::Times { of, factor }),
        }
    }

    pub(super) fn sum(&mut self, one: ExpressionId, other: ExpressionId) -> ExpressionId {
        match (self.as_constant(one), self.as_constant(other)) {
            (_, Some(number)) => self.plus(one, number),
            (Some(number), None) => self.plus(other, number),
            _ => self.intern(Expression::Sum(one.min(other), one.max(other))),
        }
    }

    /// The low bits of a value: one form for those of a sum, however often it was cut before.
    pub(super) fn low(&mut self, of: ExpressionId, bits: u32) -> ExpressionId {
        if bits >= 64 {
            return of;
        }
        match self.form(of) {
            Expression::Constant(number) => self.constant(number & mask(bits)),
            Expression::Low { bits: known, .. } if known <= bits => of,
            Expression::Low { of, .. } => self.low(of, bits),
            Expression::Signed { of, bits: known } if known >= bits => self.low(of, bits),
            Expression::Loaded { bytes, .. } if bytes * 8 <= bits => of,
            Expression::Plus { of: base, constant } => {
                let base = match self.form(base) {
                    Expression::Low { of, bits: known } if known >= bits => of,
                    _ => base,
                };
                let constant = sign_extended(constant, bits);
                let sum = self.plus(base, constant);
                self.intern(Expression::Low { of: sum, bits })
            }
            _ => self.intern(Expression::Low { of, bits }),
        }
    }
}

impl Expressions {
    /// The low bits of a value, if the function computes or compares them.
    pub(super) fn known_low(&self, of: ExpressionId, bits: u32) -> Option<ExpressionId> {
        match self.form(of) {
            Expression::Low { bits: known, .. } if known <= bits => Some(of),
            Expression::Low { of, .. } => self.known_low(of, bits),
            Expression::Loaded { bytes, .. } if bytes * 8 <= bits => Some(of),
            _ => self.ids.get(&Expression::Low { of, bits }).copied(),
        }
    }
}

/// Numbers that a value may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// All numbers of 64 bits.
    Any,
    /// From the first to the last.
    Range(u64, u64),
    /// One of these, sorted.
    Set(Rc<[u64]>),
}

/// The most numbers of a set: the largest tables of parsers have some thousand targets.
pub(super) const MOST: usize = 1 << 14;

impl Numbers {
    pub(super) fn one(number: u64) -> Self {
        Self::Range(number, number)
    }

    pub(super) fn set(mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        match *numbers.as_slice() {
            [] => Self::Any,
            [only] => Self::one(only),
            [first, .., last] if numbers.len() > MOST => Self::Range(first, last),
            _ => Self::Set(numbers.into()),
        }
    }

    pub(super) fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Any => (0, u64::MAX),
            Self::Range(first, last) => (*first, *last),
            Self::Set(all) => match all.as_ref() {
                [first, .., last] => (*first, *last),
                _ => (0, u64::MAX),
            },
        }
    }

    pub(super) fn single(&self) -> Option<u64> {
        match *self {
            Self::Range(first, last) if first == last => Some(first),
            _ => None,
        }
    }

    /// The numbers one by one, if they are at most `most`.
    pub(super) fn listed(&self, most: usize) -> Option<Vec<u64>> {
        match self {
            Self::Any => None,
            Self::Range(first, last) => {
                (last - first < most as u64).then(|| (*first..=*last).collect())
            }
            Self::Set(all) => (all.len() <= most).then(|| all.to_vec()),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        if self == other {
            return self.clone();
        }
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => Self::Any,
            (Self::Range(..), Self::Range(..)) => self.hull(other),
            // Where many ways join, most bring numbers that are there already.
            _ if self.has_all(other) => self.clone(),
            _ if other.has_all(self) => other.clone(),
            // A range is widened as a range; a set stays one only beside a few numbers.
            _ => match (self.listed(MOST), other.listed(MOST)) {
                (Some(mut all), Some(more)) => {
                    all.extend(more);
                    Self::set(all)
                }
                _ => self.hull(other),
            },
        }
    }

    /// Returns whether a set has all numbers of another set or range.
    fn has_all(&self, other: &Self) -> bool {
        let Self::Set(all) = self else {
            return false;
        };
        let has = |number: &u64| all.binary_search(number).is_ok();
        match other {
            Self::Any => false,
            Self::Range(first, last) => {
                last - first < all.len() as u64 && (*first..=*last).all(|number| has(&number))
            }
            Self::Set(others) => others.len() <= all.len() && others.iter().all(has),
        }
    }

    /// All numbers of as many bytes as these take up.
    pub(super) fn widened(&self) -> Self {
        let (_, last) = self.bounds();
        let bits = [8, 16, 32].into_iter().find(|&bits| last <= mask(bits));
        bits.map_or(Self::Any, |bits| Self::Range(0, mask(bits)))
    }

    fn hull(&self, other: &Self) -> Self {
        let ((a, b), (c, d)) = (self.bounds(), other.bounds());
        Self::Range(a.min(c), b.max(d))
    }

    /// Those from `first` to `last`; `None` if there are none.
    pub(super) fn within(&self, first: u64, last: u64) -> Option<Self> {
        match self {
            Self::Any => (first <= last).then_some(Self::Range(first, last)),
            Self::Range(a, b) => {
                let (a, b) = ((*a).max(first), (*b).min(last));
                (a <= b).then_some(Self::Range(a, b))
            }
            Self::Set(all) => {
                let kept: Vec<u64> = all
                    .iter()
                    .copied()
                    .filter(|number| (first..=last).contains(number))
                    .collect();
                (!kept.is_empty()).then(|| Self::set(kept))
            }
        }
    }

    /// The results of a function that keeps the order of the numbers from the first to the last, or
    /// wraps; of a range only if it does not wrap.
    pub(super) fn mapped(&self, map: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::Range(first, last) => {
                let (from, to) = (map(*first), map(*last));
                if to.wrapping_sub(from) == last - first && from <= to {
                    Self::Range(from, to)
                } else {
                    Self::Any
                }
            }
            Self::Set(all) => Self::set(all.iter().map(|&number| map(number)).collect()),
        }
    }

    pub(super) fn times(&self, factor: u64) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::Range(first, last) => {
                // Every number of the range is a product of few: a set, so that tables have their steps.
                match (self.listed(MOST), last.checked_mul(factor)) {
                    (Some(all), Some(_)) => {
                        Self::set(all.iter().map(|number| number * factor).collect())
                    }
                    (None, Some(last)) => Self::Range(first * factor, last),
                    _ => Self::Any,
                }
            }
            Self::Set(all) => Self::set(
                all.iter()
                    .map(|number| number.wrapping_mul(factor))
                    .collect(),
            ),
        }
    }

    pub(super) fn sum(&self, other: &Self) -> Self {
        if let Some(number) = other.single() {
            return self.mapped(|own| own.wrapping_add(number));
        }
        if let Some(number) = self.single() {
            return other.mapped(|own| own.wrapping_add(number));
        }
        let ((a, b), (c, d)) = (self.bounds(), other.bounds());
        match (a.checked_add(c), b.checked_add(d)) {
            (Some(first), Some(last)) => Self::Range(first, last),
            _ => Self::Any,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_low_bits_are_one_expression() {
        let mut all = Expressions::default();
        let argument = all.produced(0, Which::Register(7));
        let low = all.low(argument, 32);
        let less = all.plus(low, 0x41_u64.wrapping_neg());
        let cut = all.low(less, 32);
        let byte = all.low(cut, 8);
        let direct = all.plus(argument, 0x41_u64.wrapping_neg());
        assert_eq!(byte, all.low(direct, 8));
        assert_ne!(cut, all.low(argument, 32));
        assert_eq!(all.low(low, 32), low);
    }

    #[test]
    fn the_union_with_a_part_is_the_whole() {
        let set = Numbers::set(vec![1, 2, 3, 9]);
        let parts = [
            Numbers::set(vec![2, 9]),
            Numbers::Range(1, 3),
            Numbers::one(9),
            set.clone(),
        ];
        for part in parts {
            assert_eq!(
                [set.union(&part), part.union(&set)],
                [set.clone(), set.clone()]
            );
        }
        let more = Numbers::set(vec![1, 2, 3, 4, 9]);
        for other in [
            Numbers::Range(3, 4),
            Numbers::one(4),
            Numbers::set(vec![4, 9]),
        ] {
            assert_eq!(
                [set.union(&other), other.union(&set)],
                [more.clone(), more.clone()]
            );
        }
    }

    #[test]
    fn numbers_that_wrap_are_no_range() {
        let numbers = Numbers::Range(0, 5);
        assert_eq!(
            numbers.mapped(|number| number.wrapping_sub(3)),
            Numbers::Any
        );
        assert_eq!(numbers.sum(&Numbers::one(3)), Numbers::Range(3, 8));
        assert_eq!(
            Numbers::set(vec![4, 0, 9]).within(1, 8),
            Some(Numbers::one(4))
        );
        assert_eq!(numbers.within(6, 9), None);
    }
}
