//! Formatting of numbers, times, names and the time axis for people.

use crate::metadata::Clock;

/// Returns at most `most` ticks of an axis at [round](round_up) times, in seconds, and their
/// distance.
pub(super) fn ticks(from: f64, to: f64, most: usize) -> (Vec<f64>, f64) {
    let rough = (to - from) / most.max(1) as f64;
    if !rough.is_finite() || rough <= 0.0 {
        return (Vec::new(), 1.0);
    }
    let step = round_up(rough * 0.999);
    let first = (from / step).ceil() as i64;
    let count = ((to - first as f64 * step) / step).floor().max(-1.0) as i64 + 1;
    let ticks = (0..count.clamp(0, 1000)).map(|n| (first + n) as f64 * step);
    (ticks.collect(), step)
}

/// Round numbers of minutes, hours and days, in seconds.
const ROUND: [f64; 12] = [
    60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 10_800.0, 21_600.0, 43_200.0, DAY,
];
const DAY: f64 = 86_400.0;

/// Returns the next round duration in seconds: 1, 2, 5, 10, 20, 50 … seconds or days, and in
/// between round minutes and hours.
#[must_use]
pub fn round_up(value: f64) -> f64 {
    if value <= 50.0 * 1.000_001 {
        return decimal(value);
    }
    let round = ROUND.into_iter().find(|round| value <= *round);
    round.unwrap_or_else(|| DAY * decimal(value / DAY))
}

fn decimal(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let lead = value / power;
    let lead = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|round| lead <= *round * 1.000_001)
        .unwrap_or(10.0);
    lead * power
}

