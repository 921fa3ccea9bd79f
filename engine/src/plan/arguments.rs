//! Checks that registers still hold the arguments that instruments sample.

use std::collections::BTreeMap;

use gilk_instruments::program::Input;

use super::functions::Functions;
use super::major::Major;
use super::model::PlannedInstrument;
use super::placed::PlacedParts;
use super::probes;
use super::refusals::Refusals;
use crate::cfg::{BlockEnd, BlockIndex, Cfg};
use crate::isa::abi::argument;
use crate::liveness::{Arguments, RegisterSet};
use crate::patch::is_stacked;
use crate::placement::{Point, Site};
use crate::{Addr, HookType, Image, Refusal, Rule};

/// Collects the refusals of instruments that sample an argument at a point where its register may hold another value.
pub(super) fn check(
    image: &Image,
    functions: &Functions<'_>,
    instruments: &[PlannedInstrument],
    placed: &PlacedParts,
    refusals: &Refusals,
) {
    let mut cache = BTreeMap::new();
    'instruments: for instrument in instruments {
        let probe = instrument.probe.as_ref().and_then(|probed| probed.probe());
        let read = || probe.into_iter().flat_map(probes::inputs);
        if read().any(is_stacked)
            && let Some(refusal) = on_the_stack(
                &functions.analysed(Major::of(instrument.id)).cfg,
                instrument,
            )
        {
            refusals.add(instrument.placement, refusal);
            continue;
        }
        let native = instrument.definition.native().into_iter();
        let given = native.flat_map(|native| native.inputs());
        let arguments = read().chain(given).filter_map(|input| match input {
            Input::Argument(number) => argument(number),
            _ => None,
        });
        let registers: Vec<_> = arguments.collect();
        if registers.is_empty() {
            continue;
        }
        let analysed = functions.analysed(Major::of(instrument.id));
        let arguments = cache
            .entry(instrument.id.major)
            .or_insert_with(|| analysed.arguments(image));
        for &(site, point) in &instrument.points {
            let site = &placed.sites[site];
            let (at, intact) = intact(arguments, &analysed.cfg, site, point);
            if let Some(register) = registers
                .iter()
                .find(|register| !intact.contains(**register))
            {
                let register = format!("{register:?}").to_lowercase();
                let refusal = Refusal::new(
                    Rule::ArgumentGone,
                    at,
                    format!("{register} may no longer have the value that the caller passed"),
                );
                refusals.add(instrument.placement, refusal);
                continue 'instruments;
            }
        }
    }
}

/// Refuses arguments on the stack everywhere but at the function's entry, where their addresses are known.
fn on_the_stack(cfg: &Cfg, one: &PlannedInstrument) -> Option<Refusal> {
    let entry = BlockIndex(0);
    let first = one.id.hook == HookType::Pre && one.id.block == entry.0;
    let comes_back = cfg.edges.iter().any(|edge| edge.to == entry);
    (!first || comes_back).then(|| Refusal::new(Rule::ArgumentGone, cfg.span.start, "the addresses of arguments on the stack are known only at the function's entry, and not if a loop of its own branches there"))
}

/// Arguments of a graph's function that are intact at a point, and the address that says so.
fn intact(arguments: &Arguments, cfg: &Cfg, site: &Site, point: Point) -> (Addr, RegisterSet) {
    match point {
        Point::Entry => {
            let at = site.displaced.start;
            (at, arguments.intact(at))
        }
        Point::Before(at) => (at, arguments.intact(at)),
        Point::On(edge) => {
            let before = arguments.intact(edge.to);
            // Registers intact before a branch are intact after it; `loop` writes rcx.
            let branch = cfg.block_at(edge.from).is_some_and(|block| {
                let last = block.last();
                matches!(block.end, BlockEnd::Conditional | BlockEnd::Jump)
                    && (last.ip() == edge.from.0 && !last.is_loop() && !last.is_loopcc())
            });
            if branch {
                (edge.from, before.union(arguments.intact(edge.from)))
            } else {
                (edge.to, before)
            }
        }
    }
}
