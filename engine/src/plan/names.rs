//! Resolution of the names of a session: instruments, hooks, identifiers.

use std::collections::HashMap;
use std::sync::Arc;

use gilk_instruments::program::Checked;
use gilk_instruments::{Definition, Library};

use super::error::{internal, refused};
use super::jumps::Jumps;
use super::major::Major;
use super::places::{Places, ProbePlace, returned, returned_is_known};
use super::planner::Planner;
use super::probes::{Instruments, faults_in_faults, is_idle};
use super::stage::{self, Stage, Watch};
use crate::cfg::BlockIndex;
use crate::patch::{Probed, given};
use crate::session::Session;
use crate::{Error, HookType, Image, InstrumentId, Refusal, Result};

/// An instrument of the session with its names resolved.
pub(super) struct Named {
    pub(super) definition: Arc<Definition>,
    pub(super) id: InstrumentId,
    /// Index in the session's placements.
    pub(super) placement: usize,
    /// Major number of the function where it was placed.
    pub(super) origin: Major,
    pub(super) probe: Option<Arc<Probed>>,
    /// It is numbered, and left out of the plan.
    pub(super) is_absent: bool,
}

/// Key of a hook: major number, block and event.
pub(super) type HookKey = (Major, BlockIndex, HookType);

impl Planner<'_> {
    /// Resolves functions, blocks and instruments and numbers them: one instrument for each placement, or for
    /// each place of each probe of an instrument in the language.
    pub(super) fn named(&mut self, library: &Library, watch: &mut Watch<'_>) -> Result<Vec<Named>> {
        let mut instruments = Instruments::new(self.image, self.session, library);
        let mut jumps = jumps(&mut instruments, (self.image, self.session), watch)?;
        let mut majors: HashMap<&str, Major> = HashMap::new();
        let mut orders: HashMap<HookKey, u64> = HashMap::new();
        let mut named = Vec::with_capacity(self.session.placements.len());
        for (index, placement) in self.session.placements.iter().enumerate() {
            let (definition, prepared) = instruments.of(placement)?;
            let major = match majors.get(&*placement.function) {
                Some(&known) => known,
                None => {
                    stage::report(watch, Stage::Graphs)?;
                    let new = self.functions.major(&placement.function)?;
                    majors.insert(&placement.function, new);
                    new
                }
            };
            let place = ProbePlace {
                major,
                block: BlockIndex(placement.block),
                hook: placement.hook,
            };
            let from = (index, major);
            match prepared {
                Some(prepared) => match &prepared.shared {
                    Some(probed) => {
                        let probed = Some(probed);
                        let at = self.at(place, (&definition, probed), from, &mut orders);
                        named.extend(self.refusals.collect(index, at)?);
                    }
                    None => {
                        let mut checked = Arc::clone(&prepared.checked);
                        let places = Places::new(self.image, placement, &checked, &mut jumps)?;
                        if places.follow() {
                            checked = instruments.followed(placement, &checked);
                        }
                        let written = (&definition, &checked, &places);
                        let probes = self.probes(written, from, &mut orders, &mut named);
                        self.refusals.collect(index, probes)?;
                    }
                },
                None => {
                    let at = self.at(place, (&definition, None), from, &mut orders);
                    named.extend(self.refusals.collect(index, at)?);
                }
            }
        }
        self.refusals.check(self.session)?;
        Ok(named)
    }

    /// Checks that a function has a block, unless it refuses all hooks.
    fn check_block(&self, major: Major, function: &str, block: BlockIndex) -> Result<()> {
        let cfg = self.functions.graph(major);
        if cfg.block(block).is_some() || cfg.refusal.is_some() {
            return Ok(());
        }
        Err(Error::NoBlock {
            function: function.to_owned(),
            block: block.0,
            blocks: cfg.blocks.len(),
        })
    }

    /// The identifier of the next instrument at a hook.
    fn number(&self, hook: HookKey, orders: &mut HashMap<HookKey, u64>) -> Result<InstrumentId> {
        let (major, block, kind) = hook;
        let order = orders.entry(hook).or_insert(0);
        let Ok(eight_bits) = u8::try_from(*order) else {
            return Err(Error::Full {
                what: "instruments at one hook",
                needed: self.at_same_hook(hook).max(257),
                available: 256,
            });
        };
        *order += 1;
        let id = InstrumentId::new(major.number(), kind, block.0, eight_bits);
        id.ok_or_else(|| Error::Full {
            what: "function and block numbers",
            needed: u64::from(major.number().max(block.0)) + 1,
            available: u64::from(InstrumentId::MAJORS.min(InstrumentId::BLOCKS)),
        })
    }

    /// Number of placements that share a hook.
    fn at_same_hook(&self, (major, block, hook): HookKey) -> u64 {
        let name = &*self.functions.graph(major).name;
        let placements = self.session.placements.iter();
        let same = |p: &&crate::session::Placement| {
            &*p.function == name && (p.block, p.hook) == (block.0, hook)
        };
        placements.filter(same).count() as u64
    }

    /// Numbers every place of every probe of a placement.
    fn probes(
        &mut self,
        (definition, checked, places): (&Arc<Definition>, &Arc<Checked>, &Places<'_>),
        (index, origin): (usize, Major),
        orders: &mut HashMap<HookKey, u64>,
        named: &mut Vec<Named>,
    ) -> Result<()> {
        self.notes.extend(places.notes(index, &definition.name));
        let homes = Arc::new(self.words.homes(checked)?);
        for (number, probe) in (0..).zip(&checked.probes) {
            if is_idle(probe) {
                continue;
            }
            let probed = Arc::new(Probed {
                checked: Arc::clone(checked),
                index: number,
                homes: Arc::clone(&homes),
            });
            let places = places.of(&mut self.functions, probe)?;
            let places = places.map_err(|refusal| refused(self.session, index, refusal))?;
            for place in places {
                let instrument = (definition, Some(&probed));
                named.push(self.at(place, instrument, (index, origin), orders)?);
            }
        }
        Ok(())
    }

    /// Numbers an instrument at a place, with the probe that it runs there.
    fn at(
        &mut self,
        place: ProbePlace,
        (definition, probed): (&Arc<Definition>, Option<&Arc<Probed>>),
        (placement, origin): (usize, Major),
        orders: &mut HashMap<HookKey, u64>,
    ) -> Result<Named> {
        let function = &self.placement(placement)?.function;
        self.check_block(place.major, function, place.block)?;
        if let Some(probed) = probed {
            let refuse = |refusal| refused(self.session, placement, refusal);
            let cfg = self.functions.graph(place.major);
            let probe = probed.probe();
            let probe = probe.ok_or_else(|| internal("an instrument names no probe"))?;
            if let Some((rule, why)) = probed.refusal(self.layout) {
                let at = cfg.span.start;
                return Err(refuse(Refusal::new(rule, at, why)));
            }
            let refusal = returned_is_known(cfg, probe, place);
            if let Some(refusal) = refusal.or_else(|| faults_in_faults(self.image, cfg, probe)) {
                return Err(refuse(refusal));
            }
            self.functions.sample_all(place.major, probed.reads());
        }
        if let Some(native) = definition.native() {
            self.functions.sample_all(place.major, given(native));
        }
        Ok(Named {
            definition: Arc::clone(definition),
            id: self.number((place.major, place.block, place.hook), orders)?,
            placement,
            origin,
            probe: probed.map(Arc::clone),
            is_absent: false,
        })
    }
}

/// Prepares to find where calls end: counts the placements that request it of each function.
fn jumps<'s>(
    instruments: &mut Instruments<'s>,
    (image, session): (&'s Image, &'s Session),
    watch: &mut Watch<'_>,
) -> Result<Jumps<'s>> {
    let mut jumps = Jumps::new(image);
    for placement in &session.placements {
        let (_, prepared) = instruments.of(placement)?;
        image.function_named(&placement.function)?;
        if let Some(prepared) = prepared.filter(|prepared| prepared.shared.is_none()) {
            let functions = returned(image, &prepared.checked, placement)?;
            if !functions.is_empty() {
                stage::report(watch, Stage::Graphs)?;
                jumps.count(functions);
            }
        }
    }
    Ok(jumps)
}
