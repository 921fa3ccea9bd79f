//! The values of a recording's counters in the course of time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use gilk_engine::{Addr, Span};
use gilk_samples::record::ALL_CPUS;
use gilk_samples::{Batch, Sample};

use super::super::block_counters::DynamicBlock;
use super::super::moments::CountedMoment;

/// Counts up to a time.
pub(in super::super) struct CountedSoFar<'c> {
    /// Dynamic blocks and their executions.
    pub(in super::super) blocks: &'c [(DynamicBlock, u64)],
    /// Readings of the counters before.
    pub(in super::super) moments: &'c [CountedMoment],
    /// From the begin to that time, in ticks of the time-stamp counter.
    pub(in super::super) ticks: (u64, u64),
}

/// The executions that a counter of a recording counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum CountedBlock {
    /// Those of the block of a function's graph that begins here.
    OfGraph(Addr),
    /// Those of dynamic blocks with this span, which is of no function.
    Apart(Span),
}

impl CountedBlock {
    /// Its first address.
    pub(super) fn start(&self) -> Addr {
        match self {
            Self::OfGraph(start) => *start,
            Self::Apart(span) => span.start,
        }
    }
}

impl CountedSoFar<'_> {
    /// The spans of dynamic blocks that were executed.
    pub(super) fn executed(&self) -> impl Iterator<Item = Span> + '_ {
        let executed = self.blocks.iter().filter(|(_, count)| *count > 0);
        executed.map(|(block, _)| block.original)
    }

    /// The values of counters when they were read and at the end, where they have changed.
    pub(super) fn readings(&self, counters: &[(u64, CountedBlock)]) -> Vec<Batch> {
        let (begin, end) = self.ticks;
        let mut values = Values::of(counters, self.blocks);
        let mut batches = Vec::new();
        for moment in self.moments {
            for (block, count) in &moment.changed {
                values.set(*block, *count);
            }
            if moment.tsc > begin && moment.tsc < end {
                batches.extend(values.changed(moment.tsc));
            }
        }
        for (block, (_, count)) in self.blocks.iter().enumerate() {
            values.set(block, *count);
        }
        batches.extend(values.changed(end));
        batches
    }
}

/// The values of counters at a time.
struct Values<'c> {
    counters: &'c [(u64, CountedBlock)],
    /// Counters of blocks of graphs, by address.
    of_graphs: Vec<(Addr, usize)>,
    /// Each dynamic block's executions, the range of `of_graphs` that it has, and its counter apart.
    blocks: Vec<(u64, Range<usize>, Option<usize>)>,
    values: Vec<u64>,
    changed: BTreeSet<usize>,
}

impl<'c> Values<'c> {
    /// All values are 0.
    fn of(counters: &'c [(u64, CountedBlock)], blocks: &[(DynamicBlock, u64)]) -> Self {
        let (mut of_graphs, mut apart) = (Vec::new(), HashMap::new());
        for (index, (_, counted)) in counters.iter().enumerate() {
            match counted {
                CountedBlock::OfGraph(start) => of_graphs.push((*start, index)),
                CountedBlock::Apart(span) => {
                    apart.insert(*span, index);
                }
            }
        }
        of_graphs.sort_unstable();
        let before = |at: Addr| of_graphs.partition_point(|(start, _)| *start < at);
        let blocks = blocks.iter().map(|(block, _)| {
            let Span { start, end } = block.original;
            let apart = apart.get(&block.original).copied();
            (0, before(start)..before(end), apart)
        });
        Self {
            blocks: blocks.collect(),
            of_graphs,
            counters,
            values: vec![0; counters.len()],
            changed: BTreeSet::new(),
        }
    }

