//! The state of a function at one of its instructions: an expression for each register and stack slot, and
//! what is known of the expressions.

use std::collections::BTreeSet;

use crate::ids::Id;

use super::facts::ValueFact;
use super::slots::{Place, Slots};
use super::sorted::SortedMap;
use super::value::{Expression, ExpressionId, Expressions, Numbers, Which, mask};

/// Number of the stack pointer.
pub(super) const STACK: usize = 4;
/// Number of the frame pointer.
pub(super) const FRAME: usize = 5;

/// The operands of the comparison that the flags are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub(super) value: ExpressionId,
    pub(super) with: ExpressionId,
    pub(super) bits: u32,
    /// True of `test`: the flags are of the value itself.
    pub(super) tests: bool,
}

/// Values of registers, stack slots and memory at an instruction, with what is known of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MachineState {
    pub(super) registers: [ExpressionId; 16],
    pub(super) slots: Slots,
    facts: SortedMap<ExpressionId, ValueFact>,
    pub(super) memory: ExpressionId,
    pub(super) compared: Option<Compared>,
}

impl MachineState {
    /// The state where control enters from unknown code: registers hold what that passes.
    pub(super) fn entered(all: &mut Expressions, at: u64) -> Self {
        Self::of_registers(all, at, &ValueFact::WHOLE)
    }

    /// The state where control comes from code that is not followed.
    pub(super) fn unknown(all: &mut Expressions, at: u64) -> Self {
        Self::of_registers(all, at, &ValueFact::UNKNOWN)
    }

    fn of_registers(all: &mut Expressions, at: u64, fact: &ValueFact) -> Self {
        let registers = std::array::from_fn(|number| all.produced(at, Which::Joined(number)));
        let facts = registers.iter().map(|&id| (id, fact.clone())).collect();
        Self {
            registers,
            slots: Slots::default(),
            facts,
            memory: all.produced(at, Which::Memory),
            compared: None,
        }
    }

    pub(super) fn register(&self, number: usize) -> Option<ExpressionId> {
        self.registers.get(number).copied()
    }

    pub(super) fn set(&mut self, number: usize, value: ExpressionId) {
        if let Some(register) = self.registers.get_mut(number) {
            *register = value;
        }
    }

    /// Returns what is known of a value by itself, or by its parts.
    pub(super) fn fact(&self, all: &Expressions, id: ExpressionId) -> ValueFact {
        if let Some(fact) = self.facts.get(id) {
            return fact.clone();
        }
        match all.form(id) {
            Expression::Constant(number) => ValueFact {
                numbers: Numbers::one(number),
                whole: true,
            },
            Expression::Low { of, bits } => {
                let low = |of: ExpressionId| low_numbers(&self.fact(all, of).numbers, bits);
                let mut numbers = low(of);
                // The bits of a sum follow from the bits of its parts, of which more may be known.
                if let Expression::Plus { of, constant } = all.form(of) {
                    let part = all.known_low(of, bits).map_or_else(
                        || low(of),
                        |part| low_numbers(&self.fact(all, part).numbers, bits),
                    );
                    let sum = part.mapped(|number| number.wrapping_add(constant) & mask(bits));
                    if sum != Numbers::Any {
                        numbers = sum;
                    }
                }
                ValueFact {
                    numbers,
                    whole: false,
                }
            }
            Expression::Loaded { bytes, .. } => ValueFact {
                numbers: match bytes {
                    8 => Numbers::Any,
                    bytes => Numbers::Range(0, mask(bytes * 8)),
                },
                whole: bytes == 8,
            },
            Expression::Plus { of, constant } => ValueFact {
                numbers: self
                    .fact(all, of)
                    .numbers
                    .mapped(|number| number.wrapping_add(constant)),
                whole: false,
            },
            Expression::Times { of, factor } => ValueFact {
                numbers: self.fact(all, of).numbers.times(factor),
                whole: false,
            },
            Expression::Sum(one, other) => {
                let numbers = self.fact(all, one).numbers;
                ValueFact {
                    numbers: numbers.sum(&self.fact(all, other).numbers),
                    whole: false,
                }
            }
            Expression::Signed { .. } | Expression::Produced { .. } => ValueFact::UNKNOWN,
        }
    }

