//! The contents of a recording, item by item, in order of time.

use crate::recording::{Loss, LossCause, Mark, MarkKind, Merged, Recording, Words};
use crate::texts::SampleTexts;
use crate::totals::Totals;
use crate::{Result, Sample};

/// A row of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A sample and its CPU.
    Sample(u16, Sample),
    /// A sample that is text: a line, or the name of its value.
    Text(u16, Sample, String),
    Loss(Loss),
    Mark(Mark),
}

impl Item {
    /// Returns the time in TSC ticks.
    pub(super) fn tsc(&self) -> u64 {
        match self {
            Self::Sample(_, sample) | Self::Text(_, sample, _) => sample.tsc,
            Self::Loss(loss) => loss.tsc,
            Self::Mark(mark) => mark.tsc,
        }
    }
}

/// Samples, losses and marks of a recording in order of time over all CPUs. A batch that cannot be
/// read yields one error.
pub(super) struct Items<'a> {
    samples: Merged<'a>,
    words: Words<'a>,
    texts: &'a SampleTexts,
    totals: &'a Totals,
    next: Option<Result<Item>>,
    /// Losses and marks, the latest first: they are few compared with the samples.
    notes: Vec<Item>,
}

impl<'a> Items<'a> {
    pub(super) fn of(recording: &'a Recording) -> Self {
        let (mut notes, mut trouble) = (Vec::new(), None);
        match recording.losses() {
            Ok(losses) => notes.extend(losses.into_iter().map(Item::Loss)),
            Err(error) => trouble = Some(error),
        }
        match recording.marks() {
            Ok(marks) => {
                // Clock readings are metadata, not events.
                let happened = marks
                    .into_iter()
                    .filter(|mark| mark.kind != MarkKind::Clock);
                notes.extend(happened.map(Item::Mark));
            }
            Err(error) => trouble = Some(error),
        }
        notes.sort_by_key(|note| std::cmp::Reverse(note.tsc()));
        Self {
            samples: recording.merged(),
            words: recording.words(),
            texts: &recording.metadata().texts,
            totals: recording.totals(),
            next: trouble.map(Err),
            notes,
        }
    }

    /// Returns the item of a sample, with its text if it has one. A line without all of its words has none.
    fn sample(&mut self, cpu: u16, sample: Sample) -> Result<Item> {
        if self.texts.is_empty() {
            return Ok(Item::Sample(cpu, sample));
        }
        let count = self.texts.words(&sample);
        let words = self.words.take(cpu, &sample, count)?;
        let text = words.and_then(|words| self.texts.text(&sample, &words, self.totals));
        Ok(match text {
            Some(text) => Item::Text(cpu, sample, text),
            None => Item::Sample(cpu, sample),
        })
    }
}

impl Iterator for Items<'_> {
    type Item = Result<Item>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next.is_none() {
            let sample = self.samples.next();
            self.next = sample.map(|next| next.and_then(|(cpu, sample)| self.sample(cpu, sample)));
        }
        let note = self.notes.last().map(Item::tsc);
        match (&self.next, note) {
            (Some(Ok(item)), Some(note)) if note < item.tsc() => self.notes.pop().map(Ok),
            (Some(_), _) => self.next.take(),
            (None, _) => self.notes.pop().map(Ok),
        }
    }
}

/// Returns the name of a loss as an event.
pub(super) fn loss_name(cause: LossCause) -> String {
    format!("lost: {}", cause.words())
}

/// Returns the name of a mark as an event.
pub(super) fn mark_name(kind: MarkKind) -> &'static str {
    match kind {
        MarkKind::Launch => "launch",
        MarkKind::Splash => "splash",
        MarkKind::User => "mark",
        MarkKind::Clock => "clock",
    }
}
