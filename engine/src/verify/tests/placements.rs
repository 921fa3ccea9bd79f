//! Placements broken on purpose before the plan is made: the planner makes the best of them, and
//! the reader sees it.

use std::collections::BTreeMap;

use super::caught::{HITS, SITES};
use super::tactics::fixture;
use super::*;
use crate::extent::number;
use crate::placement::tests::walk::counts_each_hit_once;
use crate::placement::{
    Point, Reached, SiteIndex, Solution, Splice, Style, compare, coverage, place, place_in_styles,
};

/// Returns whether a dependence of a hook follows from another one.
fn is_implied(good: &Solution, reached: &Reached, need: usize) -> bool {
    let lost = reached.needs[need];
    let mut to_do: Vec<SiteIndex> = reached.needs.to_vec();
    to_do.retain(|&site| site != lost);
    let mut seen = to_do.clone();
    while let Some(site) = to_do.pop() {
        let there = good.hooks.iter().flatten();
        let there = there.filter(|one| one.points.contains(&(site, Point::Entry)));
        for &more in there.flat_map(|one| &one.needs) {
            if more == lost {
                return true;
            }
            if !seen.contains(&more) {
                seen.push(more);
                to_do.push(more);
            }
        }
    }
    false
}

/// The damage of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Damage {
    /// A hook has one point less.
    Point,
    /// A hook has another's points.
    Another,
    /// No hook has a point at a site, of those that have others.
    Site,
    /// A patch leaves to the text where it had a continuation.
    Continuation,
    /// A patch leaves to the text where it had a continuation.
    Row,
    /// A hook does not say all that it needs.
    Need,
    /// No wait for threads inside overwritten instructions.
    Wait,
    /// A long jump where there is room for a short one.
    Room,
}

impl Damage {
    /// Returns whether a placement with this damage may be right, and pass if the walker of
    /// placement's own tests agrees: the walker shares nothing with the verifier, and takes all
    /// paths. It checks control flow, and not the time of writes: other damage is never excused.
    ///
    /// Excused in real functions are: a patch that leaves to the text earlier, where no hook is on
    /// the way to the next site or out; points in the patch of a site that exists for its slots
    /// only, or that is unreachable while the function's other sites are in place; points of hooks
    /// in unreachable code, as after jumps that the kernel wrote at boot; the only edge out of one
    /// block for the only edge into the next; and a dependence on a site, if all paths from there
    /// pass other dependences.
    fn may_be_harmless(self) -> bool {
        !matches!(self, Self::Wait | Self::Room)
    }

    /// No verdicts yet on this damage.
    fn caught(self) -> Caught {
        let name = match self {
            Self::Point => "hooks with a point less",
            Self::Another => "hooks with the points of others",
            Self::Site => "hooks without points at a site",
            Self::Continuation => "sites with a continuation less",
            Self::Row => "sites with a shorter continuation",
            Self::Need => "hooks with a dependence less",
            Self::Wait => "sites without a wait",
            Self::Room => "long splices for short ones",
        };
        Caught::new(name, &[SITES, HITS])
    }
}

struct Damaged {
    kind: Damage,
    what: String,
    /// The hook whose needs these are: alone it has to be right too.
    alone: Option<usize>,
    placed: Solution,
}

