//! The answer to a script: aggregates by function and hook, sorted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gilk_engine::{Addr, Image};
use gilk_samples::chart::bars;
use gilk_samples::chart::scale::{self, grouped};
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::totals::{TotalBucket, TotalRow, TotalValue};
use ilk_driver::script::Place;

/// Widths of a histogram's counts and ranges.
const WIDTHS: [usize; 2] = [16, 24];
/// Indentation of the frames of a stack.
pub(crate) const FRAMES: usize = 20;

/// An aggregate of one place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) place: Place,
    pub(crate) value: TotalValue,
    /// True if a number may be 0 where values have arrived.
    pub(crate) may_be_zero: bool,
}

impl Row {
    /// Returns whether nothing was counted or added up there.
    fn is_idle(&self) -> bool {
        self.value.is_idle(self.may_be_zero)
    }
}

/// Aggregates by name, without the `@`.
pub(crate) type Answer = BTreeMap<String, Vec<Row>>;

/// The printing of answers.
pub(crate) struct Printer<'i> {
    /// The kernel, for names of addresses.
    pub(crate) image: &'i Image,
    /// Stacks among values and keys.
    pub(crate) stacks: &'i KeptStacks,
    /// Places without hits are printed, too.
    pub(crate) all: bool,
    /// Seconds, if numbers are shown a second.
    pub(crate) per: Option<f64>,
    /// Unit of the values.
    pub(crate) unit: &'static str,
}

impl Printer<'_> {
    /// Returns the text of all aggregates.
    pub(crate) fn text(&self, answer: &Answer) -> String {
        answer
            .iter()
            .map(|(name, rows)| self.aggregate(name, rows))
            .collect()
    }

    /// Returns the text of one aggregate: the places sorted by their value, those without any counted.
    pub(crate) fn aggregate(&self, name: &str, rows: &[Row]) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "@{name}");
        let mut sorted: Vec<&Row> = rows.iter().collect();
        sorted.sort_by(|one, other| {
            let by_weight = weight(&other.value).total_cmp(&weight(&one.value));
            by_weight.then_with(|| one.place.cmp(&other.place))
        });
        let shown = |row: &&&Row| self.all || !row.is_idle();
        for row in sorted.iter().filter(shown) {
            self.row(&mut out, row);
        }
        let folded = sorted.len() - sorted.iter().filter(shown).count();
        if folded > 0 {
            let noun = match folded == sorted.len() {
                true => "place",
                false => "other",
            };
            let noun = scale::counted(folded as u64, noun);
            // No value is not 0.
            let has_none = |row: &&Row| row.value == TotalValue::Nothing;
            let mut idle = sorted.iter().filter(|row| row.is_idle());
            let value = if idle.all(has_none) { "none" } else { "0" };
            let _infallible = writeln!(out, "  {noun}: {value}");
        }
        out
    }

    fn row(&self, out: &mut String, Row { place, value, .. }: &Row) {
        let _infallible = match value {
            TotalValue::Number(number) => match self.per {
                Some(seconds) => {
                    let rate = *number as f64 / seconds;
                    writeln!(out, "{:>16}  {place}", format!("{}/s", decimal(rate)))
                }
                None => writeln!(out, "{:>16}  {place}", grouped(*number)),
            },
            TotalValue::Mean(mean) => {
                writeln!(out, "{:>16}  {place}", self.with_unit(&decimal(*mean)))
            }
            TotalValue::Nothing => writeln!(out, "{:>16}  {place}", "none"),
            TotalValue::Values(values, others) => {
                let _infallible = writeln!(out, "  {place}");
                for (value, count) in values {
                    let count = grouped(*count);
                    let _infallible = writeln!(out, "{count:>16}  {}", self.value(*value));
                    let _infallible = self.stacks.write(out, [*value], FRAMES);
                }
                match others {
                    0 => Ok(()),
                    others => writeln!(
                        out,
                        "{:>16}  of other values, which the table could not keep apart",
                        grouped(*others)
                    ),
                }
            }
            TotalValue::Map(rows, others) => {
                let _infallible = writeln!(out, "  {place}");
                for row in rows {
                    self.keyed(out, row);
                }
                match others {
                    0 => Ok(()),
                    others => writeln!(
                        out,
                        "{:>16}  values of other keys, which the table could not keep apart",
                        grouped(*others)
                    ),
                }
            }
            TotalValue::Buckets(buckets) => {
                let total: u64 = buckets.iter().map(|bucket| bucket.count).sum();
                let noun = if total == 1 { "value" } else { "values" };
                let total = grouped(total);
                let _infallible = writeln!(out, "  {place}: {total} {noun}");
                self.histogram(out, buckets);
                Ok(())
            }
        };
    }

    /// Writes the total of a key.
    fn keyed(&self, out: &mut String, row: &TotalRow) {
        let key = row.key_by(|number| self.value(number));
        let _infallible = match (&row.value, self.per) {
            (TotalValue::Number(number), Some(seconds)) => {
                let rate = decimal(*number as f64 / seconds);
                writeln!(out, "{:>16}  {key}", format!("{rate}/s"))
            }
            (TotalValue::Number(number), None) => {
                writeln!(out, "{:>16}  {key}", grouped(*number))
            }
            (TotalValue::Mean(mean), _) => {
                writeln!(out, "{:>16}  {key}", self.with_unit(&decimal(*mean)))
            }
            (TotalValue::Buckets(buckets), _) => {
                let total = row.value.hits();
                let noun = if total == 1 { "value" } else { "values" };
                let _infallible = writeln!(out, "  {key}: {} {noun}", grouped(total));
                let _infallible = self.stacks.write(out, row.numbers(), FRAMES);
                self.histogram(out, buckets);
                return;
            }
            (other, _) => writeln!(out, "{:>16}  {key}", grouped(other.hits())),
        };
        let _infallible = self.stacks.write(out, row.numbers(), FRAMES);
    }

    fn histogram(&self, out: &mut String, buckets: &[TotalBucket]) {
        let amount = |number| self.amount(number);
        let _infallible = bars::write(out, buckets, WIDTHS, amount);
    }

    /// Returns a bound of a bucket; times in the largest unit that keeps them exact enough.
    fn amount(&self, number: i128) -> String {
        if self.unit != "ns" {
            return self.with_unit(&grouped(number));
        }
        let (scale, unit) = match number {
            ..1_000 => return format!("{number} ns"),
            1_000..1_000_000 => (1e3, "µs"),
            1_000_000..1_000_000_000 => (1e6, "ms"),
            _ => (1e9, "s"),
        };
        format!("{} {unit}", decimal(number as f64 / scale))
    }

    fn with_unit(&self, number: &str) -> String {
        match self.unit {
            "" => number.to_owned(),
            unit => format!("{number} {unit}"),
        }
    }

    /// Returns a value: an address as a symbol, a stack by the number of its frames, an error by its name, else the number.
    pub(crate) fn value(&self, value: i128) -> String {
        if let Ok(address) = u64::try_from(value)
            && let Some(symbol) = self.image.named(Addr(address))
        {
            return symbol;
        }
        if let Some(title) = self.stacks.title(value) {
            return title;
        }
        match error_name(value) {
            Some(name) => format!("{value} (-{name})"),
            None => grouped(value),
        }
    }
}

