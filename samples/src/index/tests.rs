use proptest::prelude::*;

use super::*;
use crate::Sample;

/// Computes a query by visiting every sample.
fn brute(batches: &[Batch], id: u64, t0: u64, t1: u64, columns: usize) -> Vec<Column> {
    let mut out = vec![Column::default(); columns];
    for sample in batches.iter().flat_map(|batch| &batch.samples) {
        if sample.id == id && (t0..t1).contains(&sample.tsc) {
            let column = u128::from(sample.tsc - t0) * columns as u128 / u128::from(t1 - t0);
            out[column as usize].add(sample.value);
        }
    }
    out
}

fn index(batches: &[Batch]) -> Index {
    let mut index = Index::new();
    batches.iter().for_each(|batch| index.append(batch));
    index
}

/// Returns batches as they are drained: in order within a CPU, out of order between CPUs, a few
/// lanes, with bursts at one time and gaps.
fn drained() -> impl Strategy<Value = Vec<Batch>> {
    let sample = (
        0u64..3,
        prop_oneof![Just(0u64), 0u64..40, 0u64..100_000],
        any::<u64>(),
    );
    let batch = (0u16..3, prop::collection::vec(sample, 0..200));
    prop::collection::vec(batch, 0..12).prop_map(|batches| {
        let mut clock = [1000u64; 3];
        let batches = batches.into_iter().map(|(cpu, samples)| {
            let clock = &mut clock[usize::from(cpu)];
            let samples = samples.into_iter().map(|(id, gap, value)| {
                *clock += gap;
                Sample {
                    id,
                    value,
                    tsc: *clock,
                }
            });
            Batch {
                cpu,
                samples: samples.collect(),
            }
        });
        batches.collect()
    })
}

proptest! {
    #[test]
    fn a_query_equals_a_scan_of_every_sample(
        batches in drained(), t0 in 0u64..3_000_000, width in 0u64..6_000_000, columns in 1usize..70,
    ) {
        let (index, t1) = (index(&batches), t0 + width);
        for id in 0..3 {
            let expected = if width == 0 { vec![Column::default(); columns] } else { brute(&batches, id, t0, t1, columns) };
            prop_assert_eq!(index.query(id, t0, t1, columns), expected);
        }
    }

    #[test]
    fn a_part_has_the_samples_of_its_cpu_and_no_others(
        batches in drained(), t0 in 0u64..3_000_000, width in 1u64..6_000_000, columns in 1usize..70,
    ) {
        let (whole, t1) = (index(&batches), t0 + width);
        for cpu in 0..3 {
            let own: Vec<Batch> = batches.iter().filter(|batch| batch.cpu == cpu).cloned().collect();
            let (part, alone) = (whole.part(Some(cpu)), index(&own));
            for id in 0..3 {
                prop_assert_eq!(part.lane(id), alone.lane(id).copied());
                prop_assert_eq!(part.view(id, t0, t1, columns), brute(&own, id, t0, t1, columns));
                prop_assert_eq!(part.total(id, t0, t1), alone.total(id, t0, t1));
                prop_assert_eq!(part.samples_in(id, t0, t1, 50), alone.samples_in(id, t0, t1, 50));
                prop_assert_eq!(whole.cpus(id).contains(&cpu), alone.lane(id).is_some());
            }
        }
    }

    #[test]
    fn samples_in_any_order_are_sorted(
        times in prop::collection::vec((0u64..500, any::<u64>()), 1..600), columns in 1usize..9,
    ) {
        let samples = times.iter().map(|&(tsc, value)| Sample { id: 7, value, tsc }).collect();
        let batches = [Batch { cpu: 1, samples }];
        let index = index(&batches);
        prop_assert_eq!(index.query(7, 0, 500, columns), brute(&batches, 7, 0, 500, columns));
        let points = index.samples_in(7, 0, u64::MAX, usize::MAX);
        prop_assert!(points.is_sorted_by_key(|point| point.tsc));
        prop_assert_eq!(points.len(), times.len());
    }

    #[test]
    fn samples_are_returned_in_order_of_time_up_to_the_limit(
        batches in drained(), t0 in 0u64..2_000_000, width in 0u64..4_000_000, limit in 0usize..300,
    ) {
        let index = index(&batches);
        let mut expected: Vec<(u64, u16, u64)> = batches.iter()
            .flat_map(|batch| batch.samples.iter().map(|sample| (batch.cpu, sample)))
            .filter(|(_, sample)| sample.id == 1 && (t0..t0 + width).contains(&sample.tsc))
            .map(|(cpu, sample)| (sample.tsc, cpu, sample.value))
            .collect();
        expected.sort_by_key(|&(tsc, cpu, _)| (tsc, cpu));
        expected.truncate(limit);
        let points = index.samples_in(1, t0, t0 + width, limit);
        prop_assert_eq!(points.iter().map(|p| (p.tsc, p.cpu, p.value)).collect::<Vec<_>>(), expected);
    }
}

