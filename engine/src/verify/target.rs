//! Checks of the layout of the target, and of where patches and writes are.

use super::patch::native;
use super::reason::Reason;
use super::text::site;
use super::violation::Violation;
use crate::code::Origin;
use crate::layout::{Owner, RingOwner, RuntimeLayout, Sequences};
use crate::placement::{SPLICE_BYTES, Splice};
use crate::plan::Plan;
use crate::{Addr, Image, Span};

/// Checks the layout against itself and the image.
pub(super) fn check(image: &Image, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut wrong = |why: Reason| violations.push(Violation::Plan { why });
    if plan.release != image.release() {
        wrong(Reason::ForeignRelease {
            plan: format!("{:?}", plan.release),
            image: format!("{:?}", image.release()),
        });
    }
    if !(plan.duration.is_finite() && plan.duration > 0.0) {
        wrong(Reason::Duration {
            seconds: plan.duration,
        });
    }
    let layout = &plan.layout;
    // The lower half of a head has the slot, two zero bits, and the CPU.
    let most = match layout.sequences().map(|sequences| sequences.area) {
        // A slot has the words of a line.
        Some(None) => 8,
        _ => 5,
    };
    let slot_log2 = (layout.rings.stride_log2).checked_sub(layout.rings.slots_log2);
    if !(2..=24).contains(&layout.rings.slots_log2)
        || slot_log2.is_none_or(|log2| !(5..=most).contains(&log2))
    {
        wrong(Reason::RingSize {
            slots_log2: layout.rings.slots_log2,
            stride_log2: layout.rings.stride_log2,
        });
    }
    if let Some(why) = match layout.rings.per {
        RingOwner::Cpu | RingOwner::Rseq(_) => None,
        RingOwner::Thread => Some("its rings belong to threads"),
    } {
        wrong(Reason::RingOwner { why });
    }
    if let RingOwner::Rseq(sequences) = layout.rings.per {
        if let Some(why) = wrong_rows(layout, sequences) {
            wrong(Reason::SequenceRows { why });
        }
        if plan.sites.iter().any(|site| site.splice == Splice::Trap) {
            wrong(Reason::TrapInProcess);
        }
    } else if image.origin() == Origin::Object {
        wrong(Reason::NoRuntime);
    }
    let Owner {
        free_bits,
        busy_bit,
        ..
    } = layout.owner;
    if free_bits > 7 || !(48..64).contains(&busy_bit) {
        wrong(Reason::KeyBits {
            free_bits,
            busy_bit,
        });
    }
    let red_zone = layout.abi.red_zone;
    if !red_zone.is_multiple_of(8) || red_zone > 128 {
        wrong(Reason::RedZoneSize { bytes: red_zone });
    }
    if !(1..=31).contains(&layout.timers_log2) {
        wrong(Reason::TableSize {
            timers_log2: layout.timers_log2,
        });
    }
    arenas(image, layout, &mut wrong);
    per_cpu(layout, &mut wrong);
    patches(plan, violations);
    native::check(image, plan, violations);
    writes(plan, violations);
}

/// The text that arenas must not be in. Of a kernel, modules aside: they may be loaded after it was read.
fn texts(image: &Image) -> impl Iterator<Item = Span> {
    let all = image.texts.all().map(|text| text.span);
    let all = all.filter(|_| image.origin() == Origin::Object);
    std::iter::once(image.text()).chain(all)
}

/// Checks that arenas are memory of their own: no text of the image, and no two the same.
fn arenas(image: &Image, layout: &RuntimeLayout, wrong: &mut impl FnMut(Reason)) {
    let all: Vec<Span> = layout.arenas().collect();
    for (number, &arena) in all.iter().enumerate() {
        let Span { start, end } = arena;
        let mut others = all.iter().take(number);
        if arena.is_empty() || texts(image).any(|text| text.overlaps(arena)) {
            wrong(Reason::ArenaInText { start, end });
        } else if others.any(|other| other.overlaps(arena)) {
            wrong(Reason::ArenasOverlap { start, end });
        }
    }
}

