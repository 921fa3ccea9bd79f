//! Decodes the values and their counts from the sums of their buckets.

use std::collections::BTreeMap;

use super::Aggregate;

/// The sums of one bucket.
#[derive(Clone, Copy, PartialEq)]
struct Bucket([u64; 4]);

impl Bucket {
    /// The value, if only one came here, and how often.
    fn only(self, place: u32, table: u32, room_log2: u32) -> Option<(u64, u64)> {
        let Self([count, low, high, mark]) = self;
        if count == 0 || low % count != 0 || high % count != 0 {
            return None;
        }
        let (low, high) = (low / count, high / count);
        let value = (low <= 0xffff_ffff && high <= 0xffff_ffff).then_some(high << 32 | low)?;
        let alike = Aggregate::mark(value).wrapping_mul(count) == mark
            && Aggregate::place(room_log2, table, value) == place;
        alike.then_some((value, count))
    }

    fn without(self, value: u64, count: u64) -> Option<Self> {
        let mut left = self.0;
        for (sum, part) in left.iter_mut().zip(Aggregate::parts(value)) {
            *sum = sum.wrapping_sub(part.wrapping_mul(count));
        }
        let fits = self.0.first() >= Some(&count);
        fits.then_some(Self(left))
    }
}

/// Returns the values with their counts, and the number of occurrences that cannot be decoded.
pub(super) fn decode(room_log2: u32, sums: &[u64]) -> (BTreeMap<u64, u64>, u64) {
    let room = 1_u32 << room_log2;
    let at = |place: u32, sum: u32| sums.get((place + (sum << room_log2)) as usize).copied();
    let bucket = |place| Bucket([0, 1, 2, 3].map(|sum| at(place, sum).unwrap_or(0)));
    let mut buckets: Vec<Bucket> = (0..room).map(bucket).collect();
    let mut seen = BTreeMap::<u64, u64>::new();
    // A value that was taken out may leave another one alone.
    let mut looked: Vec<u32> = (0..room).collect();
    while let Some(place) = looked.pop() {
        let table = u32::from(place >= room / 2);
        let bucket = buckets.get(place as usize).copied();
        let Some((value, count)) = bucket.and_then(|one| one.only(place, table, room_log2)) else {
            continue;
        };
        let other = Aggregate::place(room_log2, 1 - table, value);
        // While sums are read they change: what is in one table only stays where it is.
        let there = buckets
            .get(other as usize)
            .and_then(|one| one.without(value, count));
        if let (Some(there), Some(left)) = (there, buckets.get_mut(other as usize)) {
            *left = there;
            if let Some(here) = buckets.get_mut(place as usize) {
                *here = Bucket([0; 4]);
            }
            *seen.entry(value).or_default() += count;
            looked.push(other);
        }
    }
    let first = buckets.iter().take(room as usize / 2);
    (seen, first.map(|Bucket([count, ..])| count).sum())
}
