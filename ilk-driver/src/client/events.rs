//! Counters of the processor's events: what an agent says there is, and what a plan reads.

use gilk_engine::Plan;
use gilk_engine::layout::{EventCounter, Events};
use gilk_instruments::program::{Event, Input};

use crate::protocol;

/// What an agent has found. Events that nobody here knows are left out.
pub(super) fn known(found: Vec<protocol::EventFound>) -> Events {
    let (mut counters, mut refused) = (Vec::new(), Vec::new());
    for one in found {
        let Some(event) = Event::numbered(one.event) else {
            continue;
        };
        if one.refused.is_empty() {
            counters.push(EventCounter {
                event,
                index: one.index,
                width: one.width,
            });
        } else {
            refused.push((event, one.refused));
        }
    }
    Events {
        counters: counters.into(),
        refused: refused.into(),
    }
}

/// What a plan's programs read, and where it was planned to be.
pub(super) fn counted(plan: &Plan) -> Vec<protocol::EventCounter> {
    let probes = { plan.instruments.iter() }.filter_map(|one| one.probe.as_ref()?.probe());
    let inputs = probes.flat_map(|probe| probe.expressions().flat_map(|expr| expr.inputs()));
    let mut events: Vec<Event> = inputs
        .filter_map(|input| match input {
            Input::Event(event) => Some(event),
            _ => None,
        })
        .collect();
    events.sort();
    events.dedup();
    let counters =
        { events.into_iter() }.filter_map(|event| plan.layout.events.counter(event).ok());
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
    fn agent_and_client_know_the_same_events_in_the_same_order() {
        assert_eq!(Event::ALL.map(Event::number), protocol::EVENTS);
    }

    #[test]
    fn what_was_found_is_there_and_the_rest_refused_with_the_reason() {
        let found = |event, width, refused: &str| protocol::EventFound {
            event,
            index: 2,
            width,
            refused: refused.to_owned(),
        };
        let events = known(vec![
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
