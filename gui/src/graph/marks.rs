//! State of each hook of a block, as a mark.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use egui::Color32;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::paths::counts_paths_of;
use gilk_engine::placement::Tactic;
use gilk_engine::{HookType, Image, Refusal};

use super::scene::Scene;
use crate::placements::Placements;
use crate::theme::Tokens;

/// The hooks that have instruments of the session.
#[derive(Clone, Debug, Default)]
pub struct Hooked {
    counts: HashMap<(FunctionId, BlockIndex, HookType), usize>,
    functions: Arc<BTreeSet<FunctionId>>,
    /// Functions whose paths the session counts.
    path_counted: HashSet<Arc<str>>,
}

impl Hooked {
    /// Counts the placements of a session by hook. Functions that the kernel lacks are skipped,
    /// because the plan reports them.
    #[must_use]
    pub fn of(image: &Image, placements: &Placements) -> Self {
        let (mut counts, mut path_counted) = (HashMap::new(), HashSet::new());
        let mut functions_by_name: HashMap<&str, Option<FunctionId>> = HashMap::new();
        // Neighbours are mostly in the same function.
        let mut last: Option<(&Arc<str>, Option<FunctionId>)> = None;
        for placement in placements {
            let is_last = |(name, _): &(&Arc<str>, _)| Arc::ptr_eq(name, &placement.function);
            let function = match last.filter(is_last) {
                Some((_, function)) => function,
                None => *functions_by_name
                    .entry(&placement.function)
                    .or_insert_with(|| {
                        image
                            .function_named(&placement.function)
                            .ok()
                            .map(|function| function.id)
                    }),
            };
            last = Some((&placement.function, function));
            if counts_paths_of(&placement.instrument, &placement.function) {
                path_counted.insert(Arc::clone(&placement.function));
            }
            if let Some(function) = function {
                *counts
                    .entry((function, BlockIndex(placement.block), placement.hook))
                    .or_insert(0) += 1;
            }
        }
        let functions = functions_by_name.into_values().flatten().collect();
        Self {
            counts,
            functions: Arc::new(functions),
            path_counted,
        }
    }

    /// Returns whether the session counts the paths of a function.
    pub(crate) fn counts_paths(&self, function: &str) -> bool {
        self.path_counted.contains(function)
    }

    /// Returns the functions with instruments.
    #[must_use]
    pub fn functions(&self) -> Arc<BTreeSet<FunctionId>> {
        Arc::clone(&self.functions)
    }

    /// Returns the number of instruments at a hook.
    #[must_use]
    pub fn count(&self, function: FunctionId, block: BlockIndex, hook: HookType) -> usize {
        self.counts
            .get(&(function, block, hook))
            .copied()
            .unwrap_or(0)
    }
}

/// State of a hook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Mark<'a> {
    /// Free, and can be hooked.
    Hookable,
    /// Free, and can be hooked only by an `int3`, which costs a trap at every hit.
    Trapped,
    /// Has that many instruments of the session.
    Hooked(usize),
    /// Refused by a rule.
    Refused(&'a Refusal),
}

impl<'a> Mark<'a> {
    /// Returns the mark of a hook of the scene's function.
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

    /// Returns its colour.
    pub(crate) const fn color(&self, tokens: &Tokens) -> Color32 {
        match self {
            Self::Hookable => tokens.hookable,
            Self::Trapped => tokens.warning,
            Self::Hooked(_) => tokens.hooked,
            Self::Refused(_) => tokens.refused,
        }
    }

    /// Describes the mark, for screen readers and tooltips.
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

/// Returns the cost of a hook's tactic in steps above a direct splice, and the tactic's name.
pub(crate) fn cost_steps(
    scene: &Scene,
    block: BlockIndex,
    hook: HookType,
) -> (usize, &'static str) {
    let Some(Ok(choice)) = scene.hook(block, hook) else {
        return (0, "");
    };
    let steps = match choice.tactic {
        Tactic::CallSplice | Tactic::DirectSplice | Tactic::BlockRelocation => 0,
        Tactic::Trap => 3,
        tactic if tactic < Tactic::WholeFunction => 1,
        _ => 2,
    };
    (steps, choice.tactic.name())
}

/// Formats a refusal as a sentence, with a capital letter and a full stop.
pub(crate) fn sentence(refusal: &Refusal) -> String {
    let mut letters = refusal.why.chars();
    let first: String = letters
        .next()
        .map(|letter| letter.to_uppercase().collect())
        .unwrap_or_default();
    let stop = if refusal.why.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}
