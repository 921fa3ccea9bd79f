//! An independent reader of a plan: decodes what will be written and proves it.
//!
//! It shares with the planner the decoder, the plan's types and the image, and nothing else: no
//! graph, no liveness, no encoder. What the plan says of itself (which bytes of a patch are what,
//! where blocks begin, how many instructions are overwritten) is taken as a claim and checked.
//!
//! - `target`: the layout makes sense, patches and sites are apart.
//! - `schedule`: batches played over the text; every poke finds what it expects, and at the end
//!   everything is as it was.
//! - `routine`, `effects`, `live`, `site`, `hooks`: functions decoded from their start; where splices
//!   may be, and whether they lead to the blocks that identifiers name.
//! - `walk` with `state`, `step`, `operands`, `place`: every path of every patch, run on numbers that
//!   are known only by where they come from (`value`, `arithmetic`, `sum`).
//! - `hit`, `timer`: what an instrument may write, and when it has done what it is there for.
//! - `same`, `ending`, `shape`: the relocated instructions are the original ones, control goes on
//!   where it would have gone, nothing loops, and no byte is unaccounted for.
//!
//! What it takes for granted: the image (bytes, the kernel's own sites, addresses that other code
//! leads to, which functions are compiled C), and that the driver's words and tables are where the
//! layout says.

mod arithmetic;
mod callee;
mod effects;
mod ending;
mod hit;
mod hooks;
mod live;
mod operands;
mod place;
mod routine;
mod same;
mod schedule;
mod shape;
mod site;
mod state;
mod step;
mod sum;
mod target;
#[cfg(test)]
mod tests;
mod timer;
mod value;
mod violation;
mod walk;

use std::collections::BTreeMap;

use self::callee::Callees;
use self::hooks::{ById, SampledAt};
use self::live::Live;
use self::routine::Routine;
use self::step::Machine;
use self::value::Values;
use self::walk::{Displaced, Walk};
use crate::plan::{Patch, Plan};
use crate::{Addr, HookType, Image};

pub use violation::Violation;

/// A plan that passed; the only kind that can be sent to a target.
#[derive(Clone, Debug)]
pub struct VerifiedPlan(Plan);

impl VerifiedPlan {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.0
    }
}

/// Proves a plan, or says everything that is wrong with it. Of each patch the first thing found.
///
/// # Errors
/// Every violation found, at least one.
pub fn verify(image: &Image, plan: Plan) -> Result<VerifiedPlan, Vec<Violation>> {
    let mut violations = Vec::new();
    target::check(image, &plan, &mut violations);
    hooks::functions(image, &plan, &mut violations);
    let by_id = hooks::by_id(&plan, &mut violations);
    let mut reader = Reader {
        image,
        plan: &plan,
        by_id,
        routines: BTreeMap::new(),
        timers: BTreeMap::new(),
        violations,
    };
    reader.read_routines();
    let overwritten = reader.patches();
    reader.instruments();
    let mut violations = reader.violations;
    schedule::play(image, &plan, &overwritten, &mut violations);
    if violations.is_empty() {
        Ok(VerifiedPlan(plan))
    } else {
        Err(violations)
    }
}

struct Reader<'a> {
    image: &'a Image,
    plan: &'a Plan,
    by_id: ById<'a>,
    /// By start: the functions that are touched.
    routines: BTreeMap<Addr, (Routine, Live)>,
    /// Where the entry of each timer is, as a function of the running task.
    timers: BTreeMap<u8, String>,
    violations: Vec<Violation>,
}