    /// Records what is known of a value.
    pub(super) fn learn(&mut self, id: ExpressionId, fact: ValueFact) {
        self.facts.insert(id, fact);
    }

    /// Narrows the numbers of a value to a range; returns whether any are left.
    pub(super) fn narrow(
        &mut self,
        all: &Expressions,
        id: ExpressionId,
        first: u64,
        last: u64,
    ) -> bool {
        let fact = self.fact(all, id);
        match fact.numbers.within(first, last) {
            Some(numbers) => {
                self.learn(id, ValueFact { numbers, ..fact });
                true
            }
            None => false,
        }
    }

    /// Keeps what is known of values that the state still has.
    pub(super) fn tidy(&mut self, all: &Expressions) {
        let mut kept = KeptExpressions::new(all);
        let mut worklist: Vec<ExpressionId> = self.registers.to_vec();
        worklist.extend(self.slots.iter().map(|(_, value)| *value));
        if let Some(compared) = self.compared {
            worklist.extend([compared.value, compared.with]);
        }
        while let Some(id) = worklist.pop() {
            if !kept.insert(id) {
                continue;
            }
            match all.form(id) {
                Expression::Low { of, .. }
                | Expression::Signed { of, .. }
                | Expression::Plus { of, .. }
                | Expression::Times { of, .. } => worklist.push(of),
                Expression::Sum(one, other) => worklist.extend([one, other]),
                Expression::Loaded { address, .. } => worklist.push(address),
                Expression::Constant(_) | Expression::Produced { .. } => {}
            }
        }
        // What is known of an expression holds where its parts are combined again.
        let memory = self.memory;
        self.facts.retain(|id| lives(all, &kept, memory, id));
    }

    /// The state at an instruction that several ways reach: a value that differs between them is a value
    /// of its own from then on, as `apart` records. `before` is the state at the instruction until now; with
    /// `widen`, numbers that grow beyond its are any.
    pub(super) fn joined(
        ways: &[&Self],
        before: Option<&Self>,
        apart: &mut Apart,
        all: &mut Expressions,
        at: u64,
        widen: bool,
    ) -> Option<Self> {
        let (first, others) = ways.split_first()?;
        let mut joined = (*first).clone();
        let mut renamed: Vec<(ExpressionId, ValueFact)> = Vec::new();
        let fact_of =
            |all: &Expressions, id: ExpressionId, of: &dyn Fn(&Self) -> Option<ExpressionId>| {
                let facts = ways
                    .iter()
                    .map(|way| of(way).map_or(ValueFact::UNKNOWN, |id| way.fact(all, id)));
                let fact = facts.reduce(|fact, more| fact.union(&more));
                let fact = fact.unwrap_or(ValueFact::UNKNOWN);
                match before {
                    Some(before) if before.facts.get(id).is_some() => {
                        let known = before.fact(all, id);
                        let mut fact = known.union(&fact);
                        if widen && fact.numbers != known.numbers {
                            fact.numbers = fact.numbers.widened();
                        }
                        fact
                    }
                    _ => fact,
                }
            };
        for number in 0..joined.registers.len() {
            let own = first.register(number);
            if others.iter().any(|way| way.register(number) != own) {
                apart.registers |= 1 << number;
            }
            if apart.registers >> number & 1 == 1 {
                let id = all.produced(at, Which::Joined(number));
                renamed.push((id, fact_of(all, id, &|way| way.register(number))));
                for bits in [8, 16, 32] {
                    let low = |all: &Expressions, way: &Self| {
                        way.register(number)
                            .and_then(|own| all.known_low(own, bits))
                    };
                    if ways.iter().any(|way| low(all, way).is_none()) {
                        continue;
                    }
                    let part = all.low(id, bits);
                    let fact = fact_of(all, part, &|way| low(all, way));
                    if fact.numbers.bounds() != (0, mask(bits)) {
                        renamed.push((part, fact));
                    }
                }
                joined.set(number, id);
            }
        }
        joined.slots.clear();
        for (place, &own) in first.slots.iter() {
            if !others.iter().all(|way| way.slots.get(place).is_some()) {
                continue;
            }
            if others.iter().any(|way| way.slots.get(place) != Some(&own)) {
                apart.slots.insert(place);
            }
            let mut id = own;
            if apart.slots.contains(&place) {
                let (base, offset) = place;
                id = all.produced(at, Which::Slot { base, offset });
                let fact = fact_of(all, id, &|way| way.slots.get(place).copied());
                renamed.push((id, fact));
            }
            joined.slots.insert(place, id);
        }
        apart.memory |= others.iter().any(|way| way.memory != first.memory);
        if apart.memory {
            joined.memory = all.produced(at, Which::Memory);
        }
        if others.iter().any(|way| way.compared != first.compared) {
            joined.compared = None;
        }
        for (id, fact) in joined.facts.iter_mut() {
            for way in others {
                if *fact == ValueFact::UNKNOWN {
                    break;
                }
                *fact = fact.union(&way.fact(all, id));
            }
        }
        for (id, fact) in renamed {
            joined.learn(id, fact);
        }
        joined.tidy(all);
        Some(joined)
    }
}

