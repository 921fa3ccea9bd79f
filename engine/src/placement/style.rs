//! In place or whole: what all hooks of a function cost either way, and which way is taken.

use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::estimate::jumps;
use super::finish::finish;
use super::options::{Place, ask, outlines};
use super::segments::Outline;
use super::solve::{Ask, Neighbours, Problem};
use super::{Reached, SPLICE_BYTES, Solution, Tactic, Wanted};
use crate::cfg::{BlockIndex, Cfg};
use crate::{HookType, Image, Refusal};

/// How the hooks of a function are reached.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Style {
    /// A splice where each hook is.
    #[default]
    InPlace,
    /// Whole if that is cheaper by [`Comparison::cheaper`], and in place otherwise.
    Auto,
    /// The function is relocated whole: splices stand where control comes into it, and their patches
    /// run on until it leaves.
    Whole,
}

impl Style {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::InPlace, Self::Auto, Self::Whole];

    /// What a person reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::InPlace => "in place",
            Self::Whole => "whole",
        }
    }
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What all hooks of a function cost in one style, when they are alone in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StyleCost {
    /// Hooks that are reached.
    pub reached: u32,
    /// Hooks of those that are reached by an `int3`.
    pub traps: u32,
    /// Splices, donors' included.
    pub sites: u32,
    /// Bounces on the way to patches.
    pub bounces: u32,
    /// Bytes of the text that are written over.
    pub written: u64,
    /// Bytes of original code in patches, each as often as it is copied.
    pub copied: u64,
    /// Places in patches where instruments of the hooks stand.
    pub points: u32,
    /// Splices over more than one instruction, before which threads among them are waited for.
    pub waits: u32,
    /// Jumps between the text and patches, beyond the program's own, expected on one pass through the
    /// function. A static estimate: a block counts once, or [`StyleCost::LOOP`] times in a loop, and its
    /// ways out share that evenly. A splice with a bounce is two jumps, the function tracer's call is
    /// [`StyleCost::TRACER`], and an `int3` [`StyleCost::TRAP`].
    pub jumps: f64,
}

impl StyleCost {
    /// How often a block in a loop is taken to run on one pass.
    pub const LOOP: f64 = 8.0;
    /// Jumps that the function tracer's call takes the time of.
    pub const TRACER: f64 = 20.0;
    /// Jumps that an `int3` takes the time of.
    pub const TRAP: f64 = 200.0;

    const NOTHING: Self = Self {
        reached: 0,
        traps: 0,
        sites: 0,
        bounces: 0,
        written: 0,
        copied: 0,
        points: 0,
        waits: 0,
        jumps: 0.0,
    };

    fn of(problem: &Problem<'_, '_>, placement: &Solution) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let sites = &placement.sites;
        let reached = || placement.hooks.iter().flatten();
        let copied = sites.iter().map(|site| {
            let mut rows: Vec<_> = site
                .continuations
                .iter()
                .map(|run_on| run_on.copied)
                .collect();
            rows.sort_unstable();
            rows.dedup();
            let rows: u64 = rows.iter().map(|row| row.len()).sum();
            site.displaced.len() + rows
        });
        let splices: u64 = sites.iter().map(|site| site.splice.bytes()).sum();
        Self {
            reached: count(reached().count()),
            traps: count(reached().filter(|one| one.tactic == Tactic::Trap).count()),
            sites: count(sites.len()),
            bounces: count(placement.bounces.len()),
            written: splices + SPLICE_BYTES * placement.bounces.len() as u64,
            copied: copied.sum(),
            points: count(reached().map(|one| one.points.len()).sum()),
            waits: count(sites.iter().filter(|site| site.overwritten > 1).count()),
            jumps: problem.parts.iter().map(jumps).sum(),
        }
    }
}

impl fmt::Display for StyleCost {
    /// `3.5 jumps a pass, 4 splices and 1 bounce, 27 bytes written, 154 bytes copied, 9 points, 3 waits`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{:.1} jumps a pass, {} splice{}",
            self.jumps,
            self.sites,
            plural(self.sites)
        )?;
        if self.bounces > 0 {
            write!(f, " and {} bounce{}", self.bounces, plural(self.bounces))?;
        }
        write!(
            f,
            ", {} bytes written, {} bytes copied, {} point{}, {} wait{}",
            self.written,
            self.copied,
            self.points,
            plural(self.points),
            self.waits,
            plural(self.waits)
        )?;
        if self.traps > 0 {
            write!(f, ", {} hook{} by int3", self.traps, plural(self.traps))?;
        }
        Ok(())
    }
}

