//! Counters of the processor's events: those available by the agent's report, and those used by a
//! plan.

use gilk_engine::Plan;
use gilk_engine::layout::{EventCounter, Events};
use gilk_instruments::program::{Event, Input};

use crate::protocol;

/// Converts an agent's report. Events unknown to this version are left out.
pub(super) fn available(found: Vec<protocol::EventFound>) -> Events {
    let (mut counters, mut refused) = (Vec::new(), Vec::new());
    for report in found {
        let Some(event) = Event::numbered(report.event) else {
            continue;
        };
        if report.refused.is_empty() {
            counters.push(EventCounter {
                event,
                index: report.index,
                width: report.width,
            });
        } else {
            refused.push((event, report.refused));
        }
    }
    Events {
        counters: counters.into(),
        refused: refused.into(),
    }
}

/// Returns the events that a plan's programs read, with their planned counters.
pub(super) fn used(plan: &Plan) -> Vec<protocol::EventCounter> {
    let instruments = plan.instruments.iter();
    let probes = instruments.filter_map(|instrument| instrument.probe.as_ref()?.probe());
    let inputs = probes.flat_map(|probe| probe.expressions().flat_map(|expr| expr.inputs()));
    let mut events: Vec<Event> = inputs
        .filter_map(|input| match input {
            Input::Event(event) => Some(event),
            _ => None,
        })
        .collect();
    events.sort();
    events.dedup();
    let counters = events
        .into_iter()
        .filter_map(|event| plan.layout.events.counter(event).ok());
    let counters = counters.map(|counter| protocol::EventCounter {
        event: counter.event.number(),
        index: counter.index,
    });
    counters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_and_client_have_the_same_events_in_the_same_order() {
        assert_eq!(Event::ALL.map(Event::number), protocol::EVENTS);
    }

    #[test]
    fn events_are_available_or_refused_with_a_reason() {
        let found = |event, width, refused: &str| protocol::EventFound {
            event,
            index: 2,
            width,
            refused: refused.to_owned(),
        };
        let events = available(vec![
            found(3, 48, ""),
            found(0, 0, "none is free"),
            found(200, 48, ""),
        ]);
        assert_eq!(events.counters.len(), 1);
        assert_eq!(events.counter(Event::CacheMisses).unwrap().index, 2);
        let why = events.counter(Event::Cycles).unwrap_err();
        assert!(why.ends_with("cycles here: none is free"), "{why}");
    }
}
