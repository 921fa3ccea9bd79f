//! From versions of sites to code in the arena.

use super::build::{missing, refused};
use super::functions::Functions;
use super::natives::Natives;
use super::schedule::{Schedule, Version};
use super::stage::{self, Stage, Watch};
use super::{Fault, Patch, PatchIndex, PlannedInstrument};
use crate::layout::RuntimeLayout;
use crate::patch::{Assembler, Code, Hooked, Packed, Pieces, Recovery};
use crate::placement::{Point, Site, Splice, punned};
use crate::session::Session;
use crate::{Addr, Error, Image, InstrumentId, Refusal, Result, Rule, Span};

/// Patches begin at multiples of this many bytes, where processors like to fetch from; but for
/// those of punned splices, which lead where they can.
pub const PATCH_ALIGN: u64 = 16;

/// Assembles patches.
pub(super) struct Maker<'a> {
    pub(super) image: &'a Image,
    pub(super) session: &'a Session,
    pub(super) layout: &'a RuntimeLayout,
    pub(super) functions: &'a Functions<'a>,
    pub(super) instruments: &'a [PlannedInstrument],
    pub(super) sites: &'a [Site],
    pub(super) blame: &'a [usize],
    pub(super) natives: &'a Natives,
}

/// Patches, and which is which version.
pub(super) struct Made {
    /// By address.
    pub(super) patches: Vec<Patch>,
    /// The index of each version's patch.
    pub(super) of_version: Vec<PatchIndex>,
    /// What of them may fault, by address.
    pub(super) faults: Vec<Fault>,
}

/// What patches are made with.
struct Tools<'a> {
    assembler: Assembler<'a>,
    packed: Packed,
    /// Of all patches that stay, in the order in which they are made.
    faults: Vec<Fault>,
}

/// Patches between two looks at whether somebody still wants them.
const TOLD: usize = 1024;

