//! Histograms with a relative bucket width of at most 1/64.

/// Binary logarithm of the buckets per power of two.
const BITS: u32 = 6;

/// Counts of values. The buckets between minimum and maximum take memory, at most 30 KB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Index of the first bucket in `counts`.
    first: usize,
    total: u64,
}

/// Values that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Minimum, inclusive.
    pub from: u64,
    /// Maximum, inclusive.
    pub to: u64,
    /// Number of values.
    pub count: u64,
}

/// Returns the bucket of a value. Values below 64 have a bucket each; every power of two above has
/// 64 buckets.
fn bucket(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(BITS + 1);
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// Returns the greatest value in a bucket.
fn top(bucket: usize) -> u64 {
    let shift = (bucket >> BITS).saturating_sub(1) as u32;
    let mantissa = bucket as u64 - (u64::from(shift) << BITS);
    (((u128::from(mantissa) + 1) << shift) - 1) as u64
}

impl Histogram {
    /// Returns an empty histogram.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Counts a value `count` times.
    pub fn add_many(&mut self, value: u64, count: u64) {
        let bucket = bucket(value);
        if self.counts.is_empty() {
            self.first = bucket;
        }
        if bucket < self.first {
            let more = self.first - bucket;
            self.counts.splice(..0, std::iter::repeat_n(0, more));
            self.first = bucket;
        }
        let at = bucket - self.first;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        match self.counts.get_mut(at) {
            Some(bucket) => *bucket += count,
            None => debug_assert!(false, "bucket {at} is beyond the counts"),
        }
        self.total += count;
    }

    /// Returns the number of counted values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the non-empty buckets in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        let numbered = (self.first..).zip(&self.counts);
        numbered
            .filter(|(_, count)| **count > 0)
            .map(|(number, &count)| Bucket {
                from: number.checked_sub(1).map_or(0, |below| top(below) + 1),
                to: top(number),
                count,
            })
    }

    /// Returns the value at `rank` (0 is the minimum) in sorted order, at most 1.6 % too great; 0
    /// without values.
    #[must_use]
    pub fn nth(&self, rank: u64) -> u64 {
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen > rank
        });
        found.map_or(0, |at| top(self.first + at))
    }

    /// Returns the smallest value that a `share` (0 to 1) of all values do not exceed, at most 1.6
    /// % too great.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        self.nth(rank(self.total, share))
    }

    /// Returns the probability that a value of `other` is greater than one of `self`, where equal
    /// counts half: 0.5 if they do not differ (Vargha and Delaney's A). Values in one bucket count
    /// as equal. `None` if either is empty.
    #[must_use]
    pub fn superiority(&self, other: &Self) -> Option<f64> {
        if self.total == 0 || other.total == 0 {
            return None;
        }
        let mut below = 0u64;
        let mut mine = (self.first..).zip(&self.counts).peekable();
        let mut wins = 0.0;
        for (number, &count) in (other.first..).zip(&other.counts) {
            while let Some((_, more)) = mine.next_if(|(at, _)| *at < number) {
                below += more;
            }
            let equal = match mine.peek() {
                Some((at, equal)) if *at == number => **equal,
                _ => 0,
            };
            wins += count as f64 * (below as f64 + equal as f64 / 2.0);
        }
        Some(wins / (self.total as f64 * other.total as f64))
    }
}

/// Returns the zero-based rank of a quantile (nearest rank) of `count` values.
#[must_use]
pub fn rank(count: u64, share: f64) -> u64 {
    // Rounding must not lift 0.5 of 100 to the rank above: a millionth of a rank is tolerated.
    let rank = (count as f64 * share - 1e-6).ceil().max(1.0) as u64;
    rank.min(count).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.add(value));
        histogram
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(prop_oneof![0u64..200, any::<u64>()], 1..300)
    }

    proptest! {
        #[test]
        fn a_value_is_in_its_bucket(value: u64) {
            let number = bucket(value);
            prop_assert!(value <= top(number));
            prop_assert!(number == 0 || value > top(number - 1));
            let found: Vec<Bucket> = of(&[value]).buckets().collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert!((found[0].from..=found[0].to).contains(&value));
            prop_assert!(found[0].to - found[0].from <= value / 64);
        }

        #[test]
        fn every_rank_is_exact_or_slightly_above(values in values()) {
            let histogram = of(&values);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!(histogram.count(), values.len() as u64);
            for (rank, &exact) in (0..).zip(&sorted) {
                let found = histogram.nth(rank);
                prop_assert!(found >= exact && found - exact <= exact / 64);
            }
            prop_assert_eq!(histogram.buckets().map(|bucket| bucket.count).sum::<u64>(), values.len() as u64);
        }

        #[test]
        fn superiority_equals_a_comparison_of_all_pairs(
            mine in prop::collection::vec(0u64..60, 1..40), other in prop::collection::vec(0u64..60, 1..40),
        ) {
            let mut wins = 0.0;
            for a in &mine {
                for b in &other {
                    wins += if b > a { 1.0 } else if b == a { 0.5 } else { 0.0 };
                }
            }
            let wanted = wins / (mine.len() * other.len()) as f64;
            let found = of(&mine).superiority(&of(&other)).unwrap();
            prop_assert!((found - wanted).abs() < 1e-9);
        }
    }

    #[test]
    fn ranks_are_the_nearest() {
        assert_eq!(
            [0.0, 0.01, 0.5, 0.505, 0.99, 1.0].map(|share| rank(100, share)),
            [0, 0, 49, 50, 98, 99]
        );
        assert_eq!(rank(0, 0.5), 0);
    }
}
