//! Conversion of a verified plan to requests.

use gilk_engine::collection;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::native::NativeCode;
use gilk_engine::plan::{Patch, PlannedInstrument};
use gilk_engine::{Addr, Plan, Session, VerifiedPlan};

use super::connection::TargetInfo;
use super::poke::poke;
use super::{aggregates, events};
use crate::protocol::{
    ArenaWrite, Batch, Bytes, CHUNK, Collection, Counter, Fault, Interval, MAX_ITEMS, Recovery,
    Request, Retire, Row, Schedule, Strategy, Workload,
};
use crate::{Error, Result};

/// Alignment of patches.
const PATCH_ALIGN: i64 = 16;
const INT3: u8 = 0xcc;

/// Returns the requests that load the plan into the agent, in order. Each is answered by acceptance
/// or refusal.
pub(super) fn requests(plan: &Plan, info: &TargetInfo) -> Result<Vec<Request>> {
    if plan.release != info.release {
        return Err(misfit(format!(
            "it is for Linux {}, and the target runs {}",
            plan.release, info.release
        )));
    }
    if plan.layout.events != info.layout.events && !events::used(plan).is_empty() {
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
    let mut requests = vec![Request::Clear];
    for code in &plan.natives {
        requests.push(Request::Arena(vec![native_write(code, info)?]));
    }
    for run in runs(&plan.patches) {
        requests.push(Request::Arena(vec![arena_write(plan, run, info)?]));
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

/// Returns the retirements of a plan, in messages below the limit.
pub(super) fn retirements(plan: &VerifiedPlan) -> Result<Vec<Request>> {
    let mut requests = Vec::new();
    let (mut part, mut words) = (Vec::new(), 0);
    for retirement in plan.retirements() {
        let site = plan.plan().sites.get(retirement.site.0 as usize);
        let site = site.ok_or_else(|| misfit(String::from("it retires a site that it lacks")))?;
        if words + retirement.hits.len() > MAX_ITEMS {
            requests.push(Request::Retire(std::mem::take(&mut part)));
            words = 0;
        }
        words += retirement.hits.len();
        let hits = retirement.hits.iter();
        part.push(Retire {
            address: site.displaced.start.0,
            hits: hits.map(|word| (word.bank, word.slot)).collect(),
        });
    }
    if !part.is_empty() {
        requests.push(Request::Retire(part));
    }
    Ok(requests)
}

/// Splits patches into runs that are contiguous except for alignment, of about [`CHUNK`] bytes
/// each: the module takes one run per request.
fn runs(patches: &[Patch]) -> Vec<&[Patch]> {
    let mut runs = Vec::new();
    let is_adjacent =
        |patch: &Patch, next: &Patch| (0..PATCH_ALIGN).contains(&end(patch).to(next.address));
    for run in patches.chunk_by(is_adjacent) {
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

/// Converts the code of an object file. It has no unwind rows.
fn native_write(code: &NativeCode, info: &TargetInfo) -> Result<ArenaWrite> {
    if code.bytes.len() > CHUNK {
        return Err(misfit(format!(
            "{} has {} bytes of code, and the limit is {CHUNK}",
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

/// Returns an address's offset in the arena.
fn offset(at: Addr, info: &TargetInfo) -> Result<u64> {
    let offset = info.layout.arena.start.to(at);
    u64::try_from(offset).map_err(|_| misfit(format!("it has a patch at {at}, outside the arena")))
}

/// Converts a run of patches, with `int3` in the gaps.
fn arena_write(plan: &Plan, patches: &[Patch], info: &TargetInfo) -> Result<ArenaWrite> {
    debug_assert!(!patches.is_empty(), "a run has patches");
    let start = patches.first().map_or(Addr(0), |patch| patch.address);
    let offset = offset(start, info)?;
    let mut code = Vec::new();
    let mut rows = Vec::new();
    for patch in patches {
        let gap = start.add(code.len() as u64).to(patch.address);
        let gap = usize::try_from(gap)
            .map_err(|_| misfit(format!("its patch at {} overlaps another", patch.address)))?;
        code.resize(code.len() + gap, INT3);
        let before = u32::try_from(code.len())
            .map_err(|_| misfit(format!("its patches at {start} exceed 4 GiB")))?;
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

/// Returns the instructions that may fault in a write of `length` bytes.
fn faults(plan: &Plan, start: Addr, length: u64) -> Vec<Fault> {
    let index = |at: Addr| plan.faults.partition_point(|fault| fault.at < at);
    // The faults are sorted by address, so the range is valid.
    let within = plan.faults.get(index(start)..index(start.add(length)));
    debug_assert!(within.is_some(), "faults are sorted by address");
    // Faults are within the write; the agent refuses an offset outside of it.
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

/// Returns the counter of an instrument that counts.
fn counter(instrument: &PlannedInstrument) -> Option<Counter> {
    let counter = instrument.counter?;
    Some(Counter {
        id: instrument.id.pack(),
        bank: counter.bank,
        slot: counter.slot,
        largest: false,
    })
}

/// Returns the schedule that starts the session.
pub(super) fn schedule(plan: &Plan, session: &Session, start: Option<u64>, token: u64) -> Schedule {
    let workload = session.workload.as_ref().map(|workload| Workload {
        program: workload.program.clone(),
        arguments: workload.arguments.clone(),
        at: workload.start,
    });
    Schedule {
        events: events::used(plan),
        duration: plan.duration,
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
mod tests {
    use gilk_engine::patch::Pieces;
    use gilk_engine::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot, Splice};
    use gilk_engine::plan::{
        Batch as PlannedBatch, Part, PatchIndex, Poke as PlannedPoke, PokeBytes, PokeKind,
    };
    use gilk_engine::{Addr, Few, Span};

    use super::*;
    use crate::protocol::SpliceKind;

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

    fn poke_bytes(bytes: &[u8]) -> PokeBytes {
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

    /// A plan with a splice at 0x500 that exposes a bounce for the short one at 0x520.
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
            expect: poke_bytes(&vec![1; bytes]),
            write: poke_bytes(&vec![2; bytes]),
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
    fn requests_clear_then_load_patches_then_load_batches() {
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
        // Adjacent patches share a write, with int3 between them.
        let row = |offset| Row {
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
                    rows: vec![row(3), row(0x20 + 3)],
                    faults: vec![Fault {
                        offset: 0x24,
                        recovery: Recovery::At(0x28),
                    }],
                }][..],
                &[ArenaWrite {
                    offset: 0x1000,
                    code: Bytes(vec![0x90]),
                    rows: vec![row(3)],
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
            (host.kind, host.target, host.host, host.multi, host.rank),
            (SpliceKind::Jump, 0x1040, 0, true, 0)
        );
        assert_eq!(
            (
                bounce.kind,
                bounce.target,
                bounce.detour,
                bounce.host,
                bounce.multi
            ),
            (SpliceKind::Bounce, 0x1060, 0x1040, 0x500, false)
        );
        assert_eq!(
            (
                short.kind,
                short.target,
                short.length,
                short.multi,
                short.remove
            ),
            (SpliceKind::Short, 0x506, 2, true, false)
        );
        assert_eq!((retarget.target, retarget.multi), (0x2000, false));
        assert!(remove.remove && remove.write == [2, 2, 0, 0, 0, 0, 0, 0]);
        assert!(requests.iter().all(|request| request.check().is_ok()));
    }

    #[test]
    fn tracer_trap_and_padding_splices_are_converted() {
        let mut plan = plan();
        let kinds = |plan: &Plan| -> Vec<_> {
            let pokes = plan.batches[0].pokes.iter();
            pokes
                .map(|planned| poke(plan, planned).map(|poke| (poke.kind, poke.host, poke.length)))
                .collect()
        };
        let [tracer, trap, bounce] = &mut plan.batches[0].pokes[..] else {
            panic!()
        };
        tracer.part = Part::Site(SiteIndex(2));
        (tracer.expect, tracer.write) = (poke_bytes(&[]), poke_bytes(&[]));
        trap.part = Part::Site(SiteIndex(3));
        (trap.expect, trap.write) = (poke_bytes(&[1]), poke_bytes(&[0xcc]));
        bounce.part = Part::Bounce(BounceIndex(1));
        let converted: Vec<_> = kinds(&plan).into_iter().map(Result::unwrap).collect();
        assert_eq!(
            converted,
            [
                (SpliceKind::Tracer, 0, 0),
                (SpliceKind::Trap, 0, 1),
                (SpliceKind::Bounce, 0, 2)
            ]
        );
        plan.batches[0].pokes[0].part = Part::Site(SiteIndex(9));
        plan.batches[0].pokes[1].detour = PatchIndex(9);
        plan.batches[0].pokes[2].write = poke_bytes(&[0; 8]);
        let errors = kinds(&plan)
            .into_iter()
            .map(|kind| kind.unwrap_err().to_string());
        for (error, named) in errors.zip(["does not have", "no patch", "more or fewer"]) {
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn long_runs_of_patches_are_split() {
        let patches: Vec<_> = (0..5)
            .map(|n| patch(0, 0x1000 + n * 0x7000, 0x6ff5))
            .collect();
        let lengths: Vec<_> = runs(&patches).iter().map(|run| run.len()).collect();
        assert_eq!(lengths, [3, 2]);
        assert!(runs(&[]).is_empty());
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
    fn the_demonstration_is_a_valid_session() {
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
