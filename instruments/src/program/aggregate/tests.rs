use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns the result of values that several processors add.
fn summed(aggregate: &Aggregate, values: &[(usize, u64)]) -> Summary {
    let mut cpus = vec![vec![0; aggregate.words() as usize]; 4];
    for &(cpu, value) in values {
        aggregate.update(&mut cpus[cpu], &[value]);
    }
    aggregate.read(cpus.iter().map(Vec::as_slice))
}

fn aggregate(kind: AggregateKind, signed: bool) -> Aggregate {
    Aggregate {
        name: "a".to_owned(),
        kind,
        ty: if signed { Type::I64 } else { Type::U64 },
        names: Vec::new(),
    }
}

/// Values of all sizes, on four processors.
fn values() -> impl Strategy<Value = Vec<(usize, u64)>> {
    let value = prop_oneof![
        any::<u64>(),
        0..300u64,
        (0..300u64).prop_map(u64::wrapping_neg),
        (0..64u32).prop_map(|bit| 1 << bit),
        Just(u64::MAX),
    ];
    proptest::collection::vec((0..4usize, value), 0..60)
}

proptest! {
    #[test]
    fn numbers_are_those_of_all_values_together(values in values(), signed: bool) {
        let of = |kind| summed(&aggregate(kind, signed), &values);
        let any = aggregate(AggregateKind::Sum, signed);
        let wide: Vec<i128> = values.iter().map(|&(_, value)| any.wide(value)).collect();
        let wrapped = values.iter().fold(0u64, |sum, &(_, value)| sum.wrapping_add(value));
        prop_assert_eq!(of(AggregateKind::Count), Summary::Number(values.len() as i128));
        // One of 0 is one, if there are values.
        let sum = Some(any.wide(wrapped)).filter(|_| !values.is_empty());
        let or_nothing = |number: Option<&i128>| number.map_or(Summary::Nothing, |&one| Summary::Number(one));
        prop_assert_eq!(of(AggregateKind::Sum), or_nothing(sum.as_ref()));
        prop_assert_eq!(of(AggregateKind::Min), or_nothing(wide.iter().min()));
        prop_assert_eq!(of(AggregateKind::Max), or_nothing(wide.iter().max()));
        match of(AggregateKind::Average) {
            Summary::Mean(mean) => {
                let exact = any.wide(wrapped) as f64 / values.len() as f64;
                prop_assert!((mean - exact).abs() <= exact.abs() * 1e-12);
            }
            nothing => prop_assert!(values.is_empty() && nothing == Summary::Nothing),
        }
    }

    #[test]
    fn every_value_is_in_the_one_bucket_with_its_bounds(
        values in values(),
        signed: bool,
        linear in proptest::option::of((-200..200i64, 1..200i64, 1..60u64)),
    ) {
        let kind = linear.map_or(AggregateKind::Log2, |(from, wide, step)| AggregateKind::Linear {
            from,
            to: from + wide,
            step,
        });
        let histogram = aggregate(kind, signed);
        let Summary::Buckets(buckets) = summed(&histogram, &values) else { panic!() };
        for bucket in &buckets {
            let held = values.iter().filter(|&&(_, value)| {
                let value = histogram.wide(value);
                bucket.from.is_none_or(|from| from <= value) && bucket.to.is_none_or(|to| value <= to)
            });
            prop_assert_eq!(held.count() as u64, bucket.count, "{:?}", bucket);
        }
        // No gap, no overlap, no end.
        prop_assert!(buckets.windows(2).all(|pair| pair[0].to.map(|to| to + 1) == pair[1].from));
        prop_assert_eq!(buckets[0].from, None);
    }

    #[test]
    fn values_are_counted_or_among_the_others(values in values(), signed: bool, room_log2 in 1..9u32) {
        let counted = aggregate(AggregateKind::Values { room_log2 }, signed);
        let Summary::Values(found, other) = summed(&counted, &values) else { panic!() };
        let mut exact = BTreeMap::<i128, u64>::new();
        for &(_, value) in &values {
            *exact.entry(counted.wide(value)).or_default() += 1;
        }
        let sum: u64 = found.iter().map(|&(_, count)| count).sum();
        prop_assert_eq!(sum + other, values.len() as u64, "none is lost");
        prop_assert!(found.iter().all(|(value, count)| *count > 0 && *count == exact[value]));
        prop_assert!(found.windows(2).all(|pair| pair[0].1 >= pair[1].1), "most often first");
    }
}

#[test]
fn what_fits_is_counted_exactly() {
    let counted = aggregate(AggregateKind::Values { room_log2: 8 }, true);
    let values: Vec<(usize, u64)> = (0..40u64)
        .flat_map(|value| vec![(0, value); value as usize + 1])
        .collect();
    let Summary::Values(found, other) = summed(&counted, &values) else {
        panic!()
    };
    assert_eq!(found[0], (39, 40));
    // Neighbouring values do not share buckets: the factors spread them.
    assert_eq!((found.len(), other), (40, 0));
    assert!(
        found
            .iter()
            .all(|&(value, count)| i128::from(count) == value + 1)
    );
}

