//! Splices that go before their time: what they were there for has been hit.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::device::Device;
use crate::protocol::{Counter, Retire};

/// Splices that are still waited for.
pub(super) struct Retiring {
    counters: Counters,
    /// By word that has not counted yet: the splices that wait for it.
    waiting: BTreeMap<u64, Vec<usize>>,
    /// Each splice's address, and how many words it still waits for.
    splices: Vec<(u64, usize)>,
    /// Splices that nothing is waited for any more, and that are not taken out yet.
    ready: Vec<u64>,
    pause: Duration,
    due: Instant,
}

/// A batch of removals waits for threads for up to 0.3 s: oftener would keep the clock busy.
const SOONEST: Duration = Duration::from_millis(250);
/// When nothing new is hit any more.
const LATEST: Duration = Duration::from_secs(1);

impl Retiring {
    pub(super) fn new(retire: Vec<Retire>) -> Self {
        let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        let mut words: BTreeMap<(u32, u32), u64> = BTreeMap::new();
        let mut splices = Vec::with_capacity(retire.len());
        for (index, one) in retire.into_iter().enumerate() {
            splices.push((one.address, one.hits.len()));
            for word in one.hits {
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
            pause: SOONEST,
            due: Instant::now() + SOONEST,
        }
    }

    /// How long until it is worth looking; `None` if nothing is waited for any more.
    pub(super) fn left(&self) -> Option<Duration> {
        let any = !self.waiting.is_empty() || !self.ready.is_empty();
        any.then(|| self.due.saturating_duration_since(Instant::now()))
    }

    /// Looks at the words: the splices, by address, that are there for nothing any more and `are_in`.
    pub(super) fn look(
        &mut self,
        device: &Device,
        are_in: impl Fn(u64) -> bool,
    ) -> std::io::Result<Vec<u64>> {
        let counted = self.counters.changed(device)?;
        for word in counted {
            self.counted(word.id);
        }
        let (now, later) = self.ready.drain(..).partition(|splice| are_in(*splice));
        self.ready = later;
        self.look_again_after(&now);
        Ok(now)
    }

    fn counted(&mut self, word: u64) {
        for index in self.waiting.remove(&word).unwrap_or_default() {
            if let Some((splice, left)) = self.splices.get_mut(index) {
                *left = left.saturating_sub(1);
                if *left == 0 {
                    self.ready.push(*splice);
                }
            }
        }
    }

    fn look_again_after(&mut self, found: &[u64]) {
        self.pause = if found.is_empty() {
            LATEST.min(2 * self.pause)
        } else {
            SOONEST
        };
        self.due = Instant::now() + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splice_goes_when_all_of_its_words_have_counted() {
        let retire = |address, hits: &[(u32, u32)]| Retire {
            address,
            hits: hits.to_vec(),
        };
        let mut retiring = Retiring::new(vec![
            retire(0x100, &[(0, 5), (1, 5)]),
            retire(0x200, &[(0, 5)]),
        ]);
        assert!(retiring.left().is_some());
        // Words are numbered as they are first named.
        retiring.counted(0);
        assert_eq!(retiring.ready, [0x200]);
        retiring.counted(0);
        assert_eq!(retiring.ready, [0x200], "once");
        retiring.counted(1);
        assert_eq!(retiring.ready, [0x200, 0x100]);
        retiring.ready.clear();
        assert_eq!(retiring.left(), None);
        assert_eq!(Retiring::new(Vec::new()).left(), None);
    }

    #[test]
    fn who_finds_nothing_looks_less_often() {
        let mut retiring = Retiring::new(Vec::new());
        let mut pauses = Vec::new();
        for found in [&[][..], &[], &[], &[], &[], &[0x100]] {
            retiring.look_again_after(found);
            pauses.push(retiring.pause.as_millis());
        }
        assert_eq!(pauses, [500, 1000, 1000, 1000, 1000, 250]);
    }
}
