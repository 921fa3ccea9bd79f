//! A verified plan as requests.

use gilk_engine::plan::{PlannedInstrument, PokeKind};
use gilk_engine::{Plan, Session};

use super::TargetInfo;
use crate::protocol::{
    ArenaWrite, Batch, Bytes, CHUNK, Counter, MAX_ITEMS, Poke, Request, Schedule, Way, Workload,
};
use crate::{Error, Result};

/// What loads the plan into the agent, in order. Each is answered with a yes or a no.
pub(super) fn requests(plan: &Plan, info: &TargetInfo) -> Result<Vec<Request>> {
    if plan.release != info.release {
        return Err(misfit(format!(
            "it is for Linux {}, and the target runs {}",
            plan.release, info.release
        )));
    }
    if plan.layout != info.layout {
        return Err(misfit(String::from(
            "the module was loaded again since, at another address",
        )));
    }
    let mut requests = vec![Request::Clear];
    let mut writes = Vec::new();
    let mut size = 0;
    for patch in &plan.patches {
        let offset = info.layout.arena.start.to(patch.address);
        let offset = u64::try_from(offset).map_err(|_| {
            misfit(format!(
                "it has a patch at {}, outside the arena",
                patch.address
            ))
        })?;
        size += patch.code.len();
        writes.push(ArenaWrite {
            offset,
            code: Bytes(patch.code.clone()),
        });
        if size >= CHUNK {
            requests.push(Request::Arena(std::mem::take(&mut writes)));
            size = 0;
        }
    }
    if !writes.is_empty() {
        requests.push(Request::Arena(writes));
    }
    for batch in &plan.batches {
        requests.push(Request::Batch(Batch {
            at: batch.at,
            pokes: Vec::new(),
        }));
        for pokes in batch.pokes.chunks(MAX_ITEMS) {
            let pokes = pokes.iter().map(|poke| wire_poke(plan, poke));
            requests.push(Request::Pokes(pokes.collect::<Result<_>>()?));
        }
    }
    let counters: Vec<Counter> = plan.instruments.iter().filter_map(counter).collect();
    let counters = counters.chunks(MAX_ITEMS);
    requests.extend(counters.map(|counters| Request::Counters(counters.to_vec())));
    Ok(requests)
}

/// What is to be read for an instrument that counts.
fn counter(instrument: &PlannedInstrument) -> Option<Counter> {
    let counter = instrument.counter?;
    Some(Counter {
        id: instrument.id.pack(),
        bank: counter.bank,
        slot: counter.slot,
    })
}

/// What starts it.
pub(super) fn schedule(plan: &Plan, session: &Session) -> Schedule {
    let workload = session.workload.as_ref().map(|workload| Workload {
        program: workload.program.clone(),
        arguments: workload.arguments.clone(),
        at: workload.start,
    });
    Schedule {
        duration: plan.duration,
        workload,
    }
}

fn wire_poke(plan: &Plan, poke: &gilk_engine::plan::Poke) -> Result<Poke> {
    let patch = plan
        .patches
        .get(poke.patch)
        .ok_or_else(|| misfit(format!("its poke at {} leads to no patch", poke.at)))?;
    let bytes = |from: &[u8]| {
        let mut eight = [0; 8];
        for (to, from) in eight.iter_mut().zip(from) {
            *to = *from;
        }
        eight
    };
    let length = u8::try_from(poke.write.len())
        .ok()
        .filter(|length| *length <= 8 && poke.expect.len() == poke.write.len());
    Ok(Poke {
        address: poke.at.0,
        detour: patch.address.0,
        target: patch.address.0,
        host: 0,
        way: Way::Jump,
        rank: 0,
        length: length
            .ok_or_else(|| misfit(format!("its poke at {} is longer than 8 bytes", poke.at)))?,
        multi: poke.overwritten > 1 && poke.kind != PokeKind::Retarget,
        remove: poke.kind == PokeKind::Remove,
        expect: bytes(&poke.expect),
        write: bytes(&poke.write),
    })
}

fn misfit(reason: String) -> Error {
    Error::Plan { reason }
}

