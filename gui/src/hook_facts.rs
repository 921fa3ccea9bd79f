//! Facts about the instruments at the selected block, found after a change only: sessions have up to
//! 100,000 placements, and their plans as many instruments.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use egui::Context;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::patch::PieceKind;
use gilk_engine::placement::SiteIndex;
use gilk_engine::plan::HitCosts;
use gilk_engine::session::Placement;
use gilk_engine::{HookType, InstrumentId, Plan, VerifiedPlan};

use crate::derived::{Derived, LARGE};
use crate::document::Document;
use crate::graph::Scene;
use crate::placements::Placements;

/// An instrument at a hook.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HookRow {
    /// Index of its placement.
    pub(crate) place: usize,
    /// Name of the instrument.
    pub(crate) instrument: Arc<str>,
    /// Its identifier, once it is planned.
    pub(crate) id: Option<InstrumentId>,
    /// Number of instructions that it executes at a hit, in the patch where it costs most.
    pub(crate) cost: Option<u32>,
    /// The estimated nanoseconds of a hit.
    pub(crate) ns: Option<f64>,
}

/// The block and hook, and what the facts depend on.
#[derive(Debug)]
struct FactsKey {
    /// Number of the hooks and instruments of the session: times do not matter.
    hooks: u64,
    scene: Arc<Scene>,
    block: BlockIndex,
    hook: HookType,
    /// Number of the plan, and whether it is that of the session now.
    plan: (u64, bool),
}

impl FactsKey {
    /// Returns whether the facts are about the same placements: indices of others are not to be used.
    fn has_same_places(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.scene, &other.scene)
            && (self.hooks, self.block, self.hook) == (other.hooks, other.block, other.hook)
    }
}

impl PartialEq for FactsKey {
    fn eq(&self, other: &Self) -> bool {
        self.has_same_places(other) && self.plan == other.plan
    }
}

/// Facts about a block and hook.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The instruments at the hook, in execution order.
    pub(crate) rows: Arc<[HookRow]>,
    /// The plan's notes about them and about points in the block.
    pub(crate) notes: Arc<[String]>,
    /// The writes of the last plan, by hook of the block.
    written: HashMap<HookType, Vec<String>>,
}

impl Facts {
    /// Returns the writes of the last plan for the instruments of a hook.
    pub(crate) fn written(&self, hook: HookType) -> &[String] {
        self.written.get(&hook).map_or(&[], Vec::as_slice)
    }
}

/// Facts about the selected block and hook.
#[derive(Debug, Default)]
pub(crate) struct HookFacts {
    derived: Derived<FactsKey, Arc<Facts>>,
    facts: Arc<Facts>,
}

impl std::ops::Deref for HookFacts {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.facts
    }
}

/// A plan, and whether it is that of the session now.
pub(crate) struct LastPlan {
    pub(crate) plan: Option<Arc<VerifiedPlan>>,
    /// Number of the last reply.
    pub(crate) number: u64,
    /// True if no later plan is requested.
    pub(crate) is_current: bool,
}

impl HookFacts {
    /// Updates the facts after a change of the block, the hook, the session or the plan. Those of a large session
    /// are computed on a thread; until then there are none, or those of the plan before.
    pub(crate) fn update(
        &mut self,
        document: &Document,
        scene: &Arc<Scene>,
        (block, hook): (BlockIndex, HookType),
        last: &LastPlan,
        ctx: &Context,
    ) {
        let key = || FactsKey {
            hooks: document.hooks(),
            scene: Arc::clone(scene),
            block,
            hook,
            plan: (last.number, last.is_current),
        };
        let placements = document.session().placements.clone();
        let is_large = placements.len() >= LARGE;
        let (plan, is_current) = (last.plan.clone(), last.is_current);
        let of = Arc::clone(scene);
        self.derived.request(key(), is_large, ctx, move || {
            Arc::new(facts(
                &placements,
                &of,
                (block, hook),
                plan.as_deref(),
                is_current,
            ))
        });
        let key = key();
        let held = self.derived.last();
        let held = held.filter(|(held, _)| held.has_same_places(&key));
        self.facts = held.map_or_else(Arc::default, |(_, facts)| Arc::clone(facts));
    }
}

