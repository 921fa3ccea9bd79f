//! A verified plan as requests.

use gilk_engine::collection;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::native::NativeCode;
use gilk_engine::plan::{Patch, PlannedInstrument};
use gilk_engine::{Addr, Plan, Session, VerifiedPlan};

use super::poke::poke;
use super::{TargetInfo, aggregates, events};
use crate::protocol::{
    ArenaWrite, Batch, Bytes, CHUNK, Collection, Counter, Fault, Interval, MAX_ITEMS, Recovery,
    Request, Retire, Row, Schedule, Strategy, Workload,
};
use crate::{Error, Result};

/// Patches begin at multiples of this.
const PATCH_ALIGN: i64 = 16;
const INT3: u8 = 0xcc;

/// What loads the plan into the agent, in order. Each is answered with a yes or a no.
pub(super) fn requests(plan: &Plan, info: &TargetInfo) -> Result<Vec<Request>> {
    if plan.release != info.release {
        return Err(misfit(format!(
            "it is for Linux {}, and the target runs {}",
            plan.release, info.release
        )));
    }
    if plan.layout.events != info.layout.events && !events::counted(plan).is_empty() {
        return Err(misfit(String::from(
            "the processor's counters are for other events by now",
        )));
    }
    let same = RuntimeLayout {
        events: info.layout.events.clone(),
        ..plan.layout.clone()
    };
    if same != info.layout {
        return Err(misfit(String::from(
            "the module was loaded again since, at another address",
        )));
    }
    let mut requests = vec![Request::Clear];
    for code in &plan.natives {
        requests.push(Request::Arena(vec![native_write(code, info)?]));
    }
    for stretch in stretches(&plan.patches) {
        requests.push(Request::Arena(vec![arena_write(plan, stretch, info)?]));
    }
    for batch in &plan.batches {
        requests.push(Request::Batch(Batch {
            at: batch.at,
            pokes: Vec::new(),
        }));
        for pokes in batch.pokes.chunks(MAX_ITEMS) {
            let pokes = pokes.iter().map(|planned| poke(plan, planned));
            requests.push(Request::Pokes(pokes.collect::<Result<_>>()?));
        }
    }
    let mut counters: Vec<Counter> = plan.instruments.iter().filter_map(counter).collect();
    counters.extend(aggregates::words(plan));
    let counters = counters.chunks(MAX_ITEMS);
    requests.extend(counters.map(|counters| Request::Counters(counters.to_vec())));
    Ok(requests)
}

/// What of a plan may go before its time, as messages that are not too long.
pub(super) fn retirements(plan: &VerifiedPlan) -> Vec<Request> {
    let mut requests = Vec::new();
    let (mut part, mut words) = (Vec::new(), 0);
    for one in plan.retirements() {
        let Some(site) = plan.plan().sites.get(one.site.0 as usize) else {
            continue;
        };
        if words + one.hits.len() > MAX_ITEMS {
            requests.push(Request::Retire(std::mem::take(&mut part)));
            words = 0;
        }
        words += one.hits.len();
        part.push(Retire {
            address: site.displaced.start.0,
            hits: one.hits.iter().map(|word| (word.bank, word.slot)).collect(),
        });
    }
    if !part.is_empty() {
        requests.push(Request::Retire(part));
    }
    requests
}

/// Patches in runs that nothing but the rest of an alignment parts, of about [`CHUNK`] bytes each:
/// the module takes a run at once.
fn stretches(patches: &[Patch]) -> Vec<&[Patch]> {
    let mut runs = Vec::new();
    for run in patches.chunk_by(|one, next| (0..PATCH_ALIGN).contains(&end(one).to(next.address))) {
        let mut rest = run;
        while let Some(first) = rest.first() {
            let within =
                |patch: &&Patch| first.address.to(patch.address).unsigned_abs() < CHUNK as u64;
            let (now, later) = rest.split_at(rest.iter().take_while(within).count());
            runs.push(now);
            rest = later;
        }
    }
    runs
}

