//! Texts of samples that are no quantities: how often each occurs.

use std::collections::HashMap;

use gilk_samples::Sample;
use gilk_samples::index::Index;
use gilk_samples::metadata::Metadata;
use gilk_samples::totals::Totals;

/// Number of distinct texts that are counted; further ones are counted together.
const DISTINCT: usize = 4096;
/// Number of texts that a row lists.
const LISTED: usize = 12;

/// Frequencies of the texts of a row's samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextCounts {
    /// The most frequent texts with their numbers, in descending order.
    pub listed: Vec<(String, u64)>,
    /// Number of samples with other texts.
    pub others: u64,
}

impl TextCounts {
    /// Returns the texts and their shares of the samples, in a line.
    pub(super) fn line(&self) -> String {
        let listed = self.listed.iter().map(|(_, count)| count);
        let all = (listed.sum::<u64>() + self.others).max(1) as f64;
        let share = |count: u64| format!("{:.1} %", 100.0 * count as f64 / all);
        let texts = self.listed.iter();
        let mut parts: Vec<String> = texts
            .map(|(text, count)| format!("{text} {}", share(*count)))
            .collect();
        if self.others > 0 {
            parts.push(format!("others {}", share(self.others)));
        }
        parts.join(", ")
    }
}

/// Counts the texts of samples.
pub(super) struct TextCounter<'a> {
    metadata: &'a Metadata,
    named: &'a Totals,
    /// Numbers of samples by their value and words, with an instrument that has such samples.
    counts: HashMap<(u64, Vec<u64>), (u64, u64)>,
    others: u64,
}

impl<'a> TextCounter<'a> {
    /// Creates a counter of the texts of a recording, with the names of its stacks and symbols.
    pub(super) fn new(metadata: &'a Metadata, named: &'a Totals) -> Self {
        Self {
            metadata,
            named,
            counts: HashMap::new(),
            others: 0,
        }
    }

    /// Adds the samples of an instrument from tick `from` to tick `to` (exclusive).
    pub(super) fn add(&mut self, id: u64, index: &Index, (from, to): (u64, u64)) {
        let texts = &self.metadata.texts;
        index.visit(id, from, to, |point| {
            let sample = Sample {
                id,
                value: point.value,
                tsc: point.tsc,
            };
            // Words that are missing were lost, and their sample with them.
            let words = index.words(&sample, texts.words(&sample));
            let key = words.map(|words| (point.value, words));
            let is_full = self.counts.len() >= DISTINCT;
            match key.filter(|key| !is_full || self.counts.contains_key(key)) {
                Some(key) => self.counts.entry(key).or_insert((0, id)).0 += 1,
                None => self.others += 1,
            }
        });
    }

    /// Returns the most frequent texts.
    pub(super) fn counted(self) -> TextCounts {
        let (texts, named) = (&self.metadata.texts, self.named);
        // Different words may have the same text.
        let mut by_text: HashMap<String, u64> = HashMap::new();
        for ((value, words), (count, id)) in self.counts {
            let sample = Sample { id, value, tsc: 0 };
            let text = texts.text(&sample, &words, named);
            let text = text.unwrap_or_else(|| value.cast_signed().to_string());
            *by_text.entry(text.trim_end().to_owned()).or_default() += count;
        }
        let mut listed: Vec<(String, u64)> = by_text.into_iter().collect();
        listed.sort_unstable_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
        let rest = listed.split_off(listed.len().min(LISTED));
        let rest = rest.into_iter().map(|(_, count)| count).sum::<u64>();
        TextCounts {
            listed,
            others: self.others + rest,
        }
    }
}
