//! The arithmetic on numbers that are not known, against the processor's.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::verify::symbolic::atom::{Atom, SymValue};
use crate::verify::symbolic::value::SymValues;

#[derive(Clone, Copy, Debug)]
enum TestOp {
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

fn op() -> impl Strategy<Value = TestOp> {
    prop_oneof![
        number().prop_map(TestOp::Constant),
        (0_u8..3).prop_map(TestOp::Register),
        (0_u8..3, 0_u8..64).prop_flat_map(
            |(register, lo)| (1..=64 - lo).prop_map(move |len| TestOp::Low(register, lo, len))
        ),
        Just(TestOp::Add),
        Just(TestOp::Sub),
        number().prop_map(TestOp::Scale),
        (0_u32..64).prop_map(TestOp::Shl),
        (0_u32..64).prop_map(TestOp::Shr),
        number().prop_map(TestOp::Mask),
        Just(TestOp::Or),
        Just(TestOp::Xor),
        Just(TestOp::Mul),
        Just(TestOp::Swap),
        Just(TestOp::Duplicate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// Whatever is computed, and whatever form it is kept in, it stands for the right number.
    #[test]
    fn a_value_stands_for_what_was_computed(ops in proptest::collection::vec(op(), 1..30), registers in [number(), number(), number()]) {
        let mut values = SymValues::new();
        let mut stack: Vec<(SymValue, u64)> = Vec::new();
        for op in ops {
            let binary = matches!(op, TestOp::Add | TestOp::Sub | TestOp::Or | TestOp::Xor | TestOp::Mul | TestOp::Swap);
            if stack.len() < if binary { 2 } else { 1 } && !matches!(op, TestOp::Constant(_) | TestOp::Register(_) | TestOp::Low(..)) {
                continue;
            }
            let ones = |len: u8| if len == 64 { u64::MAX } else { (1 << len) - 1 };
            if binary {
                let ((b, y), (a, x)) = (stack.pop().unwrap(), stack.pop().unwrap());
                match op {
                    TestOp::Add => stack.push((values.add(a, b), x.wrapping_add(y))),
                    TestOp::Sub => stack.push((values.sub(a, b), x.wrapping_sub(y))),
                    TestOp::Or => stack.push((values.or(a, b), x | y)),
                    TestOp::Xor => stack.push((values.xor(a, b), x ^ y)),
                    TestOp::Mul => stack.push((values.mul(a, b), x.wrapping_mul(y))),
                    _ => stack.extend([(b, y), (a, x)]),
                }
                continue;
            }
            match op {
                TestOp::Constant(number) => stack.push((values.constant(number), number)),
                TestOp::Register(register) => stack.push((values.atom(Atom::Register(register)), registers[usize::from(register)])),
                TestOp::Low(register, lo, len) => {
                    let value = values.field(Atom::Register(register), lo, len);
                    stack.push((value, registers[usize::from(register)] >> lo & ones(len)));
                }
                TestOp::Duplicate => stack.push(*stack.last().unwrap()),
                _ => {
                    let (a, x) = stack.pop().unwrap();
                    stack.push(match op {
                        TestOp::Scale(by) => (values.scale(a, by), x.wrapping_mul(by)),
                        TestOp::Shl(by) => (values.shl(a, by), x << by),
                        TestOp::Shr(by) => (values.shr(a, by), x >> by),
                        TestOp::Mask(mask) => (values.mask(a, mask), x & mask),
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
        let mut known: HashMap<SymValue, u64> = HashMap::new();
        for (value, number) in stack.into_iter().filter(|(value, _)| !value.is_unknown()) {
            prop_assert_eq!(*known.entry(value).or_insert(number), number);
        }
    }
}

/// The sums that generated code makes are found equal, however they were made.
#[test]
fn one_number_made_in_several_ways_is_one_value() {
    let mut values = SymValues::new();
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

    let task = values.task(crate::layout::Owner::kernel(crate::layout::SegmentOffset(
        0,
    )));
    let five = values.constant(5);
    let key = values.or(task, five);
    assert_eq!(key, values.add(task, five));
    assert_eq!(key, values.xor(task, five));
    let check = values.xor(key, tsc);
    assert_eq!(values.xor(check, tsc), key);
    assert_eq!(values.xor(check, key), tsc);
}
