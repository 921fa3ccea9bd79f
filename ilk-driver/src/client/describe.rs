//! The metadata of recordings, and the labels of instruments.

use gilk_engine::plan::PlannedInstrument;
use gilk_engine::{Addr, Image, Plan, Session};
use gilk_instruments::program::{Action, ActionKind};
use gilk_samples::Meaning;
use gilk_samples::metadata::{Clock, Delivers, FunctionInfo, InstrumentInfo, Metadata, Placed};
use gilk_samples::texts::SampleTexts;

use super::connection::TargetInfo;
use crate::{Error, Result};

/// Returns the name of a frame of a stack: the symbol at an address with its offset, or the address where there is
/// none. Code at the entries of the kernel has symbols, and is no function of the image.
#[must_use]
pub fn frame(image: Option<&Image>, address: u64) -> String {
    let at = Addr(address);
    let symbol = image.and_then(|image| {
        image.named(at).or_else(|| {
            let (name, offset) = image.symbol_at(at)?;
            Some(format!("{name}+{offset:#x}"))
        })
    });
    symbol.unwrap_or_else(|| format!("{address:#x}"))
}

/// Returns an instrument's label: `timestamp pre __x64_sys_clone block 0`. An instrument that was
/// moved to another function than that of its placement names both: `elapsed of mmput, post __mmput
/// block 9`.
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
    let planned = plan.function(major);
    planned.map_or("?", |function| function.name.as_str())
}

/// Returns whether an instrument delivers samples; one that counts delivers its totals.
pub fn samples(instrument: &PlannedInstrument) -> bool {
    instrument.counter.is_none() && delivers(instrument) == Delivers::Samples
}

/// Returns the kind of an instrument's results; for an instrument in the language, of its probe.
fn delivers(instrument: &PlannedInstrument) -> Delivers {
    if instrument.definition.replaces() {
        return Delivers::Nothing;
    }
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

/// Returns the texts of the instruments whose samples are text.
#[must_use]
pub fn texts(plan: &Plan) -> SampleTexts {
    let mut all = SampleTexts::default();
    for instrument in &plan.instruments {
        let checked = instrument.probe.as_ref().map(|probed| &probed.checked);
        if let Some(texts) = checked.and_then(|checked| checked.texts.as_ref())
            && delivers(instrument) == Delivers::Samples
        {
            all.insert(instrument.id.pack(), texts.clone());
        }
    }
    all
}

/// Returns the metadata with which a recording of this session can be read without any other file.
///
/// # Errors
/// [`crate::Error::Engine`] if the session cannot be serialised; [`crate::Error::Plan`] if a block
/// is outside its function.
pub fn metadata(
    plan: &Plan,
    session: &Session,
    info: &TargetInfo,
    clock: Clock,
) -> Result<Metadata> {
    let functions = plan.functions.iter().map(|function| {
        let start = function.outline.span.start;
        let offset = |at: gilk_engine::Addr| {
            u32::try_from(start.to(at)).map_err(|_| Error::Plan {
                reason: format!("the block at {at} is outside of {}", function.name),
            })
        };
        let blocks = function.outline.blocks.iter();
        let edges = function.outline.edges.iter();
        Ok(FunctionInfo {
            major: function.major,
            name: function.name.clone(),
            address: start.0,
            blocks: blocks
                .map(|block| Ok((offset(block.start)?, offset(block.end)?)))
                .collect::<Result<_>>()?,
            edges: edges.map(|(from, to)| (from.0, to.0)).collect(),
        })
    });
    let functions = functions.collect::<Result<_>>()?;
    let instruments = plan
        .instruments
        .iter()
        .map(|instrument| InstrumentInfo {
            id: instrument.id.pack(),
            label: label(plan, instrument),
            instrument: instrument.definition.name.clone(),
            // Its samples are readings of the counter.
            meaning: match instrument.counter {
                Some(_) => Meaning::Count,
                None => instrument.definition.meaning,
            },
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
        texts: texts(plan),
        ..Metadata::default()
    })
}

/// Adds what a plan of its own was described with, whose functions are numbered from `first_major` on in the recording.
/// Returns the number of placements before its own.
///
/// # Errors
/// [`crate::Error::Engine`] if a session cannot be read or written.
pub fn append_metadata(all: &mut Metadata, part: &Metadata, first_major: u32) -> Result<usize> {
    let mut session = Session::from_ron(&all.session)?;
    let before = session.placements.len();
    let further = Session::from_ron(&part.session)?;
    session.placements.extend(further.placements);
    session.sources.extend(further.sources);
    session.styles.extend(further.styles);
    all.session = session.to_ron()?;
    all.append(part, first_major, u32::try_from(before).unwrap_or(u32::MAX));
    Ok(before)
}