/// Formats a time on an axis whose ticks are `step` apart: `1.5 s`, `250 ms`, `−20 µs`.
pub(super) fn axis_time(seconds: f64, step: f64) -> String {
    if step >= 60.0 {
        return long(seconds, 3).replace('-', "−");
    }
    let (factor, unit) = match step {
        step if step >= 0.1 => (1.0, "s"),
        step if step >= 1e-4 => (1e3, "ms"),
        step if step >= 1e-7 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    let decimals = usize::from(step * factor < 0.999);
    let text = format!("{:.decimals$}", (seconds * factor).abs());
    let sign = if seconds < 0.0 && text.chars().any(|c| ('1'..='9').contains(&c)) {
        "−"
    } else {
        ""
    };
    format!("{sign}{text} {unit}")
}

/// Formats whole days, hours, minutes and seconds, at most the `parts` greatest of them.
#[must_use]
pub fn long(seconds: f64, parts: usize) -> String {
    let units = [(86_400u64, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let mut left = seconds.abs().round() as u64;
    let greatest = units.iter().position(|(size, _)| left >= *size);
    let mut words = Vec::new();
    for (size, unit) in units.into_iter().skip(greatest.unwrap_or(3)).take(parts) {
        if left >= size {
            words.push(format!("{} {unit}", left / size));
        }
        left %= size;
    }
    if words.is_empty() {
        return "0 s".to_owned();
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    format!("{sign}{}", words.join(" "))
}

/// Formats a duration: three digits and a unit (`12.3 µs`), or two units (`2 min 5 s`).
#[must_use]
pub fn duration(seconds: f64) -> String {
    if seconds.abs() >= 120.0 {
        return long(seconds, 2);
    }
    let (value, unit) = match seconds.abs() {
        s if s >= 1.0 || s == 0.0 => (seconds, "s"),
        s if s >= 1e-3 => (seconds * 1e3, "ms"),
        s if s >= 1e-6 => (seconds * 1e6, "µs"),
        _ => (seconds * 1e9, "ns"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Formats a value with its unit: `1.23 M hits`, `12.3 µs` for ticks, hexadecimal for a pointer.
#[must_use]
pub fn value(value: u64, unit: &str, clock: &Clock) -> String {
    match unit {
        "ticks" if clock.hz > 0 => duration(value as f64 / clock.hz as f64),
        _ if value >= 1 << 46 => format!("{value:#x}"),
        _ => format!("{} {unit}", short(value as f64))
            .trim_end()
            .to_owned(),
    }
}

/// Formats a total with its unit: every digit of a number, a duration for ticks.
#[must_use]
pub fn amount(number: i128, unit: &str, clock: &Clock) -> String {
    match unit {
        "ticks" if clock.hz > 0 => duration(number as f64 / clock.hz as f64),
        _ => format!("{} {unit}", grouped(number)).trim_end().to_owned(),
    }
}

/// Formats a mean with its unit: `1.23 threads`.
#[must_use]
pub fn mean(mean: f64, unit: &str, clock: &Clock) -> String {
    match unit {
        "ticks" if clock.hz > 0 => duration(mean / clock.hz as f64),
        _ => format!("{} {unit}", short(mean)).trim_end().to_owned(),
    }
}

/// Formats samples per second: `16.0/s`.
#[must_use]
pub fn rate(rate: f64) -> String {
    format!("{}/s", short(rate))
}

/// Formats a count of things: `1 block`, `2,000 blocks`, `3 patches`, `4 entries`.
#[must_use]
pub fn counted(count: u64, what: &str) -> String {
    let is_after_consonant =
        |stem: &str| !stem.ends_with(['a', 'e', 'i', 'o', 'u']) && !stem.is_empty();
    let many = match what.strip_suffix('y') {
        Some(stem) if is_after_consonant(stem) => format!("{stem}ies"),
        _ if what.ends_with("ch") || what.ends_with(['s', 'x']) => format!("{what}es"),
        _ => format!("{what}s"),
    };
    let what = if count == 1 { what } else { &many };
    format!("{} {what}", grouped(count))
}

/// Returns the line for instruments without hits: `444 others: 0 hits`.
#[must_use]
pub fn idle(count: usize) -> String {
    others(count, "0 hits")
}

/// Returns the line for so many others that are alike.
pub(super) fn others(count: usize, alike: &str) -> String {
    format!("{}: {alike}", counted(count as u64, "other"))
}

/// Formats three digits and a letter for the thousands: `1.23 M`.
#[must_use]
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e12 => format!("{value:.2e}"),
        v if v >= 1e9 => format!("{} G", three_digits(value / 1e9)),
        v if v >= 1e6 => format!("{} M", three_digits(value / 1e6)),
        v if v >= 1e4 => format!("{} k", three_digits(value / 1e3)),
        _ => three_digits(value),
    }
}

fn three_digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 || v.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a number with commas between its thousands.
#[must_use]
pub fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut out = String::with_capacity(digits.len() * 2);
    if number < 0 {
        out.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats date and time of day in UTC, `2026-11-21 07:41 UTC`; empty if the clock was never set.
pub(super) fn date(unix_ns: u64) -> String {
    if unix_ns == 0 {
        return String::new();
    }
    let minutes = unix_ns / 60_000_000_000;
    let (days, minute) = (minutes / 1440, minutes % 1440);
    // From days to a date by eras of 400 years, which begin on a 1 March (Howard Hinnant,
    // "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        minute / 60,
        minute % 60
    )
}

/// Shortens text to at most `most` characters with an ellipsis in the middle: both ends of a symbol
/// are informative.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let (front, back) = (kept.div_ceil(2), kept / 2);
    let start: String = text.chars().take(front).collect();
    let end: String = text.chars().skip(count - back).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for (from, to) in [
            (0.0, 10.1),
            (-0.3, 7.7),
            (1e-6, 3e-6),
            (1000.0, 1000.25),
            (0.0, 1e-9),
        ] {
            let (ticks, step) = ticks(from, to, 10);
            assert!((3..=11).contains(&ticks.len()), "{ticks:?}");
            assert!(
                ticks
                    .iter()
                    .all(|tick| (from - step * 1e-6..=to + step * 1e-6).contains(tick))
            );
        }
        assert!(ticks(1.0, 1.0, 10).0.is_empty());
        assert!(ticks(0.0, f64::NAN, 10).0.is_empty());
    }

    #[test]
    fn words_for_numbers() {
        let clock = Clock {
            hz: 2_400_000_000,
            start: 0,
            start_unix_ns: 0,
        };
        assert_eq!(value(24_000, "ticks", &clock), "10 µs");
        assert_eq!(value(160, "hits", &clock), "160 hits");
        assert_eq!(value(1_234_567, "", &clock), "1.23 M");
        assert_eq!(
            value(0xffff_8880_0000_0000, "", &clock),
            "0xffff888000000000"
        );
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(
            (grouped(0), grouped(999), grouped(1000)),
            ("0".into(), "999".into(), "1,000".into())
        );
        assert_eq!(
            (axis_time(1.5, 0.5), axis_time(-0.02, 0.01)),
            ("1.5 s".into(), "−20 ms".into())
        );
        assert_eq!(
            (axis_time(2.0, 1.0), axis_time(-0.0, 1.0)),
            ("2 s".into(), "0 s".into())
        );
        assert_eq!(duration(0.25), "250 ms");
        assert_eq!(duration(0.0), "0 s");
        assert_eq!(duration(0.001_234), "1.23 ms");
        assert_eq!(duration(0.000_000_320), "320 ns");
        assert_eq!(duration(12.34), "12.3 s");
        assert_eq!(duration(119.6), "120 s");
        assert_eq!(duration(125.0), "2 min 5 s");
        assert_eq!(duration(7260.4), "2 h 1 min");
        assert_eq!(duration(-2.5 * DAY), "-2 d 12 h");
        assert_eq!(axis_time(5400.0, 1800.0), "1 h 30 min");
        assert_eq!(axis_time(-60.0, 60.0), "−1 min");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "");
        assert_eq!(date(1_700_000_000_000_000_000), "2023-11-14 22:13 UTC");
        assert_eq!(date(951_782_400_000_000_000), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599_000_000_000), "2024-12-31 23:59 UTC");
    }
}