fn end(patch: &Patch) -> Addr {
    patch.address.add(patch.code.len() as u64)
}

/// Code of an object file. Nobody knows how stacks are unwound from the midst of it.
fn native_write(code: &NativeCode, info: &TargetInfo) -> Result<ArenaWrite> {
    if code.bytes.len() > CHUNK {
        return Err(misfit(format!(
            "{} has {} bytes of code, and {CHUNK} are sent at once",
            code.file,
            code.bytes.len()
        )));
    }
    Ok(ArenaWrite {
        offset: offset(code.address, info)?,
        rows: Vec::new(),
        faults: Vec::new(),
        code: Bytes(code.bytes.to_vec()),
    })
}

/// Bytes from the start of the arena.
fn offset(at: Addr, info: &TargetInfo) -> Result<u64> {
    let offset = info.layout.arena.start.to(at);
    u64::try_from(offset).map_err(|_| misfit(format!("it has a patch at {at}, outside the arena")))
}

/// Patches with `int3` between them.
fn arena_write(plan: &Plan, patches: &[Patch], info: &TargetInfo) -> Result<ArenaWrite> {
    let start = patches.first().map_or(Addr(0), |patch| patch.address);
    let offset = offset(start, info)?;
    let mut code = Vec::new();
    let mut rows = Vec::new();
    for patch in patches {
        let gap = usize::try_from(start.add(code.len() as u64).to(patch.address)).unwrap_or(0);
        code.resize(code.len() + gap, INT3);
        let before = u32::try_from(code.len()).unwrap_or(u32::MAX);
        rows.extend(patch.rows.iter().map(|row| Row {
            offset: before.saturating_add(row.at),
            pushed: row.pushed,
            original: row.original.0,
        }));
        code.extend_from_slice(&patch.code);
    }
    Ok(ArenaWrite {
        offset,
        rows,
        faults: faults(plan, start, code.len() as u64),
        code: Bytes(code),
    })
}

/// What may fault in a write of so many bytes.
fn faults(plan: &Plan, start: Addr, length: u64) -> Vec<Fault> {
    let behind = |at: Addr| plan.faults.partition_point(|fault| fault.at < at);
    let within = plan.faults.get(behind(start)..behind(start.add(length)));
    let offset = |at: Addr| u32::try_from(start.to(at)).unwrap_or(u32::MAX);
    let within = within.unwrap_or_default().iter();
    let within = within.map(|fault| Fault {
        offset: offset(fault.at),
        recovery: match fault.recovery {
            gilk_engine::patch::Recovery::At(fixup) => Recovery::At(offset(fixup)),
            gilk_engine::patch::Recovery::Like(original) => Recovery::Like(original.0),
        },
    });
    within.collect()
}

/// What is to be read for an instrument that counts.
fn counter(instrument: &PlannedInstrument) -> Option<Counter> {
    let counter = instrument.counter?;
    Some(Counter {
        id: instrument.id.pack(),
        bank: counter.bank,
        slot: counter.slot,
        largest: false,
    })
}

/// What starts it.
pub(super) fn schedule(plan: &Plan, session: &Session, start: Option<u64>, token: u64) -> Schedule {
    let workload = session.workload.as_ref().map(|workload| Workload {
        program: workload.program.clone(),
        arguments: workload.arguments.clone(),
        at: workload.start,
    });
    Schedule {
        events: events::counted(plan),
        duration: plan.duration,
        workload,
        collection: collected(session.collection),
        start,
        token,
    }
}

