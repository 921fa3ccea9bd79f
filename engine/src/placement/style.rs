//! In place or whole: the cost of all hooks of a function in both styles, and the choice.

use std::fmt;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::body::Body;
use super::estimate::{self, moved_calls, transfers};
use super::finish::finish;
use super::ids::PartId;
use super::options::{bodies, goal};
use super::solution::{Reached, Site, Solution, Wanted};
use super::solve::{Goal, Neighbours, Problem};
use super::splice::SPLICE_BYTES;
use super::tactic::{Tactic, Tactics};
use crate::cfg::{BlockIndex, Cfg};
use crate::ids::{Id, Ids, to_u32};
use crate::{HookType, Image, Refusal};

/// The placement of a function's hooks.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Style {
    /// A splice at each hook.
    #[default]
    InPlace,
    /// Whole if that is cheaper by [`Comparison::cheaper`], and in place otherwise.
    Auto,
    /// The function is relocated whole: splices stand at its entrances, and their patches continue until control
    /// leaves it.
    Whole,
}

impl Style {
    /// Every style.
    pub const ALL: [Self; 3] = [Self::InPlace, Self::Auto, Self::Whole];

    /// The style's name in reports and windows.
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

/// The cost of all hooks of a function in one style, when they are alone in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StyleCost {
    /// Number of hooks that are reached.
    pub reached: u32,
    /// Number of hooks of those that are reached by an `int3`.
    pub traps: u32,
    /// Number of splices, those of donors included.
    pub sites: u32,
    /// Number of bounces.
    pub bounces: u32,
    /// Bytes of original code that are overwritten.
    pub written: u64,
    /// Bytes of original code in patches, each as often as it is copied.
    pub copied: u64,
    /// Number of points in patches.
    pub points: u32,
    /// Number of splices over more than one instruction, which require quiescence.
    pub waits: u32,
    /// Number of calls in patches, each as often as it is copied: there it is a push of the return address and a jump,
    /// and every outer return mispredicts.
    pub moved_calls: u32,
    /// Jumps between the original code and patches, beyond the program's own, expected on one pass through the
    /// function. A static estimate: a block executes once, or [`StyleCost::LOOP`] times in a loop, and takes
    /// its edges equally often. A splice with a bounce is two jumps.
    pub jumps: f64,
    /// Nanoseconds of these jumps, of traps, of the tracer's calls and of moved calls, by the times of
    /// [`nanoseconds`](crate::nanoseconds). Without the instruments, which take as long in either style.
    pub ns: f64,
}

impl StyleCost {
    /// Assumed executions of a block in a loop on one pass.
    pub const LOOP: f64 = estimate::LOOP;

    const NOTHING: Self = Self {
        reached: 0,
        traps: 0,
        sites: 0,
        bounces: 0,
        written: 0,
        copied: 0,
        points: 0,
        waits: 0,
        moved_calls: 0,
        jumps: 0.0,
        ns: 0.0,
    };

    fn of(problem: &Problem<'_, '_>, solution: &Solution) -> Self {
        let sites = &solution.sites;
        let reached = || solution.hooks.iter().flatten();
        let copied = sites.iter().map(|site| {
            let mut rows: Vec<_> = site
                .continuations
                .iter()
                .map(|continuation| continuation.copied)
                .collect();
            rows.sort_unstable();
            rows.dedup();
            let rows: u64 = rows.iter().map(|row| row.len()).sum();
            site.displaced.len() + rows
        });
        let written = |site: &Site| site.splice.bytes() + u64::from(site.filled.count_ones());
        let splices: u64 = sites.iter().map(written).sum();
        let transfers: Vec<_> = problem.parts.values().iter().map(transfers).collect();
        Self {
            reached: to_u32(reached().count()),
            traps: to_u32(reached().filter(|hook| hook.tactic == Tactic::Trap).count()),
            sites: to_u32(sites.len()),
            bounces: to_u32(solution.bounces.len()),
            written: splices + SPLICE_BYTES * solution.bounces.len() as u64,
            copied: copied.sum(),
            points: to_u32(reached().map(|hook| hook.points.len()).sum()),
            waits: to_u32(sites.iter().filter(|site| site.overwritten > 1).count()),
            moved_calls: to_u32(problem.parts.values().iter().map(moved_calls).sum()),
            jumps: transfers.iter().map(|one| one.jumps).sum(),
            ns: transfers.iter().map(|one| one.ns).sum(),
        }
    }
}