/// The order of rows: by the number, or the number of values.
fn weight(value: &TotalValue) -> f64 {
    value.weight()
}

/// Returns a number with at most three significant digits after the comma of thousands.
fn decimal(number: f64) -> String {
    match number.abs() {
        0.0..10.0 => format!("{number:.2}"),
        10.0..100.0 => format!("{number:.1}"),
        _ => grouped(number.round() as i128),
    }
}

/// Returns the name of a negative error number (include/uapi/asm-generic/errno-base.h and errno.h).
fn error_name(value: i128) -> Option<&'static str> {
    const NAMES: [(i128, &str); 46] = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (3, "ESRCH"),
        (4, "EINTR"),
        (5, "EIO"),
        (6, "ENXIO"),
        (7, "E2BIG"),
        (8, "ENOEXEC"),
        (9, "EBADF"),
        (10, "ECHILD"),
        (11, "EAGAIN"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (14, "EFAULT"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (18, "EXDEV"),
        (19, "ENODEV"),
        (20, "ENOTDIR"),
        (21, "EISDIR"),
        (22, "EINVAL"),
        (23, "ENFILE"),
        (24, "EMFILE"),
        (25, "ENOTTY"),
        (26, "ETXTBSY"),
        (27, "EFBIG"),
        (28, "ENOSPC"),
        (29, "ESPIPE"),
        (30, "EROFS"),
        (31, "EMLINK"),
        (32, "EPIPE"),
        (33, "EDOM"),
        (34, "ERANGE"),
        (36, "ENAMETOOLONG"),
        (38, "ENOSYS"),
        (39, "ENOTEMPTY"),
        (61, "ENODATA"),
        (75, "EOVERFLOW"),
        (95, "EOPNOTSUPP"),
        (98, "EADDRINUSE"),
        (104, "ECONNRESET"),
        (110, "ETIMEDOUT"),
        (111, "ECONNREFUSED"),
        (113, "EHOSTUNREACH"),
        (115, "EINPROGRESS"),
        (512, "ERESTARTSYS"),
    ];
    let found = NAMES.iter().find(|(number, _)| -number == value);
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_errors_have_names() {
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(i128::from(u64::MAX)), "18,446,744,073,709,551,615");
        assert_eq!(error_name(-2), Some("ENOENT"));
        assert_eq!(error_name(2), None);
        assert_eq!(
            [decimal(1.0), decimal(99.94), decimal(12_345.6)],
            ["1.00", "99.9", "12,346"]
        );
    }
}
