//! The text of instruments' totals, at the end of a run and of a recording.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::{bars, scale};
use crate::cache_numbers::CacheNumbers;
use crate::kept_stacks::KeptStacks;
use crate::metadata::{Clock, Metadata};
use crate::process_end::ProcessEnd;
use crate::totals::{Counted, HitsCost, SessionCost, Total, TotalRow, TotalValue, Totals};

/// Widths of a histogram's counts and ranges.
const WIDTHS: [usize; 2] = [14, 32];
/// Indentation of the frames of a stack.
const FRAMES: usize = 18;
/// Start of the kernel's half of the address space, with five levels of page tables
/// (Documentation/arch/x86/x86_64/mm.rst).
const KERNEL: u64 = 0xff00_0000_0000_0000;

/// Returns a line per number, and a line per bucket and per value; the greatest first, and those
/// without hits in one line unless `all` are requested.
#[must_use]
pub fn text(totals: &Totals, metadata: &Metadata, all: bool) -> String {
    let clock = &metadata.clock;
    let mut sorted: Vec<&Total> = totals.added_up.iter().collect();
    sorted.sort_by_key(|total| Reverse(total.value.hits()));
    let shown = |total: &&Total| all || !total.is_idle();
    let mut out = String::new();
    if !totals.ended.is_empty() {
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "{}", totals.ended);
    }
    for line in ProcessEnd::lines(&totals.ends) {
        let _infallible = writeln!(out, "{line}");
    }
    for gap in &totals.gaps {
        let _infallible = writeln!(out, "{gap}");
    }
    for total in sorted.iter().copied().filter(shown) {
        let place = place(metadata, total.placement, &total.instrument);
        // Writing to a String cannot fail.
        let _infallible = put(
            &mut out,
            total,
            &format!("@{} of {place}", total.name),
            (clock, totals),
        );
    }
    match sorted.iter().filter(|total| !shown(total)).count() {
        0 => {}
        idle => {
            let _infallible = writeln!(out, "{}", scale::others(idle, "0 or no value"));
        }
    }
    let failures = [
        (&totals.failed_reads, "reads by", "failed and yielded 0"),
        (
            &totals.no_room,
            "values of",
            "were lost for want of storage",
        ),
    ];
    for (counts, what, end) in failures {
        let mut counts: Vec<&Counted> = counts.iter().filter(|of| of.count > 0).collect();
        counts.sort_by_key(|of| Reverse(of.count));
        for of in counts {
            let place = place(metadata, of.placement, &of.instrument);
            let count = scale::grouped(of.count);
            let _infallible = writeln!(out, "{count:>14}  {what} {place} {end}");
        }
    }
    for (count, what) in [
        (totals.stacks.lost, KeptStacks::LOST),
        (totals.stacks.unnamed(), KeptStacks::UNNAMED),
    ] {
        if count > 0 {
            let _infallible = writeln!(out, "{:>14}  {what}", scale::grouped(count));
        }
    }
    for limit in &totals.stacks.limits {
        let _infallible = writeln!(out, "{limit}");
    }
    for line in totals.cost.iter().flat_map(cost) {
        let _infallible = writeln!(out, "{line}");
    }
    if let Some(numbers) = &totals.cache {
        let _infallible = writeln!(out, "{}", cache(numbers));
    }
    out
}

/// Returns each number of a code cache as text, and the words for what it counts.
#[must_use]
pub fn cache_lines(numbers: &CacheNumbers) -> Vec<(String, &'static str)> {
    let counted = [
        (numbers.bytes, "bytes of translated code"),
        (numbers.missed, "targets missed"),
        (
            numbers.stepped,
            "instructions executed in the original code",
        ),
        (numbers.signals, "signals"),
        (numbers.flushes, "flushes"),
        (numbers.writes, "writes of translated code"),
        (numbers.dropped, "translations dropped"),
    ];
    let time = format!("{:.1} ms", numbers.translating_ns as f64 / 1e6);
    let mut lines = vec![
        (scale::grouped(numbers.blocks), "blocks translated"),
        (scale::grouped(numbers.translations), "translations"),
        (time, "of translating"),
    ];
    lines.extend(counted.map(|(count, words)| (scale::grouped(count), words)));
    if let Some(calls) = numbers.calls {
        lines.push((scale::grouped(calls), "calls executed in the cache"));
    }
    if let Some(others) = numbers.other_calls {
        let words = "calls for which the condition did not hold";
        lines.push((scale::grouped(others), words));
    }
    if let Some(failed @ 1..) = numbers.failed_reads {
        let words = "reads of memory for the condition that failed";
        lines.push((scale::grouped(failed), words));
    }
    lines
}