fn collected(collection: collection::Collection) -> Collection {
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
mod tests {
    use gilk_engine::patch::Pieces;
    use gilk_engine::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot, Splice};
    use gilk_engine::plan::{
        Batch as PlannedBatch, Part, PatchIndex, Poke as PlannedPoke, PokeBytes, PokeKind,
    };
    use gilk_engine::{Addr, Few, Span};

    use super::*;
    use crate::protocol::Way;

    fn target() -> TargetInfo {
        let layout = RuntimeLayout {
            arena: Span::new(Addr(0x1000), 0x10_0000),
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

    fn held(bytes: &[u8]) -> PokeBytes {
        PokeBytes::new(bytes).unwrap()
    }

    fn row(at: u32) -> gilk_engine::unwind::Row {
        gilk_engine::unwind::Row {
            at,
            pushed: 8,
            original: Addr(0x500),
        }
    }

    fn patch(site: u32, address: u64, bytes: usize) -> Patch {
        Patch {
            site: SiteIndex(site),
            address: Addr(address),
            code: vec![0x90; bytes].into(),
            rows: [row(3)].into(),
            pieces: Pieces::default(),
            hooks: Few::default(),
        }
    }

    /// A splice at 0x500 that exposes a bounce for the short one at 0x520.
    fn plan() -> Plan {
        let site = |splice, start, bytes| Site {
            splice,
            displaced: Span::new(Addr(start), bytes),
            overwritten: 2,
            continuations: Box::default(),
        };
        let poke = |part, at, kind, rank, patch, bytes, overwritten| PlannedPoke {
            part,
            at: Addr(at),
            expect: held(&vec![1; bytes]),
            write: held(&vec![2; bytes]),
            kind,
            rank,
            patch: PatchIndex(patch),
            detour: PatchIndex(0),
            overwritten,
        };
        let [first, short] = [0, 1].map(|site| Part::Site(SiteIndex(site)));
        let over = Part::Bounce(BounceIndex(0));
        let batch = |at, pokes| PlannedBatch {
            at,
            pokes,
            launched: Vec::new(),
            splashed: Vec::new(),
        };
        use PokeKind::{Install, Remove, Retarget};
        Plan {
            release: "6.1".into(),
            duration: 3.0,
            layout: target().layout,
            functions: Vec::new(),
            instruments: Vec::new(),
            faults: vec![gilk_engine::plan::PatchFault {
                at: Addr(0x1064),
                recovery: gilk_engine::patch::Recovery::At(Addr(0x1068)),
            }],
            natives: Vec::new(),
            sites: vec![
                site(Splice::Jump, 0x500, 12),
                site(Splice::Short(BounceIndex(0)), 0x520, 3),
                site(Splice::Tracer, 0x540, 5),
                site(Splice::Trap, 0x550, 1),
            ],
            bounces: vec![
                Bounce {
                    at: Addr(0x506),
                    slot: Slot::Exposed(SiteIndex(0)),
                    site: SiteIndex(1),
                },
                Bounce {
                    at: Addr(0x530),
                    slot: Slot::Padding,
                    site: SiteIndex(1),
                },
            ],
            dependences: Vec::new(),
            patches: vec![
                patch(0, 0x1040, 21),
                patch(1, 0x1060, 16),
                patch(1, 0x2000, 1),
            ],
            notes: Vec::new(),
            batches: vec![
                batch(
                    0.0,
                    vec![
                        poke(first, 0x500, Install, 0, 0, 5, 3),
                        poke(over, 0x506, Install, 1, 1, 5, 1),
                        poke(short, 0x520, Install, 2, 1, 2, 2),
                    ],
                ),
                batch(1.0, vec![poke(over, 0x506, Retarget, 1, 2, 5, 1)]),
                batch(2.0, vec![poke(short, 0x520, Remove, 2, 2, 2, 2)]),
            ],
        }
    }

    #[test]
    fn a_plan_is_cleared_for_loaded_and_batched_in_order() {
        let requests = requests(&plan(), &target()).unwrap();
        let [
            Request::Clear,
            Request::Arena(near),
            Request::Arena(far),
            batches @ ..,
        ] = requests.as_slice()
        else {
            panic!("{requests:?}")
        };
        // Patches that stand together travel together, with int3 between them.
        let told = |offset| Row {
            offset,
            pushed: 8,
            original: 0x500,
        };
        let code = [vec![0x90; 21], vec![0xcc; 11], vec![0x90; 16]].concat();
        assert_eq!(
            (near.as_slice(), far.as_slice()),
            (
                &[ArenaWrite {
                    offset: 0x40,
                    code: Bytes(code),
                    rows: vec![told(3), told(0x20 + 3)],
                    faults: vec![Fault {
                        offset: 0x24,
                        recovery: Recovery::At(0x28),
                    }],
                }][..],
                &[ArenaWrite {
                    offset: 0x1000,
                    code: Bytes(vec![0x90]),
                    rows: vec![told(3)],
                    faults: Vec::new(),
                }][..]
            )
        );
        let batches: Vec<_> = batches
            .as_chunks::<2>()
            .0
            .iter()
            .map(|request| match request {
                [Request::Batch(batch), Request::Pokes(pokes)] => (batch.at, pokes.as_slice()),
                other => panic!("{other:?}"),
            })
            .collect();
        let [
            (0.0, [host, bounce, short]),
            (1.0, [retarget]),
            (2.0, [remove]),
        ] = batches.as_slice()
        else {
            panic!("{batches:?}")
        };
        assert_eq!(
            (host.way, host.target, host.host, host.multi, host.rank),
            (Way::Jump, 0x1040, 0, true, 0)
        );
        assert_eq!(
            (
                bounce.way,
                bounce.target,
                bounce.detour,
                bounce.host,
                bounce.multi
            ),
            (Way::Bounce, 0x1060, 0x1040, 0x500, false)
        );
        assert_eq!(
            (
                short.way,
                short.target,
                short.length,
                short.multi,
                short.remove
            ),
            (Way::Short, 0x506, 2, true, false)
        );
        assert_eq!((retarget.target, retarget.multi), (0x2000, false));
        assert!(remove.remove && remove.write == [2, 2, 0, 0, 0, 0, 0, 0]);
        assert!(requests.iter().all(|request| request.check().is_ok()));
    }

    #[test]
    fn every_other_way_is_told_too() {
        let mut plan = plan();
        let ways = |plan: &Plan| -> Vec<_> {
            let pokes = plan.batches[0].pokes.iter();
            pokes
                .map(|planned| poke(plan, planned).map(|poke| (poke.way, poke.host, poke.length)))
                .collect()
        };
        let [one, two, three] = &mut plan.batches[0].pokes[..] else {
            panic!()
        };
        one.part = Part::Site(SiteIndex(2));
        (one.expect, one.write) = (held(&[]), held(&[]));
        two.part = Part::Site(SiteIndex(3));
        (two.expect, two.write) = (held(&[1]), held(&[0xcc]));
        three.part = Part::Bounce(BounceIndex(1));
        let told: Vec<_> = ways(&plan).into_iter().map(Result::unwrap).collect();
        assert_eq!(
            told,
            [(Way::Tracer, 0, 0), (Way::Trap, 0, 1), (Way::Bounce, 0, 2)]
        );
        plan.batches[0].pokes[0].part = Part::Site(SiteIndex(9));
        plan.batches[0].pokes[1].detour = PatchIndex(9);
        plan.batches[0].pokes[2].write = held(&[0; 8]);
        let errors = ways(&plan)
            .into_iter()
            .map(|way| way.unwrap_err().to_string());
        for (error, named) in errors.zip(["does not have", "no patch", "more or fewer"]) {
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn long_runs_of_patches_are_sent_in_parts() {
        let patches: Vec<_> = (0..5)
            .map(|n| patch(0, 0x1000 + n * 0x7000, 0x6ff5))
            .collect();
        let lengths: Vec<_> = stretches(&patches).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, [3, 2]);
        assert!(stretches(&[]).is_empty());
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