/// Every way of taking one thing away from a placement.
fn damaged(good: &Solution, cfg: &Cfg) -> Vec<Damaged> {
    let mut all = Vec::new();
    let mut add = |kind: Damage, what: String, damage: &dyn Fn(&mut Solution)| {
        let mut placed = good.clone();
        damage(&mut placed);
        let changed = |hook: &usize| placed.hooks[*hook] != good.hooks[*hook];
        let alone = (0..good.hooks.len()).find(|hook| kind == Damage::Need && changed(hook));
        all.push(Damaged {
            kind,
            what,
            alone,
            placed,
        });
    };
    for (hook, reached) in good.hooks.iter().enumerate() {
        let Ok(reached) = reached else { continue };
        for point in 0..reached.points.len() {
            if reached.points.len() > 1 {
                let what = format!("point {point} of hook {hook}");
                add(Damage::Point, what, &|bad| {
                    bad.hooks[hook]
                        .as_mut()
                        .unwrap()
                        .points
                        .edit(|list| list.remove(point));
                });
            }
        }
        for need in 0..reached.needs.len() {
            if is_implied(good, reached, need) {
                continue;
            }
            let what = format!("need {need} of hook {hook}");
            add(Damage::Need, what, &|bad| {
                bad.hooks[hook]
                    .as_mut()
                    .unwrap()
                    .needs
                    .edit(|list| list.remove(need));
            });
        }
        // Another hook's points.
        let other = good
            .hooks
            .iter()
            .skip(hook + 1)
            .find_map(|other| other.as_ref().ok());
        if let Some(other) = other.filter(|other| other.points != reached.points) {
            let what = format!("another's points for hook {hook}");
            add(Damage::Another, what, &|bad| {
                bad.hooks[hook] = Ok(other.clone());
            });
        }
    }
    for (number, site) in good.sites.iter().enumerate() {
        let at_site = |(at, _): &(SiteIndex, Point)| at.0 as usize == number;
        let goes = |reached: &Reached| {
            reached.points.iter().any(at_site) && !reached.points.iter().all(at_site)
        };
        if good.hooks.iter().flatten().any(goes) {
            add(Damage::Site, format!("all of site {number}"), &|bad| {
                let hooks = bad.hooks.iter_mut().flatten();
                for reached in hooks.filter(|reached| goes(reached)) {
                    reached
                        .points
                        .edit(|points| points.retain(|point| !at_site(point)));
                }
            });
        }
        for (run_on, one) in site.continuations.iter().enumerate() {
            let what = format!("run-on {run_on} of site {number}");
            add(Damage::Continuation, what, &|bad| {
                let mut continuations = bad.sites[number].continuations.to_vec();
                continuations.remove(run_on);
                bad.sites[number].continuations = continuations.into();
            });
            let last = cfg
                .block_at(one.edge.to)
                .and_then(|block| {
                    let copied = block.instructions.iter().map(|one| Addr(one.ip()));
                    copied.take_while(|&at| at < one.copied.end).last()
                })
                .filter(|&last| last > one.copied.start);
            if let Some(last) = last {
                let what = format!("the end of run-on {run_on} of site {number}");
                add(Damage::Row, what, &|bad| {
                    bad.sites[number].continuations[run_on].copied.end = last;
                });
            }
        }
        if site.overwritten > 1 {
            add(Damage::Wait, format!("a wait for site {number}"), &|bad| {
                bad.sites[number].overwritten = 1;
            });
        }
        if let Splice::Short(bounce) = site.splice {
            let what = format!("the room of site {number}");
            add(Damage::Room, what, &|bad| {
                bad.sites[number].splice = Splice::Jump;
                bad.bounces
                    .retain(|one| *one != good.bounces[bounce.0 as usize]);
            });
        }
    }
    all
}

/// Numbers of damaged placements.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    all: usize,
    /// The planner itself refused.
    unplanned: usize,
    /// Passed, and are right all the same.
    harmless: usize,
    /// Are wrong by the walker too.
    known: usize,
}

impl Tried {
    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.unplanned += other.unplanned;
        self.harmless += other.harmless;
        self.known += other.known;
    }
}

pub(super) type Trials = BTreeMap<Damage, Tried>;

/// Tries all of them with all hooks of a session for one function; gives those that pass and are wrong to
/// `passing`, with why.
fn try_all(
    image: &Image,
    placements: Vec<Placement>,
    style: Style,
    step: usize,
    mut passing: impl FnMut(&str, &str, &Plan),
) -> Trials {
    let library = Library::builtin().unwrap();
    let mut layout = layout();
    layout.arena = Span::new(Addr(ARENA), 16 << 20);
    let session = session(placements);
    let mut kept = None;
    let good = plan_placed(image, &session, &library, &layout, |graphs, wanted| {
        let styles = vec![style; graphs.len()];
        let placed = place_in_styles(image, graphs, &styles, wanted).solution;
        assert_eq!(graphs.len(), 1);
        kept = Some((graphs[0].clone(), wanted.to_vec(), placed.clone()));
        placed
    })
    .unwrap();
    passes(image, &good);
    let (cfg, wanted, placed) = kept.unwrap();
    let walked = |placed: &Solution, alone: Option<usize>| {
        let active = |hook| alone.is_none_or(|alone| hook == alone);
        counts_each_hit_once(image, &cfg, &wanted, placed, active)
    };
    walked(&placed, None).unwrap();
    let mut trials = Trials::new();
    let mut caught = BTreeMap::<Damage, Caught>::new();
    for bad in damaged(&placed, &cfg).into_iter().step_by(step) {
        let Damaged {
            kind,
            what,
            alone,
            placed: bad,
        } = bad;
        let tried = trials.entry(kind).or_default();
        tried.all += 1;
        let right = walked(&bad, None).and_then(|()| alone.map_or(Ok(()), |_| walked(&bad, alone)));
        tried.known += usize::from(right.is_err());
        match plan_placed(image, &session, &library, &layout, |_, _| bad) {
            Ok(plan) => {
                let of_kind = caught.entry(kind).or_insert_with(|| kind.caught());
                match (of_kind.refuses(image, plan.clone(), &what), &right) {
                    (true, _) => {}
                    (false, Ok(())) if kind.may_be_harmless() => tried.harmless += 1,
                    (false, Ok(())) => passing(&what, "it is unsafe at times", &plan),
                    (false, Err(why)) => passing(&what, why, &plan),
                }
            }
            Err(_) => tried.unplanned += 1,
        }
    }
    trials
}

