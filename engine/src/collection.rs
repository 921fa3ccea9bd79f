//! Collection of measurements from the target. A session chooses the strategy, since none is best for all
//! (GILK report, 5.2.1). `docs/collection.md` compares them.

use serde::{Deserialize, Serialize};

/// The collection of a session's measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Collection {
    /// The strategy for samples.
    pub samples: Strategy,
    /// The interval at which counters and histograms are read.
    pub totals: Interval,
    /// Seconds for which the target continues, and keeps its samples, after its client is lost. At 0 a
    /// lost client ends the session at once.
    pub grace: f64,
}

/// The strategy for samples between the patch that takes them and the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Strategy {
    /// They are sent as they arrive: as soon as a ring is an eighth full, or 20 ms later.
    #[default]
    Stream,
    /// They are sent at intervals, between which nothing is read.
    Periodic {
        /// Seconds from one time to the next.
        every: f64,
        /// Seconds by which this varies, either way.
        #[serde(default)]
        jitter: f64,
    },
    /// They are taken for a while now and then, and sent on after that; other hits are counted.
    Windows {
        /// Seconds from one beginning to the next.
        every: f64,
        /// Seconds by which this varies, either way.
        #[serde(default)]
        jitter: f64,
        /// Seconds for which samples are taken.
        length: f64,
    },
    /// They stay in the rings to the end; what comes when a ring is full is lost.
    Oldest,
    /// They stay in the rings to the end; new ones overwrite the oldest.
    Newest,
}

/// A time that comes again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Seconds from one time to the next.
    pub every: f64,
    /// Seconds by which this varies, either way, so that it does not beat with what is measured.
    #[serde(default)]
    pub jitter: f64,
}

impl Default for Interval {
    fn default() -> Self {
        Self {
            every: 0.1,
            jitter: 0.0,
        }
    }
}

impl Collection {
    /// The shortest interval, in seconds.
    pub const SHORTEST: f64 = 0.001;
    /// The longest interval and grace, in seconds.
    pub const LONGEST: f64 = 3600.0;

    /// Checks every number.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence.
    pub fn check(&self) -> Result<(), String> {
        Interval::check(self.totals, "totals")?;
        match self.samples {
            Strategy::Periodic { every, jitter } => {
                Interval { every, jitter }.check("samples")?;
            }
            Strategy::Windows {
                every,
                jitter,
                length,
            } => {
                Interval { every, jitter }.check("samples")?;
                if !(length.is_finite() && length > 0.0 && length < every - jitter) {
                    return Err(format!(
                        "its windows are {length} s long, and must be longer than 0 and shorter than \
                         the time from one to the next, which may be {} s",
                        every - jitter
                    ));
                }
            }
            Strategy::Stream | Strategy::Oldest | Strategy::Newest => {}
        }
        if self.grace.is_finite() && (0.0..=Self::LONGEST).contains(&self.grace) {
            Ok(())
        } else {
            Err(format!(
                "its grace is {} s, outside 0 to {} s",
                self.grace,
                Self::LONGEST
            ))
        }
    }

    /// Returns whether it is the default of sessions.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Interval {
    fn check(self, of: &str) -> Result<(), String> {
        let Self { every, jitter } = self;
        let (shortest, longest) = (Collection::SHORTEST, Collection::LONGEST);
        if !(every.is_finite() && (shortest..=longest).contains(&every)) {
            return Err(format!(
                "its {of} are collected every {every} s, outside {shortest} to {longest} s"
            ));
        }
        if !(jitter.is_finite() && jitter >= 0.0 && every - jitter >= shortest) {
            return Err(format!(
                "the {every} s between its {of} vary by {jitter} s, and must stay {shortest} s or more"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(Collection::default().check(), Ok(()));
        let with = |samples| Collection {
            samples,
            ..Collection::default()
        };
        let periodic = |every, jitter| with(Strategy::Periodic { every, jitter });
        let windows = |every, jitter, length| {
            with(Strategy::Windows {
                every,
                jitter,
                length,
            })
        };
        let graced = |grace| Collection {
            grace,
            ..Collection::default()
        };
        for good in [periodic(1.0, 0.5), windows(0.1, 0.05, 0.04), graced(10.0)] {
            assert_eq!(good.check(), Ok(()));
        }
        for (bad, named) in [
            (periodic(0.0, 0.0), "every 0 s"),
            (periodic(f64::NAN, 0.0), "every NaN s"),
            (periodic(1.0, 1.0), "vary by 1 s"),
            (periodic(1.0, -0.1), "vary by -0.1 s"),
            (windows(1.0, 0.5, 0.5), "windows are 0.5 s long"),
            (windows(1.0, 0.0, 0.0), "windows are 0 s long"),
            (graced(-1.0), "grace is -1 s"),
            (graced(f64::INFINITY), "grace is inf s"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn a_person_writes_only_what_is_not_usual() {
        let read = |text: &str| ron::from_str::<Collection>(text).unwrap();
        assert_eq!(read("()"), Collection::default());
        assert_eq!(
            read("(samples: Periodic(every: 0.5), grace: 3)"),
            Collection {
                samples: Strategy::Periodic {
                    every: 0.5,
                    jitter: 0.0
                },
                grace: 3.0,
                ..Collection::default()
            }
        );
        assert_eq!(read("(samples: Newest)").samples, Strategy::Newest);
        assert!(ron::from_str::<Collection>("(sample: Newest)").is_err());
    }
}