fn facts(
    placements: &Placements,
    scene: &Scene,
    (block, hook): (BlockIndex, HookType),
    plan: Option<&VerifiedPlan>,
    is_current: bool,
) -> Facts {
    let plan = plan.map(VerifiedPlan::plan);
    let here = placements.at(&scene.name, block.0);
    let here: Vec<(usize, &Placement)> = here.filter(|(_, one)| one.hook == hook).collect();
    let rows = rows(&here, plan.filter(|_| is_current));
    let span = scene.cfg.block(block).map(|block| block.span);
    let notes = plan.map_or(&[][..], |plan| &plan.notes).iter();
    let notes = notes.filter(|note| {
        rows.iter().any(|row| row.place == note.placement)
            || span.is_some_and(|span| span.contains(note.at))
    });
    let mut notes: Vec<String> = notes.map(|note| format!("{note}.")).collect();
    // Several patches of an instrument may have the same note.
    let mut seen = BTreeSet::new();
    notes.retain(|note| seen.insert(note.clone()));
    Facts {
        rows: rows.into(),
        notes: notes.into(),
        written: plan
            .map(|plan| written(plan, scene, block))
            .unwrap_or_default(),
    }
}

/// Returns the rows of placements; the plan's instruments and patches are looked through once.
fn rows(here: &[(usize, &Placement)], plan: Option<&Plan>) -> Vec<HookRow> {
    let places: HashSet<usize> = here.iter().map(|(place, _)| *place).collect();
    let mut planned: HashMap<usize, InstrumentId> = HashMap::new();
    let all = plan.map_or(&[][..], |plan| &plan.instruments);
    for one in all.iter().filter(|one| places.contains(&one.placement)) {
        planned.entry(one.placement).or_insert(one.id);
    }
    let ids: HashSet<InstrumentId> = planned.values().copied().collect();
    let costs = plan.map_or_else(HashMap::new, |plan| executed(plan, &ids));
    let times = plan.map_or_else(BTreeMap::new, |plan| {
        HitCosts::of(plan).of_instruments(|id| ids.contains(&id))
    });
    let row = |&(place, placement): &(usize, &Placement)| {
        let id = planned.get(&place).copied();
        HookRow {
            place,
            instrument: Arc::clone(&placement.instrument),
            id,
            cost: id.and_then(|id| costs.get(&id).copied()),
            ns: id.and_then(|id| times.get(&id).copied()),
        }
    };
    here.iter().map(row).collect()
}

/// Returns the writes of a plan for the instruments of a block, by hook. All instruments of a hook
/// use the same tactic.
fn written(plan: &Plan, scene: &Scene, block: BlockIndex) -> HashMap<HookType, Vec<String>> {
    let mut written = HashMap::new();
    let is_here = |id: InstrumentId| {
        id.block == block.0
            && plan
                .function(id.major)
                .is_some_and(|one| one.outline.function == scene.function())
    };
    for one in plan.instruments.iter().filter(|one| is_here(one.id)) {
        let of_hook = written.entry(one.id.hook);
        of_hook.or_insert_with(|| plan.way(one));
    }
    written
}

/// Returns the numbers of instructions that instruments execute at a hit, each in the patch where it costs
/// most; the patches are looked through once.
fn executed(plan: &Plan, ids: &HashSet<InstrumentId>) -> HashMap<InstrumentId, u32> {
    let mut of_site: HashMap<SiteIndex, Vec<InstrumentId>> = HashMap::new();
    for one in plan.instruments.iter().filter(|one| ids.contains(&one.id)) {
        for &(site, _) in &one.points {
            of_site.entry(site).or_default().push(one.id);
        }
    }
    let mut most: HashMap<InstrumentId, u32> = HashMap::new();
    for patch in &plan.patches {
        let Some(of) = of_site.get(&patch.site) else {
            continue;
        };
        for id in of {
            let own = patch
                .pieces()
                .filter(|piece| piece.kind == PieceKind::Instrument(*id));
            let count = own.map(|piece| piece.executed).sum();
            let largest = most.entry(*id).or_default();
            *largest = (*largest).max(count);
        }
    }
    most
}
