//! Counters of the processor's events, which perf sets and keeps while they are open: perf_event_open(2), and
//! the first page of what it maps (`struct perf_event_mmap_page` of include/uapi/linux/perf_event.h), which
//! tells what number `rdpmc` is to be given.

use std::fs::File;
use std::io;

use super::sys;
use crate::protocol::{EVENTS, EventCounter, EventFound, Refusal, RefusalKind};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Where a CPU has an event's counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// What `rdpmc` is to be given, and 1 more; 0 if it may not be read so.
    pub(super) index: u32,
    /// Its bits.
    pub(super) width: u16,
}

/// Events that are being counted: as long as this is there.
#[derive(Default)]
pub(super) struct Held {
    open: Vec<(u8, Vec<File>)>,
}

/// Looks which events there are counters of, by opening all of them for a moment: so each has the
/// counter that it has when all are open.
pub(super) fn look() -> Vec<EventFound> {
    open_all().0
}

/// Has these events counted.
///
/// # Errors
/// If one has another counter by now, or none.
pub(super) fn hold(wanted: &[EventCounter]) -> Result<Held, Refusal> {
    if wanted.is_empty() {
        return Ok(Held::default());
    }
    let (found, mut held) = open_all();
    for one in wanted {
        let now = found.iter().find(|found| found.event == one.event);
        let why = match now {
            Some(now) if now.index == one.index && now.refused.is_empty() => continue,
            Some(now) if now.refused.is_empty() => "perf has it counted elsewhere by now",
            Some(now) => &now.refused,
            None => "there is no such event",
        };
        let text = format!(
            "The processor's counter {:#x} of event {} is not there any more ({why}); connect again and \
             start the session again.",
            one.index, one.event
        );
        return Err(Refusal::new(RefusalKind::Request, text));
    }
    let is_wanted = |event| wanted.iter().any(|one| one.event == event);
    held.open.retain(|(event, _)| is_wanted(*event));
    Ok(held)
}

/// Opens every event on every CPU, one event after the other.
fn open_all() -> (Vec<EventFound>, Held) {
    let cpus = std::fs::read_to_string(ONLINE).map(|text| listed(&text));
    let mut held = Held::default();
    let mut found = Vec::new();
    for event in EVENTS {
        let opened = match &cpus {
            Ok(cpus) => open(event, cpus),
            Err(error) => Err(format!("{ONLINE} cannot be read ({error})")),
        };
        let (place, refused) = match opened {
            Ok((files, place)) => {
                held.open.push((event, files));
                (place, String::new())
            }
            Err(why) => (Place { index: 1, width: 0 }, why),
        };
        found.push(EventFound {
            event,
            index: place.index.saturating_sub(1),
            width: u8::try_from(place.width).unwrap_or(0),
            refused,
        });
    }
    (found, held)
}

/// Opens one event on all of these CPUs.
///
/// # Errors
/// Why it cannot be read, or not by the same number everywhere.
fn open(event: u8, cpus: &[u32]) -> Result<(Vec<File>, Place), String> {
    let mut files = Vec::new();
    let mut places = Vec::new();
    for &cpu in cpus {
        let file = sys::open_event(event, cpu).map_err(|error| refused(&error))?;
        let place = sys::event_place(&file);
        places.push((cpu, place.map_err(|error| refused(&error))?));
        files.push(file);
    }
    Ok((files, same(&places)?))
}

/// What all CPUs have in common.
fn same(places: &[(u32, Place)]) -> Result<Place, String> {
    let &(first, place) = places.first().ok_or("the kernel names no processor")?;
    if let Some((cpu, _)) = places.iter().find(|(_, place)| place.index == 0) {
        return Err(format!(
            "no counter is free for it on CPU {cpu}, or /sys/devices/cpu/rdpmc is 0"
        ));
    }
    if let Some((cpu, _)) = places.iter().find(|(_, other)| *other != place) {
        return Err(format!(
            "CPU {first} and CPU {cpu} have it in different counters"
        ));
    }
    if !(1..=64).contains(&place.width) {
        return Err(format!("its counter has {} bits", place.width));
    }
    Ok(place)
}

fn refused(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
            "the processor, or what emulates it, does not count it"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "the kernel lets nobody count it but whoever may do anything: set kernel.perf_event_paranoid to 2"
        }
        Some(libc::ENOSYS) => "the kernel was built without perf",
        _ => "perf does not count it",
    };
    format!("{why} ({error})")
}

/// The numbers of a list like `0-3,6`.
fn listed(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse().ok()?)
    };
    { text.trim().split(',') }
        .filter_map(range)
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u32, width: u16) -> Place {
        Place { index, width }
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(listed("0-3,6\n"), [0, 1, 2, 3, 6]);
        assert_eq!(listed("0\n"), [0]);
        assert!(listed("").is_empty());
    }

    #[test]
    fn a_counter_is_the_same_everywhere_or_refused() {
        let good = place(0x4000_0001, 48);
        assert_eq!(same(&[(0, good), (2, good)]), Ok(good));
        for (places, says) in [
            (vec![(0, good), (2, place(3, 48))], "CPU 0 and CPU 2"),
            (vec![(0, good), (1, place(0, 48))], "free for it on CPU 1"),
            (vec![(0, place(1, 0))], "has 0 bits"),
            (Vec::new(), "names no processor"),
        ] {
            let why = same(&places).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    /// Whatever this machine has: each event is there, or it is said why not, and what is there can be held.
    #[test]
    fn every_event_is_found_or_refused_with_a_reason() {
        let found = look();
        assert_eq!(
            found.iter().map(|one| one.event).collect::<Vec<_>>(),
            EVENTS
        );
        for one in &found {
            assert_eq!(one.refused.is_empty(), one.width > 0, "{one:?}");
        }
        let none = EventCounter {
            event: 0,
            index: 77,
        };
        let refusal = hold(&[none]).map(drop).unwrap_err();
        assert!(refusal.text.contains("0x4d of event 0"), "{refusal}");
        assert!(hold(&[]).is_ok());
    }
}
