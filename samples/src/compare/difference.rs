//! Test of two series for a difference, and its size.
//!
//! The test is that of Mann and Whitney (1947), with its estimate of the shift (Hodges and Lehmann,
//! 1963): it assumes nothing about the distributions and tolerates outliers. It assumes independent
//! numbers, which a kernel's are not: consecutive samples are alike. So the series are slices of
//! time instead of samples, and the variance grows with the remaining correlation `r` of
//! neighbouring slices by `(1 + r) / (1 - r)`, as for a first-order autoregression.

/// Minimum number of slices on either side for a test.
pub(super) const FEWEST: usize = 8;
/// Two-sided 95 % quantile of a normal distribution.
const Z95: f64 = 1.959_963_985;

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shift {
    /// Shift from `a` to `b`: the median of all differences.
    pub(super) by: f64,
    /// Confidence interval of `by`, at 95 %.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Probability of a difference at least as great if there were none.
    pub(super) p: f64,
    /// Correlation of neighbours, 0 to 1.
    pub(super) correlation: f64,
}

/// Compares two series, each in order of time; `None` if one is shorter than [`FEWEST`].
pub(super) fn shift(a: &[f64], b: &[f64]) -> Option<Shift> {
    if a.len() < FEWEST || b.len() < FEWEST {
        return None;
    }
    let (n, m) = (a.len() as f64, b.len() as f64);
    let (ranks, ties) = ranks(a, b);
    let (of_a, of_b) = ranks.split_at_checked(a.len())?;
    let weighted = correlation(of_a) * n + correlation(of_b) * m;
    let correlation = (weighted / (n + m)).clamp(0.0, 0.95);
    let inflation = (1.0 + correlation) / (1.0 - correlation);
    let u = of_b.iter().sum::<f64>() - m * (m + 1.0) / 2.0;
    let all = n + m;
    let variance = n * m / 12.0 * (all + 1.0 - ties / (all * (all - 1.0))) * inflation;
    let mut differences: Vec<f64> = Vec::with_capacity(a.len() * b.len());
    for x in a {
        differences.extend(b.iter().map(|y| y - x));
    }
    differences.sort_unstable_by(f64::total_cmp);
    let last = differences.len().saturating_sub(1);
    let at = |place: f64| {
        let place = (place.max(0.0) as usize).min(last);
        differences.get(place).copied().unwrap_or_default()
    };
    let half = Z95 * variance.sqrt();
    let by = (at((last / 2) as f64) + at(last.div_ceil(2) as f64)) / 2.0;
    // Continuity correction: U takes integer values.
    let distance = ((u - n * m / 2.0).abs() - 0.5).max(0.0);
    let p = if variance > 0.0 {
        erfc(distance / variance.sqrt() / std::f64::consts::SQRT_2)
    } else {
        1.0
    };
    Some(Shift {
        by,
        low: at((n * m / 2.0 - half).floor()),
        high: at((n * m / 2.0 + half).ceil()),
        p: p.min(1.0),
        correlation,
    })
}

/// Returns the ranks of all numbers, those of `a` first, ties at their mean, and the sum of `t³ -
/// t` over the ties.
fn ranks(a: &[f64], b: &[f64]) -> (Vec<f64>, f64) {
    let mut sorted: Vec<(f64, usize)> = a.iter().chain(b).copied().zip(0..).collect();
    sorted.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let mut ranks = vec![0.0; sorted.len()];
    let (mut before, mut ties) = (0.0, 0.0);
    for equal in sorted.chunk_by(|x, y| x.0 == y.0) {
        let t = equal.len() as f64;
        ties += t * t * t - t;
        for &(_, place) in equal {
            if let Some(rank) = ranks.get_mut(place) {
                *rank = before + (t + 1.0) / 2.0;
            }
        }
        before += t;
    }
    (ranks, ties)
}

/// Returns the correlation of each number with its predecessor, without the bias of short series.
fn correlation(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let mean = series.iter().sum::<f64>() / n;
    let squares: f64 = series.iter().map(|x| (x - mean).powi(2)).sum();
    if squares == 0.0 {
        return 0.0;
    }
    let pairs = series.iter().zip(series.iter().skip(1));
    let products: f64 = pairs.map(|(x, y)| (x - mean) * (y - mean)).sum();
    let found = products / squares;
    // Kendall's: the estimate is too low by (1 + 3 r) / n.
    found + (1.0 + 3.0 * found) / n
}

