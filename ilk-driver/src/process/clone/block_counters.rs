//! The counters of a cache's blocks, which are read while threads execute.
//!
//! A counter is one of a translated block, until that is dropped: its executions are added to those of the dynamic block
//! then, which may be translated again, and another block may have the counter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gilk_engine::Span;
use gilk_engine::cache::CachedBlock;
use rustc_hash::FxHashMap;

use super::super::shared::SharedWords;

/// A block as the original code has it: from where control entered to the next branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DynamicBlock {
    /// Its original bytes.
    pub original: Span,
    /// The number of its original instructions.
    pub instructions: u32,
}

impl From<&CachedBlock> for DynamicBlock {
    fn from(block: &CachedBlock) -> Self {
        Self {
            original: block.original,
            instructions: block.instructions,
        }
    }
}

/// The counted blocks of a cache and their counters; clones are the same ones.
#[derive(Clone, Debug)]
pub(super) struct BlockCounters {
    words: Arc<SharedWords>,
    /// The word of the first counter.
    first: usize,
    counted: Arc<Mutex<CountedBlocks>>,
}

/// Dynamic blocks with what is known of their executions.
#[derive(Debug, Default)]
struct CountedBlocks {
    /// In the order of their first translations, with the executions of their translations that were dropped.
    blocks: Vec<(DynamicBlock, u64)>,
    numbers: FxHashMap<DynamicBlock, usize>,
    /// The number of the dynamic block that each counter counts now.
    of_counters: Vec<Option<usize>>,
}

impl BlockCounters {
    /// Counters from a word on, without blocks.
    pub(super) fn new(words: Arc<SharedWords>, first: usize) -> Self {
        Self {
            words,
            first,
            counted: Arc::default(),
        }
    }

    /// Adds translated blocks that have counters, and that no thread executes yet.
    pub(super) fn add(&self, blocks: &[CachedBlock]) {
        let mut counted = self.counted();
        for block in blocks {
            let Some(counter) = block.counter else {
                continue;
            };
            let number = counted.number(block.into());
            let index = index(counter);
            if counted.of_counters.len() <= index {
                counted.of_counters.resize(index + 1, None);
            }
            if let Some(of) = counted.of_counters.get_mut(index) {
                debug_assert!(of.is_none(), "counter {counter} is of two blocks");
                *of = Some(number);
            }
        }
    }

    /// Keeps the executions of dropped blocks, which no thread executes any more, and sets their counters to 0 for others.
    pub(super) fn drop_blocks<'b>(&self, blocks: impl Iterator<Item = &'b CachedBlock>) {
        let mut counted = self.counted();
        for counter in blocks.filter_map(|block| block.counter) {
            let of = counted.of_counters.get_mut(index(counter));
            let Some(number) = of.and_then(Option::take) else {
                unreachable!("counter {counter} is of no block of its cache");
            };
            let executions = self.word(counter).swap(0, Ordering::Relaxed);
            if let Some((_, before)) = counted.blocks.get_mut(number) {
                *before += executions;
            }
        }
    }

    fn counted(&self) -> MutexGuard<'_, CountedBlocks> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, counter: u32) -> &AtomicU64 {
        let word = self.words.word(self.first.saturating_add(index(counter)));
        let Some(word) = word else {
            unreachable!("counter {counter} is outside of the words of its cache");
        };
        word
    }

    /// The value of a block's counter; `None` if it has none.
    pub(super) fn value(&self, block: &CachedBlock) -> Option<u64> {
        let counter = block.counter?;
        Some(self.word(counter).load(Ordering::Relaxed))
    }

    /// The executions of all dynamic blocks, in the order of their first translations.
    pub(super) fn executions(&self) -> Vec<u64> {
        self.with_executions(|_, executions| executions)
    }

    /// All dynamic blocks, in the order of their first translations, with their executions.
    pub(super) fn all(&self) -> Vec<(DynamicBlock, u64)> {
        self.with_executions(|block, executions| (block, executions))
    }

    fn with_executions<T>(&self, with: impl Fn(DynamicBlock, u64) -> T) -> Vec<T> {
        // No block is dropped meanwhile, so that no execution is counted twice or not at all.
        let counted = self.counted();
        let mut executions: Vec<u64> = counted.blocks.iter().map(|(_, before)| *before).collect();
        for (counter, of) in (0_u32..).zip(&counted.of_counters) {
            if let Some(sum) = of.and_then(|number| executions.get_mut(number)) {
                *sum += self.word(counter).load(Ordering::Relaxed);
            }
        }
        let blocks = counted.blocks.iter().zip(executions);
        blocks.map(|((block, _), sum)| with(*block, sum)).collect()
    }
}

impl CountedBlocks {
    /// The number of a dynamic block, which is added if it is new.
    fn number(&mut self, block: DynamicBlock) -> usize {
        let next = self.blocks.len();
        let number = *self.numbers.entry(block).or_insert(next);
        if number == next {
            self.blocks.push((block, 0));
        }
        number
    }
}

fn index(counter: u32) -> usize {
    usize::try_from(counter).unwrap_or(usize::MAX)
}