/// Returns the numbers of a code cache in a sentence: *Code cache: 77,769 blocks translated, …*
#[must_use]
pub fn cache(numbers: &CacheNumbers) -> String {
    let lines = cache_lines(numbers).into_iter();
    let lines: Vec<String> = lines
        .map(|(value, words)| format!("{value} {words}"))
        .collect();
    format!("Code cache: {}.", lines.join(", "))
}

/// Returns the sentences about a session's cost: the prediction, then what its hits took.
#[must_use]
pub fn cost(cost: &SessionCost) -> Vec<String> {
    let mut lines = vec![
        format!(
            "Predicted by {} of counting: {}.",
            scale::duration(cost.counted_for),
            hits_cost(cost.predicted, cost.planned_for)
        ),
        format!(
            "Estimated from the hits of the run: {}.",
            hits_cost(cost.estimated, cost.ran_for)
        ),
    ];
    if cost.silent > 0 {
        lines.push(match cost.silent {
            1 => "1 instrument does not report how often it was hit: both numbers have its predicted hits.".to_owned(),
            many => format!(
                "{many} instruments do not report how often they were hit: both numbers have their predicted hits."
            ),
        });
    }
    lines
}

/// Returns hits, their time, and its share of a processor in so many seconds.
#[must_use]
pub fn hits_cost(cost: HitsCost, in_seconds: f64) -> String {
    format!(
        "{}, {} of processor time, {:.3} % of a processor",
        scale::counted(cost.hits.round() as u64, "hit"),
        scale::duration(cost.seconds),
        100.0 * cost.seconds / in_seconds.max(f64::MIN_POSITIVE)
    )
}

/// Returns a number as a symbol or stack, if the recording names it, or as an address, if it is one of the kernel's half
/// of the address space, where it would have twenty digits.
fn address(totals: &Totals, number: i128) -> Option<String> {
    let address = u64::try_from(number).ok()?;
    let symbol = totals.symbols.get(&address).cloned();
    symbol
        .or_else(|| totals.stacks.title(number))
        .or_else(|| (address >= KERNEL).then(|| format!("{address:#x}")))
}

/// Returns instrument, hook and function of a placement.
fn place(metadata: &Metadata, placement: usize, instrument: &str) -> String {
    let place = metadata.placement(placement);
    place.unwrap_or_else(|| instrument.to_owned())
}

