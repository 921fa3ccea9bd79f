//! From a session to numbered instruments and their sites.

use std::collections::BTreeMap;

use gilk_instruments::{Definition, Library, Program};

use super::schedule::{Schedule, schedule};
use super::{Plan, PlannedFunction, PlannedInstrument, batches};
use crate::cfg::{BlockIndex, Cfg};
use crate::image::FunctionId;
use crate::layout::RuntimeLayout;
use crate::liveness::{Arguments, Liveness, RegisterSet};
use crate::patch::sampled_argument;
use crate::placement::{Sited, choose};
use crate::session::Session;
use crate::{Error, HookType, Image, InstrumentId, Refusal, Result, Rule};

/// Works a session out. The same input gives the same plan every time.
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
    session.check()?;
    layout.check()?;
    let mut planner = Planner {
        image,
        session,
        layout,
        functions: Vec::new(),
        majors: BTreeMap::new(),
    };
    let wanted = planner.wanted(library)?;
    let sited = planner.sited(&wanted)?;
    let instruments = planner.instruments(wanted, &sited)?;
    planner.disjoint(&instruments)?;
    let Schedule { versions, times } = schedule(&instruments);
    let patches = planner.patches(&instruments, &versions)?;
    let batches = batches::batches(image, &instruments, &patches, &times)?;
    Ok(Plan {
        release: image.release().to_owned(),
        duration: session.duration,
        layout: layout.clone(),
        functions: planner
            .functions
            .into_iter()
            .map(|function| function.planned)
            .collect(),
        instruments,
        patches,
        batches,
    })
}

/// A placement with its names looked up.
struct Wanted {
    placement: usize,
    definition: Definition,
    id: InstrumentId,
}

pub(super) struct Analysed {
    pub(super) planned: PlannedFunction,
    pub(super) liveness: Liveness,
    /// Registers that instruments of the function sample: kept at all of its hooks, for what is
    /// dead to the function is not dead to them.
    pub(super) sampled: RegisterSet,
}

pub(super) struct Planner<'a> {
    pub(super) image: &'a Image,
    pub(super) session: &'a Session,
    pub(super) layout: &'a RuntimeLayout,
    pub(super) functions: Vec<Analysed>,
    majors: BTreeMap<FunctionId, u32>,
}

