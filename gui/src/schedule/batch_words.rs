//! Descriptions of a plan's batches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use gilk_engine::plan::{Batch, Part, Plan, PokeKind};

use crate::widgets;

/// Descriptions of marks, made when a mark is drawn first: a batch has a write per splice.
#[derive(Debug, Default)]
pub(super) struct BatchWords {
    /// Number of the plan.
    plan: u64,
    by_mark: HashMap<Range<usize>, Arc<[String]>>,
}

impl BatchWords {
    /// Forgets the descriptions of another plan.
    pub(super) fn begin(&mut self, plan: u64) {
        if self.plan != plan {
            self.plan = plan;
            self.by_mark.clear();
        }
    }

    /// Returns the lines that describe the batches of a mark.
    pub(super) fn of(&mut self, plan: &Plan, batches: Range<usize>) -> Arc<[String]> {
        let describe = || match plan.batches.get(batches.clone()).unwrap_or_default() {
            [batch] => batch_words(plan, batch, batches.start).into(),
            several => several_words(several, batches.start).into(),
        };
        let words = self.by_mark.entry(batches.clone());
        Arc::clone(words.or_insert_with(describe))
    }
}

/// Describes batches that share a mark.
fn several_words(batches: &[Batch], first: usize) -> Vec<String> {
    let (Some(earliest), Some(latest)) = (batches.first(), batches.last()) else {
        return Vec::new();
    };
    let writes = batches.iter().map(|batch| batch.pokes.len()).sum();
    vec![
        format!(
            "batches {first} to {} from {} s to {} s: {}",
            first + batches.len() - 1,
            earliest.at,
            latest.at,
            widgets::counted(writes, "write")
        ),
        "Widen the pane to see each of them.".to_owned(),
    ]
}

/// Describes a batch, one line per kind of effect.
fn batch_words(plan: &Plan, batch: &Batch, place: usize) -> Vec<String> {
    let count = |kind, bounce: bool| {
        let pokes = batch.pokes.iter();
        pokes
            .filter(|poke| poke.kind == kind && matches!(poke.part, Part::Bounce(_)) == bounce)
            .count()
    };
    let mut lines = vec![format!(
        "batch {place} at {} s: {}",
        batch.at,
        widgets::counted(batch.pokes.len(), "write")
    )];
    for (kind, verb) in [
        (PokeKind::Install, "installs"),
        (PokeKind::Retarget, "retargets"),
        (PokeKind::Remove, "removes"),
    ] {
        let (splices, bounces) = (count(kind, false), count(kind, true));
        let mut parts = Vec::new();
        if splices > 0 {
            parts.push(widgets::counted(splices, "splice"));
        }
        if bounces > 0 {
            parts.push(widgets::counted(bounces, "bounce"));
        }
        if !parts.is_empty() {
            lines.push(format!("{verb} {}", parts.join(" and ")));
        }
    }
    if !batch.launched.is_empty() {
        lines.push(format!(
            "launches {}",
            widgets::counted(batch.launched.len(), "instrument")
        ));
    }
    if !batch.splashed.is_empty() {
        lines.push(format!(
            "splashes {}",
            widgets::counted(batch.splashed.len(), "instrument")
        ));
    }
    let waits = batch
        .pokes
        .iter()
        .filter(|poke| poke.overwritten > 1)
        .count();
    if waits > 0 {
        lines.push(format!(
            "one wait: {waits} of them overwrite more than one instruction"
        ));
    }
    // A bounce in an exposed slot waits for the splice of its donor.
    let slots = batch.pokes.iter().filter(|poke| match poke.part {
        Part::Bounce(bounce) => plan
            .bounces
            .get(bounce.0 as usize)
            .is_some_and(|bounce| matches!(bounce.slot, gilk_engine::placement::Slot::Exposed(_))),
        Part::Site(_) => false,
    });
    let slots = slots.count();
    if slots > 0 {
        lines.push(format!(
            "{} in slots that another splice exposes",
            widgets::counted(slots, "bounce")
        ));
    }
    let deepest = batch.pokes.iter().map(|poke| poke.rank).max().unwrap_or(0);
    if deepest > 0 {
        lines.push(format!("{} ranks, in sequence", deepest + 1));
    }
    lines
}
