//! The kernel's own probes: a script that installs them around the program, and their events.

use std::collections::BTreeMap;

use gilk_engine::Image;

use super::{PROBED, VERIFY, has, symbol};

/// One event.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) thread: u64,
    pub(super) tsc: u64,
    /// `a0` and so on at an entry, `ret` at an exit.
    pub(super) values: BTreeMap<String, u64>,
}

/// All events, in order of time.
#[derive(Debug)]
pub(super) struct Events {
    entries: BTreeMap<String, Vec<Event>>,
    exits: BTreeMap<String, Vec<Event>>,
}

/// Returns a script that runs the program between the kernel's probes. Each line of its output
/// begins with `sh: `.
pub(super) fn script(image: &Image) -> String {
    let mut probes = String::new();
    let probed = PROBED
        .into_iter()
        .filter(|(function, _)| has(image, function));
    for (function, values) in probed.chain([(VERIFY, "")]) {
        let symbol = symbol(image, function);
        probes += &format!(
            "echo 'p:in_{function} {symbol} {values}' >> kprobe_events; \
             echo 'r:out_{function} {symbol} ret=$retval' >> kprobe_events; "
        );
    }
    let filter = |event: &str| {
        format!("echo 'comm == \"witness\"' > events/kprobes/{event}_{VERIFY}/filter; ")
    };
    format!(
        "( mount -t tracefs none /sys/kernel/tracing 2> /dev/null; cd /sys/kernel/tracing; \
         echo x86-tsc > trace_clock; echo 4096 > buffer_size_kb; {probes} {} {} \
         echo 1 > events/kprobes/enable; \
         witness; \
         echo 0 > tracing_on; echo 0 > events/kprobes/enable; grep -v '^#' trace; \
         echo > kprobe_events; echo > trace; echo local > trace_clock; echo 1 > tracing_on ) 2>&1 | sed 's/^/sh: /'",
        filter("in"),
        filter("out"),
    )
}

impl Events {
    /// Parses lines `NAME-THREAD [CPU] FLAGS TSC: EVENT: (PLACE) KEY=VALUE …`.
    pub(super) fn read<'l>(lines: impl IntoIterator<Item = &'l str>) -> Self {
        let mut events = Self {
            entries: BTreeMap::new(),
            exits: BTreeMap::new(),
        };
        for line in lines {
            let Some((name, event)) = event(line) else {
                continue;
            };
            if let Some(function) = name.strip_prefix("in_") {
                let all = events.entries.entry(function.to_owned()).or_default();
                all.push(event);
            } else if let Some(function) = name.strip_prefix("out_") {
                let all = events.exits.entry(function.to_owned()).or_default();
                all.push(event);
            }
        }
        for all in events.entries.values_mut().chain(events.exits.values_mut()) {
            all.sort_by_key(|event| event.tsc);
        }
        events
    }

    pub(super) fn entries(&self, function: &str) -> &[Event] {
        self.entries
            .get(&*traced(function))
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn exits(&self, function: &str) -> &[Event] {
        self.exits
            .get(&*traced(function))
            .map_or(&[], Vec::as_slice)
    }

    /// Returns begin and end of every call of a function, in order of the ends.
    pub(super) fn calls(&self, function: &str) -> Vec<(&Event, &Event)> {
        let entries = self.entries(function).iter().map(|event| (event, true));
        let exits = self.exits(function).iter().map(|event| (event, false));
        let mut both: Vec<(&Event, bool)> = entries.chain(exits).collect();
        both.sort_by_key(|(event, _)| event.tsc);
        let mut open: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
        let mut calls = Vec::new();
        for (event, begins) in both {
            let inside = open.entry(event.thread).or_default();
            if begins {
                inside.push(event);
            } else {
                let begun = inside.pop().expect("every call that ends has begun");
                calls.push((begun, event));
            }
        }
        assert!(
            open.values().all(Vec::is_empty),
            "{function}: every call that begins ends"
        );
        calls
    }
}

/// Returns the function that the kernel's probes are on: the body of a system call cannot have one,
/// and is the target of a jump in the call's first function.
fn traced(function: &str) -> String {
    function.replace("__do_sys_", "__x64_sys_")
}

fn event(line: &str) -> Option<(String, Event)> {
    let (before, after) = line.split_once(": ")?;
    let (task, rest) = before.split_once(" [")?;
    let thread = task.trim().rsplit('-').next()?.trim().parse().ok()?;
    let tsc = rest.rsplit(' ').next()?.parse().ok()?;
    let (name, fields) = after.split_once(": ")?;
    let pair = |word: &str| {
        let (key, value) = word.split_once('=')?;
        // Later kernels decode return values, and print signed numbers.
        let value = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok()?,
            None => value.parse::<i64>().ok()?.cast_unsigned(),
        };
        Some((key.to_owned(), value))
    };
    let values = fields.split(' ').filter_map(pair).collect();
    Some((
        name.to_owned(),
        Event {
            thread,
            tsc,
            values,
        },
    ))
}
