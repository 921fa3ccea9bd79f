//! Histograms as text.

use super::scale::grouped;
use crate::totals::TotalBucket;

/// Length of the longest bar.
const BAR: u64 = 40;

/// Writes a line per bucket, from the first one with values to the last, with columns of these widths for counts and
/// ranges.
///
/// # Errors
/// Those of `out`: none for a String.
pub fn write(
    out: &mut impl std::fmt::Write,
    buckets: &[TotalBucket],
    [counts, ranges]: [usize; 2],
    words: impl Fn(i128) -> String,
) -> std::fmt::Result {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    let is_empty = |bucket: &&TotalBucket| bucket.count == 0;
    let from = buckets.iter().take_while(is_empty).count();
    let trailing = buckets.iter().rev().take_while(is_empty).count();
    let shown = buckets.len().saturating_sub(from + trailing);
    for bucket in buckets.iter().skip(from).take(shown) {
        let length = (u128::from(bucket.count) * u128::from(BAR)).div_ceil(most.max(1).into());
        let bar = "#".repeat(usize::try_from(length).unwrap_or(0));
        let range = match (bucket.from, bucket.to) {
            (Some(from), Some(to)) if from == to => words(from),
            (Some(from), Some(to)) => format!("{} to {}", words(from), words(to)),
            (Some(from), None) => format!("{} and more", words(from)),
            (None, Some(to)) => format!("up to {}", words(to)),
            (None, None) => "all".to_owned(),
        };
        let count = grouped(bucket.count);
        let line = format!("{count:>counts$}  {range:<ranges$} {bar}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
