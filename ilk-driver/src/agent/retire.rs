//! Retirement: removal of splices all of whose instruments have been hit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::device::Device;
use crate::writes::{Counter, Retire};

/// The splices that will be retired.
pub(super) struct Retiring {
    counters: Counters,
    /// The splices that wait for a word, by the id of the word, which is still zero.
    waiting: BTreeMap<u64, Vec<usize>>,
    /// Each splice's address, and the number of words that it waits for.
    splices: Vec<(u64, usize)>,
    /// Splices that wait for no word and are not removed yet.
    ready: Vec<u64>,
    pause: Duration,
    due: Instant,
}

/// Shortest interval of polls. A batch of removals waits for threads for up to 0.3 s, so shorter
/// intervals would keep the clock's thread busy.
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// Longest interval of polls, reached when no further words count.
const MAX_PAUSE: Duration = Duration::from_secs(1);

impl Retiring {
    pub(super) fn new(retire: Vec<Retire>) -> Self {
        let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut words: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut splices = Vec::with_capacity(retire.len());
        for (index, splice) in retire.into_iter().enumerate() {
            splices.push((splice.address, splice.hits.len()));
            for word in splice.hits {
                let next = words.len() as u64;
                let id = *words.entry(word).or_insert(next);
                waiting.entry(id).or_default().push(index);
            }
        }
        let counters = words.into_iter().map(|((bank, slot), id)| Counter {
            id,
            bank,
            slot,
            largest: false,
        });
        Self {
            counters: Counters::new(counters.collect()),
            waiting,
            splices,
            ready: Vec::new(),
            pause: MIN_PAUSE,
            due: Instant::now() + MIN_PAUSE,
        }
    }

    /// Returns the time until the next poll; `None` if no splice remains.
    pub(super) fn until_poll(&self) -> Option<Duration> {
        let any = !self.waiting.is_empty() || !self.ready.is_empty();
        any.then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Polls the words; returns the addresses of the splices to retire that `are_installed`.
    pub(super) fn poll(
        &mut self,
        device: &Device,
        are_installed: impl Fn(u64) -> bool,
    ) -> std::io::Result<Vec<u64>> {
        let changed = self.counters.changed(device)?;
        for word in changed {
            self.record_hit(word.id);
        }
        let (now, later) = self
            .ready
            .drain(..)
            .partition(|splice| are_installed(*splice));
        self.ready = later;
        self.schedule_poll(&now);
        Ok(now)
    }

    fn record_hit(&mut self, word: u64) {
        // A word that changes again has no waiting splices any more.
        let Some(waiting) = self.waiting.remove(&word) else {
            return;
        };
        for index in waiting {
            let Some((splice, words)) = self.splices.get_mut(index) else {
                debug_assert!(false, "no splice has index {index}");
                continue;
            };
            *words -= 1;
            if *words == 0 {
                self.ready.push(*splice);
            }
        }
    }

    fn schedule_poll(&mut self, retired: &[u64]) {
        self.pause = if retired.is_empty() {
            MAX_PAUSE.min(2 * self.pause)
        } else {
            MIN_PAUSE
        };
        self.due = Instant::now() + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splice_retires_when_all_of_its_words_have_counted() {
        let retire = |address, hits: &[(u32, u32)]| Retire {
            address,
            hits: hits.to_vec(),
        };
        let mut retiring = Retiring::new(vec![
            retire(0x100, &[(0, 5), (1, 5)]),
            retire(0x200, &[(0, 5)]),
        ]);
        assert!(retiring.until_poll().is_some());
        // Words are numbered in order of first mention.
        retiring.record_hit(0);
        assert_eq!(retiring.ready, [0x200]);
        retiring.record_hit(0);
        assert_eq!(retiring.ready, [0x200], "once");
        retiring.record_hit(1);
        assert_eq!(retiring.ready, [0x200, 0x100]);
        retiring.ready.clear();
        assert_eq!(retiring.until_poll(), None);
        assert_eq!(Retiring::new(Vec::new()).until_poll(), None);
    }

    #[test]
    fn polls_without_a_result_become_less_frequent() {
        let mut retiring = Retiring::new(Vec::new());
        let mut pauses = Vec::new();
        for retired in [&[][..], &[], &[], &[], &[], &[0x100]] {
            retiring.schedule_poll(retired);
            pauses.push(retiring.pause.as_millis());
        }
        assert_eq!(pauses, [500, 1000, 1000, 1000, 1000, 250]);
    }
}
