//! From a session to a plan: numbered instruments, their points and sites.

use std::ops::ControlFlow;

use gilk_instruments::Library;

use super::dependencies::Order;
use super::error::internal;
use super::major::Major;
use super::model::{Plan, PlannedInstrument};
use super::names::{HookKey, Named};
use super::numbered::FunctionTable;
use super::placed::PlacedParts;
use super::planner::Planner;
use super::probes::Words;
use super::refusals::Refusals;
use super::resumed::Resumption;
use super::schedule::{InstrumentIndex, Schedule, schedule};
use super::stage::{self, Stage, Watch};
use super::{arguments, batches, natives, patches, replaced};
use crate::cfg::{BlockIndex, Cfg};
use crate::code::Origin;
use crate::ids::{Id, Ids, id};
use crate::layout::RuntimeLayout;
use crate::placement::{Comparison, Reached, Solution, Style, Styled, Wanted, place_in_styles};
use crate::session::Session;
use crate::{Error, Image, InstrumentId, Refusal, Result, Rule};

/// Plans a session. Deterministic: the same input gives the same plan.
///
/// # Errors
/// [`Error::Session`] and [`Error::Layout`] for bad input; [`Error::NoFunction`], [`Error::Ambiguous`],
/// [`Error::NoBlock`] and [`Error::Instrument`] for names and numbers that are not there;
/// [`Error::Refused`] where a rule forbids a hook; [`Error::Full`] if counters, identifiers or the
/// arena run out.
pub fn plan(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
) -> Result<Plan> {
    plan_watched(image, session, library, layout, &mut |_| {
        ControlFlow::Continue(())
    })
}

/// Plans a session with progress reports and cancellation: a plan of a whole kernel takes seconds.
///
/// # Errors
/// As [`plan`]; [`Error::GivenUp`] if `watch` breaks.
pub fn plan_watched(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    watch: &mut Watch<'_>,
) -> Result<Plan> {
    let refusals = &Refusals::default();
    plan_collecting(image, session, library, layout, watch, refusals)
}

/// Plans the rest of a session as [`plan_watched`] does. Instruments have the identifiers and counters that they have in
/// the plan of the whole session, on this image or on an earlier one. Placements whose splash is past are left out, and so
/// are those of which a probe is in a replaced function; those in place are launched when the session continues.
///
/// # Errors
/// As [`plan_watched`].
pub fn plan_resumed(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    watch: &mut Watch<'_>,
    resumption: &Resumption<'_>,
) -> Result<Plan> {
    let rest = resumption.rest(session);
    let how = (watch, &Refusals::default(), Some(resumption));
    plan_in_styles(image, &rest, library, layout, how)
}

/// Plans a session as [`plan_watched`] does, and collects the refusals of the stage that fails.
pub(super) fn plan_collecting(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    watch: &mut Watch<'_>,
    refusals: &Refusals,
) -> Result<Plan> {
    plan_in_styles(image, session, library, layout, (watch, refusals, None))
}

/// Plans each function in the style that its session names, or in the cheaper one.
fn plan_in_styles(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    how: PlanningMode<'_, '_>,
) -> Result<Plan> {
    let place = |graphs: &[&Cfg], styles: &[Style], wanted: &[Wanted]| {
        place_in_styles(image, graphs, styles, wanted)
    };
    plan_styled(image, session, library, layout, how, Box::new(place))
}

/// Plans a session with the sites that `place` finds for its hooks.
#[cfg(test)]
pub(crate) fn plan_placed(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    place: impl FnOnce(&[&Cfg], &[Wanted]) -> Solution,
) -> Result<Plan> {
    let place = |graphs: &[&Cfg], _: &[Style], wanted: &[Wanted]| Styled {
        solution: place(graphs, wanted),
        styles: vec![Style::InPlace; graphs.len()],
        compared: vec![None; graphs.len()],
    };
    let watch = &mut |_| ControlFlow::Continue(());
    let refusals = &Refusals::default();
    let place = Box::new(place);
    plan_styled(
        image,
        session,
        library,
        layout,
        (watch, refusals, None),
        place,
    )
}

