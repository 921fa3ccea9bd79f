//! Checks of each second on what a session relies on: that the kernel trusts its TSC, that the TSC agrees
//! with the operating system's clock, and that the module has not ended the session.

use std::time::Duration;

use super::abi::{END_LIVE_PATCH, END_RESTART, END_SLEEP, IlkState};
use super::device::Device;
use super::{kernel, sys};
use crate::processor;
use crate::protocol::{Refusal, RefusalKind};

/// Interval of the checks.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
/// Difference between TSC and `CLOCK_BOOTTIME` over an interval that is no error of measurement.
const JUMP: f64 = 0.25;
/// Longest time between the two readings of the clock around one of the TSC.
const EXACT: Duration = Duration::from_millis(20);

/// The state at the last check.
pub(super) struct SessionWatch {
    tsc_hz: u64,
    last: Option<Moment>,
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    tsc: u64,
    /// `CLOCK_BOOTTIME`, which counts the time of a suspended machine.
    boot: Duration,
}

impl SessionWatch {
    /// Begins a session.
    ///
    /// # Errors
    /// The kernel does not trust the TSC, a live patch is in transition, or the module cannot be read.
    pub(super) fn begin(device: &Device, tsc_hz: u64) -> Result<Self, Refusal> {
        let mut watch = Self { tsc_hz, last: None };
        match watch.begin_again(device)? {
            Some(END_LIVE_PATCH) => Err(module(format!(
                "A live patch was loaded on {} after the session was planned; start it again.",
                kernel::host()
            ))),
            Some(_) => Ok(watch),
            None => Err(module(format!(
                "A live patch is being loaded on {}, or is in transition; start the session again when \
                 /sys/kernel/livepatch/*/transition is 0 there.",
                kernel::host()
            ))),
        }
    }

    /// Begins a session again, after a live patch ended it; returns how the one before has ended, or `None` while a
    /// live patch is in transition.
    ///
    /// # Errors
    /// The kernel does not trust the TSC, or the module cannot be read.
    pub(super) fn begin_again(&mut self, device: &Device) -> Result<Option<u32>, Refusal> {
        let state = match device.state(true) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => return Ok(None),
            state => state.map_err(|error| unreadable(&error))?,
        };
        if state.tsc_unstable != 0 {
            let host = kernel::host();
            return Err(module(format!(
                "The kernel of {host} does not trust its TSC, by which samples are ordered; see \
                 `dmesg | grep -i tsc` there for the reason."
            )));
        }
        self.last = now().or(self.last);
        Ok(Some(state.ended))
    }

    /// Checks that the session may continue.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn check(&mut self, device: &Device) -> Result<(), SessionStop> {
        let state = device.state(false).map_err(|error| SessionStop::Ended {
            why: unreadable(&error),
            removed: false,
        })?;
        if let Some(why) = ended(&state) {
            return Err(SessionStop::Ended {
                why: module(why),
                removed: state.ended != 0,
            });
        }
        if let Some(now) = now() {
            let jump = self.last.and_then(|last| last.jump(now, self.tsc_hz));
            self.last = Some(now);
            if let Some((ticks, time)) = jump {
                return Err(SessionStop::Ended {
                    why: module(format!(
                        "The session was ended: the TSC of {} moved by {ticks:.1} s while its clock moved by \
                         {time:.1} s, so later times would be wrong.",
                        kernel::host()
                    )),
                    removed: false,
                });
            }
        }
        match state.ended {
            END_LIVE_PATCH => Err(SessionStop::Out { tsc: state.tsc }),
            _ => Ok(()),
        }
    }
}

/// An event that was not planned.
pub(super) enum SessionStop {
    /// The session ends.
    Ended {
        why: Refusal,
        /// Every splice is removed already.
        removed: bool,
    },
    /// A live patch changes the kernel: every splice was removed at this time, and the session continues after that.
    Out { tsc: u64 },
}

impl Moment {
    /// Returns the seconds by which the TSC and the clock moved, if they differ.
    fn jump(self, now: Self, tsc_hz: u64) -> Option<(f64, f64)> {
        let ticks = now.tsc.wrapping_sub(self.tsc).cast_signed();
        let ticks = ticks as f64 / tsc_hz.max(1) as f64;
        let time = now.boot.saturating_sub(self.boot).as_secs_f64();
        // The rates differ by less than 1 %.
        let differs = (ticks - time).abs() > JUMP + time / 100.0;
        differs.then_some((ticks, time))
    }
}

/// Returns the sentence that ends a session.
fn ended(state: &IlkState) -> Option<String> {
    let host = kernel::host;
    let why = match state.ended {
        0 | END_LIVE_PATCH if state.tsc_unstable != 0 => {
            return Some(format!(
                "The session was ended: the kernel of {} does not trust its TSC any more; see \
                 `dmesg | grep -i tsc` there for the reason.",
                host()
            ));
        }
        0 | END_LIVE_PATCH => return None,
        END_SLEEP => "the machine went to sleep",
        END_RESTART => "the machine restarts",
        _ => "the module does not say why",
    };
    Some(format!(
        "The session was ended, and every splice was removed before: {why} ({}).",
        host()
    ))
}

/// Returns both clocks' times, or `None` if this thread never ran long enough to read them together.
fn now() -> Option<Moment> {
    (0..5).find_map(|_| {
        let before = sys::boot_time();
        let tsc = processor::tsc();
        let boot = sys::boot_time();
        (boot.saturating_sub(before) < EXACT).then_some(Moment { tsc, boot })
    })
}

fn module(text: String) -> Refusal {
    Refusal::new(RefusalKind::Module, text)
}

fn unreadable(error: &std::io::Error) -> Refusal {
    module(format!(
        "The module's state could not be read ({error}); look at the target's dmesg."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tsc_that_is_reset_or_stops_is_a_jump() {
        let moment = |tsc, seconds| Moment {
            tsc,
            boot: Duration::from_secs_f64(seconds),
        };
        let (hz, at) = (1_000_000, moment(50_000_000, 100.0));
        assert_eq!(at.jump(moment(51_000_000, 101.0), hz), None);
        assert_eq!(at.jump(moment(51_150_000, 101.0), hz), None);
        // Suspended for an hour: counted by both, by the clock only, or reset.
        assert_eq!(at.jump(moment(3_650_000_000, 3700.0), hz), None);
        assert_eq!(at.jump(moment(51_000_000, 3700.0), hz), Some((1.0, 3600.0)));
        assert_eq!(at.jump(moment(1_000_000, 101.0), hz), Some((-49.0, 1.0)));
    }

    #[test]
    fn both_clocks_agree_here() {
        let hz = super::super::clock::tsc_hz(0);
        let agrees = || {
            let first = now()?;
            std::thread::sleep(Duration::from_millis(20));
            Some(first.jump(now()?, hz).is_none())
        };
        assert!((0..50).any(|_| agrees() == Some(true)));
    }

    #[test]
    fn each_end_has_a_sentence() {
        let state = |ended, tsc_unstable| IlkState {
            ended,
            tsc_unstable,
            ..IlkState::default()
        };
        assert_eq!(ended(&state(0, 0)), None);
        assert_eq!(ended(&state(END_LIVE_PATCH, 0)), None);
        let sentences = [(END_SLEEP, 1), (END_RESTART, 0), (0, 1)];
        let mut texts = sentences.map(|(end, tsc)| ended(&state(end, tsc)).unwrap());
        texts.sort_unstable();
        assert!(texts.windows(2).all(|pair| pair[0] != pair[1]), "{texts:?}");
    }
}
