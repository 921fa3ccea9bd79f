//! The cost of a session, predicted by a short run of counters at its hooks, next to what its own hits cost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gilk_engine::plan::{HitCosts, PlannedInstrument};
use gilk_engine::session::{Placement, Workload};
use gilk_engine::{HookType, Plan, Session};
use gilk_instruments::program::ActionKind;
use gilk_samples::chart::scale;
use ilk_driver::client::Summary;

/// A hook: its function, its block, and where it is there.
type Hook = (String, u32, HookType);

/// Returns the session that counts the hits of a plan's hooks for some seconds, with the session's program.
pub(crate) fn counting(plan: &Plan, session: &Session, seconds: f64) -> Session {
    let hooks: BTreeSet<Hook> = { plan.instruments.iter() }
        .filter_map(|one| hook(plan, one))
        .collect();
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

fn hook(plan: &Plan, one: &PlannedInstrument) -> Option<Hook> {
    let function = plan.functions.get(one.id.major as usize)?;
    Some((function.name.clone(), one.id.block, one.id.hook))
}

/// Rates of hits.
pub(crate) struct Prediction {
    seconds: f64,
    /// Hits a second.
    rates: BTreeMap<Hook, f64>,
}

/// Hits of a session, and the estimated time of their instruments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Cost {
    hits: f64,
    seconds: f64,
}

impl Cost {
    fn add(&mut self, hits: f64, ns: f64) {
        self.hits += hits;
        self.seconds += hits * ns * 1e-9;
    }

    fn text(self, duration: f64) -> String {
        format!(
            "{} hits, {} of processor time, {:.3} % of a processor",
            scale::grouped(self.hits.round() as u64),
            scale::duration(self.seconds),
            100.0 * self.seconds / duration
        )
    }
}

impl Prediction {
    /// Reads the rates of a counting run.
    pub(crate) fn of(plan: &Plan, summary: &Summary, seconds: f64) -> Self {
        let totals: BTreeMap<u64, u64> = { summary.instruments.iter() }
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
    pub(crate) fn report(&self, plan: &Plan, summary: &Summary) -> String {
        let (mut before, mut after) = (Cost::default(), Cost::default());
        let mut silent = 0;
        for (one, ns) in plan
            .instruments
            .iter()
            .zip(HitCosts::of(plan).instruments())
        {
            let rate = hook(plan, one).and_then(|hook| self.rates.get(&hook));
            let predicted = rate.copied().unwrap_or(0.0) * (one.splash - one.launch);
            before.add(predicted, ns);
            let hits = hits(one, summary);
            silent += u32::from(hits.is_none());
            after.add(hits.unwrap_or(predicted), ns);
        }
        let mut text = format!(
            "Predicted by {} of counting: {}.\nEstimated from the hits of the run: {}.\n",
            scale::duration(self.seconds),
            before.text(plan.duration),
            after.text(plan.duration)
        );
        if silent > 0 {
            // Writing to a String cannot fail.
            let _infallible = writeln!(
                text,
                "{silent} instruments do not report how often they were hit: both numbers have their predicted hits."
            );
        }
        text
    }
}

/// Returns the hits of an instrument, lost ones included, if its results show them: it counts, or each hit samples.
fn hits(one: &PlannedInstrument, summary: &Summary) -> Option<f64> {
    let mut instruments = summary.instruments.iter();
    let results = instruments.find(|known| known.id == one.id.pack())?;
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
    let lost = summary.lost_by_cause().lost() as f64;
    let taken = summary.taken as f64;
    let all = if taken > 0.0 {
        (taken + lost) / taken
    } else {
        1.0
    };
    Some(results.samples as f64 * all / samples as f64)
}