impl Planner<'_> {
    /// Looks functions, blocks and instruments up and numbers them.
    fn wanted(&mut self, library: &Library) -> Result<Vec<Wanted>> {
        let mut orders: BTreeMap<(u32, u32, HookType), u64> = BTreeMap::new();
        let mut wanted = Vec::with_capacity(self.session.placements.len());
        for (index, placement) in self.session.placements.iter().enumerate() {
            let definition = library.get(&placement.instrument)?.clone();
            let major = self.major(&placement.function)?;
            let Some(function) = self.functions.get_mut(major as usize) else {
                continue;
            };
            let cfg = &function.planned.cfg;
            if cfg.block(BlockIndex(placement.block)).is_none() && cfg.refusal.is_none() {
                let function = placement.function.clone();
                return Err(Error::NoBlock {
                    function,
                    block: placement.block,
                    blocks: cfg.blocks.len(),
                });
            }
            if let Some(register) = sampled_argument(definition.program) {
                function.sampled.insert(register);
            }
            let order = orders
                .entry((major, placement.block, placement.hook))
                .or_insert(0);
            let Ok(eight_bits) = u8::try_from(*order) else {
                let needed = self.at_same_hook(index);
                return Err(Error::Full {
                    what: "instruments at one hook",
                    needed,
                    available: 256,
                });
            };
            *order += 1;
            let Some(id) = InstrumentId::new(major, placement.hook, placement.block, eight_bits)
            else {
                let available = u64::from(InstrumentId::MAJORS.min(InstrumentId::BLOCKS));
                return Err(Error::Full {
                    what: "function and block numbers",
                    needed: u64::from(major.max(placement.block)) + 1,
                    available,
                });
            };
            wanted.push(Wanted {
                placement: index,
                definition,
                id,
            });
        }
        Ok(wanted)
    }

    /// How many placements share the hook of this one.
    fn at_same_hook(&self, index: usize) -> u64 {
        let placements = &self.session.placements;
        placements.get(index).map_or(0, |one| {
            placements
                .iter()
                .filter(|p| (&p.function, p.block, p.hook) == (&one.function, one.block, one.hook))
                .count() as u64
        })
    }

    /// The major number of a function: by first appearance, whichever of its names is written.
    fn major(&mut self, name: &str) -> Result<u32> {
        let function = self.image.function_named(name)?;
        if let Some(&major) = self.majors.get(&function.id) {
            return Ok(major);
        }
        let major = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        let cfg = Cfg::of(self.image, function.id);
        let liveness = Liveness::of(self.image, &cfg);
        let planned = PlannedFunction {
            major,
            name: function.name.clone(),
            cfg,
        };
        self.functions.push(Analysed {
            planned,
            liveness,
            sampled: RegisterSet::EMPTY,
        });
        self.majors.insert(function.id, major);
        Ok(major)
    }

    /// The sites of every block, from the hooks that it ever has.
    fn sited(&self, wanted: &[Wanted]) -> Result<BTreeMap<(u32, u32), Sited>> {
        let mut hooks: BTreeMap<(u32, u32), [Option<&Wanted>; 2]> = BTreeMap::new();
        for one in wanted {
            let [pre, post] = hooks.entry((one.id.major, one.id.block)).or_default();
            let hook = if one.id.hook == HookType::Pre {
                pre
            } else {
                post
            };
            hook.get_or_insert(one);
        }
        let mut sited = BTreeMap::new();
        for (&(major, block), &[pre, post]) in &hooks {
            let Some(function) = self.functions.get(major as usize) else {
                continue;
            };
            let cfg = &function.planned.cfg;
            let chosen = match (cfg.block(BlockIndex(block)), &cfg.refusal) {
                (Some(found), None) => {
                    choose(self.image, cfg, found, pre.is_some(), post.is_some())
                }
                (_, Some(refusal)) => Err((
                    if pre.is_some() {
                        HookType::Pre
                    } else {
                        HookType::Post
                    },
                    refusal.clone(),
                )),
                (None, None) => continue,
            };
            let chosen = chosen.map_err(|(hook, refusal)| {
                let one = if hook == HookType::Pre { pre } else { post };
                one.map_or_else(
                    || missing("a refused hook"),
                    |one| self.refused(one.placement, refusal),
                )
            })?;
            sited.insert((major, block), chosen);
        }
        Ok(sited)
    }

    pub(super) fn refused(&self, placement: usize, refusal: Refusal) -> Error {
        self.session.placements.get(placement).map_or_else(
            || missing("a refused placement"),
            |placement| Error::Refused {
                instrument: placement.instrument.clone(),
                hook: match placement.hook {
                    HookType::Pre => "pre",
                    HookType::Post => "post",
                },
                function: placement.function.clone(),
                block: placement.block,
                refusal,
            },
        )
    }

    /// Gives every instrument its site and its counter.
    fn instruments(
        &self,
        wanted: Vec<Wanted>,
        sited: &BTreeMap<(u32, u32), Sited>,
    ) -> Result<Vec<PlannedInstrument>> {
        let counting = wanted
            .iter()
            .filter(|one| one.definition.program == Program::Count)
            .count() as u64;
        if counting > self.layout.counter_count() {
            return Err(Error::Full {
                what: "counters",
                needed: counting,
                available: self.layout.counter_count(),
            });
        }
        let mut intact: BTreeMap<u32, Arguments> = BTreeMap::new();
        let mut counters = (0..).map_while(|number| self.layout.nth_counter(number));
        let mut instruments = Vec::with_capacity(wanted.len());
        for one in wanted {
            let id = one.id;
            let site = sited
                .get(&(id.major, id.block))
                .and_then(|sited| match id.hook {
                    HookType::Pre => sited.pre,
                    HookType::Post => sited.post,
                });
            let (Some(site), Some(placement), Some(function)) = (
                site,
                self.session.placements.get(one.placement),
                self.functions.get(id.major as usize),
            ) else {
                return Err(missing("the site of a placement"));
            };
            if let Some(register) = sampled_argument(one.definition.program) {
                let arguments = intact
                    .entry(id.major)
                    .or_insert_with(|| Arguments::of(self.image, &function.planned.cfg));
                if !arguments.intact(site.point(id.hook)).contains(register) {
                    let why = format!(
                        "{} may no longer have the value that the caller passed",
                        lower(register)
                    );
                    let refusal = Refusal {
                        rule: Rule::ArgumentGone,
                        at: site.point(id.hook),
                        why,
                    };
                    return Err(self.refused(one.placement, refusal));
                }
            }
            let counter = if one.definition.program == Program::Count {
                counters.next()
            } else {
                None
            };
            instruments.push(PlannedInstrument {
                id,
                placement: one.placement,
                definition: one.definition,
                // Adding zero makes -0 into 0.
                launch: placement.launch + 0.0,
                splash: placement.splash + 0.0,
                counter,
                site,
                timer: placement.timer,
            });
        }
        Ok(instruments)
    }

    /// No two splices may share a byte: blocks do not overlap, but symbols of assembly code might.
    fn disjoint(&self, instruments: &[PlannedInstrument]) -> Result<()> {
        let mut sites: Vec<_> = instruments
            .iter()
            .map(|instrument| (instrument.site, instrument.placement))
            .collect();
        sites.sort_unstable_by_key(|(site, placement)| {
            (site.displaced.start, site.displaced.end, *placement)
        });
        for pair in sites.windows(2) {
            if let [(first, _), (second, placement)] = *pair
                && first != second
                && first.displaced.overlaps(second.displaced)
            {
                let why = format!(
                    "another splice of the session displaces bytes from {}",
                    first.displaced.start
                );
                return Err(self.refused(
                    placement,
                    Refusal {
                        rule: Rule::Overlap,
                        at: second.displaced.start,
                        why,
                    },
                ));
            }
        }
        Ok(())
    }
}

fn lower(register: iced_x86::Register) -> String {
    format!("{register:?}").to_lowercase()
}

/// The image changed its mind between two questions: not possible with the images there are.
pub(super) fn missing(what: &str) -> Error {
    Error::Image {
        reason: format!("{what} was there and is not any more"),
    }
}
