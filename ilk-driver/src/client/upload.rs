//! Conversion of a session to requests: the agent plans it itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gilk_engine::collection;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::session::Placement;
use gilk_engine::{Plan, Session};
use gilk_instruments::{Library, Native};

use super::connection::{Connection, TargetInfo};
use crate::protocol::{
    Bytes, Collection, Interval, MAX_ITEMS, ObjectFile, Placed, PlanOptions, Request, Schedule,
    SessionPart, Strategy, Workload,
};
use crate::writes::events_of;
use crate::{Error, Result};

/// Checks that a plan was made for this target.
///
/// # Errors
/// [`Error::Plan`] that names the difference.
pub(super) fn check_target(plan: &Plan, info: &TargetInfo) -> Result<()> {
    if plan.release != info.release {
        return Err(misfit(format!(
            "it is for Linux {}, and the target runs {}",
            plan.release, info.release
        )));
    }
    if plan.layout.events != info.layout.events && !events_of(plan).is_empty() {
        return Err(misfit(String::from(
            "the processor's counters are used for other events now",
        )));
    }
    let same = RuntimeLayout {
        events: info.layout.events.clone(),
        ..plan.layout.clone()
    };
    if same != info.layout {
        return Err(misfit(String::from(
            "the module was loaded again at another address",
        )));
    }
    Ok(())
}

/// Returns the requests that load the session of a plan, in order. Each is answered by acceptance
/// or refusal.
pub(crate) fn requests(plan: &Plan, session: &Session) -> Result<Vec<Request>> {
    let mut requests = vec![Request::Clear];
    let styles: Vec<_> = session.styles.clone().into_iter().collect();
    for styles in styles.chunks(MAX_ITEMS) {
        requests.push(Request::Load(SessionPart {
            styles: styles.to_vec(),
            ..SessionPart::default()
        }));
    }
    for source in sources(plan, session)? {
        requests.push(Request::Load(SessionPart {
            sources: vec![source],
            ..SessionPart::default()
        }));
    }
    for object in objects(plan) {
        requests.push(Request::Load(SessionPart {
            objects: vec![object],
            ..SessionPart::default()
        }));
    }
    // Two names of a placement at most are new, so no message has too many.
    let mut names = Names::default();
    for placements in session.placements.chunks(MAX_ITEMS / 2) {
        let placements = placements.iter().map(|placement| names.placed(placement));
        let placements = placements.collect::<Result<_>>()?;
        requests.push(Request::Load(SessionPart {
            names: std::mem::take(&mut names.new),
            placements,
            ..SessionPart::default()
        }));
    }
    Ok(requests)
}

/// The sources of the session, and those of the plan's instruments that are neither there nor
/// built in.
fn sources(plan: &Plan, session: &Session) -> Result<BTreeMap<String, String>> {
    let builtin = Library::builtin().map_err(gilk_engine::Error::from)?;
    let mut sources = session.sources.clone();
    for instrument in &plan.instruments {
        let definition = &instrument.definition;
        let Some(text) = definition.text() else {
            continue; // A native function.
        };
        let known = builtin.get(&definition.name).ok();
        if known.is_none_or(|known| known.text() != Some(text)) {
            let name = definition.name.clone();
            sources.entry(name).or_insert_with(|| text.to_owned());
        }
    }
    Ok(sources)
}

/// The object files of the plan's native instruments, each once.
fn objects(plan: &Plan) -> Vec<ObjectFile> {
    let instruments = plan.instruments.iter();
    let natives = instruments.filter_map(|instrument| instrument.definition.native());
    let mut different: Vec<&Arc<Native>> = Vec::new();
    for native in natives {
        if !different.iter().any(|known| known.object == native.object) {
            different.push(native);
        }
    }
    let file = |native: &Arc<Native>| ObjectFile {
        name: native.file.to_string(),
        bytes: Bytes::from(native.object.to_vec()),
    };
    different.into_iter().map(file).collect()
}

/// The names of placements, each with its index.
#[derive(Default)]
struct Names {
    indexes: HashMap<Arc<str>, u32>,
    /// Names since the last part.
    new: Vec<String>,
}

impl Names {
    fn index(&mut self, name: &Arc<str>) -> Result<u32> {
        if let Some(known) = self.indexes.get(name) {
            return Ok(*known);
        }
        let next = u32::try_from(self.indexes.len())
            .map_err(|_| misfit(String::from("it has more than 2^32 names")))?;
        self.indexes.insert(Arc::clone(name), next);
        self.new.push(name.to_string());
        Ok(next)
    }

    fn placed(&mut self, placement: &Placement) -> Result<Placed> {
        Ok(Placed {
            function: self.index(&placement.function)?,
            block: placement.block,
            hook: placement.hook,
            instrument: self.index(&placement.instrument)?,
            launch: placement.launch,
            splash: placement.splash,
        })
    }
}

/// Returns the parameters of the plan besides its placements.
pub(super) fn options(plan: &Plan, session: &Session, connection: &Connection) -> PlanOptions {
    let assumed = &connection.info.layout.events.counters;
    PlanOptions {
        release: plan.release.clone(),
        duration: session.duration,
        save_all: session.save_all,
        tracepoints: session.tracepoints,
        unknown_kernel: connection.insists,
        storage_log2: plan.layout.timers_log2,
        assumed_events: connection.events_assumed.then(|| assumed.to_vec()),
    }
}

/// Returns the schedule that starts the session, with its workload if the agent `runs` that.
pub(super) fn schedule(session: &Session, runs: bool, start: Option<u64>, token: u64) -> Schedule {
    let workload = session.workload.as_ref().filter(|_| runs);
    let workload = workload.map(|workload| Workload {
        program: workload.program.clone(),
        arguments: workload.arguments.clone(),
        at: workload.start,
    });
    Schedule {
        workload,
        collection: collection(session.collection),
        start,
        token,
    }
}

fn collection(collection: collection::Collection) -> Collection {
    let interval = |every, jitter| Interval { every, jitter };
    Collection {
        samples: match collection.samples {
            collection::Strategy::Stream => Strategy::Stream,
            collection::Strategy::Periodic { every, jitter } => {
                Strategy::Periodic(interval(every, jitter))
            }
            collection::Strategy::Windows {
                every,
                jitter,
                length,
            } => Strategy::Windows(interval(every, jitter), length),
            collection::Strategy::Oldest => Strategy::Oldest,
            collection::Strategy::Newest => Strategy::Newest,
        },
        totals: interval(collection.totals.every, collection.totals.jitter),
        grace: collection.grace,
    }
}

fn misfit(reason: String) -> Error {
    Error::Plan { reason }
}

#[cfg(test)]
mod tests;
