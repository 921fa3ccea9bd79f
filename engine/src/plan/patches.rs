//! From versions of sites to code in the arena.

use super::error::{internal, refused};
use super::functions::Functions;
use super::model::{Patch, PatchFault, PatchIndex, PlannedInstrument};
use super::natives::Natives;
use super::placed::PlacedParts;
use super::refusals::Refusals;
use super::schedule::{InstrumentAt, InstrumentIndex, Schedule, VersionIndex};
use super::stage::{self, Stage, Watch};
use crate::ids::{Id, Ids};
use crate::layout::{ArenaIndex, RuntimeLayout};
use crate::patch::{Assembler, Code, Hooked, Packed, Pieces, Recovery};
use crate::placement::{Point, SiteIndex};
use crate::session::Session;
use crate::{Addr, Error, Image, InstrumentId, Result, Span};

/// Assembles patches.
pub(super) struct Maker<'a> {
    pub(super) image: &'a Image,
    pub(super) session: &'a Session,
    pub(super) layout: &'a RuntimeLayout,
    pub(super) functions: &'a Functions<'a>,
    pub(super) instruments: &'a Ids<InstrumentIndex, PlannedInstrument>,
    pub(super) placed: &'a PlacedParts,
    pub(super) blame: &'a Ids<SiteIndex, usize>,
    pub(super) natives: &'a Natives,
    pub(super) refusals: &'a Refusals,
}

/// Patches, and the index of each version's.
pub(super) struct Made {
    /// By address.
    pub(super) patches: Ids<PatchIndex, Patch>,
    /// The index of each version's patch.
    pub(super) of_version: Ids<VersionIndex, PatchIndex>,
    /// Their instructions that may fault, by address.
    pub(super) faults: Vec<PatchFault>,
}

/// State that the assembly of patches shares.
struct Tools<'a> {
    assembler: Assembler<'a>,
    packed: Packed,
    /// Faults of all patches, in the order of assembly.
    faults: Vec<PatchFault>,
}

/// Patches between two progress reports.
const REPORTED: usize = 1024;

