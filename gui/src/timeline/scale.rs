//! Conversion between seconds and points, round ticks, and numbers with units.

use egui::Rangef;
use gilk_samples::chart::scale;
use gilk_samples::metadata::Clock;

use super::Range;

/// Linear mapping from seconds to points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) range: Range,
    pub(crate) x: Rangef,
}

impl Scale {
    /// Returns the points per second.
    pub(crate) fn density(&self) -> f64 {
        f64::from(self.x.span()) / self.range.width()
    }

    /// Returns the position of a time, clamped to one screen width outside of the view.
    pub(crate) fn x(&self, seconds: f64) -> f32 {
        let share = (seconds - self.range.start) / self.range.width();
        self.x.min + (share.clamp(-1.0, 2.0) * f64::from(self.x.span())) as f32
    }

    /// Returns the time at `x`.
    pub(crate) fn seconds(&self, x: f32) -> f64 {
        self.range.start + f64::from((x - self.x.min) / self.x.span()) * self.range.width()
    }
}

/// Returns the tick of a time, or 0 before the machine started.
pub(crate) fn tick(clock: Clock, seconds: f64) -> u64 {
    let first = -(clock.start as f64) / clock.hz.max(1) as f64;
    if seconds <= first {
        0
    } else {
        clock.tsc(seconds)
    }
}

/// Returns the interval of round times about `spacing` points apart, and the times.
pub(crate) fn ticks(scale: &Scale, spacing: f32) -> (f64, Vec<f64>) {
    let step = scale::round_up(f64::from(spacing) / scale.density().max(f64::MIN_POSITIVE));
    let first = (scale.range.start / step).ceil();
    let last = (scale.range.end / step).floor();
    let count = (last - first).clamp(0.0, 1000.0) as u32;
    (
        step,
        (0..=count)
            .map(|number| (first + f64::from(number)) * step)
            .collect(),
    )
}

/// Formats a time for the ruler, with the digits that ticks `step` apart need.
pub(crate) fn tick_label(seconds: f64, step: f64) -> String {
    if step >= 60.0 {
        return scale::long(seconds, 3);
    }
    let (unit, factor) = if step >= 0.1 {
        ("s", 1.0)
    } else if step >= 1e-3 {
        if seconds.abs() >= 10.0 {
            ("s", 1.0)
        } else {
            ("ms", 1e3)
        }
    } else if step >= 1e-6 {
        ("µs", 1e6)
    } else {
        ("ns", 1e9)
    };
    let digits = (-(step * factor).log10().floor()).clamp(0.0, 9.0) as usize;
    let value = seconds * factor;
    let value = if value == 0.0 { 0.0 } else { value }; // no "-0"
    format!("{} {unit}", separated(&format!("{value:.digits$}")))
}

/// Groups the digits before the point of a printed number.
fn separated(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let (whole, rest) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let whole = whole
        .parse::<u64>()
        .map_or_else(|_| whole.to_owned(), scale::grouped);
    format!("{sign}{whole}{rest}")
}

/// Formats a duration: three digits and a unit, or two units.
pub(crate) fn length(seconds: f64) -> String {
    scale::duration(seconds)
}

/// Formats a time to the microsecond.
pub(crate) fn moment(seconds: f64) -> String {
    format!("{seconds:.6} s")
}

/// Formats a time with digits for a point of a scale, to the microsecond at least.
pub(crate) fn moment_on(seconds: f64, scale: &Scale) -> String {
    let finest = 1.0 / scale.density().max(f64::MIN_POSITIVE);
    let digits = (-finest.log10().floor()).clamp(6.0, 9.0) as usize;
    format!("{seconds:.digits$} s")
}

/// Formats the error bound of a machine's times.
pub(crate) fn accuracy(error_ns: Option<u64>) -> String {
    match error_ns {
        Some(error) if error < 1_000_000 => format!("±{} µs", error.div_ceil(1000)),
        Some(error) => format!("±{:.1} ms", error as f64 / 1e6),
        None => "unaligned clock".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: f64 = 86_400.0;

    proptest! {
        #[test]
        fn ticks_are_in_view_and_evenly_apart(start in -5.0f64..5.0, power in -7.0f64..7.0) {
            let width = 10f64.powf(power);
            let scale = Scale { range: Range { start, end: start + width }, x: Rangef::new(100.0, 1100.0) };
            let (step, ticks) = ticks(&scale, 90.0);
            prop_assert!(step * scale.density() >= 89.9);
            prop_assert!(ticks.len() <= 13);
            for tick in ticks {
                prop_assert!(tick >= start - step * 1e-6 && tick <= start + width + step * 1e-6);
            }
        }

        #[test]
        fn positions_and_times_are_inverse(x in 100.0f32..1100.0) {
            let scale = Scale { range: Range { start: -1.0, end: 9.0 }, x: Rangef::new(100.0, 1100.0) };
            prop_assert!((scale.x(scale.seconds(x)) - x).abs() < 0.01);
        }
    }

    #[test]
    fn times_before_the_machine_started_are_tick_zero() {
        let clock = Clock {
            hz: 1000,
            start: 5000,
            start_unix_ns: 0,
        };
        assert_eq!(
            (tick(clock, 1.0), tick(clock, -2.0), tick(clock, -100.0)),
            (6000, 3000, 0)
        );
    }

    #[test]
    fn a_time_is_as_fine_as_its_axis() {
        let on = |width| Scale {
            range: Range {
                start: 22.0,
                end: 22.0 + width,
            },
            x: Rangef::new(0.0, 1000.0),
        };
        assert_eq!(moment_on(22.592_852_47, &on(10.0)), "22.592852 s");
        assert_eq!(moment_on(22.592_852_47, &on(50e-9)), "22.592852470 s");
    }

    #[test]
    fn labels_have_units() {
        assert_eq!(tick_label(2.0, 1.0), "2 s");
        assert_eq!(tick_label(1.5, 0.5), "1.5 s");
        assert_eq!(tick_label(0.25, 0.05), "250 ms");
        assert_eq!(tick_label(12.25, 0.05), "12.25 s");
        assert_eq!(tick_label(0.000_002, 0.000_001), "2 µs");
        assert_eq!(tick_label(-0.0, 1.0), "0 s");
        assert_eq!(tick_label(5400.0, 1800.0), "1 h 30 min");
        assert_eq!(tick_label(22.592_852_47, 1e-8), "22,592,852,470 ns");
        assert_eq!(tick_label(-22.592_852_5, 5e-6), "-22,592,852 µs");
        assert_eq!(tick_label(3.0 * DAY, DAY), "3 d");
        assert_eq!(tick_label(0.0, DAY), "0 s");
    }
}
