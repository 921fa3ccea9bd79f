//! Samples of all CPUs in order of time: batches are ordered only within a CPU.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::reader::{BlockReader, Recording};
use super::sidecar::Block;
use crate::{Result, Sample};

/// Every sample of a recording, with its CPU, in order of time.
///
/// Holds one batch of each CPU in memory. A batch that changed since it was written is an error,
/// once; the next call goes on with the CPU's next batch.
pub struct Merged<'a> {
    recording: &'a Recording,
    reader: BlockReader,
    lanes: Vec<Lane<'a>>,
    /// The lane that the last sample came from, if it has another.
    current: Option<usize>,
    /// The next sample of every other lane that has one: time, then lane, so that ties are always
    /// broken in the same way.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// Lanes whose next batch has to be read first.
    hungry: VecDeque<usize>,
}

/// What is left of one CPU.
struct Lane<'a> {
    cpu: u16,
    blocks: VecDeque<&'a Block>,
    samples: std::vec::IntoIter<Sample>,
    next: Option<Sample>,
}

impl<'a> Merged<'a> {
    /// Of the batches that have samples from the first up to the second time.
    pub(super) fn new(recording: &'a Recording, (t0, t1): (u64, u64)) -> Self {
        let mut cpus: BTreeMap<u16, VecDeque<&Block>> = BTreeMap::new();
        let inside = |block: &&Block| block.last >= t0 && block.first <= t1;
        for block in recording.sample_blocks().filter(inside) {
            cpus.entry(block.cpu).or_default().push_back(block);
        }
        let lanes: Vec<Lane<'_>> = cpus
            .into_iter()
            .map(|(cpu, blocks)| Lane {
                cpu,
                blocks,
                samples: Vec::new().into_iter(),
                next: None,
            })
            .collect();
        let hungry = (0..lanes.len()).collect();
        Self {
            recording,
            reader: BlockReader::default(),
            lanes,
            current: None,
            heap: BinaryHeap::new(),
            hungry,
        }
    }

    /// Puts the next sample of a lane on the heap, from its next batch if need be.
    fn feed(&mut self, index: usize) -> Result<()> {
        let Some(lane) = self.lanes.get_mut(index) else {
            return Ok(());
        };
        lane.next = lane.samples.next();
        while lane.next.is_none() {
            let Some(block) = lane.blocks.pop_front() else {
                return Ok(());
            };
            lane.samples = match self.reader.samples(self.recording, block) {
                Ok(batch) => batch.samples.into_iter(),
                Err(error) => {
                    self.hungry.push_back(index);
                    return Err(error);
                }
            };
            lane.next = lane.samples.next();
        }
        if let Some(sample) = lane.next {
            self.heap.push(Reverse((sample.tsc, index)));
        }
        Ok(())
    }
}

impl Iterator for Merged<'_> {
    type Item = Result<(u16, Sample)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(index) = self.hungry.pop_front() {
                if let Err(error) = self.feed(index) {
                    return Some(Err(error));
                }
            }
            let index = match self.current.take() {
                Some(index) => index,
                None => self.heap.pop()?.0.1,
            };
            let lane = self.lanes.get_mut(index)?;
            let sample = lane.next?;
            // Bursts stay on one CPU: most samples are followed by one of the same lane, and never
            // see the heap.
            if self
                .heap
                .peek()
                .is_some_and(|Reverse(first)| *first < (sample.tsc, index))
            {
                self.heap.push(Reverse((sample.tsc, index)));
                continue;
            }
            lane.next = lane.samples.next();
            let cpu = lane.cpu;
            if lane.next.is_some() {
                self.current = Some(index);
            } else {
                // An error of the lane's next batch belongs to the next call.
                self.hungry.push_back(index);
            }
            return Some(Ok((cpu, sample)));
        }
    }
}
