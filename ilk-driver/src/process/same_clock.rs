//! The clock of a kernel beside a process: that of this machine.

use gilk_samples::metadata::Clock;

use super::{clock, tsc};
use crate::{Error, Result};

/// Checks that a session of an agent that began now began on the clock of this machine: its start is between `before`
/// and now, in ticks of the time-stamp counter.
///
/// # Errors
/// [`Error::Target`] if it is not: the agent is of another machine.
pub fn check_same_clock(of_agent: Clock, before: u64) -> Result<()> {
    let own = clock().tsc_hz;
    let now = tsc();
    if (before..=now).contains(&of_agent.start) && of_agent.hz.abs_diff(own) <= own / 1000 {
        return Ok(());
    }
    Err(Error::Target(format!(
        "The agent is of another machine, whose clock is another one: instrument a process of that machine there. Its \
         session began at tick {} of {} a second, here it was {before} to {now} of {own}.",
        of_agent.start, of_agent.hz
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_another_clock_is_refused() {
        let before = tsc();
        let own = Clock {
            hz: clock().tsc_hz,
            start: tsc(),
            start_unix_ns: 0,
        };
        check_same_clock(own, before).unwrap();
        let earlier = Clock {
            start: before - 1,
            ..own
        };
        let later = Clock {
            start: u64::MAX,
            ..own
        };
        let slower = Clock {
            hz: own.hz / 2,
            ..own
        };
        for other in [earlier, later, slower] {
            let error = check_same_clock(other, before).unwrap_err().to_string();
            assert!(error.contains("another machine"), "{error}");
        }
    }
}