impl fmt::Display for StyleCost {
    /// `2.1 ns and 3.5 jumps a pass, 4 splices and 1 bounce, 27 bytes written, 154 bytes copied, 9 points, 3 waits`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{:.1} ns and {:.1} jumps a pass, {} splice{}",
            self.ns,
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
        if self.moved_calls > 0 {
            let moved = self.moved_calls;
            write!(f, ", {moved} moved call{}", plural(moved))?;
        }
        if self.traps > 0 {
            write!(f, ", {} hook{} by int3", self.traps, plural(self.traps))?;
        }
        Ok(())
    }
}

/// The costs of some hooks of one function in both styles.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Number of hooks.
    pub hooks: u32,
    /// Cost in place.
    pub in_place: StyleCost,
    /// Cost whole; or the refusal of a hook that can be reached in place.
    pub whole: Result<StyleCost, Refusal>,
}

impl Comparison {
    /// Least number of hooks for which [`Style::Auto`] compares the styles.
    pub const FROM: u32 = 8;
    /// Greatest multiple of the bytes copied in place that [`Style::Auto`] accepts.
    pub const TIMES: u64 = 4;
    /// Maximum number of launch and splash times of a function's instruments for which a plan considers
    /// [`Style::Whole`]: each takes new versions of all its patches.
    pub const MOST_TIMES: usize = 8;

    /// The comparison of no hooks.
    const fn nothing() -> Self {
        Self {
            hooks: 0,
            in_place: StyleCost::NOTHING,
            whole: Ok(StyleCost::NOTHING),
        }
    }