#[cfg(test)]
mod tests {
    use gilk_engine::layout::RuntimeLayout;
    use gilk_engine::placement::{Site, Tactic};
    use gilk_engine::plan::{Batch as PlannedBatch, Patch, Poke as PlannedPoke};
    use gilk_engine::{Addr, Span};

    use super::*;

    fn target() -> TargetInfo {
        let layout = RuntimeLayout {
            arena: Span::new(Addr(0x1000), 0x1000),
            ..RuntimeLayout::default()
        };
        TargetInfo {
            host: "here".into(),
            release: "6.1".into(),
            cpus: 1,
            tsc_hz: 1,
            layout,
            runs_programs: true,
        }
    }

    fn plan() -> Plan {
        let displaced = Span::new(Addr(0x500), 6);
        let site = Site {
            tactic: Tactic::DirectSplice,
            displaced,
            split: displaced.end,
            overwritten: 2,
        };
        let patch = Patch {
            site,
            address: Addr(0x1040),
            code: vec![0xcc; 21],
            pieces: Vec::new(),
            pre: Vec::new(),
            post: Vec::new(),
        };
        let poke = |kind, expect: u8, write: u8, overwritten| PlannedPoke {
            at: Addr(0x500),
            expect: vec![expect; 5],
            write: vec![write; 5],
            kind,
            patch: 0,
            overwritten,
        };
        let batch = |at, poke| PlannedBatch {
            at,
            pokes: vec![poke],
            launched: Vec::new(),
            splashed: Vec::new(),
        };
        Plan {
            release: "6.1".into(),
            duration: 3.0,
            layout: target().layout,
            functions: Vec::new(),
            instruments: Vec::new(),
            patches: vec![patch],
            batches: vec![
                batch(0.0, poke(PokeKind::Install, 1, 2, 2)),
                batch(1.0, poke(PokeKind::Retarget, 2, 3, 1)),
                batch(2.0, poke(PokeKind::Remove, 3, 1, 2)),
            ],
        }
    }

    #[test]
    fn a_plan_is_cleared_for_loaded_and_batched_in_order() {
        let requests = requests(&plan(), &target()).unwrap();
        let [Request::Clear, Request::Arena(writes), batches @ ..] = requests.as_slice() else {
            panic!("{requests:?}")
        };
        assert_eq!(
            writes,
            &[ArenaWrite {
                offset: 0x40,
                code: Bytes(vec![0xcc; 21])
            }]
        );
        let pokes: Vec<_> = batches
            .as_chunks::<2>()
            .0
            .iter()
            .map(|request| match request {
                [Request::Batch(batch), Request::Pokes(pokes)] => (
                    batch.at,
                    pokes[0].multi,
                    pokes[0].remove,
                    pokes[0].write[4],
                    pokes[0].write[5],
                ),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            pokes,
            [
                (0.0, true, false, 2, 0),
                (1.0, false, false, 3, 0),
                (2.0, true, true, 1, 0)
            ]
        );
        assert!(requests.iter().all(|request| request.check().is_ok()));
    }

    #[test]
    fn a_plan_for_another_target_is_not_sent() {
        let mut other = target();
        other.release = "6.12".into();
        assert!(
            requests(&plan(), &other)
                .unwrap_err()
                .to_string()
                .contains("Linux 6.1")
        );
        let mut moved = target();
        moved.layout.arena = Span::new(Addr(0x9000), 0x1000);
        assert!(
            requests(&plan(), &moved)
                .unwrap_err()
                .to_string()
                .contains("loaded again")
        );
        let mut outside = plan();
        outside.patches[0].address = Addr(0x10);
        assert!(
            requests(&outside, &target())
                .unwrap_err()
                .to_string()
                .contains("outside the arena")
        );
    }

    #[test]
    fn the_demonstration_is_a_good_session() {
        let text = include_str!("../../sessions/pulsar.ron");
        let session = Session::from_ron(text).unwrap();
        assert_eq!(session.workload.unwrap().program, "/bin/pulsar");
        assert!(
            session
                .placements
                .iter()
                .filter(|placement| placement.launch == 0.0)
                .count()
                > 3
        );
    }
}