/// Both styles for one function and some hooks of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How many hooks.
    pub hooks: u32,
    /// In place.
    pub in_place: StyleCost,
    /// Whole; or why a hook that can be reached in place cannot be so.
    pub whole: Result<StyleCost, Refusal>,
}

impl Comparison {
    /// From so many hooks on, [`Style::Auto`] looks at both styles.
    pub const FROM: u32 = 8;
    /// How many times the bytes copied in place [`Style::Auto`] may take.
    pub const TIMES: u64 = 4;
    /// A plan takes [`Style::Auto`] for in place where a function's instruments come or go at more
    /// times than these: patches are made anew for each.
    pub const MOST_TIMES: usize = 8;

    /// Of a function that is not there.
    const fn nothing() -> Self {
        Self {
            hooks: 0,
            in_place: StyleCost::NOTHING,
            whole: Ok(StyleCost::NOTHING),
        }
    }

    /// Whole if there are [`Self::FROM`] hooks or more, all that are reached in place are reached, no
    /// more of them by an `int3`, with fewer jumps a pass, and with at most [`Self::TIMES`] times the
    /// bytes copied; otherwise in place.
    #[must_use]
    pub fn cheaper(&self) -> Style {
        match &self.whole {
            Ok(whole)
                if self.hooks >= Self::FROM
                    && whole.reached >= self.in_place.reached
                    && whole.traps <= self.in_place.traps
                    && whole.jumps < self.in_place.jumps
                    && whole.copied <= Self::TIMES * self.in_place.copied =>
            {
                Style::Whole
            }
            _ => Style::InPlace,
        }
    }
}

impl fmt::Display for Comparison {
    /// A line for each style.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  in place: {}", self.in_place)?;
        match &self.whole {
            Ok(whole) => writeln!(f, "  whole: {whole}"),
            Err(refusal) => writeln!(f, "  whole: refused by {refusal}"),
        }
    }
}

/// What some hooks of a function cost in either style.
#[must_use]
pub fn compare(image: &Image, cfg: &Cfg, hooks: &[(BlockIndex, HookType)]) -> Comparison {
    let neighbours = Neighbours::new(image);
    let (outlines, places) = outlines(image, &[cfg]);
    let wanted = hooks.iter().map(|&(block, hook)| Wanted {
        graph: 0,
        block,
        hook,
    });
    let asks: Vec<(usize, Ask)> = wanted.map(|wanted| ask(&places, &wanted)).collect();
    outlines
        .first()
        .map_or_else(Comparison::nothing, |outline| {
            both(&neighbours, outline, &asks)
        })
}

/// The same for a function that is looked at already.
fn both<'a>(
    neighbours: &Neighbours<'a>,
    outline: &Rc<Outline<'a>>,
    asks: &[(usize, Ask)],
) -> Comparison {
    let solved = |whole: bool| {
        let mut problem = Problem::new(neighbours, [Rc::clone(outline)], asks);
        if whole {
            problem.relocate_whole(0);
        }
        problem.solve();
        let placement = finish(&mut problem);
        (StyleCost::of(&problem, &placement), placement)
    };
    let (in_place, known) = solved(false);
    let (cost, whole) = solved(true);
    let lost = lost(&known.hooks, &whole.hooks);
    Comparison {
        hooks: u32::try_from(asks.len()).unwrap_or(u32::MAX),
        in_place,
        whole: lost.map_or(Ok(cost), Err),
    }
}

type Hooks = [Result<Reached, Refusal>];

/// Why the first hook is not reached that was.
fn lost(known: &Hooks, now: &Hooks) -> Option<Refusal> {
    let lost = |(known, now): (&Result<_, _>, &Result<_, Refusal>)| match now {
        Err(refusal) if known.is_ok() => Some(refusal.clone()),
        _ => None,
    };
    known.iter().zip(now).find_map(lost)
}

/// Sites for all hooks of a session, each function in a style.
#[derive(Clone, Debug, PartialEq)]
pub struct Styled {
    /// The sites.
    pub solution: Solution,
    /// For each graph the style taken, in place or whole.
    pub styles: Vec<Style>,
    /// For each graph what both cost, where both were looked at.
    pub compared: Vec<Option<Comparison>>,
}

