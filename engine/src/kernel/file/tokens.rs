//! The pieces that names of symbols are packed with (scripts/kallsyms.c of Linux): 256 texts, each
//! standing for one byte, and an index of where each begins.

/// Both tables, in one run of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tokens<'b> {
    texts: &'b [u8],
    index: &'b [u8],
    /// The position of the texts in the memory that was searched.
    pub(super) start: usize,
    /// The position after the index.
    pub(super) end: usize,
}

/// The number of texts: one for each value of a byte.
const COUNT: usize = 256;
/// The linker aligns each table to one of these: the second since Linux 7.0.
pub(super) const ALIGNS: [usize; 2] = [8, 4];
/// Each table is aligned to this in every kernel.
pub(super) const LEAST_ALIGN: usize = 4;
/// Fewer zeros than this lie between tables.
const MOST_PADDING: usize = 8;
/// No text is longer: the longest seen have some 20 letters.
const LONGEST: usize = 128;

impl<'b> Tokens<'b> {
    /// Every place in `memory` that looks like the two tables.
    pub(super) fn all(memory: &'b [u8]) -> impl Iterator<Item = Self> + 'b {
        (0..memory.len())
            .step_by(LEAST_ALIGN)
            .filter_map(|at| Self::with_index(memory, at))
    }

    /// The tables whose index begins at `at`: the texts end right before it.
    fn with_index(memory: &'b [u8], at: usize) -> Option<Self> {
        let index = memory.get(at..at + 2 * COUNT)?;
        if index.first_chunk() != Some(&[0, 0]) {
            return None;
        }
        let (places, _) = index.as_chunks::<2>();
        let mut places = places
            .iter()
            .map(|place| usize::from(u16::from_le_bytes(*place)));
        let mut last = places.next()?;
        for place in places {
            if place <= last || place - last > LONGEST {
                return None;
            }
            last = place;
        }
        let shortest = (last + 1).next_multiple_of(LEAST_ALIGN);
        let starts = (shortest..=shortest + LONGEST)
            .step_by(LEAST_ALIGN)
            .map_while(|len| at.checked_sub(len));
        let tables = starts.filter_map(|start| {
            Some(Self {
                texts: memory.get(start..at)?,
                index,
                start,
                end: at + 2 * COUNT,
            })
        });
        tables.into_iter().find(Self::is_whole)
    }

    /// Returns whether every text is one: printable, and ended by a zero where the next begins.
    fn is_whole(&self) -> bool {
        let mut after = 0;
        for byte in 0..=u8::MAX {
            let text = self.text(byte);
            if self.place(byte) != after || !text.iter().all(u8::is_ascii_graphic) {
                return false;
            }
            after += text.len() + 1;
        }
        let padding = self.texts.get(after..);
        padding.is_some_and(|rest| rest.len() < MOST_PADDING && rest.iter().all(|&byte| byte == 0))
    }

    fn place(&self, byte: u8) -> usize {
        let at = 2 * usize::from(byte);
        let place = self.index.get(at..).and_then(<[u8]>::first_chunk);
        place.map_or(0, |place| usize::from(u16::from_le_bytes(*place)))
    }

    /// The text of `byte`.
    pub(super) fn text(&self, byte: u8) -> &'b [u8] {
        let rest = self.texts.get(self.place(byte)..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0);
        end.and_then(|end| rest.get(..end)).unwrap_or_default()
    }
}
