//! From versions of sites to code in the arena.

use super::build::{Planner, missing};
use super::schedule::Version;
use super::{Patch, PlannedInstrument};
use crate::cfg::BlockIndex;
use crate::liveness::Live;
use crate::patch::{Hook, Hooked, assemble};
use crate::{Addr, Error, HookType, InstrumentId, Result};

/// Patches begin at multiples of this many bytes: where processors like to fetch from.
pub const PATCH_ALIGN: u64 = 16;

impl Planner<'_> {
    /// Assembles every version of every patch, one behind the other in the arena.
    pub(super) fn patches(
        &self,
        instruments: &[PlannedInstrument],
        versions: &[Version],
    ) -> Result<Vec<Patch>> {
        let arena = self.layout.arena;
        let mut used = arena.start.0.next_multiple_of(PATCH_ALIGN) - arena.start.0;
        let mut patches = Vec::with_capacity(versions.len());
        for version in versions {
            used = used.next_multiple_of(PATCH_ALIGN);
            // Past the end only the size matters, which does not depend on the address.
            let address = if used < arena.len() {
                arena.start.add(used)
            } else {
                arena.start
            };
            let patch = self.patch(instruments, version, address)?;
            used += patch.code.len() as u64;
            patches.push(patch);
        }
        if used > arena.len() {
            return Err(Error::Full {
                what: "bytes of patches",
                needed: used,
                available: arena.len(),
            });
        }
        Ok(patches)
    }

    fn patch(
        &self,
        instruments: &[PlannedInstrument],
        version: &Version,
        address: Addr,
    ) -> Result<Patch> {
        let hooked = |indices: &[usize]| -> Vec<Hooked> {
            let chosen = indices.iter().filter_map(|&index| instruments.get(index));
            chosen
                .map(|one| Hooked {
                    id: one.id,
                    program: one.definition.program,
                    timer: one.timer,
                    counter: one.counter,
                })
                .collect()
        };
        let site = version.site;
        let first = version
            .pre
            .iter()
            .chain(&version.post)
            .next()
            .and_then(|&index| instruments.get(index));
        let (Some(first), Some(displaced)) = (first, self.image.bytes(site.displaced)) else {
            return Err(missing("the bytes of a site"));
        };
        let (pre, post) = (hooked(&version.pre), hooked(&version.post));
        let live = |hook| self.live(first.id, site.point(hook));
        let pre_hook = Hook {
            instruments: &pre,
            live: live(HookType::Pre),
        };
        let post_hook = Hook {
            instruments: &post,
            live: live(HookType::Post),
        };
        let code = assemble(address, &site, displaced, pre_hook, post_hook, self.layout)
            .map_err(|refusal| self.refused(first.placement, refusal))?;
        Ok(Patch {
            site,
            address,
            code: code.bytes,
            pieces: code.pieces,
            pre: pre.iter().map(|hooked| hooked.id).collect(),
            post: post.iter().map(|hooked| hooked.id).collect(),
        })
    }

    /// What is live at a point of an instrument's block, which may be the block's end.
    fn live(&self, id: InstrumentId, point: Addr) -> Live {
        let Some(function) = self.functions.get(id.major as usize) else {
            return Live::ALL;
        };
        let index = BlockIndex(id.block);
        let at_end = function
            .planned
            .cfg
            .block(index)
            .is_some_and(|block| block.span.end == point);
        let live = if at_end {
            function.liveness.after_block(index)
        } else {
            function.liveness.before(point)
        };
        Live {
            registers: live.registers.union(function.sampled),
            ..live
        }
    }
}
