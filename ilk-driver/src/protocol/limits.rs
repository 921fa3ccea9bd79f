//! Limits of requests, checked once on receipt.

use super::{
    ArenaWrite, Batch, Collection, Counter, EVENTS, Interval, MAX_ARGUMENTS, MAX_BATCHES,
    MAX_COUNTERS, MAX_FLOOD, MAX_INTERVAL, MAX_ITEMS, MAX_POKES, MAX_READ, MAX_SECONDS,
    MIN_INTERVAL, Poke, Refusal, RefusalKind, Request, Retire, Strategy,
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
            Self::Arena(writes) => {
                if writes.iter().any(|write| write.code.0.is_empty()) {
                    return Err(wrong("a write of no bytes"));
                }
                let too_many = |write: &ArenaWrite| {
                    write.rows.len().max(write.faults.len()) > write.code.0.len()
                };
                if writes.iter().any(too_many) {
                    return Err(wrong("a write of more rows or faults than bytes"));
                }
                Ok(())
            }
            Self::Batch(batch) => {
                time("batch", batch.at)?;
                check_pokes(&batch.pokes)
            }
            Self::Pokes(pokes) => check_pokes(pokes),
            Self::Counters(counters) => within("counters in a message", counters.len(), MAX_ITEMS),
            Self::Retire(splices) => {
                within("splices in a message", splices.len(), MAX_ITEMS)?;
                let hits = splices.iter().map(|splice| splice.hits.len());
                within("words in a message", hits.sum(), MAX_ITEMS)
            }
            Self::Start(schedule) => {
                time("duration", schedule.duration)?;
                if let Some(workload) = &schedule.workload {
                    time("workload", workload.at)?;
                    within("arguments", workload.arguments.len(), MAX_ARGUMENTS)?;
                }
                within("events", schedule.events.len(), EVENTS.len())?;
                schedule.collection.check()
            }
        }
    }

    /// Checks that more pokes may be added to the last loaded batch.
    ///
    /// # Errors
    /// A [`Refusal`] if there is none, or it would have more than [`MAX_POKES`].
    pub fn check_more(loaded: &[Batch], more: &[Poke]) -> Result<(), Refusal> {
        let last = loaded
            .last()
            .ok_or_else(|| wrong("more pokes of a batch, before the first batch"))?;
        if last.pokes.len().saturating_add(more.len()) > MAX_POKES {
            return Err(wrong(&format!("more than {MAX_POKES} pokes in a batch")));
        }
        Ok(())
    }

    /// Checks that more counters may be read.
    ///
    /// # Errors
    /// A [`Refusal`] if there would be more than [`MAX_COUNTERS`].
    pub fn check_counters(loaded: &[Counter], more: &[Counter]) -> Result<(), Refusal> {
        if loaded.len().saturating_add(more.len()) > MAX_COUNTERS {
            return Err(wrong(&format!("more than {MAX_COUNTERS} counters")));
        }
        Ok(())
    }

    /// Checks that more splices may be retired.
    ///
    /// # Errors
    /// A [`Refusal`] if there would be more than the limit of a batch.
    pub fn check_retire(loaded: &[Retire], more: &[Retire]) -> Result<(), Refusal> {
        if loaded.len().saturating_add(more.len()) > MAX_POKES {
            return Err(wrong(&format!("more than {MAX_POKES} splices to retire")));
        }
        Ok(())
    }

    /// Checks that another batch may be loaded.
    ///
    /// # Errors
    /// A [`Refusal`] if there are [`MAX_BATCHES`] already, or it is earlier than the last.
    pub fn check_next(loaded: &[Batch], next: &Batch) -> Result<(), Refusal> {
        if loaded.len() >= MAX_BATCHES {
            return Err(wrong(&format!("more than {MAX_BATCHES} batches")));
        }
        match loaded.last() {
            Some(last) if last.at > next.at => Err(wrong(&format!(
                "a batch for {} s after one for {} s",
                next.at, last.at
            ))),
            _ => Ok(()),
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

fn check_pokes(pokes: &[Poke]) -> Result<(), Refusal> {
    if pokes.len() > MAX_ITEMS {
        return Err(wrong(&format!(
            "{} pokes in a message, and the limit is {MAX_ITEMS}",
            pokes.len()
        )));
    }
    if pokes.iter().any(|poke| poke.length > 8) {
        return Err(wrong("a poke of more than 8 bytes"));
    }
    Ok(())
}

fn wrong(what: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Request,
        format!("The agent refused a request for {what}."),
    )
}