/// All hooks of a function that can be reached and are ever hit: one that never is may stand at
/// another that never is, and nothing is wrong.
pub(super) fn all_hooks(image: &Image, name: &str, cfg: &Cfg) -> Vec<Placement> {
    let wanted = coverage::wanted(0, image, cfg);
    let placed = place(image, &[cfg], &wanted);
    let reached = wanted
        .iter()
        .zip(placed.hooks)
        .filter(|(_, reached)| reached.is_ok());
    reached
        .map(|(want, _)| placement(name, want.block.0, want.hook, "counter"))
        .collect()
}

/// Returns whether all hooks of a function can be reached with it relocated whole.
fn whole(image: &Image, cfg: &Cfg) -> bool {
    let wanted = coverage::wanted(0, image, cfg);
    let hooks: Vec<_> = wanted.iter().map(|one| (one.block, one.hook)).collect();
    compare(image, cfg, &hooks).whole.is_ok()
}

#[test]
fn of_the_fixture() {
    let image = fixture().image();
    let mut all = Trials::new();
    for function in image.functions() {
        let cfg = Cfg::of(&image, function.id);
        let hooks = all_hooks(&image, &function.name, &cfg);
        if cfg.refusal.is_some() || hooks.is_empty() {
            continue;
        }
        let mut sessions: Vec<(Style, Vec<Placement>)> = hooks
            .iter()
            .map(|hook| (Style::InPlace, vec![hook.clone()]))
            .collect();
        sessions.push((Style::InPlace, hooks.clone()));
        if whole(&image, &cfg) {
            sessions.push((Style::Whole, hooks));
        }
        for (style, hooks) in sessions {
            let tried = try_all(&image, hooks, style, 1, |what, why, plan| {
                panic!(
                    "{} {style}: without {what} it passes, and {why}:\n{:?}\n{:?}",
                    function.name, plan.sites, plan.instruments
                )
            });
            for (kind, tried) in tried {
                all.entry(kind).or_default().add(tried);
            }
        }
    }
    println!("{all:#?}");
    for kind in [
        Damage::Point,
        Damage::Continuation,
        Damage::Wait,
        Damage::Room,
    ] {
        let tried = all.get(&kind).unwrap();
        assert!(tried.all > 2 * tried.harmless, "{kind:?}: {tried:?}");
    }
}

/// Functions of a real kernel in both styles; `GILK_IMAGE` is as in `engine/tests/kernel`.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn of_real_functions() {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: crate::kernel::LiveParts =
        postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let (skip, step) = (number("GILK_SKIP", 0), number("GILK_STEP", 2801));
    let mut passing = Vec::new();
    for style in [Style::InPlace, Style::Whole] {
        let mut all = Trials::new();
        for function in image.functions().iter().skip(skip).step_by(step) {
            let name = format!("{}@{:#x}", function.name, function.span.start.0);
            let cfg = Cfg::of(&image, function.id);
            if cfg.refusal.is_some() || cfg.blocks.len() > 150 {
                continue;
            }
            let hooks = all_hooks(&image, &name, &cfg);
            if hooks.is_empty() || style == Style::Whole && !whole(&image, &cfg) {
                continue;
            }
            let step = 1 + cfg.blocks.len() / 20;
            let tried = try_all(&image, hooks, style, step, |what, why, _| {
                passing.push(format!("{style} {name}, without {what}: {why}"));
            });
            for (kind, tried) in tried {
                all.entry(kind).or_default().add(tried);
            }
        }
        println!("{style}:");
        for (kind, tried) in &all {
            println!("  {kind:?}: {tried:?}");
        }
        let (mut sum, kinds) = (Tried::default(), all.len());
        all.into_values().for_each(|tried| sum.add(tried));
        println!("  together: {sum:?}");
        assert!(sum.all > 300 && kinds > 4 && sum.all > 5 * sum.harmless);
    }
    println!("{} are wrong and pass", passing.len());
    for passing in &passing {
        println!("{passing}");
    }
    assert!(passing.is_empty());
}
