//! The time that the instruments of a plan add, estimated.

use std::collections::BTreeMap;

use super::model::{Patch, Plan, PlannedInstrument};
use crate::ids::part;
use crate::patch::{HitWork, PieceKind};
use crate::placement::Splice;
use crate::{Addr, InstrumentId, Span};

/// Estimates of a plan's hits.
#[derive(Clone, Debug)]
pub struct HitCosts<'p> {
    plan: &'p Plan,
    /// Blocks that branch to their own start, by address.
    loops: Vec<Span>,
}

impl<'p> HitCosts<'p> {
    /// Reads the loops of the plan's functions.
    #[must_use]
    pub fn of(plan: &'p Plan) -> Self {
        let loops = plan.functions.iter().flat_map(|function| {
            let edges = function.outline.edges.iter();
            let own = edges.filter(|(from, to)| from == to);
            own.filter_map(|&(block, _)| function.outline.block(block))
        });
        let mut loops: Vec<Span> = loops.collect();
        loops.sort_unstable_by_key(|span| span.start);
        Self { plan, loops }
    }

    /// Returns the work of a hit of a patch of the plan.
    #[must_use]
    pub fn work(&self, patch: &Patch) -> HitWork {
        let Some(site) = self.plan.site(patch.site) else {
            debug_assert!(false, "a patch of no site");
            return HitWork::default();
        };
        let work = HitWork::of(site.splice, &patch.code, patch.pieces());
        work.placed(self.is_loop(site.displaced.start))
    }

    fn is_loop(&self, at: Addr) -> bool {
        let later = self.loops.partition_point(|span| span.start <= at);
        let before = part(&self.loops, 0..later).last();
        before.is_some_and(|span| span.contains(at))
    }

    /// Returns the estimated nanoseconds of a hit of each instrument, in the order of [`Plan::instruments`]: of its own
    /// code and of an equal share of the splice, the saves and the jumps of its patch. Of several patches it is the mean.
    #[must_use]
    pub fn instruments(&self) -> Vec<f64> {
        let means = self.of_instruments(|_| true);
        let mean = |one: &PlannedInstrument| means.get(&one.id).copied().unwrap_or_default();
        self.plan.instruments.iter().map(mean).collect()
    }

    /// Returns those of some instruments; ones that no patch has are missing. Only their patches are looked at.
    #[must_use]
    pub fn of_instruments(
        &self,
        is_wanted: impl Fn(InstrumentId) -> bool,
    ) -> BTreeMap<InstrumentId, f64> {
        let lists = |patch: &&Patch| {
            (patch.hooks.iter()).any(|(_, ids)| ids.iter().any(|&id| is_wanted(id)))
        };
        let patches = self.plan.patches.iter().filter(lists);
        let mut sums: BTreeMap<InstrumentId, (f64, u32)> = BTreeMap::new();
        for (id, ns) in patches.flat_map(|patch| self.shares(patch)) {
            if is_wanted(id) {
                let (sum, patches) = sums.entry(id).or_default();
                *sum += ns;
                *patches += 1;
            }
        }
        let mean = |(id, (sum, patches))| (id, sum / f64::from(patches));
        sums.into_iter().map(mean).collect()
    }

    /// Shares the nanoseconds of a patch among its instruments.
    fn shares(&self, patch: &Patch) -> Vec<(InstrumentId, f64)> {
        let whole = self.work(patch);
        let ids = patch.hooks.iter().flat_map(|(_, ids)| ids.iter().copied());
        let costs = ids.map(|id| {
            let kind = PieceKind::Instrument(id);
            let pieces = patch.pieces().filter(|piece| piece.kind == kind);
            // The splice of a call adds nothing.
            let work = HitWork::of(Splice::Call, &patch.code, pieces);
            (id, work.placed(whole.in_loop).nanoseconds())
        });
        let mut costs: Vec<(InstrumentId, f64)> = costs.collect();
        let shared = whole.nanoseconds() - costs.iter().map(|(_, ns)| ns).sum::<f64>();
        #[expect(clippy::cast_precision_loss, reason = "a patch has few instruments")]
        let share = shared / costs.len().max(1) as f64;
        costs.iter_mut().for_each(|(_, ns)| *ns += share);
        costs
    }
}
