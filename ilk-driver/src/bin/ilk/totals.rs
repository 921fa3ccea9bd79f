//! The text of instruments' totals, at the end of a run and of a recording.

use std::fmt::Write as _;

use gilk_samples::totals::{Total, TotalBucket, TotalValue, Totals};

/// Length of the longest bar.
const BAR: u64 = 40;

/// Returns a line per number, and a line per bucket and per value.
pub(crate) fn text(totals: &Totals) -> String {
    let mut out = String::new();
    for total in &totals.added_up {
        // Writing to a String cannot fail.
        let _infallible = put(&mut out, total);
    }
    for failed in totals.failed_reads.iter().filter(|failed| failed.count > 0) {
        let _infallible = writeln!(
            out,
            "{:>12} reads by {} failed and yielded 0",
            failed.count, failed.instrument
        );
    }
    for lost in totals.no_room.iter().filter(|lost| lost.count > 0) {
        let _infallible = writeln!(
            out,
            "{:>12} values of {} were lost for want of storage",
            lost.count, lost.instrument
        );
    }
    out
}

fn put(out: &mut String, total: &Total) -> std::fmt::Result {
    let named = format!("@{} of {}", total.name, total.instrument);
    let unit = &total.unit;
    match &total.value {
        TotalValue::Number(number) => writeln!(out, "{number:>12} {unit:<8} {named}"),
        TotalValue::Mean(mean) => writeln!(out, "{mean:>12.1} {unit:<8} {named}"),
        TotalValue::Nothing => writeln!(out, "{:>12} {:<8} {named}", "none", ""),
        TotalValue::Values(values, others) => {
            writeln!(out, "{:>12} {unit:<8} {named}", "")?;
            for (value, count) in values {
                writeln!(out, "{count:>12}   {value}")?;
            }
            if *others > 0 {
                writeln!(out, "{others:>12}   of other values")?;
            }
            Ok(())
        }
        TotalValue::Buckets(buckets) => {
            writeln!(out, "{:>12} {unit:<8} {named}", "")?;
            let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
            let is_empty = |bucket: &&TotalBucket| bucket.count == 0;
            let from = buckets.iter().take_while(is_empty).count();
            let trailing = buckets.iter().rev().take_while(is_empty).count();
            let shown = buckets.len().saturating_sub(from + trailing);
            for bucket in buckets.iter().skip(from).take(shown) {
                let length =
                    (u128::from(bucket.count) * u128::from(BAR)).div_ceil(most.max(1).into());
                let bar = "#".repeat(usize::try_from(length).unwrap_or(0));
                let end = |end: Option<i128>| end.map_or(String::new(), |end| end.to_string());
                writeln!(
                    out,
                    "{:>12}   {:>20} to {:<20} {bar}",
                    bucket.count,
                    end(bucket.from),
                    end(bucket.to)
                )?;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gilk_samples::totals::Counted;

    #[test]
    fn totals_are_printed_line_by_line() {
        let total = |name: &str, value| Total {
            placement: 0,
            instrument: "sizes".to_owned(),
            name: name.to_owned(),
            unit: "bytes".to_owned(),
            value,
        };
        let bucket = |from: i128, count| TotalBucket {
            from: Some(from),
            to: Some(2 * from - 1),
            count,
        };
        let buckets = [
            bucket(1, 0),
            bucket(2, u64::MAX),
            bucket(4, 0),
            bucket(8, 1),
            bucket(16, 0),
        ];
        let totals = Totals {
            added_up: vec![
                total("sum", TotalValue::Number(-7)),
                total("lengths", TotalValue::Buckets(buckets.to_vec())),
                total("seen", TotalValue::Values(vec![(7, 41)], 5)),
            ],
            failed_reads: vec![Counted {
                placement: 0,
                instrument: "sizes".to_owned(),
                count: 3,
            }],
            no_room: vec![Counted {
                placement: 0,
                instrument: "sizes".to_owned(),
                count: 2,
            }],
        };
        let text = text(&totals);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(lines.first(), Some(&"-7 bytes    @sum of sizes"));
        let bars: Vec<usize> = lines.iter().map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [0, 0, 40, 0, 1, 0, 0, 0, 0, 0], "{text}");
        let end = lines.get(6..);
        assert_eq!(
            end,
            Some(
                &[
                    "41   7",
                    "5   of other values",
                    "3 reads by sizes failed and yielded 0",
                    "2 values of sizes were lost for want of storage"
                ][..]
            )
        );
    }
}
