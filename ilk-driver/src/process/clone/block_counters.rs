//! The counters of a cache's blocks, which are read while threads execute.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gilk_engine::cache::CachedBlock;

use super::super::shared::SharedWords;

/// The blocks of a cache and their counters; clones are the same ones.
#[derive(Clone, Debug)]
pub(super) struct BlockCounters {
    words: Arc<SharedWords>,
    /// The word of the first counter.
    first: usize,
    /// The number of the next counter.
    next: Arc<AtomicU32>,
    blocks: Arc<Mutex<Vec<CachedBlock>>>,
}

impl BlockCounters {
    /// Counters from a word on, without blocks.
    pub(super) fn new(words: Arc<SharedWords>, first: usize) -> Self {
        Self {
            words,
            first,
            next: Arc::default(),
            blocks: Arc::default(),
        }
    }

    /// The number of the next block's counter: those before are in use, of blocks that were dropped too.
    pub(super) fn next(&self) -> u32 {
        self.next.load(Ordering::Acquire)
    }

    /// Has all counters before a number be in use.
    pub(super) fn use_before(&self, next: u32) {
        self.next.store(next, Ordering::Release);
    }

    /// Adds translated blocks. Returns their numbers among all.
    pub(super) fn add(&self, blocks: &[CachedBlock]) -> Range<usize> {
        let mut all = self.blocks();
        let first = all.len();
        all.extend_from_slice(blocks);
        first..all.len()
    }

    fn blocks(&self) -> MutexGuard<'_, Vec<CachedBlock>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a counter that is in use.
    pub(super) fn value(&self, counter: u32) -> u64 {
        let index = usize::try_from(counter).unwrap_or(usize::MAX);
        let word = self.words.word(self.first.saturating_add(index));
        let Some(word) = word else {
            unreachable!("counter {counter} is outside of the words of its cache");
        };
        word.load(Ordering::Relaxed)
    }

    /// All blocks, by when they were translated, with their executions.
    pub(super) fn counted(&self) -> Vec<(CachedBlock, u64)> {
        let blocks = self.blocks().clone();
        self.with_executions(blocks)
    }

    /// The blocks of some numbers, with their executions.
    pub(super) fn of(&self, numbers: &[Range<usize>]) -> Vec<(CachedBlock, u64)> {
        let all = self.blocks();
        let of = |numbers: &Range<usize>| all.get(numbers.clone()).into_iter().flatten();
        let blocks: Vec<CachedBlock> = numbers.iter().flat_map(of).copied().collect();
        drop(all);
        self.with_executions(blocks)
    }

    fn with_executions(&self, blocks: Vec<CachedBlock>) -> Vec<(CachedBlock, u64)> {
        let count = |block: &CachedBlock| block.counter.map_or(0, |counter| self.value(counter));
        let blocks = blocks.into_iter();
        blocks.map(|block| (block, count(&block))).collect()
    }
}
