//! What a recording says of itself.

use gilk_engine::plan::PlannedInstrument;
use gilk_engine::{Plan, Session};
use gilk_instruments::program::{Action, ActionKind};
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata, Placed};

use super::TargetInfo;
use crate::Result;

/// What a person reads of an instrument: `timestamp pre __x64_sys_clone block 0`. Where it stands in another
/// function than the one where it was placed, that one is told, too: `elapsed of mmput, post __mmput block 9`.
#[must_use]
pub fn label(plan: &Plan, instrument: &PlannedInstrument) -> String {
    let (name, id) = (&instrument.definition.name, instrument.id);
    let site = format!(
        "{} {} block {}",
        id.hook,
        function(plan, id.major),
        id.block
    );
    if instrument.origin == id.major {
        format!("{name} {site}")
    } else {
        format!("{name} of {}, {site}", function(plan, instrument.origin))
    }
}

fn function(plan: &Plan, major: u32) -> &str {
    let known = plan.function(major);
    known.map_or("?", |function| function.name.as_str())
}

/// What an instrument delivers: of one in the language, the probe that it runs.
fn delivers(instrument: &PlannedInstrument) -> Delivers {
    let samples = |action: &Action| matches!(action.kind, ActionKind::Sample(_));
    let Some(probed) = instrument
        .probe
        .as_ref()
        .filter(|_| instrument.counter.is_none())
    else {
        return Delivers::Samples;
    };
    let probe = probed.probe();
    if probe.is_none_or(|probe| probe.actions.iter().any(samples)) {
        Delivers::Samples
    } else if probed.checked.aggregates.is_empty() {
        Delivers::Nothing
    } else {
        Delivers::Totals
    }
}

/// Everything that is needed to read a recording of this session with no other file at hand.
///
/// # Errors
/// [`crate::Error::Engine`] if the session is not one that can be written down.
pub fn metadata(
    plan: &Plan,
    session: &Session,
    info: &TargetInfo,
    clock: Clock,
) -> Result<Metadata> {
    let offset = |from: gilk_engine::Addr, at: gilk_engine::Addr| {
        u32::try_from(from.to(at)).unwrap_or_default()
    };
    let functions = plan
        .functions
        .iter()
        .map(|function| {
            let start = function.outline.span.start;
            let blocks = function.outline.blocks.iter();
            let edges = function.outline.edges.iter();
            FunctionInfo {
                major: function.major,
                name: function.name.clone(),
                address: start.0,
                blocks: blocks
                    .map(|block| (offset(start, block.start), offset(start, block.end)))
                    .collect(),
                edges: edges.map(|(from, to)| (from.0, to.0)).collect(),
            }
        })
        .collect();
    let instruments = plan
        .instruments
        .iter()
        .map(|instrument| InstrumentInfo {
            id: instrument.id.pack(),
            label: label(plan, instrument),
            instrument: instrument.definition.name.clone(),
            meaning: instrument.definition.meaning,
            unit: instrument.definition.unit.clone(),
            launch: instrument.launch,
            splash: instrument.splash,
            placed: Some(Placed {
                placement: u32::try_from(instrument.placement).unwrap_or(u32::MAX),
                function: function(plan, instrument.origin).to_owned(),
                major: instrument.origin,
            }),
            delivers: delivers(instrument),
        })
        .collect();
    Ok(Metadata {
        session: session.to_ron()?,
        machine: info.host.clone(),
        kernel: info.release.clone(),
        cpus: info.cpus,
        clock,
        functions,
        instruments,
        machines: Vec::new(),
    })
}