fn put(
    out: &mut String,
    total: &Total,
    named: &str,
    (clock, totals): (&Clock, &Totals),
) -> std::fmt::Result {
    let words = |number: i128| scale::amount(number, &total.unit, clock);
    match &total.value {
        TotalValue::Number(number) => writeln!(out, "{:>14}  {named}", words(*number)),
        TotalValue::Mean(mean) => {
            writeln!(
                out,
                "{:>14}  {named}",
                scale::mean(*mean, &total.unit, clock)
            )
        }
        TotalValue::Nothing => writeln!(out, "{:>14}  {named}", "none"),
        TotalValue::Values(values, others) => {
            writeln!(out, "{:>14}  {named}:", values.len())?;
            for (value, count) in values {
                let name = address(totals, *value).unwrap_or_else(|| words(*value));
                writeln!(out, "{:>14}  × {name}", scale::grouped(*count))?;
                totals.stacks.write(out, [*value], FRAMES)?;
            }
            if *others > 0 {
                writeln!(out, "{:>14}  × other values", scale::grouped(*others))?;
            }
            Ok(())
        }
        TotalValue::Map(rows, others) => {
            writeln!(out, "{:>14}  {named}, by key:", rows.len())?;
            // A key has no unit.
            let part = |number| address(totals, number).unwrap_or_else(|| scale::grouped(number));
            let key = |row: &TotalRow| row.key_by(part);
            for row in rows {
                match &row.value {
                    TotalValue::Buckets(buckets) => {
                        let count = scale::grouped(row.value.hits());
                        writeln!(out, "{count:>14}  {}:", key(row))?;
                        totals.stacks.write(out, row.numbers(), FRAMES)?;
                        bars::write(out, buckets, WIDTHS, words)?;
                    }
                    TotalValue::Mean(mean) => {
                        let mean = scale::mean(*mean, &total.unit, clock);
                        writeln!(out, "{mean:>14}  {}", key(row))?;
                    }
                    TotalValue::Number(number) => {
                        writeln!(out, "{:>14}  {}", words(*number), key(row))?;
                    }
                    other => writeln!(out, "{:>14}  {}", other.hits(), key(row))?,
                }
                if !matches!(row.value, TotalValue::Buckets(_)) {
                    totals.stacks.write(out, row.numbers(), FRAMES)?;
                }
            }
            if *others > 0 {
                let others = scale::grouped(*others);
                writeln!(out, "{others:>14}  values of other keys")?;
            }
            Ok(())
        }
        TotalValue::Buckets(buckets) => {
            let count = scale::grouped(total.value.hits());
            writeln!(out, "{count:>14}  {named}:")?;
            bars::write(out, buckets, WIDTHS, words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meaning;
    use crate::metadata::{Delivers, InstrumentInfo, Placed};
    use crate::totals::{Gap, KeyPart, TotalBucket};

    #[test]
    fn keys_are_printed_with_their_totals() {
        let row = |key: Vec<KeyPart>, value| TotalRow { key, value };
        let name = |text: &str| KeyPart::Text(text.to_owned());
        let bucket = TotalBucket {
            from: Some(4),
            to: Some(7),
            count: 3,
        };
        let rows = vec![
            row(
                vec![name("dd"), KeyPart::Number(-1)],
                TotalValue::Number(1234),
            ),
            row(vec![name("sh"), KeyPart::Number(2)], TotalValue::Mean(1.5)),
            row(vec![name("sh")], TotalValue::Buckets(vec![bucket])),
        ];
        let totals = Totals {
            added_up: vec![total(0, "by", "bytes", TotalValue::Map(rows, 2))],
            ..Totals::default()
        };
        let text = text(&totals, &metadata(), false);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines[..4],
            [
                "3  @by of sizes pre vfs_read block 0, by key:",
                "1,234 bytes  dd, -1",
                "1.50 bytes  sh, 2",
                "3  sh:",
            ]
        );
        assert!(lines[4].starts_with("3  4 bytes to 7 bytes"), "{text}");
        assert_eq!(lines[5..], ["2  values of other keys"]);
    }

    fn total(placement: usize, name: &str, unit: &str, value: TotalValue) -> Total {
        Total {
            placement,
            instrument: "sizes".to_owned(),
            name: name.to_owned(),
            unit: unit.to_owned(),
            may_be_zero: false,
            value,
        }
    }

    /// Returns metadata of three placements, the second of two hooks.
    fn metadata() -> Metadata {
        let info = |placement, hook: &str| InstrumentInfo {
            id: 0,
            label: format!("sizes {hook}"),
            instrument: "sizes".to_owned(),
            meaning: Meaning::Value,
            unit: "bytes".to_owned(),
            launch: 0.0,
            splash: 1.0,
            placed: Some(Placed {
                placement,
                function: "vfs_read".to_owned(),
                major: 0,
            }),
            delivers: Delivers::Totals,
        };
        Metadata {
            clock: Clock {
                hz: 1_000_000,
                ..Clock::default()
            },
            instruments: vec![
                info(0, "pre vfs_read block 0"),
                info(1, "pre vfs_read block 0"),
                info(1, "post vfs_read block 9"),
                info(2, "pre vfs_write block 0"),
            ],
            ..Metadata::default()
        }
    }

    #[test]
    fn totals_are_sorted_and_name_function_and_hook() {
        let totals = Totals {
            added_up: vec![
                total(0, "n", "", TotalValue::Number(0)),
                total(0, "sum", "bytes", TotalValue::Number(-7)),
                total(1, "waits", "ticks", TotalValue::Number(1_234)),
                total(2, "mean", "ticks", TotalValue::Mean(1.5)),
                total(2, "never", "bytes", TotalValue::Nothing),
                Total {
                    may_be_zero: true,
                    ..total(0, "least", "bytes", TotalValue::Number(0))
                },
            ],
            ..Totals::default()
        };
        let lines = [
            "       1.23 ms  @waits of sizes of vfs_read",
            "      -7 bytes  @sum of sizes pre vfs_read block 0",
            "       1.50 µs  @mean of sizes pre vfs_write block 0",
            "       0 bytes  @least of sizes pre vfs_read block 0",
            "2 others: 0 or no value",
        ];
        let text_of = |all| text(&totals, &metadata(), all);
        assert!(text_of(false).lines().eq(lines), "{}", text_of(false));
        assert_eq!(text_of(true).lines().count(), 6);
    }

    /// Recordings of earlier versions have a text in the place of ends.
    #[test]
    fn an_earlier_footer_is_read() {
        let footer = r#"{"added_up":[],"ended":"process 5 a: The process has ended. "}"#;
        let totals: Totals = serde_json::from_str(footer).unwrap();
        assert!(totals.ends.is_empty() && !totals.is_empty());
        let shown = text(&totals, &Metadata::default(), false);
        assert_eq!(shown, "process 5 a: The process has ended. \n");
    }

    #[test]
    fn a_time_without_instruments_is_a_sentence() {
        let mut gap = Gap {
            out: 1.25,
            why: "a live patch changed the kernel".to_owned(),
            ..Gap::default()
        };
        assert_eq!(
            gap.to_string(),
            "No instrument is in place from 1.250 s on: a live patch changed the kernel."
        );
        (gap.back, gap.left_out) = (Some(2.5), 3);
        gap.replaced = vec!["vfs_read".to_owned(), "vfs_write".to_owned()];
        let totals = Totals {
            gaps: vec![gap],
            ..Totals::default()
        };
        assert!(!totals.is_empty());
        assert_eq!(
            text(&totals, &metadata(), false),
            "No instrument was in place from 1.250 s to 2.500 s: a live patch changed the kernel. After that 3 of \
             them were left out, since it replaces vfs_read, vfs_write.\n"
        );
    }

    #[test]
    fn a_predicted_cost_is_printed_next_to_that_of_the_run() {
        let mut cost = SessionCost {
            counted_for: 2.0,
            planned_for: 10.0,
            ran_for: 5.0,
            silent: 2,
            ..SessionCost::default()
        };
        cost.predicted.add(2e6, 500.0);
        cost.estimated.add(1_234_567.0, 500.0);
        let mut totals = Totals {
            cost: Some(cost),
            ..Totals::default()
        };
        assert!(!totals.is_empty());
        let lines = [
            "Predicted by 2 s of counting: 2,000,000 hits, 1 s of processor time, 10.000 % of a processor.",
            "Estimated from the hits of the run: 1,234,567 hits, 617 ms of processor time, 12.346 % of a processor.",
            "2 instruments do not report how often they were hit: both numbers have their predicted hits.",
        ];
        let printed = text(&totals, &metadata(), false);
        assert!(printed.lines().eq(lines), "{printed}");
        // It is of all instruments.
        totals.retain(|_| true);
        assert!(totals.is_empty());
    }

    #[test]
    fn histograms_and_values_are_printed_line_by_line() {
        let bucket = |from: i128, count| TotalBucket {
            from: Some(from),
            to: Some(2 * from - 1),
            count,
        };
        let buckets = [
            bucket(1, 0),
            bucket(2, u64::MAX - 1),
            bucket(4, 0),
            bucket(8, 1),
            bucket(16, 0),
        ];
        let counted = |count| {
            vec![Counted {
                placement: 0,
                instrument: "sizes".to_owned(),
                count,
            }]
        };
        let totals = Totals {
            added_up: vec![
                total(0, "lengths", "bytes", TotalValue::Buckets(buckets.to_vec())),
                total(
                    0,
                    "seen",
                    "",
                    TotalValue::Values(vec![(0xffff_ffff_8123_4567, 50), (7, 41)], 5),
                ),
            ],
            failed_reads: counted(3),
            symbols: [(0xffff_ffff_8123_4567, "vfs_read+0x7".to_owned())].into(),
            no_room: counted(2),
            ..Totals::default()
        };
        let text = text(&totals, &metadata(), false);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let bars: Vec<usize> = lines.iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [0, 40, 0, 1, 0, 0, 0, 0, 0, 0], "{text}");
        assert!(lines[1].contains("2 bytes to 3 bytes"), "{text}");
        assert_eq!(
            lines[5..],
            [
                "50  × vfs_read+0x7",
                "41  × 7",
                "5  × other values",
                "3  reads by sizes pre vfs_read block 0 failed and yielded 0",
                "2  values of sizes pre vfs_read block 0 were lost for want of storage"
            ]
        );
    }
}