/// A map of keys of two parts, and the words of its entries.
fn map(of: Mapped, second: Option<Key>, room_log2: u32, signed: bool) -> Aggregate {
    let keys = Keys(Key::Number(Type::I64), second);
    let kind = AggregateKind::Map {
        keys,
        of,
        room_log2,
    };
    aggregate(kind, signed)
}

proptest! {
    /// The decoded total of a key is that of the aggregate without keys on the key's values, and every other value is
    /// among the others.
    #[test]
    fn the_totals_of_keys_are_those_of_their_values_alone(
        values in proptest::collection::vec((0..4usize, 0..9u64, 0..3u64, -40..400i64), 0..80),
        of in prop_oneof![
            Just(Mapped::Count),
            Just(Mapped::Sum),
            Just(Mapped::Average),
            Just(Mapped::Log2),
            Just(Mapped::Linear { from: -10, to: 100, step: 7 }),
        ],
        named: bool,
        room_log2 in 1..10u32,
        signed: bool,
    ) {
        let second = if named { Key::Name } else { Key::Number(Type::U64) };
        let map = map(of, Some(second), room_log2, signed);
        let plain = map.mapped().unwrap();
        let mut cpus = vec![vec![0; map.words() as usize]; 4];
        let mut alone = BTreeMap::<(i128, String), Vec<u64>>::new();
        for &(cpu, first, other, value) in &values {
            let first = first.wrapping_sub(3).wrapping_mul(0x9_0000_0001);
            // A name is what is before its first zero.
            let text = u64::from_le_bytes(*b"kworker/") + (other << 56);
            let (words, shown) = match named {
                true => (vec![first, text, 0x31], format!("kworker{}1", char::from(b'/' + other as u8))),
                false => (vec![first, other], other.to_string()),
            };
            let bits = value.cast_unsigned();
            let mut all = words;
            all.extend((of != Mapped::Count).then_some(bits));
            map.update(&mut cpus[cpu], &all);
            let entry = alone.entry((first.cast_signed().into(), shown));
            plain.update(entry.or_insert_with(|| vec![0; plain.words() as usize]), &[bits]);
        }
        let Summary::Map(rows, other) = map.read(cpus.iter().map(Vec::as_slice)) else { panic!() };
        let mut count = other;
        for row in &rows {
            let [KeyPart::Number(first), second] = row.key.as_slice() else { panic!() };
            let second = match second {
                KeyPart::Number(number) => number.to_string(),
                KeyPart::Text(text) => text.clone(),
            };
            let words = &alone[&(*first, second)];
            let expected = plain.read([words.as_slice()]);
            match (&row.value, &expected) {
                // Of a histogram some buckets may be among the others.
                (Summary::Buckets(found), Summary::Buckets(all)) => {
                    prop_assert!(found.iter().zip(all).all(|(one, all)| one.count == all.count || one.count == 0));
                }
                (found, expected) => prop_assert_eq!(found, expected),
            }
            count += match of {
                Mapped::Log2 | Mapped::Linear { .. } => row.value.hits(),
                _ => values.iter().filter(|value| {
                    let first = value.1.wrapping_sub(3).wrapping_mul(0x9_0000_0001);
                    let shown = if named { format!("kworker{}1", char::from(b'/' + value.2 as u8)) } else { value.2.to_string() };
                    row.key() == format!("{}, {shown}", first.cast_signed())
                }).count() as u64,
            };
        }
        prop_assert_eq!(count, values.len() as u64, "none is lost");
        let weights: Vec<f64> = rows.iter().map(|row| row.value.weight()).collect();
        prop_assert!(weights.windows(2).all(|pair| pair[0] >= pair[1]));
        if room_log2 == 9 && !matches!(of, Mapped::Log2 | Mapped::Linear { .. }) {
            prop_assert_eq!(other, 0, "27 keys fit into 512 buckets");
        }
    }
}

/// With a quarter as many values as buckets, hardly a value is not decoded.
#[test]
fn a_quarter_of_the_capacity_is_decoded() {
    let counted = aggregate(AggregateKind::Values { room_log2: 9 }, false);
    for salt in 0..20u64 {
        let value = |number: u64| match salt % 3 {
            0 => number * 8 + salt,
            1 => (number + 1)
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(salt),
            _ => 0xffff_8880_0000_0000 + number * 4096 * (salt + 1),
        };
        let values: Vec<(usize, u64)> = (0..128).map(|number| (0, value(number))).collect();
        let Summary::Values(found, other) = summed(&counted, &values) else {
            panic!()
        };
        assert!(other <= 8, "{other} of 128 are not decoded, salt {salt}");
        assert_eq!(found.len() as u64 + other, 128);
    }
}
