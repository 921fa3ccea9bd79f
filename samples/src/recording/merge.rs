//! Merge of all CPUs' samples in order of time: batches are ordered only within a CPU.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::batch::{BatchFile, BlockReader};
use super::sidecar::Block;
use crate::{Result, Sample};

/// Iterator over every sample of a recording, with its CPU, in order of time.
///
/// Holds one batch of each CPU in memory. A batch that changed since it was written yields one
/// error; the next call continues with the CPU's next batch.
pub struct Merged<'a> {
    file: BatchFile<'a>,
    reader: BlockReader,
    cursors: Vec<CpuCursor<'a>>,
    /// The cursor of the last sample, if it has another one.
    current: Option<usize>,
    /// Next sample of every other cursor that has one: time, then cursor, so that ties are always
    /// broken in the same way.
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    /// Cursors whose next batch has to be read first.
    hungry: VecDeque<usize>,
}

/// Remaining samples of one CPU.
struct CpuCursor<'a> {
    cpu: u16,
    blocks: VecDeque<&'a Block>,
    samples: std::vec::IntoIter<Sample>,
    next: Option<Sample>,
}

impl<'a> Merged<'a> {
    /// Merges the samples of these batches, which are in order within a CPU.
    pub(super) fn new(file: BatchFile<'a>, blocks: impl Iterator<Item = &'a Block>) -> Self {
        let mut cpus: BTreeMap<u16, VecDeque<&Block>> = BTreeMap::new();
        for block in blocks {
            cpus.entry(block.cpu).or_default().push_back(block);
        }
        let cursors: Vec<CpuCursor<'_>> = cpus
            .into_iter()
            .map(|(cpu, blocks)| CpuCursor {
                cpu,
                blocks,
                samples: Vec::new().into_iter(),
                next: None,
            })
            .collect();
        let hungry = (0..cursors.len()).collect();
        Self {
            file,
            reader: BlockReader::default(),
            cursors,
            current: None,
            heap: BinaryHeap::new(),
            hungry,
        }
    }

    /// Pushes the next sample of a cursor on the heap, from its next batch if necessary.
    fn feed(&mut self, index: usize) -> Result<()> {
        let Some(cursor) = self.cursors.get_mut(index) else {
            return Ok(());
        };
        cursor.next = cursor.samples.next();
        while cursor.next.is_none() {
            let Some(block) = cursor.blocks.pop_front() else {
                return Ok(());
            };
            cursor.samples = match self.reader.samples(self.file, block) {
                Ok(batch) => batch.samples.into_iter(),
                Err(error) => {
                    self.hungry.push_back(index);
                    return Err(error);
                }
            };
            cursor.next = cursor.samples.next();
        }
        if let Some(sample) = cursor.next {
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
            let cursor = self.cursors.get_mut(index)?;
            let sample = cursor.next?;
            // Fast path: bursts stay on one CPU, so most samples are followed by one of the same
            // cursor and bypass the heap.
            if self
                .heap
                .peek()
                .is_some_and(|Reverse(first)| *first < (sample.tsc, index))
            {
                self.heap.push(Reverse((sample.tsc, index)));
                continue;
            }
            cursor.next = cursor.samples.next();
            let cpu = cursor.cpu;
            if cursor.next.is_some() {
                self.current = Some(index);
            } else {
                // An error of the cursor's next batch is returned by the next call.
                self.hungry.push_back(index);
            }
            return Some(Ok((cpu, sample)));
        }
    }
}

/// Reader of the [further words](Sample::is_word) of samples, which are read in order of time within a CPU.
pub(crate) struct Words<'a> {
    file: BatchFile<'a>,
    reader: BlockReader,
    /// Batches that have not been read, by CPU.
    blocks: BTreeMap<u16, VecDeque<&'a Block>>,
    /// Words that have been read and not taken, by CPU.
    read: BTreeMap<u16, VecDeque<Sample>>,
}

impl<'a> Words<'a> {
    /// Reads the words among these batches, which are no samples.
    pub(super) fn new(file: BatchFile<'a>, all: impl Iterator<Item = &'a Block>) -> Self {
        let mut blocks: BTreeMap<u16, VecDeque<&Block>> = BTreeMap::new();
        for block in all {
            blocks.entry(block.cpu).or_default().push_back(block);
        }
        Self {
            file,
            reader: BlockReader::default(),
            blocks,
            read: BTreeMap::new(),
        }
    }

    /// Takes so many words of a sample; `None` if it has fewer. Words of earlier samples are left out.
    ///
    /// # Errors
    /// As for a batch of samples.
    pub(crate) fn take(
        &mut self,
        cpu: u16,
        sample: &Sample,
        count: usize,
    ) -> Result<Option<Vec<u64>>> {
        let mut taken = Vec::with_capacity(count);
        let read = self.read.entry(cpu).or_default();
        while taken.len() < count {
            let Some(word) = read.front() else {
                let next = self.blocks.get_mut(&cpu).and_then(VecDeque::pop_front);
                let Some(block) = next else {
                    return Ok(None);
                };
                if block.last >= sample.tsc {
                    let rows = self.reader.decode(self.file, block)?.rows();
                    read.extend(rows.filter_map(|row| row.word()));
                }
                continue;
            };
            if word.tsc > sample.tsc {
                return Ok(None);
            }
            if (word.id, word.tsc) == (sample.id, sample.tsc) {
                taken.push(word.value);
            }
            read.pop_front();
        }
        Ok(Some(taken))
    }
}
