//! Counters of the processor's events, which perf assigns and keeps while they are open:
//! perf_event_open(2), and the first page of its mapping (`struct perf_event_mmap_page` of
//! include/uapi/linux/perf_event.h), which holds the operand for `rdpmc`.

use std::fs::File;
use std::io;

use gilk_engine::layout::{EventCounter, Events};
use gilk_instruments::program::Event;

use super::sys::{self, PerfCounter};
use crate::protocol::{Refusal, RefusalKind};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Events that are counted until this is dropped.
#[derive(Default)]
pub(super) struct OpenEvents {
    open: Vec<(Event, Vec<File>)>,
}

/// Determines which events have counters by opening all of them briefly, so that each has the
/// counter that it has when all are open.
pub(super) fn probe() -> Events {
    open_all().0
}

/// Starts counting these events.
///
/// # Errors
/// If the counter of an event has changed since the probe, or it has none.
pub(super) fn hold(requested: &[EventCounter]) -> Result<OpenEvents, Refusal> {
    if requested.is_empty() {
        return Ok(OpenEvents::default());
    }
    let (found, mut events) = open_all();
    for wanted in requested {
        let why = match found.counter(wanted.event) {
            Ok(current) if current.index == wanted.index => continue,
            Ok(_) => String::from("perf has moved it to another counter"),
            Err(why) => why,
        };
        let text = format!(
            "The processor's counter {:#x} of {} is no longer available ({why}); reconnect and \
             start the session again.",
            wanted.index,
            wanted.event.word()
        );
        return Err(Refusal::new(RefusalKind::Request, text));
    }
    let is_requested = |event| requested.iter().any(|wanted| wanted.event == event);
    events.open.retain(|(event, _)| is_requested(*event));
    Ok(events)
}

/// Opens every event on every CPU, one event after another.
fn open_all() -> (Events, OpenEvents) {
    let cpus = std::fs::read_to_string(ONLINE).map(|text| parse_list(&text));
    let mut events = OpenEvents::default();
    let (mut counters, mut refused) = (Vec::new(), Vec::new());
    // Those with fixed counters are first, so that they do not take a general one.
    for event in Event::ALL {
        let opened = match &cpus {
            Ok(cpus) => open(event, cpus),
            Err(error) => Err(format!("{ONLINE} cannot be read ({error})")),
        };
        match opened {
            Ok((files, counter)) => {
                events.open.push((event, files));
                counters.push(EventCounter {
                    event,
                    index: counter.index.saturating_sub(1),
                    // At most 64 by `same`.
                    width: u8::try_from(counter.width).unwrap_or(u8::MAX),
                });
            }
            Err(why) => refused.push((event, why)),
        }
    }
    let found = Events {
        counters: counters.into(),
        refused: refused.into(),
    };
    (found, events)
}

/// Opens one event on all of these CPUs.
///
/// # Errors
/// The reason why the event cannot be read by the same operand on all CPUs.
fn open(event: Event, cpus: &[u32]) -> Result<(Vec<File>, PerfCounter), String> {
    let mut files = Vec::new();
    let mut counters = Vec::new();
    for &cpu in cpus {
        let file = sys::open_event(event.number(), cpu).map_err(|error| refused(&error))?;
        let counter = sys::perf_counter(&file);
        counters.push((cpu, counter.map_err(|error| refused(&error))?));
        files.push(file);
    }
    Ok((files, same(&counters)?))
}

/// Returns the counter if it is the same on all CPUs.
fn same(counters: &[(u32, PerfCounter)]) -> Result<PerfCounter, String> {
    let &(first, counter) = counters.first().ok_or("the kernel names no processor")?;
    if let Some((cpu, _)) = counters.iter().find(|(_, counter)| counter.index == 0) {
        return Err(format!(
            "no counter is free for it on CPU {cpu}, or /sys/devices/cpu/rdpmc is 0"
        ));
    }
    if let Some((cpu, _)) = counters.iter().find(|(_, other)| *other != counter) {
        return Err(format!(
            "CPU {first} and CPU {cpu} use different counters for it"
        ));
    }
    if !(1..=64).contains(&counter.width) {
        return Err(format!("its counter has {} bits", counter.width));
    }
    Ok(counter)
}

fn refused(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "the processor or its emulator does not count it"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel permits it to no unprivileged process: set kernel.perf_event_paranoid to 2"
        }
        Some(libc::ENOSYS) => "the kernel was built without perf",
        _ => "perf does not count it",
    };
    format!("{why} ({error})")
}

/// Parses a list like `0-3,6`.
fn parse_list(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(index: u32, width: u16) -> PerfCounter {
        PerfCounter { index, width }
    }

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(parse_list("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(parse_list("0\n"), [0]);
        assert!(parse_list("").is_empty());
    }

    #[test]
    fn a_counter_is_the_same_everywhere_or_refused() {
        let good = counter(0x4000_0001, 48);
        assert_eq!(same(&[(0, good), (2, good)]), Ok(good));
        for (counters, expected) in [
            (vec![(0, good), (2, counter(3, 48))], "CPU 0 and CPU 2"),
            (vec![(0, good), (1, counter(0, 48))], "free for it on CPU 1"),
            (vec![(0, counter(1, 0))], "has 0 bits"),
            (Vec::new(), "names no processor"),
        ] {
            let why = same(&counters).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    /// Holds on any machine: each event is available or has a reason, and available ones can be
    /// opened.
    #[test]
    fn every_event_is_available_or_refused_with_a_reason() {
        let probed = probe();
        let available = probed.counters.iter().map(|counter| counter.event);
        let refused = probed.refused.iter().map(|(event, _)| *event);
        let mut all: Vec<Event> = available.chain(refused).collect();
        all.sort();
        let mut every = Event::ALL;
        every.sort();
        assert_eq!(all, every);
        assert!(probed.refused.iter().all(|(_, why)| !why.is_empty()));
        let none = EventCounter {
            event: Event::Cycles,
            index: 77,
            width: 48,
        };
        let refusal = hold(&[none]).map(drop).unwrap_err();
        assert!(refusal.text.contains("0x4d of cycles"), "{refusal}");
        assert!(hold(&[]).is_ok());
    }
}
