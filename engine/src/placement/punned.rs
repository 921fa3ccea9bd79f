//! Punned and padded jumps (E9Patch's B2 and T1) for what is left an `int3`.
//!
//! Of a `jmp rel32` over an instruction shorter than itself only the first bytes are written; the last
//! ones of its displacement are the bytes that stand behind, so that it leads into a window, which the
//! arena must happen to lie in. Prefixes that change nothing move the jump, and with it the window, on
//! through the bytes behind.

use iced_x86::{Decoder, DecoderOptions};

use super::{
    Bounce, Placement, Point, Reached, SPLICE_BYTES, Site, SiteIndex, Slot, Splice, Tactic,
};
use crate::{Addr, Image, Span};

/// Bytes of the arena that a window must have: room for every version of a site's patch, which has some
/// hundred bytes.
const LEAST_ROOM: u64 = 1 << 16;
/// Bytes that the driver writes as a jump which the text completes.
const WRITTEN: std::ops::RangeInclusive<u8> = 3..=4;

/// Turns traps into punned jumps where the bytes behind them lead into the arena, and stay as they are.
pub(crate) fn instead_of_traps(image: &Image, arena: Span, placement: &mut Placement) {
    let punned: Vec<(SiteIndex, Splice, u32)> = (0..)
        .map(SiteIndex)
        .zip(&placement.sites)
        .filter(|(_, site)| site.splice == Splice::Trap)
        .filter(|(index, _)| !hosts(*index, &placement.bounces))
        .filter_map(|(index, site)| {
            let (splice, overwritten) = jump(image, arena, placement, site)?;
            Some((index, splice, overwritten))
        })
        .collect();
    for (index, splice, overwritten) in punned {
        if let Some(site) = placement.sites.get_mut(index.0 as usize) {
            site.splice = splice;
            site.overwritten = site.overwritten.max(overwritten);
        }
        for reached in placement.hooks.iter_mut().flatten() {
            if reached.tactic == Tactic::Trap && passes(reached, index) {
                reached.tactic = tactic(reached, &placement.sites);
            }
        }
    }
}

/// Where a punned jump that begins at `at` may lead: `prefix` bytes before its opcode, `written` bytes
/// written in all. `None` if the bytes behind are not in the image.
pub(crate) fn window(image: &Image, at: Addr, prefix: u8, written: u8) -> Option<Span> {
    let end = at.add(u64::from(prefix) + SPLICE_BYTES);
    let fixed = image.bytes(Span {
        start: at.add(u64::from(written)),
        end,
    })?;
    let free = 4_usize.checked_sub(fixed.len())?;
    let mut displacement = [0; 4];
    displacement.get_mut(free..)?.copy_from_slice(fixed);
    let lowest = i64::from(i32::from_le_bytes(displacement));
    Some(Span::new(
        Addr(end.0.wrapping_add_signed(lowest)),
        1 << (8 * free),
    ))
}

/// The first punned jump over a site's instructions that leads into the arena, and how many of them
/// it overwrites.
fn jump(image: &Image, arena: Span, placement: &Placement, site: &Site) -> Option<(Splice, u32)> {
    let at = site.displaced.start;
    let code = image.bytes(site.displaced)?;
    for written in WRITTEN.rev() {
        if u64::from(written) > site.displaced.len() {
            continue;
        }
        for prefix in 0..written {
            let fixed = Span {
                start: at.add(u64::from(written)),
                end: at.add(u64::from(prefix) + SPLICE_BYTES),
            };
            let Some(window) = window(image, at, prefix, written) else {
                continue;
            };
            let low = window.start.max(arena.start).0;
            let room = window.end.min(arena.end).0.saturating_sub(low);
            if room >= LEAST_ROOM && stays(image, placement, at, fixed) {
                let decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
                let over = decoder
                    .into_iter()
                    .take_while(|one| one.ip() < fixed.start.0);
                let overwritten = u32::try_from(over.count()).ok()?;
                return Some((Splice::Punned { prefix, written }, overwritten));
            }
        }
    }
    None
}

/// Whether nobody writes there: not the kernel, and not this session.
fn stays(image: &Image, placement: &Placement, own: Addr, fixed: Span) -> bool {
    let sites = &placement.sites;
    let near = sites.partition_point(|site| site.displaced.end <= fixed.start);
    let mut others = sites
        .iter()
        .skip(near)
        .take_while(|site| site.displaced.start < fixed.end);
    let bounces = &placement.bounces;
    let near = bounces.partition_point(|bounce| bounce.at.add(SPLICE_BYTES) <= fixed.start);
    let bounced = bounces
        .get(near)
        .is_some_and(|bounce| bounce.at < fixed.end);
    others.all(|site| site.displaced.start == own)
        && !bounced
        && image.sites().overlapping(fixed).next().is_none()
}