/// Values that differed between the ways to an instruction.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart {
    /// A bit for each number.
    registers: u16,
    slots: BTreeSet<Place>,
    memory: bool,
}

/// A set of expressions of a function, a bit for each.
struct KeptExpressions(Vec<u64>);

impl KeptExpressions {
    fn new(all: &Expressions) -> Self {
        Self(vec![0; all.len().div_ceil(64)])
    }

    /// Adds an expression; returns whether it was not there.
    fn insert(&mut self, id: ExpressionId) -> bool {
        let word = self.0.get_mut(id.index() / 64);
        debug_assert!(word.is_some(), "{id:?} is of another function");
        let bit = 1 << (id.index() % 64);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }

    fn contains(&self, id: ExpressionId) -> bool {
        let word = self.0.get(id.index() / 64);
        word.is_some_and(|word| word >> (id.index() % 64) & 1 == 1)
    }
}

/// Returns whether an expression can be combined from values that a state has.
fn lives(
    all: &Expressions,
    kept: &KeptExpressions,
    memory: ExpressionId,
    id: ExpressionId,
) -> bool {
    kept.contains(id)
        || match all.form(id) {
            Expression::Constant(_) => true,
            Expression::Produced { .. } => false,
            Expression::Low { of, .. }
            | Expression::Signed { of, .. }
            | Expression::Plus { of, .. }
            | Expression::Times { of, .. } => lives(all, kept, memory, of),
            Expression::Sum(one, other) => {
                lives(all, kept, memory, one) && lives(all, kept, memory, other)
            }
            Expression::Loaded {
                address,
                memory: loaded,
                ..
            } => loaded == memory && lives(all, kept, memory, address),
        }
}

/// The numbers of the low bits of a value.
fn low_numbers(numbers: &Numbers, bits: u32) -> Numbers {
    let most = mask(bits);
    match numbers {
        Numbers::Set(all) => Numbers::set(all.iter().map(|number| number & most).collect()),
        numbers if numbers.bounds().1 <= most => numbers.clone(),
        numbers => {
            let (first, last) = numbers.bounds();
            // One turn of the higher bits.
            match first & !most == last & !most && *numbers != Numbers::Any {
                true => Numbers::Range(first & most, last & most),
                false => Numbers::Range(0, most),
            }
        }
    }
}
