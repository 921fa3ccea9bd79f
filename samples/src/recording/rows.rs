//! Kinds of rows, including samples.

use std::collections::BTreeMap;

use crate::Sample;
use crate::chart::scale::grouped;
use crate::metadata::Metadata;

/// Value of the column `kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// 0: a sample.
    Sample,
    /// 1–15: samples that were lost.
    Loss(LossCause),
    /// 16 to 19: an event.
    Mark(MarkKind),
    /// 20: a further word of the sample with this CPU, time and identifier: an argument of a line of text.
    Word,
}

/// Reasons for lost samples. Invariant: hits = delivered + lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// 1: the ring of the CPU was full.
    RingFull,
    /// 2: a timer was stopped that this thread had not started, or whose start was overwritten;
    /// only in old recordings.
    Unmatched,
    /// 3: sampling was switched off at that moment.
    RingOff,
    /// 4: a newer sample overwrote it before it was read, as the session requested.
    Overwritten,
    /// 5: an older sample overwrote it, whose hit was interrupted while the ring wrapped around.
    Overtaken,
    /// 6: its slot was reserved, and its thread ended, or left the hit by a handler of a signal.
    Unfinished,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MarkKind {
    /// 16: the instrument `id` was in place from this time.
    Launch,
    /// 17: the instrument `id` was removed; no hit after this time.
    Splash,
    /// 18: a mark of the user.
    User,
    /// 19: a reading of the recording machine's clock ([`Reading`](crate::clocks::Reading)).
    Clock,
}

impl RowKind {
    /// Every kind, with its number and its words in `gilk.kinds`.
    pub(crate) const ALL: [(u8, Self, &str); 12] = [
        (0, Self::Sample, "sample"),
        (1, Self::Loss(LossCause::RingFull), "lost: ring full"),
        (
            2,
            Self::Loss(LossCause::Unmatched),
            "lost: timer stop without a start",
        ),
        (3, Self::Loss(LossCause::RingOff), "lost: ring off"),
        (4, Self::Loss(LossCause::Overwritten), "lost: overwritten"),
        (5, Self::Loss(LossCause::Overtaken), "lost: overtaken"),
        (6, Self::Loss(LossCause::Unfinished), "lost: unfinished"),
        (16, Self::Mark(MarkKind::Launch), "mark: launch"),
        (17, Self::Mark(MarkKind::Splash), "mark: splash"),
        (18, Self::Mark(MarkKind::User), "mark: user"),
        (19, Self::Mark(MarkKind::Clock), "mark: clock"),
        (20, Self::Word, "word of a sample"),
    ];

    /// Returns the number in the column `kind`.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Sample => 0,
            Self::Loss(LossCause::RingFull) => 1,
            Self::Loss(LossCause::Unmatched) => 2,
            Self::Loss(LossCause::RingOff) => 3,
            Self::Loss(LossCause::Overwritten) => 4,
            Self::Loss(LossCause::Overtaken) => 5,
            Self::Loss(LossCause::Unfinished) => 6,
            Self::Mark(MarkKind::Launch) => 16,
            Self::Mark(MarkKind::Splash) => 17,
            Self::Mark(MarkKind::User) => 18,
            Self::Mark(MarkKind::Clock) => 19,
            Self::Word => 20,
        }
    }

    /// Returns the kind with this number; `None` for one that a later version may have added.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(known, _, _)| *known == number)
            .map(|(_, kind, _)| *kind)
    }
}

impl LossCause {
    /// Returns a description for people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::RingFull => "ring full",
            Self::Unmatched => "timer stop without a start",
            Self::RingOff => "ring off",
            Self::Overwritten => "overwritten",
            Self::Overtaken => "overtaken",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Samples of one CPU that were lost since its previous loss with the same cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// CPU of the counter.
    pub cpu: u16,
    /// Time of the reading of the counter, in TSC ticks.
    pub tsc: u64,
    /// Cause of the loss.
    pub cause: LossCause,
    /// Number since the previous reading: not a running total, so that losses can be summed.
    pub count: u64,
}

impl Loss {
    /// Sums losses by CPU and cause, in that order; the time is that of the last loss.
    #[must_use]
    pub fn summed(losses: &[Self]) -> Vec<Self> {
        let mut sums: BTreeMap<(u16, u8), Self> = BTreeMap::new();
        for loss in losses {
            let key = (loss.cpu, RowKind::Loss(loss.cause).number());
            let sum = sums.entry(key).or_insert(Self { count: 0, ..*loss });
            sum.count = sum.count.saturating_add(loss.count);
            sum.tsc = sum.tsc.max(loss.tsc);
        }
        sums.into_values().collect()
    }