/// Returns the reason why the counters of two CPUs are not words of their own, or not where an instruction reaches
/// them.
fn wrong_rows(layout: &RuntimeLayout, sequences: Sequences) -> Option<&'static str> {
    let Sequences {
        cpus, stride_log2, ..
    } = sequences;
    if cpus == 0 || stride_log2 > 30 {
        return Some("are not numbered");
    }
    let (mut low, mut high) = (u64::MAX, 0_u64);
    let rings = &layout.rings;
    let samples = rings.base != Addr(0);
    for bank in &layout.counters {
        low = low.min(bank.base.0);
        high = high.max(bank.base.0.saturating_add(8 * u64::from(bank.slots)));
    }
    for word in [rings.head, rings.limit, rings.lost_full] {
        if samples {
            low = low.min(word.0);
            high = high.max(word.0.saturating_add(8));
        }
    }
    if low > high {
        return None;
    }
    // Rings are after the rows, or before.
    // Threads without an area share one.
    let number = sequences.area.map_or(1, |_| u64::from(cpus));
    let slots = Span::new(rings.base, number << rings.stride_log2.min(30));
    let last = high.saturating_add(u64::from(cpus) << stride_log2);
    let row = u64::from(cpus) << stride_log2;
    let mut shared = layout.counters.iter().zip(&layout.shared);
    if high.saturating_sub(low) > 1 << stride_log2 {
        Some("overlap")
    } else if last > 1 << 31 {
        Some("are not in the lower 2 GiB")
    } else if layout
        .arenas()
        .any(|arena| last > arena.start.0 && low < arena.end.0)
    {
        Some("overlap the arena")
    } else if samples && (slots.end.0 > 1 << 31 || slots.end < slots.start) {
        Some("have rings that are not in the lower 2 GiB")
    } else if samples
        && (layout.arenas().any(|arena| slots.overlaps(arena))
            || slots.start.0 < last && low < slots.end.0)
    {
        Some("overlap the rings")
    } else if shared.any(|(bank, shared)| bank.base.0.checked_add(row) != Some(shared.0)) {
        Some("are shared elsewhere than after those of the last CPU")
    } else {
        None
    }
}

/// Checks that no per-CPU word has two uses.
fn per_cpu(layout: &RuntimeLayout, wrong: &mut impl FnMut(Reason)) {
    // With restartable sequences the words are memory, and those of rings may be missing.
    let process = layout.sequences().is_some();
    let words = [
        (layout.rings.head, process && layout.rings.base == Addr(0)),
        (layout.rings.limit, process && layout.rings.base == Addr(0)),
        (
            layout.rings.lost_full,
            process && layout.rings.base == Addr(0),
        ),
        (layout.owner.word, process),
    ];
    let words = words.into_iter().filter(|(_, missing)| !missing);
    let words = words.map(|(word, _)| word);
    let banks = layout
        .counters
        .iter()
        .map(|bank| (bank.base.0, 8 * u64::from(bank.slots)));
    let mut spans: Vec<(u64, u64)> = words
        .map(|word| (word.0, 8))
        .chain(banks)
        .filter(|span| span.1 != 0)
        .collect();
    spans.sort_unstable();
    for pair in spans.windows(2) {
        if let [(first, len), (second, _)] = *pair
            && second.wrapping_sub(first) < len
        {
            wrong(Reason::OverlappingWords { first, second });
        }
    }
}

/// Checks that sites displace different bytes, whenever they are in place, since a thread may
/// continue in a patch, and return to the text, long after the splice was removed; and that no two
/// writes overlap.
fn writes(plan: &Plan, violations: &mut Vec<Violation>) {
    let mut furthest = Addr(0);
    for (number, site) in plan.sites.iter().enumerate() {
        if site.displaced.start < furthest {
            violations.push(Violation::Site {
                site: number,
                at: site.displaced.start,
                why: Reason::SitesOverlap,
            });
        }
        furthest = furthest.max(site.displaced.end);
    }
    if !plan.bounces.is_sorted_by(|a, b| a.at < b.at) {
        violations.push(Violation::Plan {
            why: Reason::BounceOrder,
        });
    }
    let sites = plan.sites.iter().map(site::written);
    let bounces = plan
        .bounces
        .iter()
        .map(|bounce| Span::new(bounce.at, SPLICE_BYTES));
    let mut spans: Vec<Span> = sites
        .chain(bounces)
        .filter(|span| !span.is_empty())
        .collect();
    spans.sort_unstable();
    let mut furthest = Span::default();
    for &span in &spans {
        if span.start < furthest.end {
            let why = Reason::WritesOverlap {
                first: furthest.start,
                second: span.start,
            };
            violations.push(Violation::Plan { why });
        }
        if furthest.end < span.end {
            furthest = span;
        }
    }
}

/// Checks that patches are in an arena and do not overlap, so that none is ever written over
/// another.
fn patches(plan: &Plan, violations: &mut Vec<Violation>) {
    let layout = &plan.layout;
    let mut spans: Vec<(Span, usize)> = Vec::with_capacity(plan.patches.len());
    for (number, patch) in plan.patches.iter().enumerate() {
        let span = Span::new(patch.address, patch.code.len() as u64);
        let holds = |arena: Span| span.start >= arena.start && span.end <= arena.end;
        if span.is_empty() || span.end < span.start || !layout.arenas().any(holds) {
            let Span { start, end } = layout.arena;
            let why = Reason::OutsideArena {
                bytes: span.len(),
                start,
                end,
            };
            violations.push(Violation::Patch {
                patch: number,
                at: patch.address,
                why,
            });
        }
        spans.push((span, number));
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        if let [(first, one), (second, other)] = *pair
            && first.overlaps(second)
        {
            let why = Reason::PatchesOverlap {
                patch: one,
                at: first.start,
            };
            violations.push(Violation::Patch {
                patch: other,
                at: second.start,
                why,
            });
        }
    }
}