/// Refuses a target that has no runtime for generated code.
fn runtime(image: &Image, layout: &RuntimeLayout) -> Result<()> {
    match image.origin() {
        Origin::Kernel => Ok(()),
        Origin::Object if layout.sequences().is_some() => Ok(()),
        Origin::Object => {
            let why =
                "instruments are placed in running processes, and this is the layout of a kernel";
            Err(Error::Unplanned {
                target: image.title(),
                refusal: Refusal::new(Rule::NoRuntime, image.text().start, why),
            })
        }
    }
}

/// The watcher of the planning, the place of its refusals, and what of a running session is planned again.
type PlanningMode<'a, 'w> = (&'a mut Watch<'w>, &'a Refusals, Option<&'a Resumption<'a>>);

/// A way to find sites for hooks.
type FindSites<'a> = Box<dyn FnOnce(&[&Cfg], &[Style], &[Wanted]) -> Styled + 'a>;

fn plan_styled(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    (watch, refusals, resumption): PlanningMode<'_, '_>,
    place: FindSites<'_>,
) -> Result<Plan> {
    session.check()?;
    layout.check()?;
    runtime(image, layout)?;
    let mut planner = Planner {
        image,
        session,
        layout,
        functions: FunctionTable::new(image),
        words: Words::new(layout),
        notes: Vec::new(),
        refusals,
    };
    let mut named = planner.named(library, watch)?;
    if let Some(resumption) = resumption {
        let absent = resumption.absent(session, &planner.functions, &named);
        for one in &mut named {
            one.is_absent = absent.contains(&one.placement);
        }
    }
    let wanted = planner.wanted(&named)?;
    stage::report(watch, Stage::Sites)?;
    let graphs: Vec<&Cfg> = planner.functions.graphs().values().iter().collect();
    let styles = planner.styles(&named)?.into_values();
    let Styled {
        solution,
        styles,
        compared,
    } = place(&graphs, &styles, &wanted);
    drop(graphs);
    let Solution {
        sites,
        bounces,
        hooks,
    } = solution;
    stage::report(watch, Stage::Patches)?;
    let placed = PlacedParts::new(sites, bounces, &hooks)?;
    let instruments = planner.instruments(named, &wanted, hooks)?;
    drop(wanted);
    let mut notes = planner.notes;
    notes.sort_unstable();
    let functions = planner.functions.placed(styles, compared)?;
    let natives = natives::Natives::of(image, session, &functions, instruments.values(), layout)?;
    arguments::check(image, &functions, instruments.values(), &placed, refusals);
    replaced::check(image, &functions, instruments.values(), layout, refusals);
    refusals.check(session)?;
    let mut order = Order::of(session, instruments.values(), &placed)?;
    let schedule = schedule(&functions, &instruments, &placed, &order);
    let maker = patches::Maker {
        image,
        session,
        layout,
        functions: &functions,
        instruments: &instruments,
        placed: &placed,
        blame: &order.blame,
        natives: &natives,
        refusals,
    };
    let made = maker.patches(&schedule, watch)?;
    // Batches take much memory, and require only the changes of the schedule.
    let Schedule {
        times,
        changes,
        versions,
        listed,
        detours,
    } = schedule;
    drop((versions, listed, std::mem::take(&mut order.blame)));
    let functions = functions.planned();
    stage::report(watch, Stage::Batches)?;
    let writer = batches::BatchWriter {
        image,
        instruments: &instruments,
        placed: &placed,
        order: &order,
        made: &made,
        detours: &detours,
    };
    let batches = writer.batches(&times, changes)?;
    Ok(Plan {
        release: image.release().to_owned(),
        duration: session.duration,
        layout: layout.clone(),
        functions,
        instruments: instruments.into_values(),
        sites: placed.sites.into_values(),
        bounces: placed.bounces.into_values(),
        dependences: order.dependences,
        patches: made.patches.into_values(),
        faults: made.faults,
        natives: natives.codes,
        batches,
        notes,
    })
}

fn hook(id: InstrumentId) -> HookKey {
    (Major::of(id), BlockIndex(id.block), id.hook)
}

id!(
    /// A hook that is requested of placement.
    WantedIndex
);

impl Planner<'_> {
    /// The styles that the session requests for each function. One whose instruments have many launch and
    /// splash times is not relocated whole unless the session requests it: each time takes new versions of all
    /// its patches.
    fn styles(&self, named: &[Named]) -> Result<Ids<Major, Style>> {
        let mut styles = Ids::like(self.functions.graphs(), Style::default());
        let mut times: Vec<(Major, u64)> = Vec::with_capacity(2 * named.len());
        for entry in named.iter().filter(|one| !one.is_absent) {
            let placement = self.placement(entry.placement)?;
            let major = Major::of(entry.id);
            styles[major] = self.session.style(&placement.function);
            for time in [placement.launch, placement.splash] {
                times.push((major, (time + 0.0).to_bits()));
            }
        }
        times.sort_unstable();
        times.dedup();
        for times in times.chunk_by(|one, other| one.0 == other.0) {
            if let [(major, _), ..] = *times
                && times.len() > Comparison::MOST_TIMES
                && styles[major] == Style::Auto
            {
                styles[major] = Style::InPlace;
            }
        }
        Ok(styles)
    }

    /// Every hook once, in order; functions that refuse all hooks are refused here.
    fn wanted(&self, named: &[Named]) -> Result<Vec<Wanted>> {
        for instrument in named.iter().filter(|one| !one.is_absent) {
            if let Some(refusal) = &self.functions.graph(Major::of(instrument.id)).refusal {
                self.refusals.add(instrument.placement, refusal.clone());
            }
        }
        self.refusals.check(self.session)?;
        let present = named.iter().filter(|one| !one.is_absent);
        let mut hooks: Vec<HookKey> = present.map(|one| hook(one.id)).collect();
        hooks.sort_unstable();
        hooks.dedup();
        let wanted = hooks.into_iter().map(|(major, block, hook)| Wanted {
            graph: major.index(),
            block,
            hook,
        });
        Ok(wanted.collect())
    }

    /// Gives every instrument its points and its counter.
    fn instruments(
        &mut self,
        named: Vec<Named>,
        wanted: &[Wanted],
        hooks: Vec<std::result::Result<Reached, Refusal>>,
    ) -> Result<Ids<InstrumentIndex, PlannedInstrument>> {
        let counting = named.iter().filter(|one| one.definition.counts());
        self.words.check(counting.count() as u64)?;
        if hooks.len() != wanted.len() {
            return Err(internal("the solution does not answer for every hook"));
        }
        let mut hooks = Ids::<WantedIndex, _>::from(hooks);
        let hook_of = |instrument: &Named| {
            let this = (
                instrument.id.major as usize,
                BlockIndex(instrument.id.block),
                instrument.id.hook,
            );
            let before = |known: &Wanted| (known.graph, known.block, known.hook) < this;
            WantedIndex::new(wanted.partition_point(before))
        };
        let number_of = |one: &Named| (!one.is_absent).then(|| hook_of(one));
        let numbers: Vec<Option<WantedIndex>> = named.iter().map(number_of).collect();
        // Instruments of each hook that have no points yet.
        let mut remaining = Ids::like(&hooks, 0_u32);
        for &number in numbers.iter().flatten() {
            remaining[number] += 1;
        }
        let mut instruments = Vec::with_capacity(named.len());
        for (one, number) in named.into_iter().zip(numbers) {
            let Some(number) = number else {
                if one.definition.counts() {
                    // Those after it have the counters that they have in a plan with it.
                    let _without_instrument = self.words.take(1)?;
                }
                continue;
            };
            remaining[number] -= 1;
            // There may be a million: the last instrument at a hook moves its points instead of copying them.
            let reached = match &mut hooks[number] {
                Err(refusal) => {
                    self.refusals.add(one.placement, refusal.clone());
                    continue;
                }
                Ok(reached) if remaining[number] > 0 => reached.clone(),
                Ok(reached) => Reached {
                    tactic: reached.tactic,
                    points: std::mem::take(&mut reached.points),
                    needs: std::mem::take(&mut reached.needs),
                },
            };
            let counter = if one.definition.counts() {
                Some(self.words.take(1)?)
            } else {
                None
            };
            let placement = self.placement(one.placement)?;
            let (launch, splash) = (placement.launch, placement.splash);
            instruments.push(PlannedInstrument {
                id: one.id,
                placement: one.placement,
                origin: one.origin.number(),
                definition: one.definition,
                // Adding zero turns -0 into 0.
                launch: launch + 0.0,
                splash: splash + 0.0,
                counter,
                tactic: reached.tactic,
                points: reached.points,
                needs: reached.needs,
                probe: one.probe,
            });
        }
        self.refusals.check(self.session)?;
        Ok(instruments.into())
    }
}
