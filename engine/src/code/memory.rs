//! Live bytes, by address.

use crate::{Addr, Span};

/// Bytes of memory of which the reader of an image has checked that they were read: that they are missing is a
/// defect.
pub(crate) fn present(bytes: Option<&[u8]>) -> &[u8] {
    debug_assert!(bytes.is_some(), "memory that was checked is missing");
    bytes.unwrap_or_default()
}

/// Regions sorted by address; none touches the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<(Addr, Vec<u8>)>,
}

impl Memory {
    /// Takes the regions in any order and joins those that touch. Where two overlap, the bytes of
    /// the one that begins first are kept.
    pub(crate) fn new<'p>(parts: impl Iterator<Item = (Addr, &'p [u8])>) -> Self {
        let mut sorted: Vec<(Addr, &[u8])> = parts.filter(|(_, bytes)| !bytes.is_empty()).collect();
        sorted.sort_by_key(|(at, _)| *at);
        let mut regions: Vec<(Addr, Vec<u8>)> = Vec::new();
        for (at, bytes) in sorted {
            if let Some((first, joined)) = regions.last_mut() {
                let end = first.add(joined.len() as u64);
                if at <= end {
                    // A region that lies within another has nothing more.
                    let known = usize::try_from(end.0 - at.0).unwrap_or(usize::MAX);
                    joined.extend_from_slice(bytes.get(known..).unwrap_or_default());
                    continue;
                }
            }
            regions.push((at, bytes.to_vec()));
        }
        Self { regions }
    }

    /// Adds regions that touch none of these.
    pub(crate) fn join(&mut self, other: Self) {
        self.regions.extend(other.regions);
        self.regions.sort_by_key(|(at, _)| *at);
    }

    /// All bytes from `at` to the end of its region.
    fn rest(&self, at: Addr) -> Option<&[u8]> {
        let after = self.regions.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = self.regions.get(after.checked_sub(1)?)?;
        bytes
            .get(usize::try_from(at.0 - start.0).ok()?..)
            .filter(|rest| !rest.is_empty())
    }

    /// The bytes of `span`, if all are known.
    pub(crate) fn bytes(&self, span: Span) -> Option<&[u8]> {
        self.rest(span.start)?
            .get(..usize::try_from(span.len()).ok()?)
    }

    /// `len` bytes, or as many as there are before the region ends.
    pub(crate) fn bytes_from(&self, at: Addr, len: usize) -> Option<&[u8]> {
        let rest = self.rest(at)?;
        rest.get(..len.min(rest.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_touch_or_overlap_read_as_one() {
        let parts: [(Addr, &[u8]); 4] = [
            (Addr(0x1008), &[8, 9]),
            (Addr(0x1000), &[0, 1, 2, 3, 4, 5, 6, 7]),
            (Addr(0x1004), &[4; 3]),
            (Addr(0x2000), &[1]),
        ];
        let memory = Memory::new(parts.into_iter());
        assert_eq!(
            memory.bytes(Span::new(Addr(0x1002), 8)),
            Some(&[2, 3, 4, 5, 6, 7, 8, 9][..])
        );
        assert_eq!(memory.bytes(Span::new(Addr(0x1002), 9)), None);
        assert_eq!(memory.bytes_from(Addr(0x1009), 9), Some(&[9][..]));
        assert_eq!(memory.bytes_from(Addr(0x100a), 1), None);
        assert_eq!(memory.bytes_from(Addr(0xfff), 1), None);
        assert_eq!(memory.bytes(Span::new(Addr(0x2000), 1)), Some(&[1][..]));
    }
}
