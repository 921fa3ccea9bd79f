//! The arithmetic on numbers that are not known, against the processor's.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::verify::symbolic::atom::{Atom, Value};
use crate::verify::symbolic::value::Values;

#[derive(Clone, Copy, Debug)]
enum Op {
    Constant(u64),
    Register(u8),
    Low(u8, u8, u8),
    Add,
    Sub,
    Scale(u64),
    Shl(u32),
    Shr(u32),
    Mask(u64),
    Or,
    Xor,
    Mul,
    Swap,
    Duplicate,
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0_u64..64,
        Just(u64::MAX),
        Just(0xffff_ffff),
        (0_u32..64).prop_map(|bit| 1 << bit),
        (1_u32..64).prop_map(|bits| (1 << bits) - 1)
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        number().prop_map(Op::Constant),
        (0_u8..3).prop_map(Op::Register),
        (0_u8..3, 0_u8..64).prop_flat_map(
            |(register, lo)| (1..=64 - lo).prop_map(move |len| Op::Low(register, lo, len))
        ),
        Just(Op::Add),
        Just(Op::Sub),
        number().prop_map(Op::Scale),
        (0_u32..64).prop_map(Op::Shl),
        (0_u32..64).prop_map(Op::Shr),
        number().prop_map(Op::Mask),
        Just(Op::Or),
        Just(Op::Xor),
        Just(Op::Mul),
        Just(Op::Swap),
        Just(Op::Duplicate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Whatever is computed, and whatever form it is kept in, it stands for the right number.
    #[test]
    fn a_value_stands_for_what_was_computed(ops in proptest::collection::vec(op(), 1..30), registers in [number(), number(), number()]) {
        let mut values = Values::new();
        let mut stack: Vec<(Value, u64)> = Vec::new();
        for op in ops {
            let binary = matches!(op, Op::Add | Op::Sub | Op::Or | Op::Xor | Op::Mul | Op::Swap);
            if stack.len() < if binary { 2 } else { 1 } && !matches!(op, Op::Constant(_) | Op::Register(_) | Op::Low(..)) {
                continue;
            }
            let ones = |len: u8| if len == 64 { u64::MAX } else { (1 << len) - 1 };
            if binary {
                let ((b, y), (a, x)) = (stack.pop().unwrap(), stack.pop().unwrap());
                match op {
                    Op::Add => stack.push((values.add(a, b), x.wrapping_add(y))),
                    Op::Sub => stack.push((values.sub(a, b), x.wrapping_sub(y))),
                    Op::Or => stack.push((values.or(a, b), x | y)),
                    Op::Xor => stack.push((values.xor(a, b), x ^ y)),
                    Op::Mul => stack.push((values.mul(a, b), x.wrapping_mul(y))),
                    _ => stack.extend([(b, y), (a, x)]),
                }
                continue;
            }
            match op {
                Op::Constant(number) => stack.push((values.constant(number), number)),
                Op::Register(register) => stack.push((values.atom(Atom::Register(register)), registers[usize::from(register)])),
                Op::Low(register, lo, len) => {
                    let value = values.field(Atom::Register(register), lo, len);
                    stack.push((value, registers[usize::from(register)] >> lo & ones(len)));
                }
                Op::Duplicate => stack.push(*stack.last().unwrap()),
                _ => {
                    let (a, x) = stack.pop().unwrap();
                    stack.push(match op {
                        Op::Scale(by) => (values.scale(a, by), x.wrapping_mul(by)),
                        Op::Shl(by) => (values.shl(a, by), x << by),
                        Op::Shr(by) => (values.shr(a, by), x >> by),
                        Op::Mask(mask) => (values.mask(a, mask), x & mask),
                        _ => unreachable!(),
                    });
                }
            }
        }
        for &(value, number) in &stack {
            if let Some(meant) = values.meaning(value, &|atom| match atom {
                Atom::Register(register) => registers[usize::from(*register)],
                _ => unreachable!(),
            }) {
                prop_assert_eq!(meant, number);
            }
        }
        // Equal identity means an equal number.
        let mut known: HashMap<Value, u64> = HashMap::new();
        for (value, number) in stack.into_iter().filter(|(value, _)| !value.is_unknown()) {
            prop_assert_eq!(*known.entry(value).or_insert(number), number);
        }
    }
}

/// The sums that generated code makes are found equal, however they were made.
#[test]
fn one_number_made_in_several_ways_is_one_value() {
    let mut values = Values::new();
    let head = values.atom(Atom::Head(1));
    let tsc = values.atom(Atom::Tsc(2));

    let (low, high) = (values.mask(tsc, 0xffff_ffff), values.shr(tsc, 32));
    let high = values.shl(high, 32);
    assert_eq!(values.or(high, low), tsc);
    assert_eq!(values.add(high, low), tsc);

    // The lap by shifts, and by a mask.
    let lap = values.shr(head, 16);
    let by_shift = values.shl(lap, 48);
    let masked = values.mask(head, 0xffff_0000);
    let by_mask = values.scale(masked, 1 << 32);
    assert_eq!(by_shift, by_mask);

    // 24 × slot as 3 × 8 and as 16 + 8.
    let slot = values.mask(head, 0xffff);
    let (eight, sixteen) = (values.shl(slot, 3), values.shl(slot, 4));
    let twice = values.add(eight, sixteen);
    assert_eq!(values.scale(slot, 24), twice);

    let task = values.task();
    let five = values.constant(5);
    let key = values.or(task, five);
    assert_eq!(key, values.add(task, five));
    assert_eq!(key, values.xor(task, five));
    let check = values.xor(key, tsc);
    assert_eq!(values.xor(check, tsc), key);
    assert_eq!(values.xor(check, key), tsc);
}
