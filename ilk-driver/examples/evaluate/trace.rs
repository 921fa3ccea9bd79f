//! The kernel's own tracers' times of the events that GILK samples, by the same clock.

/// The function whose entry is timed: glibc's `fork` calls clone(2).
pub(crate) const FORK: &str = "__x64_sys_clone";

/// Returns a script for the guest: the function tracer and a kprobe event time the entry of
/// clone(2) while Pulsar runs, by the TSC. Each line of its output begins with `sh: `.
pub(crate) fn script(sleep_ms: u32) -> String {
    // The tracer may know the function by another name of the same address.
    format!(
        "( mount -t tracefs none /sys/kernel/tracing 2> /dev/null; cd /sys/kernel/tracing; \
         echo x86-tsc > trace_clock; echo 4096 > buffer_size_kb; echo > set_ftrace_filter; \
         for name in {FORK} __do_sys_clone __se_sys_clone; do \
         echo $name >> set_ftrace_filter 2> /dev/null; done; \
         echo 'p:forked {FORK}' > kprobe_events; echo 1 > events/kprobes/forked/enable; \
         echo function > current_tracer; \
         pulsar {sleep_ms}; \
         echo 0 > tracing_on; grep '^ *pulsar-' trace; \
         echo 0 > events/kprobes/forked/enable; echo nop > current_tracer; echo 1 > tracing_on; \
         echo > kprobe_events; echo > set_ftrace_filter; echo > trace; echo local > trace_clock ) 2>&1 | sed 's/^/sh: /'"
    )
}

/// The times of Pulsar's forks, in TSC ticks, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    /// By the function tracer.
    pub(crate) function: Vec<u64>,
    /// By the kprobe event.
    pub(crate) kprobe: Vec<u64>,
}

/// Parses lines `pulsar-PID [CPU] FLAGS TSC: EVENT`.
pub(crate) fn read<'l>(lines: impl IntoIterator<Item = &'l str>) -> Seen {
    let mut seen = Seen::default();
    for line in lines {
        let Some((before, event)) = line.split_once(": ") else {
            continue;
        };
        let Some(tsc) = before.rsplit(' ').next().and_then(|word| word.parse().ok()) else {
            continue;
        };
        if event.contains("<-") {
            seen.function.push(tsc);
        } else if event.starts_with("forked: ") {
            seen.kprobe.push(tsc);
        }
    }
    seen.function.sort_unstable();
    seen.kprobe.sort_unstable();
    seen
}

/// Returns for each of the kernel's events the ticks to the first sample after it: one to one. An
/// interrupt may be in between.
///
/// # Errors
/// Two events before one sample, or events without a sample.
pub(crate) fn matched(events: &[u64], samples: &[u64]) -> Result<Vec<u64>, String> {
    let delay = |&event: &u64| {
        let at = samples.partition_point(|&sample| sample < event);
        let sample = samples.get(at).ok_or("no sample follows an event")?;
        Ok((at, sample - event))
    };
    let delays: Vec<(usize, u64)> = events.iter().map(delay).collect::<Result<_, &str>>()?;
    let twice = |pair: &&[(usize, u64)]| matches!(pair, [one, other] if one.0 == other.0);
    if let Some(twice) = delays.windows(2).find(twice) {
        return Err(format!(
            "one sample is the first after two events: {twice:?}"
        ));
    }
    Ok(delays.into_iter().map(|(_, ticks)| ticks).collect())
}
