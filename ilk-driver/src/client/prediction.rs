//! The cost of a session, predicted by a short run of counters at its hooks, next to what its own hits cost.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::plan::{HitCosts, PlannedInstrument};
use gilk_engine::session::{Placement, Workload};
use gilk_engine::{HookType, Plan, Session};
use gilk_instruments::program::ActionKind;
use gilk_samples::totals::SessionCost;

use super::event::{InstrumentSummary, Summary};

/// A hook: its function, its block, and where it is there.
type Hook = (String, u32, HookType);

/// Returns the session that counts the hits of a plan's hooks for some seconds, with the session's program.
#[must_use]
pub fn counting(plan: &Plan, session: &Session, seconds: f64) -> Session {
    let instruments = plan.instruments.iter();
    let hooks: BTreeSet<Hook> = instruments.filter_map(|one| hook(plan, one)).collect();
    let placements = hooks.into_iter().map(|(function, block, hook)| Placement {
        function: function.into(),
        block,
        hook,
        instrument: "counter".into(),
        launch: 0.0,
        splash: seconds,
    });
    let workload = session.workload.clone().map(|workload| Workload {
        start: 0.0,
        ..workload
    });
    Session {
        duration: seconds,
        workload,
        placements: placements.collect(),
        sources: BTreeMap::new(),
        ..session.clone()
    }
}

fn hook(plan: &Plan, instrument: &PlannedInstrument) -> Option<Hook> {
    let function = plan.functions.get(instrument.id.major as usize)?;
    Some((
        function.name.clone(),
        instrument.id.block,
        instrument.id.hook,
    ))
}

/// Rates of hits.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// Length of the counting run.
    seconds: f64,
    /// Hits a second.
    rates: BTreeMap<Hook, f64>,
}

impl Prediction {
    /// Reads the rates of the run of a [counting] session of so many seconds.
    #[must_use]
    pub fn of(plan: &Plan, summary: &Summary, seconds: f64) -> Self {
        let counters = summary.instruments.iter();
        let totals: BTreeMap<u64, u64> = counters
            .filter_map(|one| Some((one.id, one.total?)))
            .collect();
        let rates = plan.instruments.iter().filter_map(|one| {
            let total = totals.get(&one.id.pack())?;
            Some((hook(plan, one)?, *total as f64 / seconds))
        });
        Self {
            seconds,
            rates: rates.collect(),
        }
    }

    /// Compares the predicted cost of a session with that of the hits that it had.
    #[must_use]
    pub fn compare(&self, plan: &Plan, run: &RunHits<'_>) -> SessionCost {
        let mut cost = SessionCost {
            counted_for: self.seconds,
            planned_for: plan.duration,
            ran_for: run.seconds.clamp(0.0, plan.duration),
            ..SessionCost::default()
        };
        let results = run.instruments.iter().map(|one| (one.id, one));
        let results: BTreeMap<u64, &InstrumentSummary> = results.collect();
        let times = HitCosts::of(plan).instruments();
        for (one, ns) in plan.instruments.iter().zip(times) {
            let rate = hook(plan, one).and_then(|hook| self.rates.get(&hook));
            let predicted = rate.copied().unwrap_or(0.0) * (one.splash - one.launch);
            cost.predicted.add(predicted, ns);
            let results = results.get(&one.id.pack());
            let hits = results.and_then(|results| run.of(one, results));
            cost.silent += u32::from(hits.is_none());
            cost.estimated.add(hits.unwrap_or(predicted), ns);
        }
        cost
    }
}

/// Results from which the hits of each instrument follow.
#[derive(Clone, Copy, Debug)]
pub struct RunHits<'s> {
    /// Results of the instruments.
    pub instruments: &'s [InstrumentSummary],
    /// Samples taken by all instruments.
    pub taken: u64,
    /// Samples lost by all instruments.
    pub lost: u64,
    /// Length of the run.
    pub seconds: f64,
}

impl RunHits<'_> {
    /// Returns the hits of an instrument, lost ones included, if its results show them: it counts, or each hit samples.
    fn of(&self, one: &PlannedInstrument, results: &InstrumentSummary) -> Option<f64> {
        if let Some(total) = results.total {
            return Some(total as f64);
        }
        let probe = one.probe.as_ref()?.probe()?;
        let samples = probe.actions.iter();
        let samples = samples.filter(|action| matches!(action.kind, ActionKind::Sample(_)));
        let samples = samples.count();
        if samples == 0 || probe.predicate.is_some() {
            return None;
        }
        // Losses are known of all instruments together.
        let all = match self.taken {
            0 => 1.0,
            taken => (taken + self.lost) as f64 / taken as f64,
        };
        Some(results.samples as f64 * all / samples as f64)
    }
}
