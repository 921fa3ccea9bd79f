//! Comparison of the target's clock with the client's by round trips ([`gilk_samples::clocks`]).

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gilk_samples::clocks::Reading;

use super::wire::{Wire, random_number, unexpected};
use crate::Result;
use crate::protocol::{Message, Request};

/// Number of round trips, of which the shortest counts.
const ROUNDS: u32 = 16;
/// Interval of clock readings in a session: short enough that the drift of a quartz with
/// temperature stays below the error of a round trip.
const READING_INTERVAL: Duration = Duration::from_secs(5);
/// Silence after which the agent is pinged.
const QUIET: Duration = Duration::from_secs(2);

/// Returns the client's clock in nanoseconds since 1970. It is monotonic: the system's clock is
/// read once.
pub(super) fn now() -> u64 {
    static BEGUN: OnceLock<(Instant, u64)> = OnceLock::new();
    let (begun, unix_ns) = BEGUN.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        (Instant::now(), since.map_or(0, nanoseconds))
    });
    unix_ns.saturating_add(nanoseconds(begun.elapsed()))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Reads the target's clock by the shortest of several round trips.
pub(super) fn read(wire: &mut Wire) -> Result<Reading> {
    let first = round_trip(wire)?;
    (1..ROUNDS).try_fold(first, |best, _| {
        let next = round_trip(wire)?;
        Ok(if next.error_ns < best.error_ns {
            next
        } else {
            best
        })
    })
}

fn round_trip(wire: &mut Wire) -> Result<Reading> {
    let mut pinger = Pinger::new();
    wire.send(&pinger.ping())?;
    loop {
        match wire.answer("while its clock was read")? {
            // Other pongs answer earlier pings.
            Message::Pong { number, tsc } => {
                if let Some(reading) = pinger.reading(number, tsc) {
                    return Ok(reading);
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Periodic pings, which check the connection and read the target's clock.
pub(super) struct Pinger {
    sent: Instant,
    /// The number of the unanswered ping, and the client's clock when it was sent.
    open: Option<(u64, u64)>,
}

impl Pinger {
    pub(super) fn new() -> Self {
        Self {
            sent: Instant::now(),
            open: None,
        }
    }

    /// Returns whether another ping is due, given the time of the last received message.
    pub(super) fn is_due(&self, received: Instant) -> bool {
        let since = self.sent.elapsed();
        since > READING_INTERVAL || received.elapsed().min(since) > QUIET
    }

    pub(super) fn ping(&mut self) -> Request {
        let number = random_number();
        self.sent = Instant::now();
        self.open = Some((number, now()));
        Request::Ping(number)
    }

    /// Returns the reading if a pong answers the last ping.
    pub(super) fn reading(&mut self, number: u64, tsc: u64) -> Option<Reading> {
        let (_, before) = self.open.take_if(|(sent, _)| *sent == number)?;
        Some(Reading::between(before, now(), tsc))
    }
}
