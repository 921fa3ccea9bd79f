//! The target's clock beside ours, by asking and waiting
//! ([`gilk_samples::clocks`]).

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gilk_samples::clocks::Reading;

use super::PATIENCE;
use super::wire::{Wire, unexpected, unguessable};
use crate::Result;
use crate::protocol::{Message, Request};

/// Questions of which the one that was answered first counts.
const ROUNDS: u32 = 16;
/// How often the clock is read in a session: so often that what warmth does to quartz stays below what
/// the way there costs.
const OFTEN: Duration = Duration::from_secs(5);
/// Silence after which the agent is asked whether it is there.
const QUIET: Duration = Duration::from_secs(2);

/// Our clock, in nanoseconds since 1970. It never goes back: the system's clock is looked at once.
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

/// Reads the target's clock, as exactly as the way there allows.
pub(super) fn read(wire: &mut Wire) -> Result<Reading> {
    let first = ask(wire)?;
    (1..ROUNDS).try_fold(first, |best, _| {
        let next = ask(wire)?;
        Ok(if next.error_ns < best.error_ns {
            next
        } else {
            best
        })
    })
}

fn ask(wire: &mut Wire) -> Result<Reading> {
    let mut question = Question::new();
    wire.send(&question.ask())?;
    loop {
        match wire.answer(PATIENCE, "while its clock was read")? {
            // It may be the answer to an older one.
            Message::Pong { number, tsc } => {
                if let Some(reading) = question.answered(number, tsc) {
                    return Ok(reading);
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// What the agent is asked now and then: whether it is there, and what its clock shows.
pub(super) struct Question {
    asked: Instant,
    /// Its number, and what our clock showed.
    open: Option<(u64, u64)>,
}

impl Question {
    pub(super) fn new() -> Self {
        Self {
            asked: Instant::now(),
            open: None,
        }
    }

    /// Whether it is time to ask again, with something heard last at that time.
    pub(super) fn is_due(&self, heard: Instant) -> bool {
        let since = self.asked.elapsed();
        since > OFTEN || heard.elapsed().min(since) > QUIET
    }

    pub(super) fn ask(&mut self) -> Request {
        let number = unguessable();
        self.asked = Instant::now();
        self.open = Some((number, now()));
        Request::Ping(number)
    }

    /// What an answer tells, if it is one to the last question.
    pub(super) fn answered(&mut self, number: u64, tsc: u64) -> Option<Reading> {
        let (_, before) = self.open.take_if(|(asked, _)| *asked == number)?;
        Some(Reading::between(before, now(), tsc))
    }
}