/// Returns bursts, pauses and many samples at one tick, in turn on three CPUs: enough samples for a
/// tree of several levels.
fn crowded(seed: u64, samples: usize) -> Vec<Batch> {
    let mut state = seed | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut clocks = [1u64 << 33; 3];
    let mut batches = Vec::new();
    let mut done = 0;
    while done < samples {
        let cpu = random(3);
        let clock = &mut clocks[cpu as usize];
        let pause = 1u64 << random(34);
        let gap = [0, 1, 30, 5000][random(4) as usize];
        *clock += random(pause);
        let samples: Vec<Sample> = (0..1 + random(4000))
            .map(|_| {
                *clock += random(gap + 1);
                let value = if random(5000) == 0 {
                    1 << 40
                } else {
                    random(100)
                };
                Sample {
                    id: 1,
                    value,
                    tsc: *clock,
                }
            })
            .collect();
        done += samples.len();
        batches.push(Batch {
            cpu: cpu as u16,
            samples,
        });
    }
    batches
}

/// Compares a view with the index of the same samples: nothing is lost, and each edge is preceded
/// by the right samples to within half a column.
fn hold(view: &[Column], exact: Part<'_>, (t0, t1): (u64, u64)) -> Result<(), TestCaseError> {
    let columns = view.len();
    let whole = exact.total(1, t0, t1);
    let mut sum = Column::default();
    view.iter().for_each(|column| sum.merge(column));
    prop_assert_eq!(sum, whole);
    let edge = |halves: u64| {
        let ticks = u128::from(t1 - t0) * u128::from(halves) / (2 * columns as u128);
        t0 + ticks as u64
    };
    let mut before = Column::default();
    for (number, column) in (1u64..).zip(view).take(columns - 1) {
        before.merge(column);
        let least = exact.total(1, t0, edge(2 * number - 1));
        let most = exact.total(1, t0, edge(2 * number + 1) + 1);
        prop_assert!(least.count <= before.count && before.count <= most.count);
        prop_assert!(least.max <= before.max && before.max <= most.max);
        let near = exact.total(
            1,
            edge((2 * number).saturating_sub(3)),
            edge(2 * number + 1) + 1,
        );
        prop_assert!(column.count == 0 || column.max <= near.max);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_view_loses_no_sample_and_moves_none_far(
        seed: u64, from in 0.0f64..1.0, to in 0.0f64..1.0, columns in 1usize..300,
    ) {
        let batches = crowded(seed, 600_000);
        let index = index(&batches);
        let (first, last) = index.span().unwrap();
        let at = |share: f64| first - 10 + ((last - first + 20) as f64 * share) as u64;
        for (t0, t1) in [(at(from.min(to)), at(from.max(to)) + 1), (first, last + 1)] {
            for cpu in [None, Some(1)] {
                let part = index.part(cpu);
                let view = part.view(1, t0, t1, columns);
                hold(&view, part, (t0, t1))?;
                let mut exact = vec![Column::default(); columns];
                index.runs(1).into_iter().flat_map(|lane| &lane.runs).for_each(|run| {
                    if cpu.is_none_or(|cpu| cpu == run.cpu()) {
                        run.columns(t0, t1, &mut exact);
                    }
                });
                if part.count(1, t0, t1) <= NEAR as u64 {
                    prop_assert_eq!(view, exact);
                }
                // A tile's columns are as wide as spans of the tree.
                let wide = ((t1 - t0) / columns as u64).max(1).next_power_of_two();
                let t0 = t0 / wide * wide;
                let tile = part.aligned(1, t0, t0 + 256 * wide, 256);
                let mut exact = vec![Column::default(); 256];
                index.runs(1).into_iter().flat_map(|lane| &lane.runs).for_each(|run| {
                    if cpu.is_none_or(|cpu| cpu == run.cpu()) {
                        run.columns(t0, t0 + 256 * wide, &mut exact);
                    }
                });
                prop_assert_eq!(tile, exact);
            }
        }
    }

    /// While samples arrive and the view moves and zooms, tiles give the same result.
    #[test]
    fn tiles_lose_no_sample_and_move_none_far(
        seed: u64, moves in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, any::<bool>()), 1..12), columns in 1usize..300,
    ) {
        let batches = crowded(seed, 300_000);
        let mut tiles = Tiles::default();
        let mut index = Index::new();
        let mut left = batches.chunks(batches.len().div_ceil(moves.len()).max(1));
        for (from, to, is_own) in moves {
            left.next().into_iter().flatten().for_each(|batch| index.append(batch));
            let (first, last) = index.span().unwrap();
            let at = |share: f64| first - 10 + ((last - first + 20) as f64 * share) as u64;
            let (t0, t1) = (at(from.min(to)), at(from.max(to)) + 1);
            let part = index.part(is_own.then_some(2));
            tiles.begin();
            for (t0, t1) in [(t0, t1), (t0 + (t1 - t0) / 9, t1 + (t1 - t0) / 9), (first, last + 1)] {
                let view = tiles.view(part, 1, t0, t1, columns);
                hold(&view, part, (t0, t1))?;
                prop_assert_eq!(&view, &tiles.view(part, 1, t0, t1, columns));
            }
        }
    }
}