impl Reader<'_> {
    /// Decodes every function that a splice is in.
    fn read_routines(&mut self) {
        let mut sampled: BTreeMap<Addr, (Routine, SampledAt)> = BTreeMap::new();
        let callees = Callees::new(self.image);
        let patches = self
            .plan
            .patches
            .iter()
            .map(|patch| patch.site.displaced.start);
        for at in patches.chain(
            self.plan
                .instruments
                .iter()
                .map(|one| one.site.displaced.start),
        ) {
            let Some(function) = self
                .image
                .function_at(at)
                .filter(|function| !sampled.contains_key(&function.span.start))
            else {
                continue;
            };
            match Routine::read(&callees, function) {
                Ok(routine) => {
                    drop(sampled.insert(function.span.start, (routine, SampledAt::default())));
                }
                Err((at, why)) => {
                    let why = format!("at {at}: {why}");
                    if !self
                        .violations
                        .iter()
                        .any(|known| matches!(known, Violation::Plan { why: said } if *said == why))
                    {
                        self.violations.push(Violation::Plan { why });
                    }
                }
            }
        }
        for one in &self.plan.instruments {
            let start = self
                .image
                .function_at(one.site.displaced.start)
                .map(|function| function.span.start);
            if let Some((routine, sampled)) = start.and_then(|start| sampled.get_mut(&start)) {
                sampled.add(routine, one);
            }
        }
        self.routines = sampled
            .into_iter()
            .map(|(start, (routine, sampled))| {
                let live = Live::of(&routine, &sampled);
                (start, (routine, live))
            })
            .collect();
    }

    fn routine_at(&self, at: Addr) -> Option<&(Routine, Live)> {
        self.routines.get(&self.image.function_at(at)?.span.start)
    }

    /// Proves every patch. Gives how many original instructions each one's splice overlaps.
    fn patches(&mut self) -> BTreeMap<usize, u32> {
        let mut overwritten = BTreeMap::new();
        for (number, patch) in self.plan.patches.iter().enumerate() {
            let mut wrong = Vec::new();
            let mut entries = Vec::new();
            match self.patch(number, patch, &mut entries) {
                Ok(count) => drop(overwritten.insert(number, count)),
                Err(mut faults) => wrong.append(&mut faults),
            }
            for (timer, entry) in entries {
                let known = self.timers.entry(timer).or_insert_with(|| entry.clone());
                if *known != entry {
                    let why = format!("it looks for timer {timer} elsewhere than other patches do");
                    wrong.push(Violation::Patch {
                        patch: number,
                        at: patch.address,
                        why,
                    });
                }
            }
            self.violations.append(&mut wrong);
        }
        overwritten
    }

    fn patch(
        &self,
        number: usize,
        patch: &Patch,
        entries: &mut Vec<(u8, String)>,
    ) -> Result<u32, Vec<Violation>> {
        let start = patch.site.displaced.start;
        let at_site = |(at, why)| Violation::Site {
            patch: number,
            at,
            why,
        };
        let in_patch = |(at, why)| {
            vec![Violation::Patch {
                patch: number,
                at,
                why,
            }]
        };
        let Some((routine, live)) = self.routine_at(start) else {
            return Err(vec![at_site((
                start,
                "it is in no function of the image that decodes".into(),
            ))]);
        };
        let originals = site::judge(routine, &patch.site)
            .map_err(|faults| faults.into_iter().map(at_site).collect::<Vec<_>>())?;
        let list = |hook| {
            hooks::expected(self.plan, &self.by_id, number, hook)
                .map_err(|why| in_patch((patch.address, why)))
        };
        let (pre, post) = (list(HookType::Pre)?, list(HookType::Post)?);
        if pre.is_empty() && post.is_empty() {
            return Err(in_patch((patch.address, "it has no instruments".into())));
        }
        let split = hooks::split(originals, patch.site.displaced);
        let displaced = Displaced {
            span: patch.site.displaced,
            originals,
            live_at_start: live.behind_hook(routine, start.0),
            // Behind the last of them, hooks that stand at the very next instruction are further on.
            live_at_split: if split == patch.site.displaced.end {
                live.before(routine, split.0)
            } else {
                live.behind_hook(routine, split.0)
            },
        };
        let machine = Machine {
            layout: &self.plan.layout,
            values: Values::new(),
            entries: Vec::new(),
        };
        let mut walk = Walk::new(machine, &patch.code, patch.address, &displaced, &pre, &post);
        walk.run().map_err(in_patch)?;
        let Machine {
            values,
            entries: found,
            ..
        } = walk.machine;
        for (timer, entry) in found {
            match values.of_task_alone(entry) {
                Some(words) => entries.push((timer, words)),
                None => {
                    return Err(in_patch((
                        patch.address,
                        "the place of its timer does not depend on the running task alone".into(),
                    )));
                }
            }
        }
        Ok(site::displaced_by(originals, patch.site.splice()))
    }

    fn instruments(&mut self) {
        for one in &self.plan.instruments {
            let at = one.site.displaced.start;
            let stands = match self.routine_at(at) {
                Some((routine, _)) => hooks::stands(self.plan, routine, one),
                None => Err((
                    at,
                    "its splice is in no function of the image that decodes".into(),
                )),
            };
            if let Err((at, why)) = stands {
                self.violations.push(Violation::Instrument {
                    id: one.id,
                    at,
                    why,
                });
            }
        }
    }
}
