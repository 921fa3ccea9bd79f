//! What a way from an agent carries.

use std::path::Path;
use std::time::{Duration, Instant};

use super::PATIENCE;
use super::wire::{Wire, unexpected};
use crate::protocol::{Message, Request, SAMPLE_BYTES};
use crate::{Error, Result};

/// What came by a way, and how long that took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Whether it came by memory that is shared with the target, rather than by the socket itself.
    pub shared: bool,
    /// Samples that came.
    pub samples: u64,
    /// From the first to the last.
    pub time: Duration,
}

impl Carried {
    /// Samples in a second.
    #[must_use]
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Megabytes in a second.
    #[must_use]
    pub fn megabytes_per_second(&self) -> f64 {
        self.samples_per_second() * SAMPLE_BYTES as f64 / 1e6
    }
}

/// Has the agent at a socket send that many full messages of samples that mean nothing, by shared memory
/// if there is some and `share` is set. It takes no module.
///
/// # Errors
/// As [`Connection::connect`](super::Connection::connect).
pub fn measure_way(socket: &Path, messages: u32, share: bool) -> Result<Carried> {
    let mut wire = Wire::open(socket, PATIENCE, share)?;
    wire.send(&Request::Flood(messages))?;
    let mut samples = 0;
    let mut begun: Option<Instant> = None;
    loop {
        match wire.answer(PATIENCE, "while its way was measured")? {
            Message::Samples { records, .. } => {
                // The first has waited for the agent to begin.
                match begun {
                    None => begun = Some(Instant::now()),
                    Some(_) => samples += (records.0.len() / SAMPLE_BYTES) as u64,
                }
            }
            Message::End(_) => break,
            other => return Err(unexpected(&other)),
        }
    }
    let begun = begun.ok_or_else(|| Error::Protocol {
        what: String::from("no samples where some were asked for"),
    })?;
    Ok(Carried {
        shared: wire.is_shared(),
        samples,
        time: begun.elapsed(),
    })
}
