//! Placements broken on purpose before the plan is made: the planner makes the best of them, and
//! the reader sees it.

use super::tactics::fixture;
use super::*;
use crate::placement::{
    Placement as Placed, Point, Reached, SiteIndex, Splice, Style, compare, coverage, place,
    place_in_styles,
};

/// Whether what a hook needs is needed by something else that it needs.
fn is_implied(good: &Placed, reached: &Reached, need: usize) -> bool {
    let lost = reached.needs[need];
    let mut to_do: Vec<SiteIndex> = reached.needs.clone();
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

/// Every way of taking one thing away from a placement.
fn damaged(good: &Placed, style: Style) -> Vec<(String, Placed)> {
    let mut all = Vec::new();
    let mut add = |what: String, damage: &dyn Fn(&mut Placed)| {
        let mut bad = good.clone();
        damage(&mut bad);
        all.push((what, bad));
    };
    for (hook, reached) in good.hooks.iter().enumerate() {
        let Ok(reached) = reached else { continue };
        for point in 0..reached.points.len() {
            if reached.points.len() > 1 {
                add(format!("point {point} of hook {hook}"), &|bad| {
                    bad.hooks[hook].as_mut().unwrap().points.remove(point);
                });
            }
        }
        for need in 0..reached.needs.len() {
            if is_implied(good, reached, need) {
                continue;
            }
            add(format!("need {need} of hook {hook}"), &|bad| {
                bad.hooks[hook].as_mut().unwrap().needs.remove(need);
            });
        }
        // Another hook's points.
        let other = good
            .hooks
            .iter()
            .skip(hook + 1)
            .find_map(|other| other.as_ref().ok());
        if let Some(other) = other.filter(|other| other.points != reached.points) {
            add(format!("another's points for hook {hook}"), &|bad| {
                bad.hooks[hook] = Ok(other.clone());
            });
        }
    }
    for (number, site) in good.sites.iter().enumerate() {
        for run_on in 0..site.run_ons.len() {
            let to = site.run_ons[run_on].edge.to;
            if style == Style::Whole && good.sites.iter().any(|one| one.displaced.start == to) {
                // Left for the text there, it comes to the same in the patch of that site.
                continue;
            }
            add(format!("run-on {run_on} of site {number}"), &|bad| {
                bad.sites[number].run_ons.remove(run_on);
            });
        }
        if site.overwritten > 1 {
            add(format!("a wait for site {number}"), &|bad| {
                bad.sites[number].overwritten = 1;
            });
        }
        if let Splice::Short(bounce) = site.splice {
            add(format!("the room of site {number}"), &|bad| {
                bad.sites[number].splice = Splice::Jump;
                bad.bounces
                    .retain(|one| *one != good.bounces[bounce.0 as usize]);
            });
        }
    }
    all
}

/// Tries all of them. Gives how many there were, and how many the planner itself refused.
pub(super) fn try_all(
    image: &Image,
    placements: Vec<Placement>,
    style: Style,
    step: usize,
    mut passing: impl FnMut(&str, &Plan),
) -> (usize, usize) {
    let library = Library::builtin().unwrap();
    let mut layout = layout();
    layout.arena = Span::new(Addr(ARENA), 16 << 20);
    let session = session(placements);
    let mut kept = None;
    let good = plan_placed(image, &session, &library, &layout, |graphs, wanted| {
        let styles = vec![style; graphs.len()];
        let placed = place_in_styles(image, graphs, &styles, wanted).placement;
        kept = Some(placed.clone());
        placed
    })
    .unwrap();
    passes(image, &good);
    let (mut tried, mut unplanned) = (0, 0);
    for (what, bad) in damaged(&kept.unwrap(), style).into_iter().step_by(step) {
        tried += 1;
        match plan_placed(image, &session, &library, &layout, |_, _| bad) {
            Ok(plan) => {
                if verify(image, plan.clone()).is_ok() {
                    passing(&what, &plan);
                }
            }
            Err(_) => unplanned += 1,
        }
    }
    (tried, unplanned)
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

/// Whether all hooks of a function can be reached with it relocated whole.
fn whole(image: &Image, cfg: &Cfg) -> bool {
    let wanted = coverage::wanted(0, image, cfg);
    let hooks: Vec<_> = wanted.iter().map(|one| (one.block, one.hook)).collect();
    compare(image, cfg, &hooks).whole.is_ok()
}

#[test]
fn of_the_fixture() {
    let image = fixture().image();
    for function in image.functions() {
        let cfg = Cfg::of(&image, function.id);
        let hooks = all_hooks(&image, &function.name, &cfg);
        if cfg.refusal.is_some() || hooks.is_empty() {
            continue;
        }
        for style in [Style::InPlace, Style::Whole] {
            if style == Style::Whole && !whole(&image, &cfg) {
                continue;
            }
            let tried = try_all(&image, hooks.clone(), style, 1, |what, plan| {
                panic!(
                    "{} {style}: without {what} it passes:\n{:?}\n{:?}",
                    function.name, plan.sites, plan.instruments
                )
            });
            println!("{} all {style}: {tried:?}", function.name);
        }
        for hook in hooks {
            let tried = try_all(&image, vec![hook], Style::InPlace, 1, |what, plan| {
                panic!(
                    "{}: without {what} it passes:\n{:?}\n{:?}",
                    function.name, plan.sites, plan.instruments
                )
            });
            println!("{} one: {tried:?}", function.name);
        }
    }
}

/// Functions of a real kernel; `GILK_IMAGE` is as in `engine/tests/verify_kernel.rs`.
#[test]
#[ignore = "needs GILK_IMAGE, a file of what was read from a kernel"]
fn of_real_functions() {
    let file = std::env::var_os("GILK_IMAGE")
        .expect("GILK_IMAGE names no file; it should name an image read from a kernel");
    let parts: crate::image::LiveParts =
        postcard::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let image = Image::from_live(&parts).unwrap();
    let (mut all, mut unplanned, mut passing) = (0, 0, Vec::new());
    let number = |name: &str, default| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let skip = number("GILK_SKIP", 0);
    for function in image
        .functions()
        .iter()
        .skip(skip)
        .step_by(number("GILK_STEP", 397))
    {
        let name = format!("{}@{:#x}", function.name, function.span.start.0);
        let cfg = Cfg::of(&image, function.id);
        if cfg.refusal.is_some() || cfg.blocks.len() > 150 {
            continue;
        }
        let hooks = all_hooks(&image, &name, &cfg);
        if hooks.is_empty() {
            continue;
        }
        let step = 1 + cfg.blocks.len() / 20;
        let (more, without) = try_all(&image, hooks, Style::InPlace, step, |what, _| {
            passing.push(format!("{name}: {what}"));
        });
        (all, unplanned) = (all + more, unplanned + without);
    }
    println!(
        "{all} placements broken, of {unplanned} no plan could be made; {} pass",
        passing.len()
    );
    for passing in &passing {
        println!("{passing}");
    }
    assert!(passing.is_empty() && all > 300);
}