    /// Sets the executions of a dynamic block, which never become less.
    fn set(&mut self, block: usize, count: u64) {
        let Some((last, range, apart)) = self.blocks.get_mut(block) else {
            unreachable!("block {block} of a cache is none of its blocks");
        };
        let more = count.saturating_sub(*last);
        if more == 0 {
            return;
        }
        *last = count;
        let of_graphs = self.of_graphs.get(range.clone()).into_iter().flatten();
        for index in of_graphs.map(|(_, index)| *index).chain(*apart) {
            if let Some(value) = self.values.get_mut(index) {
                *value = value.saturating_add(more);
                self.changed.insert(index);
            }
        }
    }

    /// The counters that have changed since the last time.
    fn changed(&mut self, tsc: u64) -> Option<Batch> {
        let changed = std::mem::take(&mut self.changed);
        let samples = changed.into_iter().filter_map(|index| {
            let ((id, _), value) = (self.counters.get(index)?, self.values.get(index)?);
            Some(Sample {
                id: *id,
                value: *value,
                tsc,
            })
        });
        let (cpu, samples): (_, Vec<Sample>) = (ALL_CPUS, samples.collect());
        (!samples.is_empty()).then_some(Batch { cpu, samples })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, end: u64, instructions: u32, count: u64) -> (DynamicBlock, u64) {
        let block = DynamicBlock {
            original: span(start, end),
            instructions,
        };
        (block, count)
    }

    fn span(start: u64, end: u64) -> Span {
        Span {
            start: Addr(start),
            end: Addr(end),
        }
    }

    /// The samples of readings: times, counters and values.
    fn samples(
        counted: &CountedSoFar<'_>,
        counters: &[(u64, CountedBlock)],
    ) -> Vec<(u64, u64, u64)> {
        let readings = counted.readings(counters);
        let samples = readings.iter().flat_map(|batch| &batch.samples);
        samples.map(|one| (one.tsc, one.id, one.value)).collect()
    }

    #[test]
    fn a_block_was_executed_as_often_as_the_dynamic_blocks_with_its_first_instruction() {
        // Control entered at 0x10 and fell through to 0x30; it branched to 0x20 also, where a loop begins.
        let blocks = [
            block(0x10, 0x30, 8, 3),
            block(0x20, 0x30, 4, 40),
            // It was other code for a time.
            block(0x20, 0x30, 5, 2),
            block(0x30, 0x34, 1, 0),
        ];
        let counted = CountedSoFar {
            blocks: &blocks,
            moments: &[],
            ticks: (0, 9),
        };
        let starts = [0xf, 0x10, 0x1f, 0x20, 0x2f, 0x30];
        let counters = starts.map(|start| (start, CountedBlock::OfGraph(Addr(start))));
        let expected = [(0x10, 3), (0x1f, 3), (0x20, 45), (0x2f, 45)];
        let expected = expected.map(|(start, executions)| (9, start, executions));
        assert_eq!(samples(&counted, &counters), expected);
    }

    #[test]
    fn readings_have_the_values_of_their_times_where_these_have_changed() {
        let blocks = [block(0x10, 0x30, 8, 4), block(0x20, 0x30, 4, 6)];
        let moment = |tsc, changed: &[(usize, u64)]| CountedMoment {
            tsc,
            changed: changed.to_vec(),
        };
        let moments = [
            moment(90, &[(0, 1)]),
            moment(110, &[(0, 3)]),
            moment(120, &[(1, 2)]),
        ];
        let counted = CountedSoFar {
            blocks: &blocks,
            moments: &moments,
            ticks: (100, 130),
        };
        let counters = [
            (1, CountedBlock::OfGraph(Addr(0x10))),
            (2, CountedBlock::OfGraph(Addr(0x20))),
            (3, CountedBlock::Apart(span(0x20, 0x30))),
        ];
        let expected = [
            (110, 1, 3),
            (110, 2, 3),
            (120, 2, 5),
            (120, 3, 2),
            (130, 1, 4),
            (130, 2, 10),
            (130, 3, 6),
        ];
        assert_eq!(samples(&counted, &counters), expected);
    }
}