impl Maker<'_> {
    /// Assembles every version, one after the other in the arena, after native code.
    ///
    /// # Errors
    /// [`Error::Full`] if the arena is; [`Error::Refused`] where code cannot be assembled;
    /// [`Error::GivenUp`].
    pub(super) fn patches(&self, schedule: &Schedule, watch: &mut Watch<'_>) -> Result<Made> {
        let mut tools = Tools {
            assembler: Assembler::new(self.image, self.layout).saving_all(self.session.save_all),
            packed: Packed::default(),
            faults: Vec::new(),
        };
        let mut cursors = Cursors::new(self.layout, self.natives.length);
        let mut made = Vec::with_capacity(schedule.versions.len());
        let mut numbers: Vec<(Addr, VersionIndex)> = Vec::with_capacity(schedule.versions.len());
        for (version, &site) in schedule.versions.iter() {
            if version.index().is_multiple_of(REPORTED) {
                stage::report(watch, Stage::Patches)?;
            }
            let listed = &schedule.listed[version];
            let cursor = cursors.of(self.layout, self.placed.sites[site].displaced.start);
            let patch = self.patch(&mut tools, site, listed, cursor.next());
            let Some(patch) = self.refusals.collect(self.blame[site], patch)? else {
                continue;
            };
            cursor.take(patch.code.len() as u64);
            numbers.push((patch.address, version));
            made.push(patch);
        }
        self.refusals.check(self.session)?;
        cursors.check()?;
        let mut faults = tools.faults;
        if faults.len() > self.layout.faults as usize {
            return Err(Error::Full {
                what: "instructions of patches that may fault",
                needed: faults.len() as u64,
                available: self.layout.faults.into(),
            });
        }
        faults.sort_unstable_by_key(|fault| fault.at);
        faults.shrink_to_fit();
        // No two have the same address.
        made.sort_unstable_by_key(|patch: &Patch| patch.address);
        numbers.sort_unstable();
        // Nothing was refused, so every version has its patch.
        let mut of_version = Ids::like(&schedule.versions, PatchIndex(u32::MAX));
        for (index, &(_, version)) in (0..).map(PatchIndex).zip(&numbers) {
            of_version[version] = index;
        }
        Ok(Made {
            patches: made.into(),
            of_version,
            faults,
        })
    }

    fn patch(
        &self,
        tools: &mut Tools<'_>,
        index: SiteIndex,
        listed: &[InstrumentAt],
        address: Addr,
    ) -> Result<Patch> {
        let listed = listed.iter().map(|&(instrument, nth)| {
            let one = &self.instruments[instrument];
            let point = one.points.get(nth as usize);
            let point = point.ok_or_else(|| internal("a version lists no point of an instrument"));
            Ok((point?.1, one))
        });
        let listed: Vec<(Point, &PlannedInstrument)> = listed.collect::<Result<_>>()?;
        let hooked: Vec<Hooked<'_>> = listed
            .iter()
            .map(|(_, one)| -> Result<Hooked<'_>> {
                Ok(Hooked {
                    id: one.id,
                    program: self.natives.program(one, self.layout)?,
                    counter: one.counter,
                })
            })
            .collect::<Result<_>>()?;
        let mut rest = hooked.as_slice();
        let hooks: Vec<(Point, &[Hooked<'_>])> = listed
            .chunk_by(|one, other| one.0 == other.0)
            .filter_map(|chunk| {
                let (list, remaining) = rest.split_at(chunk.len());
                rest = remaining;
                chunk.first().map(|(point, _)| (*point, list))
            })
            .collect();
        let site = &self.placed.sites[index];
        let live = self.functions.live(site);
        let code = tools
            .assembler
            .assemble(address, site, &hooks, &live)
            .map_err(|refusal| refused(self.session, self.blame[index], refusal))?;
        tools.faults.extend(faults(&code, address));
        let ids = |list: &[Hooked<'_>]| list.iter().map(|one| one.id).collect();
        let all: Vec<InstrumentId> = hooked.iter().map(|one| one.id).collect();
        Ok(Patch {
            site: index,
            address,
            code: code.bytes.into(),
            sequences: code.sequences,
            rows: code.rows.into(),
            pieces: Pieces::pack(&code.pieces, &all, &mut tools.packed),
            hooks: hooks
                .iter()
                .map(|&(point, list)| (point, ids(list)))
                .collect(),
        })
    }
}

/// The instructions of a patch that may fault.
pub(crate) fn faults(code: &Code, address: Addr) -> impl Iterator<Item = PatchFault> {
    code.faults.iter().map(move |fault| PatchFault {
        at: address.add(fault.at.into()),
        recovery: match fault.recovery {
            Recovery::At(fixup) => Recovery::At(address.add(fixup.into())),
            Recovery::Like(original) => Recovery::Like(original),
        },
    })
}

/// The first free bytes of all arenas, in the order of the layout.
struct Cursors(Ids<ArenaIndex, Cursor>);

impl Cursors {
    /// Cursors at the starts, in the first arena after `used` bytes.
    fn new(layout: &RuntimeLayout, used: u64) -> Self {
        let used = std::iter::once(used).chain(std::iter::repeat(0));
        let cursors = layout.arenas().zip(used);
        let cursors = cursors.map(|(arena, used)| Cursor::new(arena, layout.patch_align(), used));
        Self(cursors.collect::<Vec<_>>().into())
    }

    /// The cursor for patches of a site.
    fn of(&mut self, layout: &RuntimeLayout, site: Addr) -> &mut Cursor {
        &mut self.0[layout.nearest_arena(site)]
    }

    /// Refuses patches that do not fit, by the arena that lacks most.
    fn check(&self) -> Result<()> {
        let lacks = |cursor: &&Cursor| cursor.used.saturating_sub(cursor.arena.len());
        match self.0.values().iter().max_by_key(lacks) {
            Some(cursor) if cursor.used > cursor.arena.len() => Err(Error::Full {
                what: "bytes of patches",
                needed: cursor.used,
                available: cursor.arena.len(),
            }),
            _ => Ok(()),
        }
    }
}

/// The first free byte of an arena.
struct Cursor {
    arena: Span,
    /// Alignment of patches in bytes.
    align: u64,
    /// Bytes from the start of the arena to the end of the last patch.
    used: u64,
}

impl Cursor {
    /// A cursor after the first `used` bytes of an arena.
    const fn new(arena: Span, align: u64, used: u64) -> Self {
        Self { arena, align, used }
    }

    /// Bytes from the start of the arena to the next patch.
    fn offset(&self) -> u64 {
        let start = self.arena.start.0;
        let at = start.wrapping_add(self.used).next_multiple_of(self.align);
        at.wrapping_sub(start)
    }

    /// Returns the address of the next patch. Past the end of the arena only sizes matter.
    fn next(&self) -> Addr {
        let at = self.arena.start.add(self.offset());
        if at < self.arena.end {
            at
        } else {
            self.arena.start
        }
    }

    /// Advances past a patch of `length` bytes at [`Self::next`].
    fn take(&mut self, length: u64) {
        self.used = self.offset() + length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_two_patches_share_a_byte(
            start in 0x1000_u64..0x1020,
            used in 0_u64..0x200,
            lengths in prop::collection::vec(1_u64..300, 0..60),
        ) {
            let arena = Span::new(Addr(start), 0x2000);
            let mut cursor = Cursor::new(arena, crate::layout::PATCH_ALIGN, used);
            let mut all = vec![Span::new(Addr(start), used)];
            for length in lengths {
                let at = cursor.next();
                cursor.take(length);
                if cursor.used > cursor.arena.len() {
                    break;
                }
                prop_assert!(at.0.is_multiple_of(crate::layout::PATCH_ALIGN));
                all.push(Span::new(at, length));
            }
            prop_assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(all.iter().all(|one| one.start >= cursor.arena.start && one.end <= cursor.arena.end));
        }
    }
}
