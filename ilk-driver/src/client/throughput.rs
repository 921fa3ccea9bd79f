//! Measurement of the throughput of a connection.

use std::path::Path;
use std::time::{Duration, Instant};

use super::wire::{PATIENCE, Wire, unexpected};
use crate::protocol::{Message, Request, SAMPLE_BYTES};
use crate::{Error, Result};

/// A measured throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throughput {
    /// The samples arrived through memory shared with the target, not through the socket.
    pub shared: bool,
    /// Number of samples received.
    pub samples: u64,
    /// Time from the first sample to the last.
    pub time: Duration,
}

impl Throughput {
    /// Returns the samples per second.
    #[must_use]
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the megabytes per second.
    #[must_use]
    pub fn megabytes_per_second(&self) -> f64 {
        self.samples_per_second() * SAMPLE_BYTES as f64 / 1e6
    }
}

/// Makes the agent at a socket send that many full messages of meaningless samples, through shared
/// memory if it exists and `share` is set. Needs no module.
///
/// # Errors
/// As [`Connection::connect`](super::Connection::connect).
pub fn measure_throughput(socket: &Path, messages: u32, share: bool) -> Result<Throughput> {
    let mut wire = Wire::open(socket, PATIENCE, share)?;
    wire.send(&Request::Flood(messages))?;
    let mut samples = 0;
    let mut begun: Option<Instant> = None;
    loop {
        match wire.answer("while the throughput was measured")? {
            Message::Samples { records, .. } => {
                // The first message includes the time for the agent to begin.
                match begun {
                    None => begun = Some(Instant::now()),
                    Some(_) => samples += (records.len() / SAMPLE_BYTES) as u64,
                }
            }
            Message::End(_) => break,
            other => return Err(unexpected(&other)),
        }
    }
    let begun = begun.ok_or_else(|| Error::Protocol {
        what: String::from("no samples in answer to a request for samples"),
    })?;
    Ok(Throughput {
        shared: wire.is_shared(),
        samples,
        time: begun.elapsed(),
    })
}
