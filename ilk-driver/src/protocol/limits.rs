//! Limits of requests, checked once on receipt.

use gilk_instruments::program::Event;

use super::{
    Collection, Interval, MAX_ARGUMENTS, MAX_FLOOD, MAX_INTERVAL, MAX_ITEMS, MAX_NAME, MAX_READ,
    MAX_SECONDS, MIN_INTERVAL, Refusal, RefusalKind, Request, Strategy,
};

impl Request {
    /// Checks every number against its limit, so that later code need not.
    ///
    /// # Errors
    /// A [`Refusal`] that names the field.
    pub fn check(&self) -> Result<(), Refusal> {
        let within = |what: &str, count: usize, limit: usize| {
            if count <= limit {
                Ok(())
            } else {
                Err(wrong(&format!("{count} {what}, and the limit is {limit}")))
            }
        };
        let time = |what: &str, seconds: f64| {
            if seconds.is_finite() && (0.0..=MAX_SECONDS).contains(&seconds) {
                Ok(())
            } else {
                Err(wrong(&format!(
                    "a {what} of {seconds} s, outside 0 to {MAX_SECONDS} s"
                )))
            }
        };
        match self {
            Self::Info
            | Self::Kallsyms
            | Self::Blacklist
            | Self::Modules
            | Self::Clear
            | Self::Stop
            | Self::Status
            | Self::Look
            | Self::End
            | Self::Confirm(_)
            | Self::Share(_)
            | Self::Resume { .. }
            | Self::Ping(_) => Ok(()),
            Self::Read { address, length } => {
                if *length > MAX_READ || address.checked_add(*length).is_none() {
                    return Err(wrong(&format!(
                        "{length} bytes of memory at {address:#x}, and the limit is {MAX_READ}"
                    )));
                }
                Ok(())
            }
            Self::Flood(messages) => within("messages", *messages as usize, MAX_FLOOD),
            Self::Load(part) => {
                within("names in a message", part.names.len(), MAX_ITEMS)?;
                within("placements in a message", part.placements.len(), MAX_ITEMS)?;
                within("styles in a message", part.styles.len(), MAX_ITEMS)?;
                let styled = part.styles.iter().map(|(name, _)| name);
                let sourced = part.sources.iter().map(|(name, _)| name);
                let files = part.objects.iter().map(|object| &object.name);
                let names = part.names.iter().chain(styled).chain(sourced).chain(files);
                within(
                    "bytes in a name",
                    names.map(String::len).max().unwrap_or(0),
                    MAX_NAME,
                )
            }
            Self::Plan(options) => {
                time("duration", options.duration)?;
                let events = options.assumed_events.as_ref();
                within("events", events.map_or(0, Vec::len), Event::ALL.len())
            }
            Self::Start(schedule) => {
                if let Some(workload) = &schedule.workload {
                    time("workload", workload.at)?;
                    within("arguments", workload.arguments.len(), MAX_ARGUMENTS)?;
                }
                schedule.collection.check()
            }
        }
    }
}

impl Collection {
    fn check(&self) -> Result<(), Refusal> {
        self.totals.check("totals")?;
        match self.samples {
            Strategy::Periodic(interval) => interval.check("samples")?,
            Strategy::Windows(interval, length) => {
                interval.check("samples")?;
                if !(length > 0.0 && length < interval.every - interval.jitter) {
                    return Err(wrong(&format!("a window of {length} s")));
                }
            }
            Strategy::Stream | Strategy::Oldest | Strategy::Newest => {}
        }
        if (0.0..=MAX_INTERVAL).contains(&self.grace) {
            Ok(())
        } else {
            Err(wrong(&format!(
                "a grace of {} s, outside 0 to {MAX_INTERVAL} s",
                self.grace
            )))
        }
    }
}

impl Interval {
    fn check(self, of: &str) -> Result<(), Refusal> {
        let Self { every, jitter } = self;
        let within = (MIN_INTERVAL..=MAX_INTERVAL).contains(&every)
            && jitter >= 0.0
            && every - jitter >= MIN_INTERVAL;
        if within {
            Ok(())
        } else {
            Err(wrong(&format!(
                "{of} every {every} s, varied by {jitter} s, outside {MIN_INTERVAL} to \
                 {MAX_INTERVAL} s"
            )))
        }
    }
}

fn wrong(what: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Request,
        format!("The agent refused a request for {what}."),
    )
}