    /// Returns whole if there are [`Self::FROM`] hooks or more, all that are reached in place are reached, no
    /// more of them by an `int3`, in less time a pass, and with at most [`Self::TIMES`] times the
    /// bytes copied; otherwise in place.
    #[must_use]
    pub fn cheaper(&self) -> Style {
        match &self.whole {
            Ok(whole)
                if self.hooks >= Self::FROM
                    && whole.reached >= self.in_place.reached
                    && whole.traps <= self.in_place.traps
                    && whole.ns < self.in_place.ns
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

/// Returns the cost of some hooks of a function in both styles.
#[must_use]
pub fn compare(image: &Image, cfg: &Cfg, hooks: &[(BlockIndex, HookType)]) -> Comparison {
    let neighbours = Neighbours::new(image, Tactics::ALL);
    let (bodies, positions) = bodies(image, &[cfg]);
    let wanted = hooks.iter().map(|&(block, hook)| Wanted {
        graph: 0,
        block,
        hook,
    });
    let goals: Vec<(PartId, Goal)> = wanted.map(|wanted| goal(&positions, &wanted)).collect();
    let body = bodies.first();
    debug_assert!(body.is_some(), "a graph has a body");
    body.map_or_else(Comparison::nothing, |body| both(&neighbours, body, &goals))
}

/// Compares the styles of the first function of a problem.
fn both<'a>(
    neighbours: &Neighbours<'a>,
    body: &Rc<Body<'a>>,
    goals: &[(PartId, Goal)],
) -> Comparison {
    let solve = |whole: bool| {
        let mut problem = Problem::new(neighbours, [Rc::clone(body)], goals);
        if whole {
            problem.relocate_whole(PartId::new(0));
        }
        problem.solve();
        let solution = finish(&mut problem);
        (StyleCost::of(&problem, &solution), solution.hooks)
    };
    let (in_place, before) = solve(false);
    let (cost, after) = solve(true);
    // The first hook that is reached in place and not whole.
    let mut pairs = before.iter().zip(after);
    let lost = pairs.find_map(|(before, after)| after.err().filter(|_| before.is_ok()));
    Comparison {
        hooks: to_u32(goals.len()),
        in_place,
        whole: lost.map_or(Ok(cost), Err),
    }
}

/// The solution of a session, each function in a style.
#[derive(Clone, Debug, PartialEq)]
pub struct Styled {
    /// Sites, bounces and points.
    pub solution: Solution,
    /// For each graph the style chosen, in place or whole.
    pub styles: Vec<Style>,
    /// For each graph the cost of both, where both were tried.
    pub compared: Vec<Option<Comparison>>,
}

/// As [`super::place`], with each graph in the style at its index in `styles` ([`Style::InPlace`]
/// if there is none). Deterministic.
///
/// A function with the style [`Style::Auto`] is relocated whole if that is cheaper for it alone, and only if no hook
/// of the session is then refused, or reached by an `int3`, that otherwise is not. A function with the style
/// [`Style::Whole`] refuses hooks that cannot be reached so.
#[must_use]
pub fn place_in_styles(
    image: &Image,
    graphs: &[&Cfg],
    styles: &[Style],
    wanted: &[Wanted],
) -> Styled {
    let neighbours = Neighbours::new(image, Tactics::ALL);
    let (bodies, positions) = bodies(image, graphs);
    let bodies: Ids<PartId, Rc<Body<'_>>> = bodies.into();
    let goals: Vec<(PartId, Goal)> = wanted
        .iter()
        .map(|wanted| goal(&positions, wanted))
        .collect();
    // A function and its parts have one style: the greatest that one of them requests.
    let mut requested: Ids<PartId, Option<Style>> = Ids::like(&bodies, None);
    for (position, &style) in positions.iter().zip(styles) {
        if position.part != PartId::NONE {
            let requested = &mut requested[position.part];
            *requested = Some(requested.map_or(style, |other| style.max(other)));
        }
    }
    let requested = requested.into_values().into_iter();
    let requested: Ids<PartId, Style> = requested.map(Option::unwrap_or_default).collect();
    let mut goals_of: Ids<PartId, Vec<(PartId, Goal)>> = Ids::like(&bodies, Vec::new());
    for &(part, goal) in goals.iter().filter(|(part, _)| *part != PartId::NONE) {
        if requested[part] != Style::InPlace {
            goals_of[part].push((PartId::new(0), goal));
        }
    }
    let compared = bodies.iter().map(|(part, body)| {
        let goals = &goals_of[part];
        let is_compared = match requested[part] {
            Style::Auto => goals.len() >= Comparison::FROM as usize,
            Style::InPlace => false,
            Style::Whole => true,
        };
        (is_compared && body.refusal.is_none()).then(|| both(&neighbours, body, goals))
    });
    let compared: Ids<PartId, Option<Comparison>> = compared.collect();
    let chosen = requested
        .iter()
        .map(|(part, &style)| match (style, &compared[part]) {
            (Style::Auto, Some(compared)) => compared.cheaper(),
            (Style::Auto, None) => Style::InPlace,
            (style, _) => style,
        });
    let mut chosen: Ids<PartId, Style> = chosen.collect();
    let solve = |chosen: &Ids<PartId, Style>| {
        let bodies = bodies.values().iter().cloned();
        let mut problem = Problem::new(&neighbours, bodies, &goals);
        let whole = chosen.iter().filter(|(_, style)| **style == Style::Whole);
        for (part, _) in whole {
            problem.relocate_whole(part);
        }
        problem.solve();
        finish(&mut problem)
    };
    let mut solution = solve(&chosen);
    let is_bad = |hook: &Result<Reached, Refusal>| {
        let tactic = hook.as_ref().map(|reached| reached.tactic);
        tactic.map_or(true, |tactic| tactic == Tactic::Trap)
    };
    let by_choice = |part: PartId| requested[part] == Style::Auto && chosen[part] == Style::Whole;
    if chosen.keys().any(by_choice) && solution.hooks.iter().any(is_bad) {
        // Functions compete for slots: none that had the choice may take another's, or lack its own.
        let in_place = requested.iter().map(|(part, &style)| match style {
            Style::Auto => Style::InPlace,
            Style::InPlace | Style::Whole => chosen[part],
        });
        let in_place: Ids<PartId, Style> = in_place.collect();
        let alternative = solve(&in_place);
        let mut pairs = alternative.hooks.iter().zip(&solution.hooks);
        if pairs.any(|(before, after)| is_bad(after) && !is_bad(before)) {
            (solution, chosen) = (alternative, in_place);
        }
    }
    for (hook, &(part, _)) in solution.hooks.iter_mut().zip(&goals) {
        if let Err(refusal) = hook
            && part != PartId::NONE
            && requested[part] == Style::Whole
        {
            refusal.why += "; the session requests that the function be relocated whole";
        }
    }
    let parts = || positions.iter().map(|position| position.part);
    let style = |part: PartId| chosen.find(part).copied().unwrap_or_default();
    Styled {
        solution,
        styles: parts().map(style).collect(),
        compared: parts()
            .map(|part| compared.find(part).cloned().flatten())
            .collect(),
    }
}