proptest! {
    /// Lanes kept as sums lose nothing, and no sample moves further than a span.
    #[test]
    fn lanes_above_the_limit_are_kept_as_sums(
        batches in drained(), limit in 0u64..1500, from in 0u64..100, columns in 1usize..70,
    ) {
        let exact = index(&batches);
        let span = exact.span().unwrap_or_default();
        let mut limited = Index::limited(limit, span);
        batches.iter().for_each(|batch| limited.append(batch));
        let coarse = |id: &u64| limited.is_coarse(*id);
        let kept: u64 = (0..3).filter(|id| !coarse(id)).filter_map(|id| exact.lane(id)).map(|lane| lane.total.count).sum();
        prop_assert!(kept <= limit.max(FEW.min(limit / 2) * 3), "{} kept of {}", kept, limit);
        prop_assert_eq!(limited.lanes().collect::<Vec<_>>(), exact.lanes().collect::<Vec<_>>());
        // A 16,384th of the time, rounded up to a power of two.
        let off = (span.1 - span.0) / (1 << 14) + 1;
        let t0 = span.0 + (span.1 - span.0) * from / 200;
        let t1 = span.1 + off;
        for id in 0..3 {
            let view = limited.view(id, t0, t1 + 1, columns);
            if !limited.is_coarse(id) {
                prop_assert_eq!(view, exact.view(id, t0, t1 + 1, columns));
                continue;
            }
            let mut before = Column::default();
            for (column, number) in view.iter().zip(1u128..) {
                before.merge(column);
                let edge = t0 + (u128::from(t1 + 1 - t0) * number / columns as u128) as u64;
                let [least, most] = [(t0 + off, edge.saturating_sub(off)), (t0.saturating_sub(off), edge + off)]
                    .map(|(from, to)| exact.total(id, from, to.max(from)));
                prop_assert!(least.count <= before.count && before.count <= most.count);
                prop_assert!(least.max <= before.max && before.max <= most.max);
            }
            if from == 0 {
                prop_assert_eq!(Some(before), exact.lane(id).map(|lane| lane.total));
            }
        }
    }
}