/// Returns the complementary error function, to 1.2e-7 of its value (Chebyshev fit; Press et al.,
/// Numerical Recipes, 6.2).
fn erfc(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    let fit = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let exponent = fit.iter().fold(0.0, |sum, factor| sum * t + factor);
    let tail = t * (-x * x + exponent).exp();
    if x >= 0.0 { tail } else { 2.0 - tail }
}

/// Adjusts probabilities for multiple tests: of 100 tests, five are below 0.05 by chance. By Holm's
/// procedure (1979) the probability that any reported difference is false stays as stated.
pub(super) fn adjusted(chances: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<(f64, usize)> = chances.iter().copied().zip(0..).collect();
    sorted.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
    let mut adjusted = vec![1.0; chances.len()];
    let mut greatest: f64 = 0.0;
    for (left, (p, place)) in (1..=chances.len()).rev().zip(sorted) {
        greatest = greatest.max((p * left as f64).min(1.0));
        adjusted
            .get_mut(place)
            .into_iter()
            .for_each(|p| *p = greatest);
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    struct UniformRandom(u64);

    impl UniformRandom {
        /// Returns a number uniform in 0 to 1.
        fn next(&mut self) -> f64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }

        /// Returns a series whose neighbours correlate by `r`, of skewed numbers, as durations are.
        fn series(&mut self, n: usize, r: f64) -> Vec<f64> {
            let mut now = 0.0;
            let mut next = || {
                let noise: f64 = (0..6).map(|_| self.next()).sum::<f64>() - 3.0;
                now = r * now + noise;
                now
            };
            (0..30).for_each(|_| {
                next();
            });
            (0..n).map(|_| next().exp()).collect()
        }
    }

    /// Returns how often two series of one process are reported as different at 5 %.
    fn false_alarms(n: usize, r: f64) -> f64 {
        let mut random = UniformRandom(0x1234_5678_9abc_def1);
        let rounds = 2000;
        let alarms = (0..rounds).filter(|_| {
            let (a, b) = (random.series(n, r), random.series(n, r));
            shift(&a, &b).unwrap().p < 0.05
        });
        alarms.count() as f64 / f64::from(rounds)
    }

    #[test]
    fn equal_series_are_rarely_reported_as_different() {
        let independent = false_alarms(40, 0.0);
        assert!((0.01..=0.06).contains(&independent), "{independent}");
        // Without the inflation it would be 30 of 100 at 0.6.
        for r in [0.3, 0.6] {
            let alarms = false_alarms(40, r);
            assert!(alarms <= 0.085, "{alarms} at a likeness of {r}");
        }
    }

    #[test]
    fn a_shift_is_found_and_its_interval_contains_the_truth() {
        let mut random = UniformRandom(99);
        let (mut found, mut held) = (0, 0);
        for _ in 0..500 {
            let a = random.series(40, 0.3);
            let b: Vec<f64> = random.series(40, 0.3).iter().map(|x| x + 1.0).collect();
            let shift = shift(&a, &b).unwrap();
            found += i32::from(shift.p < 0.05);
            held += i32::from((shift.low..=shift.high).contains(&1.0));
            assert!(shift.low <= shift.by && shift.by <= shift.high);
        }
        assert!(found > 450, "{found} of 500 found");
        assert!(
            (455..=500).contains(&held),
            "{held} of 500 intervals hold it"
        );
    }

    #[test]
    fn published_values_are_reproduced() {
        // erfc(1.96 / √2) is 0.05.
        assert!((erfc(1.959_963_985 / std::f64::consts::SQRT_2) - 0.05).abs() < 1e-7);
        assert!((erfc(0.0) - 1.0).abs() < 1e-6 && (erfc(-3.0) - 1.999_977_91).abs() < 1e-6);
        // U of 1..=8 and 9..=16 is maximal: 64.
        let (a, b): (Vec<f64>, Vec<f64>) = (
            (1..=8).map(f64::from).collect(),
            (9..=16).map(f64::from).collect(),
        );
        let (of, ties) = ranks(&a, &b);
        assert_eq!((of.iter().skip(8).sum::<f64>() - 36.0, ties), (64.0, 0.0));
        assert_eq!(
            ranks(&[1.0, 2.0, 2.0], &[2.0, 3.0]),
            (vec![1.0, 3.0, 3.0, 3.0, 5.0], 24.0)
        );
        assert_eq!(adjusted(&[0.01, 0.04, 0.03, 0.5]), [0.04, 0.09, 0.09, 0.5]);
        assert_eq!(shift(&[1.0; 7], &[1.0; 40]), None);
        assert_eq!(shift(&[1.0; 9], &[1.0; 9]).unwrap().p, 1.0);
    }
}