/// Whether bounces stand in a site's bytes.
fn hosts(site: SiteIndex, bounces: &[Bounce]) -> bool {
    bounces
        .iter()
        .any(|bounce| bounce.slot == Slot::Exposed(site))
}

fn passes(reached: &Reached, site: SiteIndex) -> bool {
    reached.points.iter().any(|&(at, _)| at == site) || reached.needs.contains(&site)
}

/// The dearest tactic of what a hook needs, now that traps are fewer.
fn tactic(reached: &Reached, sites: &[Site]) -> Tactic {
    let needed = reached.points.iter().map(|(site, _)| site);
    let mut needed = needed.chain(&reached.needs);
    let edges = reached
        .points
        .iter()
        .any(|(_, point)| matches!(point, Point::On(_)));
    if needed.any(|site| {
        let site = sites.get(site.0 as usize);
        site.is_some_and(|site| site.splice == Splice::Trap)
    }) {
        Tactic::Trap
    } else if edges {
        Tactic::Edges
    } else {
        Tactic::PunnedJump
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::code_asm::*;

    use super::*;
    use crate::image::fixture::Fixture;

    const AT: u64 = 5;

    /// `lea rax, [rdi + 9]`, in front of a `mov` with a prefix that does nothing.
    fn fixture() -> Fixture {
        Fixture::new().compiled("punned", |a| {
            a.lea(rax, qword_ptr(rdi + 9))?;
            a.db(&[0x3e])?;
            a.mov(rdx, rax)?;
            a.ret()
        })
    }

    fn trap(at: Addr) -> Placement {
        let points = vec![(SiteIndex(0), Point::Entry)];
        Placement {
            sites: vec![Site {
                splice: Splice::Trap,
                displaced: Span::new(at, 4),
                overwritten: 1,
                run_ons: Box::default(),
            }],
            bounces: vec![],
            hooks: vec![Ok(Reached {
                tactic: Tactic::Trap,
                points: points.into(),
                needs: vec![].into(),
            })],
        }
    }

    /// 0x3e00_0000 behind the text.
    fn arena(at: Addr) -> Span {
        Span::new(Addr(at.0 + 0x3e80_0000), 1 << 20)
    }

    #[test]
    fn a_trap_gives_way_where_the_bytes_behind_lead_into_the_arena() {
        let image = fixture().image();
        let at = Addr(Fixture::address(0) + AT);
        let mut placement = trap(at);
        instead_of_traps(&image, arena(at), &mut placement);
        let written = Splice::Punned {
            prefix: 0,
            written: 4,
        };
        assert_eq!(placement.sites[0].splice, written);
        assert_eq!(placement.sites[0].overwritten, 1);
        let reached = placement.hooks[0].as_ref().unwrap();
        assert_eq!(reached.tactic, Tactic::PunnedJump);
        // Padded: one prefix, and the byte behind is the one before the highest.
        let window = window(&image, at, 1, 4).unwrap();
        assert_eq!(
            window.start,
            Addr(at.0.wrapping_add(6).wrapping_add_signed(0x483e_0000))
        );
        assert_eq!(window.len(), 1 << 16);
        let mut placement = trap(at);
        instead_of_traps(&image, Span::new(window.start, 1 << 17), &mut placement);
        let padded = Splice::Punned {
            prefix: 1,
            written: 4,
        };
        assert_eq!(placement.sites[0].splice, padded);
    }

    #[test]
    fn a_trap_stays_where_they_do_not_or_may_change() {
        let at = Addr(Fixture::address(0) + AT);
        let stays = |fixture: &Fixture, arena: Span, placement: Placement| {
            let mut after = placement.clone();
            instead_of_traps(&fixture.image(), arena, &mut after);
            assert_eq!(after, placement);
        };
        let behind = Addr(at.0 + 0x4080_0000);
        stays(&fixture(), Span::new(behind, 1 << 20), trap(at));
        stays(&fixture(), Span::new(arena(at).start, 1 << 12), trap(at));
        let mut rewritten = fixture();
        rewritten.bugs.push((at.0 + 4, true));
        stays(&rewritten, arena(at), trap(at));
        let mut met = trap(at);
        met.sites.push(Site {
            splice: Splice::Trap,
            displaced: Span::new(at.add(4), 4),
            overwritten: 1,
            run_ons: Box::default(),
        });
        stays(&fixture(), arena(at), met);
    }
}