impl Maker<'_> {
    /// Assembles every version: first those that must be at certain addresses, then the others, one
    /// behind the other in what is left of the arena.
    ///
    /// # Errors
    /// [`Error::Full`] if the arena is; [`Error::Refused`] where code cannot be made or has no room in reach;
    /// [`Error::GivenUp`].
    pub(super) fn patches(&self, schedule: &Schedule, watch: &mut Watch<'_>) -> Result<Made> {
        let mut tools = Tools {
            assembler: Assembler::new(self.image, self.layout).saving_all(self.session.save_all),
            packed: Packed::default(),
            faults: Vec::new(),
        };
        let mut room = Room::new(self.layout.arena);
        if self.natives.length > 0 {
            let natives = Span::new(self.layout.arena.start, self.natives.length);
            room.reserved.push(natives);
        }
        let mut made = Vec::with_capacity(schedule.versions.len());
        let mut numbers: Vec<(Addr, usize)> = Vec::with_capacity(schedule.versions.len());
        let mut punned = Vec::new();
        let numbered = || schedule.versions.iter().enumerate();
        for (number, version) in numbered() {
            if let Some(window) = self.window(version)? {
                let anywhere = self.layout.arena.start;
                let faults = tools.faults.len();
                let size = self.patch(&mut tools, schedule, version, anywhere)?;
                let Some(address) = room.reserve(window, size.code.len() as u64) else {
                    return Err(self.no_room(version, window));
                };
                tools.faults.truncate(faults);
                let patch = self.patch(&mut tools, schedule, version, address)?;
                numbers.push((patch.address, number));
                made.push(patch);
                punned.push(number);
            }
        }
        let mut punned = punned.into_iter().peekable();
        for (number, version) in numbered() {
            if number.is_multiple_of(TOLD) {
                stage::told(watch, Stage::Patches)?;
            }
            if punned.next_if_eq(&number).is_some() {
                continue;
            }
            // Where it begins decides where it ends, but not how long it is.
            let address = room.next();
            let faults = tools.faults.len();
            let mut patch = self.patch(&mut tools, schedule, version, address)?;
            let length = patch.code.len() as u64;
            let fits = room.take(length);
            if fits != address {
                tools.faults.truncate(faults);
                patch = self.patch(&mut tools, schedule, version, fits)?;
            }
            numbers.push((patch.address, number));
            made.push(patch);
        }
        if room.used > room.arena.len() {
            return Err(Error::Full {
                what: "bytes of patches",
                needed: room.used,
                available: room.arena.len(),
            });
        }
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
        let mut of_version = vec![PatchIndex(u32::MAX); made.len()];
        for (index, &(_, number)) in (0..).map(PatchIndex).zip(&numbers) {
            if let Some(of_version) = of_version.get_mut(number) {
                *of_version = index;
            }
        }
        Ok(Made {
            patches: made,
            of_version,
            faults,
        })
    }

    fn site(&self, version: &Version) -> Result<&Site> {
        let site = self.sites.get(version.site.0 as usize);
        site.ok_or_else(|| missing("a site"))
    }

    /// Where the patch of a punned splice may begin.
    fn window(&self, version: &Version) -> Result<Option<Span>> {
        let site = self.site(version)?;
        let Splice::Punned { prefix, written } = site.splice else {
            return Ok(None);
        };
        let window = punned::window(self.image, site.displaced.start, prefix, written);
        window
            .map(Some)
            .ok_or_else(|| missing("the bytes behind a site"))
    }

    fn refused(&self, version: &Version, refusal: Refusal) -> Error {
        let blame = self.blame.get(version.site.0 as usize).copied();
        refused(self.session, blame.unwrap_or(usize::MAX), refusal)
    }

    fn no_room(&self, version: &Version, window: Span) -> Error {
        let site = self.site(version);
        let at = site.map_or(Addr(0), |site| site.displaced.start);
        let why = format!(
            "a jump there leads to {} up to {}, where the arena has no room for its patch",
            window.start, window.end
        );
        let rule = Rule::OutOfReach;
        self.refused(version, Refusal::new(rule, at, why))
    }

    fn patch(
        &self,
        tools: &mut Tools<'_>,
        schedule: &Schedule,
        version: &Version,
        address: Addr,
    ) -> Result<Patch> {
        let listed = version.listed.start as usize..version.listed.end as usize;
        let listed = schedule.listed.get(listed);
        let listed = listed.unwrap_or_default().iter();
        let listed = listed.filter_map(|&(index, nth)| {
            let one = self.instruments.get(index as usize)?;
            Some((one.points.get(nth as usize)?.1, one))
        });
        let listed: Vec<(Point, &PlannedInstrument)> = listed.collect();
        let hooked: Vec<Hooked<'_>> = listed
            .iter()
            .map(|(_, one)| -> Result<Hooked<'_>> {
                Ok(Hooked {
                    id: one.id,
                    program: one.definition.program,
                    timer: one.timer,
                    counter: one.counter,
                    probe: one.probe.as_deref(),
                    native: self.natives.call(&one.definition)?,
                })
            })
            .collect::<Result<_>>()?;
        let mut rest = hooked.as_slice();
        let hooks: Vec<(Point, &[Hooked<'_>])> = listed
            .chunk_by(|one, other| one.0 == other.0)
            .filter_map(|chunk| {
                let (list, behind) = rest.split_at_checked(chunk.len())?;
                rest = behind;
                Some((chunk.first()?.0, list))
            })
            .collect();
        let site = self.site(version)?;
        let live = self.functions.live(site);
        let code = tools
            .assembler
            .assemble(address, site, &hooks, &live)
            .map_err(|refusal| self.refused(version, refusal))?;
        tools.faults.extend(faults(&code, address));
        let ids = |list: &[Hooked<'_>]| list.iter().map(|one| one.id).collect();
        let all: Vec<InstrumentId> = hooked.iter().map(|one| one.id).collect();
        Ok(Patch {
            site: version.site,
            address,
            code: code.bytes.into(),
            rows: code.rows.into(),
            pieces: Pieces::pack(&code.pieces, &all, &mut tools.packed),
            hooks: hooks
                .iter()
                .map(|&(point, list)| (point, ids(list)))
                .collect(),
        })
    }
}

/// What of a patch may fault.
pub(crate) fn faults(code: &Code, address: Addr) -> impl Iterator<Item = Fault> {
    code.faults.iter().map(move |fault| Fault {
        at: address.add(fault.at.into()),
        recovery: match fault.recovery {
            Recovery::At(fixup) => Recovery::At(address.add(fixup.into())),
            Recovery::Like(original) => Recovery::Like(original),
        },
    })
}

/// What is left of the arena.
struct Room {
    arena: Span,
    /// Taken out of turn: sorted, no two touch each other's bytes.
    reserved: Vec<Span>,
    /// Bytes from the start of the arena to the end of the last patch put there in turn.
    used: u64,
}

impl Room {
    const fn new(arena: Span) -> Self {
        Self {
            arena,
            reserved: Vec::new(),
            used: 0,
        }
    }

    /// Takes `length` bytes that begin in the window: the first that are free, aligned if possible.
    fn reserve(&mut self, window: Span, length: u64) -> Option<Addr> {
        [PATCH_ALIGN, 1].into_iter().find_map(|align| {
            let mut at = window.start.0.max(self.arena.start.0);
            loop {
                at = at.checked_next_multiple_of(align)?;
                let found = Span::new(Addr(at), length);
                if at >= window.end.0 || found.end.0 > self.arena.end.0 {
                    return None;
                }
                let behind = self.reserved.partition_point(|span| span.end.0 <= at);
                match self
                    .reserved
                    .get(behind)
                    .filter(|span| span.overlaps(found))
                {
                    Some(taken) => at = taken.end.0,
                    None => {
                        self.reserved.insert(behind, found);
                        return Some(found.start);
                    }
                }
            }
        })
    }

    /// Where the next patch begins unless it runs into what is reserved. Past the end of the arena only
    /// sizes matter.
    fn next(&self) -> Addr {
        let at = self
            .arena
            .start
            .0
            .wrapping_add(self.used)
            .next_multiple_of(PATCH_ALIGN);
        if at < self.arena.end.0 {
            Addr(at)
        } else {
            self.arena.start
        }
    }

    /// Takes the next `length` bytes that are free.
    fn take(&mut self, length: u64) -> Addr {
        let start = self.arena.start.0;
        let mut at = start.wrapping_add(self.used).next_multiple_of(PATCH_ALIGN);
        loop {
            let found = Span::new(Addr(at), length);
            let behind = self.reserved.partition_point(|span| span.end.0 <= at);
            match self
                .reserved
                .get(behind)
                .filter(|span| span.overlaps(found))
            {
                Some(taken) => at = taken.end.0.next_multiple_of(PATCH_ALIGN),
                None => break,
            }
        }
        self.used = at - start + length;
        if at < self.arena.end.0 {
            Addr(at)
        } else {
            self.arena.start
        }
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
            windows in prop::collection::vec((0x1000_u64..0x3000, 1_u64..0x400, 1_u64..200), 0..20),
            lengths in prop::collection::vec(1_u64..300, 0..60),
        ) {
            let mut room = Room::new(Span::new(Addr(start), 0x2000));
            let mut all = Vec::new();
            for (at, size, length) in windows {
                let window = Span::new(Addr(at), size);
                if let Some(at) = room.reserve(window, length) {
                    prop_assert!(window.contains(at));
                    all.push(Span::new(at, length));
                }
            }
            for length in lengths {
                let guess = room.next();
                let at = room.take(length);
                if room.used > room.arena.len() {
                    break;
                }
                prop_assert!(guess <= at && at.0.is_multiple_of(PATCH_ALIGN));
                all.push(Span::new(at, length));
            }
            all.sort_unstable();
            prop_assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(all.iter().all(|one| one.start >= room.arena.start && one.end <= room.arena.end));
        }
    }
}
