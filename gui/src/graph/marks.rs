//! What each hook of a block is, as a mark.

use std::collections::{BTreeSet, HashMap};

use egui::Color32;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;
use gilk_engine::placement::Tactic;
use gilk_engine::{HookType, Image, Refusal, Session};

use super::scene::Scene;
use crate::theme::Tokens;

/// Which hooks the session has instruments at.
#[derive(Clone, Debug, Default)]
pub struct Hooked {
    counts: HashMap<(FunctionId, BlockIndex, HookType), usize>,
}

impl Hooked {
    /// Looks up every placement of a session. Those whose functions the kernel lacks are left out:
    /// the plan says what is wrong with them.
    #[must_use]
    pub fn of(image: &Image, session: &Session) -> Self {
        let mut counts = HashMap::new();
        let mut known: HashMap<&str, Option<FunctionId>> = HashMap::new();
        for placement in &session.placements {
            let function = *known.entry(&placement.function).or_insert_with(|| {
                image
                    .function_named(&placement.function)
                    .ok()
                    .map(|function| function.id)
            });
            if let Some(function) = function {
                *counts
                    .entry((function, BlockIndex(placement.block), placement.hook))
                    .or_insert(0) += 1;
            }
        }
        Self { counts }
    }

    /// The functions that have any.
    #[must_use]
    pub fn functions(&self) -> BTreeSet<FunctionId> {
        self.counts.keys().map(|&(function, ..)| function).collect()
    }

    /// Instruments at one hook.
    #[must_use]
    pub fn count(&self, function: FunctionId, block: BlockIndex, hook: HookType) -> usize {
        self.counts
            .get(&(function, block, hook))
            .copied()
            .unwrap_or(0)
    }
}

/// What a hook is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mark<'a> {
    /// Nothing is there, and something can be.
    Hookable,
    /// The same, but only by an `int3`, which costs a trap at every hit.
    Trapped,
    /// So many instruments of the session are there.
    Hooked(usize),
    /// A rule forbids it.
    Refused(&'a Refusal),
}

impl<'a> Mark<'a> {
    /// The mark of one hook of the scene's function.
    pub(crate) fn of(scene: &'a Scene, hooked: &Hooked, block: BlockIndex, hook: HookType) -> Self {
        match (
            hooked.count(scene.function(), block, hook),
            scene.hook(block, hook),
        ) {
            (0, Some(Err(refusal))) => Self::Refused(refusal),
            (0, Some(Ok(choice))) if choice.tactic == Tactic::Trap => Self::Trapped,
            (0, _) => Self::Hookable,
            (count, _) => Self::Hooked(count),
        }
    }

    /// Its colour.
    pub(crate) const fn color(&self, tokens: &Tokens) -> Color32 {
        match self {
            Self::Hookable => tokens.hookable,
            Self::Trapped => tokens.warning,
            Self::Hooked(_) => tokens.hooked,
            Self::Refused(_) => tokens.refused,
        }
    }

    /// What it says, for those who do not see it.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Hookable => "can be hooked".to_owned(),
            Self::Trapped => "can be hooked by a trap".to_owned(),
            Self::Hooked(1) => "1 instrument".to_owned(),
            Self::Hooked(count) => format!("{count} instruments"),
            Self::Refused(refusal) => format!("refused by rule {}", refusal.rule.name()),
        }
    }
}

/// How much dearer than a splice over its own instructions the way to a hook is, in steps, and what it
/// is called.
pub(crate) fn dearness(scene: &Scene, block: BlockIndex, hook: HookType) -> (usize, &'static str) {
    let Some(Ok(choice)) = scene.hook(block, hook) else {
        return (0, "");
    };
    let steps = match choice.tactic {
        Tactic::DirectSplice | Tactic::BlockRelocation => 0,
        Tactic::Trap => 3,
        tactic if tactic < Tactic::WholeFunction => 1,
        _ => 2,
    };
    (steps, choice.tactic.name())
}

/// The sentence of a refusal, as it stands on screens: its first letter large, a full stop behind.
pub(crate) fn sentence(refusal: &Refusal) -> String {
    let mut letters = refusal.why.chars();
    let first: String = letters
        .next()
        .map(|letter| letter.to_uppercase().collect())
        .unwrap_or_default();
    let stop = if refusal.why.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}
