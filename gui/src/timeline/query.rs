//! The text of a search among samples: `> 100 us cpu 1 thread make after 2 s`.

use gilk_samples::Meaning;
use gilk_samples::metadata::{Clock, InstrumentInfo};

/// Conditions on a sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query {
    /// Least and greatest value, as typed.
    more: Option<Amount>,
    less: Option<Amount>,
    equal: Option<Amount>,
    /// Number of the CPU that delivered it.
    pub(crate) cpu: Option<u16>,
    /// Letters of the thread's name, or its number.
    pub(crate) thread: Option<String>,
    /// Least and greatest time in seconds.
    pub(crate) after: Option<f64>,
    pub(crate) before: Option<f64>,
}

/// A number with its unit, if it has one.
#[derive(Clone, Debug, PartialEq)]
struct Amount {
    number: f64,
    /// The exact number, if it is one of the values' whole numbers.
    whole: Option<u64>,
    /// Seconds of one unit.
    unit: Option<f64>,
}

impl Query {
    /// Parses a text; without words, every sample matches.
    ///
    /// # Errors
    /// A whole sentence about the first word that is not understood.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let mut spaced = text.to_lowercase();
        for sign in ['>', '<', '='] {
            spaced = spaced.replace(sign, &format!(" {sign} "));
        }
        let mut words = spaced.split_whitespace().peekable();
        let mut query = Self::default();
        while let Some(word) = words.next() {
            let mut next = |what: &str| {
                let missing = || format!("A {what} follows {word:?}.");
                words.next().map(str::to_owned).ok_or_else(missing)
            };
            match word {
                "value" => {}
                ">" | "<" | "=" => {
                    let number = next("number")?;
                    let unit = words.next_if(|word| seconds_of(word).is_some());
                    let amount = amount(&number, unit)?;
                    match word {
                        ">" => query.more = Some(amount),
                        "<" => query.less = Some(amount),
                        _ => query.equal = Some(amount),
                    }
                }
                "cpu" => {
                    let number = next("number")?;
                    let cpu = number.parse();
                    query.cpu = Some(cpu.map_err(|_| format!("{number:?} is not a CPU."))?);
                }
                "thread" => query.thread = Some(next("name or number")?),
                "after" | "before" => {
                    let number = next("time")?;
                    let unit = words.next_if(|word| seconds_of(word).is_some());
                    let amount = amount(&number, unit)?;
                    let at = amount.number * amount.unit.unwrap_or(1.0);
                    match word {
                        "after" => query.after = Some(at),
                        _ => query.before = Some(at),
                    }
                }
                _ => {
                    return Err(format!(
                        "{word:?} is not understood. Write conditions like: > 100 us, cpu 1, thread make, after 2 s."
                    ));
                }
            }
        }
        Ok(query)
    }

    /// Returns the least and the greatest value of an instrument that match, or `None` if none can.
    pub(crate) fn values(&self, info: &InstrumentInfo, clock: Clock) -> Option<(u64, u64)> {
        let value = |amount: &Amount| amount.value(info, clock);
        let mut range = (0, u64::MAX);
        if let Some(more) = &self.more {
            range.0 = value(more)?.checked_add(1)?;
        }
        if let Some(less) = &self.less {
            range.1 = value(less)?.checked_sub(1)?;
        }
        if let Some(equal) = &self.equal {
            let equal = value(equal)?;
            range = (range.0.max(equal), range.1.min(equal));
        }
        // An event's value is its clock.
        let compares = self.more.is_some() || self.less.is_some() || self.equal.is_some();
        let has_values = info.meaning != Meaning::Event;
        (range.0 <= range.1 && (has_values || !compares)).then_some(range)
    }
}

impl Amount {
    /// Returns the amount in the unit of an instrument's values; `None` for a time where values are
    /// none.
    fn value(&self, info: &InstrumentInfo, clock: Clock) -> Option<u64> {
        match self.unit {
            None => self.whole.or(Some(self.number as u64)),
            Some(unit) if info.meaning == Meaning::Duration => {
                Some((self.number * unit * clock.hz as f64).round() as u64)
            }
            Some(_) => None,
        }
    }
}

/// Returns the seconds of a unit of time.
fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return None,
    })
}

fn amount(text: &str, unit: Option<&str>) -> Result<Amount, String> {
    let wrong = || format!("{text:?} is not a number. Write 100, 0x1f, 2.5 ms.");
    if let Some(digits) = text.strip_prefix("0x") {
        let whole = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
        return Ok(Amount {
            number: whole as f64,
            whole: Some(whole),
            unit: None,
        });
    }
    let plain = text.replace(',', "");
    let letters = plain.find(|letter: char| letter.is_alphabetic());
    let (number, own) = plain.split_at(letters.unwrap_or(plain.len()));
    let unit = match own {
        "" => unit.and_then(seconds_of),
        own => Some(seconds_of(own).ok_or_else(wrong)?),
    };
    let parsed: f64 = number.parse().map_err(|_| wrong())?;
    if !parsed.is_finite() || parsed < 0.0 {
        return Err(wrong());
    }
    Ok(Amount {
        number: parsed,
        whole: number.parse().ok(),
        unit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn info(meaning: Meaning) -> InstrumentInfo {
        InstrumentInfo {
            meaning,
            ..fixture::instrument()
        }
    }

    #[test]
    fn conditions_are_parsed_with_their_units() {
        let clock = Clock {
            hz: 1_000_000_000,
            start: 0,
            start_unix_ns: 0,
        };
        let query = Query::of(">100us <= 5").unwrap_err();
        assert!(query.contains("\"=\""), "{query}");
        let query = Query::of("value > 100 us cpu 1 thread Make after 2s before 2500 ms").unwrap();
        assert_eq!(
            query.values(&info(Meaning::Duration), clock),
            Some((100_001, u64::MAX))
        );
        assert_eq!(query.values(&info(Meaning::Value), clock), None, "a time");
        assert_eq!(
            (query.cpu, query.thread.as_deref()),
            (Some(1), Some("make"))
        );
        assert_eq!((query.after, query.before), (Some(2.0), Some(2.5)));
        let between = Query::of(">1,000<2000").unwrap();
        assert_eq!(
            between.values(&info(Meaning::Value), clock),
            Some((1001, 1999))
        );
        let exact = Query::of("= 0xffffffffffffffff").unwrap();
        assert_eq!(
            exact.values(&info(Meaning::Value), clock),
            Some((u64::MAX, u64::MAX))
        );
        assert_eq!(exact.values(&info(Meaning::Event), clock), None);
        let all = Query::of("").unwrap();
        assert_eq!(
            all.values(&info(Meaning::Event), clock),
            Some((0, u64::MAX))
        );
        for wrong in ["> abc", "cpu x", ">", "slow", "> 3 parsecs", "> -1"] {
            assert!(Query::of(wrong).is_err(), "{wrong}");
        }
    }
}