#[test]
fn a_spike_among_a_million_is_visible_in_one_column() {
    let quiet = (0..1_000_000u64).map(|tsc| Sample {
        id: 1,
        value: 5,
        tsc,
    });
    let mut samples: Vec<Sample> = quiet.collect();
    samples[777_777].value = 9000;
    let index = index(&[Batch { cpu: 0, samples }]);
    let columns = index.query(1, 0, 1_000_000, 1000);
    assert!(
        columns
            .iter()
            .all(|column| column.count == 1000 && column.min == 5)
    );
    assert_eq!(
        columns.iter().position(|column| column.max == 9000),
        Some(777)
    );
    assert_eq!(
        columns.iter().filter(|column| column.max == 9000).count(),
        1
    );
    assert_eq!(index.total(1, 0, u64::MAX).sum, 5 * 999_999 + 9000);
    let view = index.view(1, 0, 1_000_000, 1000);
    let spikes = view.iter().filter(|column| column.max == 9000).count();
    assert_eq!((spikes, view[777].max), (1, 9000));
}

#[test]
fn extreme_times_and_values_are_handled() {
    const GREATEST: u64 = Sample::WORD - 1;
    let samples = [0, 1, u64::MAX - 1].map(|tsc| Sample {
        id: GREATEST,
        value: u64::MAX,
        tsc,
    });
    let index = index(&[Batch {
        cpu: 0,
        samples: samples.to_vec(),
    }]);
    assert_eq!(index.span(), Some((0, u64::MAX - 1)));
    let columns = index.query(GREATEST, 0, u64::MAX, 3);
    assert_eq!(
        columns
            .iter()
            .map(|column| column.count)
            .collect::<Vec<_>>(),
        [2, 0, 1]
    );
    assert_eq!(columns[0].sum, 2 * u128::from(u64::MAX));
    assert!(index.query(u64::MAX, 0, 10, 0).is_empty());
    assert!(
        index
            .query(3, 0, 10, 2)
            .iter()
            .all(|column| column.count == 0)
    );
}

#[test]
fn words_are_no_samples_and_are_found_by_theirs() {
    let sample = |value, tsc| Sample { id: 5, value, tsc };
    let word = |value, tsc| sample(value, tsc).as_word();
    let batch = |cpu, samples: &[Sample]| Batch {
        cpu,
        samples: samples.to_vec(),
    };
    let index = index(&[
        batch(0, &[sample(1, 10), word(7, 10), word(8, 10), sample(2, 11)]),
        batch(1, &[sample(1, 12), word(9, 12)]),
        // A line that came in two batches, and two lines at one time.
        batch(
            1,
            &[
                word(6, 12),
                sample(1, 20),
                word(1, 20),
                sample(1, 20),
                word(2, 20),
            ],
        ),
    ]);
    assert_eq!((index.samples(), index.total(5, 0, 100).count), (5, 5));
    assert_eq!(index.words(&sample(1, 10), 2), Some(vec![7, 8]));
    assert_eq!(index.words(&sample(2, 11), 0), Some(vec![]));
    assert_eq!(index.words(&sample(1, 12), 2), Some(vec![9, 6]));
    assert_eq!(index.words(&sample(1, 12), 1), None);
    assert_eq!(index.words(&sample(1, 20), 1), None);
    assert_eq!(index.words(&sample(1, 30), 1), None);
}