/// As [`super::place`], each function in the style of the same place in `styles` ([`Style::InPlace`]
/// if there is none). The same on every run.
///
/// A function that was left the choice is relocated whole if that is cheaper for it alone and if every hook of the
/// session is reached then that would be otherwise. One that was not refuses what cannot be reached so.
#[must_use]
pub fn place_in_styles(
    image: &Image,
    graphs: &[&Cfg],
    styles: &[Style],
    wanted: &[Wanted],
) -> Styled {
    let neighbours = Neighbours::new(image);
    let (outlines, places) = outlines(image, graphs);
    let asks: Vec<(usize, Ask)> = wanted.iter().map(|wanted| ask(&places, wanted)).collect();
    // A function and its parts go together: what is said of one of them holds for all.
    let mut said: Vec<Option<Style>> = vec![None; outlines.len()];
    for (&(part, _), &style) in places.iter().zip(styles) {
        if let Some(said) = said.get_mut(part) {
            *said = Some(said.map_or(style, |said| style.max(said)));
        }
    }
    let asked = |part: usize| said.get(part).copied().flatten().unwrap_or_default();
    let mut own: Vec<Vec<(usize, Ask)>> = vec![Vec::new(); outlines.len()];
    for &(part, ask) in asks
        .iter()
        .filter(|(part, _)| asked(*part) != Style::InPlace)
    {
        if let Some(own) = own.get_mut(part) {
            own.push((0, ask));
        }
    }
    let compared = outlines.iter().zip(&own).enumerate();
    let compared = compared.map(|(part, (outline, asks))| {
        let looked_at = match asked(part) {
            Style::Auto => asks.len() >= Comparison::FROM as usize,
            Style::InPlace => false,
            Style::Whole => true,
        };
        (looked_at && outline.refused.is_none()).then(|| both(&neighbours, outline, asks))
    });
    let compared: Vec<Option<Comparison>> = compared.collect();
    let taken = compared.iter().enumerate();
    let taken = taken.map(|(part, compared)| match (asked(part), compared) {
        (Style::Auto, Some(compared)) => compared.cheaper(),
        (Style::Auto, None) => Style::InPlace,
        (style, _) => style,
    });
    let mut taken: Vec<Style> = taken.collect();
    let solved = |taken: &[Style]| {
        let mut problem = Problem::new(&neighbours, outlines.iter().cloned(), &asks);
        for (part, _) in taken
            .iter()
            .enumerate()
            .filter(|(_, style)| **style == Style::Whole)
        {
            problem.relocate_whole(part);
        }
        problem.solve();
        finish(&mut problem)
    };
    let mut placement = solved(&taken);
    let chosen = |part: usize, taken: &[Style]| {
        asked(part) == Style::Auto && taken.get(part) == Some(&Style::Whole)
    };
    let worse = |hook: &Result<Reached, Refusal>| {
        hook.as_ref()
            .map_or(true, |reached| reached.tactic == Tactic::Trap)
    };
    if (0..taken.len()).any(|part| chosen(part, &taken)) && placement.hooks.iter().any(worse) {
        // Functions compete for slots: none that had the choice may take another's, or lack its own.
        let mut in_place = taken.clone();
        for (part, style) in in_place.iter_mut().enumerate() {
            if asked(part) == Style::Auto {
                *style = Style::InPlace;
            }
        }
        let known = solved(&in_place);
        let is_worse = known
            .hooks
            .iter()
            .zip(&placement.hooks)
            .any(|(known, now)| worse(now) && !worse(known));
        if is_worse {
            (placement, taken) = (known, in_place);
        }
    }
    for (hook, &(part, _)) in placement.hooks.iter_mut().zip(&asks) {
        if let Err(refusal) = hook
            && asked(part) == Style::Whole
        {
            refusal.why += "; the session asks for the function to be relocated whole";
        }
    }
    let of = |place: &Place| taken.get(place.0).copied().unwrap_or(Style::InPlace);
    Styled {
        solution: placement,
        styles: places.iter().map(of).collect(),
        compared: places
            .iter()
            .map(|place| compared.get(place.0).cloned().flatten())
            .collect(),
    }
}