    /// Describes losses in words, a line per CPU, named by `metadata`; empty without losses.
    #[must_use]
    pub fn by_cpu(losses: &[Self], metadata: &Metadata) -> String {
        let sums = Self::summed(losses);
        let cpus = sums.chunk_by(|one, next| one.cpu == next.cpu);
        let lines = cpus.map(|of| {
            let causes = of.iter().map(|loss| {
                let (count, cause) = (grouped(loss.count), loss.cause.words());
                format!("{count} ({cause})")
            });
            let cpu = metadata.cpu_name(of.first().map_or(0, |loss| loss.cpu));
            let causes: Vec<String> = causes.collect();
            format!("lost on {cpu}: {}\n", causes.join(", "))
        });
        lines.collect()
    }
}

/// An event, to be drawn across the lanes or on one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Kind of the event.
    pub kind: MarkKind,
    /// Time in TSC ticks.
    pub tsc: u64,
    /// Packed identifier of the instrument, or 0; for a clock's reading, its error in nanoseconds.
    pub id: u64,
    /// Duration in ticks of a launch or splash; the number of a user's mark; nanoseconds since 1970
    /// for a clock's reading.
    pub value: u64,
}

/// A row of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) time: u64,
    pub(crate) cpu: u16,
    pub(crate) kind: u8,
    pub(crate) id: u64,
    pub(crate) value: u64,
}

impl From<Loss> for Row {
    fn from(loss: Loss) -> Self {
        Self {
            time: loss.tsc,
            cpu: loss.cpu,
            kind: RowKind::Loss(loss.cause).number(),
            id: 0,
            value: loss.count,
        }
    }
}

impl From<Mark> for Row {
    fn from(mark: Mark) -> Self {
        let cpu = crate::record::ALL_CPUS;
        Self {
            time: mark.tsc,
            cpu,
            kind: RowKind::Mark(mark.kind).number(),
            id: mark.id,
            value: mark.value,
        }
    }
}

impl Row {
    /// Returns the loss in this row, if it is one.
    pub(crate) fn loss(&self) -> Option<Loss> {
        match RowKind::from_number(self.kind)? {
            RowKind::Loss(cause) => Some(Loss {
                cpu: self.cpu,
                tsc: self.time,
                cause,
                count: self.value,
            }),
            RowKind::Sample | RowKind::Word | RowKind::Mark(_) => None,
        }
    }

    /// Returns the word of a sample in this row, if it is one.
    pub(crate) fn word(&self) -> Option<Sample> {
        let sample = Sample {
            id: self.id,
            value: self.value,
            tsc: self.time,
        };
        (RowKind::from_number(self.kind)? == RowKind::Word).then_some(sample)
    }

    /// Returns the row of a word of a sample.
    pub(crate) fn of_word(cpu: u16, word: &Sample) -> Self {
        Self {
            time: word.tsc,
            cpu,
            kind: RowKind::Word.number(),
            id: word.id,
            value: word.value,
        }
    }

    /// Returns the mark in this row, if it is one.
    pub(crate) fn mark(&self) -> Option<Mark> {
        match RowKind::from_number(self.kind)? {
            RowKind::Mark(kind) => Some(Mark {
                kind,
                tsc: self.time,
                id: self.id,
                value: self.value,
            }),
            RowKind::Sample | RowKind::Word | RowKind::Loss(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn losses_are_summed_by_cpu_and_cause(losses in prop::collection::vec((0u16..4, 1u8..6, 0u64..9999, 0u64..99), 0..60)) {
            let losses: Vec<Loss> = losses.into_iter().filter_map(|(cpu, kind, count, tsc)| {
                let Some(RowKind::Loss(cause)) = RowKind::from_number(kind) else { return None };
                Some(Loss { cpu, tsc, cause, count })
            }).collect();
            let sums = Loss::summed(&losses);
            for sum in &sums {
                let of = || losses.iter().filter(|loss| (loss.cpu, loss.cause) == (sum.cpu, sum.cause));
                prop_assert_eq!(sum.count, of().map(|loss| loss.count).sum::<u64>());
                prop_assert_eq!(Some(sum.tsc), of().map(|loss| loss.tsc).max());
            }
            let total = |losses: &[Loss]| losses.iter().map(|loss| loss.count).sum::<u64>();
            prop_assert_eq!(total(&sums), total(&losses));
            prop_assert!(sums.is_sorted_by_key(|loss| (loss.cpu, RowKind::Loss(loss.cause).number())));
            let mut cpus: Vec<u16> = sums.iter().map(|loss| loss.cpu).collect();
            cpus.dedup();
            prop_assert_eq!(Loss::by_cpu(&losses, &Metadata::default()).lines().count(), cpus.len());
        }
    }

    #[test]
    fn numbers_and_kinds_are_one_to_one() {
        for (number, kind, _) in RowKind::ALL {
            assert_eq!(kind.number(), number);
        }
        for number in 0..=u8::MAX {
            if let Some(kind) = RowKind::from_number(number) {
                assert_eq!(kind.number(), number);
            }
        }
    }
}
