//! Spans of time on the command line.

use std::str::FromStr;

use gilk_samples::metadata::Clock;

/// A span `FROM..TO` in seconds from the start of the session; either end may be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    from: Option<f64>,
    to: Option<f64>,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("{text} is not a span of time; write seconds as in 1.5..2, ..2 or 1.5..");
        let (from, to) = text.split_once("..").ok_or_else(refuse)?;
        let part = |text: &str| match text.trim() {
            "" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(seconds) if seconds.is_finite() => Ok(Some(seconds)),
                _ => Err(refuse()),
            },
        };
        let span = Self {
            from: part(from)?,
            to: part(to)?,
        };
        match (span.from, span.to) {
            (Some(from), Some(to)) if from >= to => Err(refuse()),
            _ => Ok(span),
        }
    }
}

impl Span {
    /// Converts the span to TSC ticks; an end that was left out is that of `whole`.
    pub(crate) fn ticks(self, clock: &Clock, whole: (u64, u64)) -> (u64, u64) {
        (
            self.from.map_or(whole.0, |from| clock.tsc(from)),
            self.to.map_or(whole.1, |to| clock.tsc(to)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_parsed_or_refused() {
        let clock = Clock {
            hz: 10,
            start: 1000,
            start_unix_ns: 0,
        };
        let ticks = |text: &str| text.parse::<Span>().map(|span| span.ticks(&clock, (1, 9)));
        assert_eq!(ticks("1..2.5"), Ok((1010, 1025)));
        assert_eq!(ticks("..2"), Ok((1, 1020)));
        assert_eq!(ticks("-1.."), Ok((990, 9)));
        for wrong in ["", "1", "2..1", "a..b", "1..inf"] {
            assert!(ticks(wrong).is_err(), "{wrong}");
        }
    }
}
