use gilk_engine::layout::RuntimeLayout;
use gilk_engine::patch::Pieces;
use gilk_engine::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot, Splice};
use gilk_engine::plan::{
    Batch as PlannedBatch, Part, PatchIndex, Poke as PlannedPoke, PokeBytes, PokeKind, Quiesce,
};
use gilk_engine::{Addr, Few, Span};

use super::poke::{poke, wait};
use super::*;

fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(0x1000), 0x10_0000),
        ..RuntimeLayout::supposed(Addr(0x1000))
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
        sequences: 0,
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
        filled: if bytes == 12 { 0b100_0001 } else { 0 },
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
        layout: layout(),
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

fn converted(plan: &Plan) -> Result<Writes> {
    Writes::of_parts(plan, Vec::new())
}

#[test]
fn patches_and_batches_are_converted() {
    let writes = converted(&plan()).unwrap();
    let [near, far] = writes.arena.as_slice() else {
        panic!("{writes:?}")
    };
    // Adjacent patches share a write, with int3 between them.
    let row = |offset| Row {
        offset,
        pushed: 8,
        original: 0x500,
    };
    let code = [vec![0x90; 21], vec![0xcc; 11], vec![0x90; 16]].concat();
    assert_eq!(
        (near, far),
        (
            &ArenaWrite {
                offset: 0x40,
                code: Bytes::from(code),
                rows: vec![row(3), row(0x20 + 3)],
                faults: vec![Fault {
                    offset: 0x24,
                    recovery: Recovery::At(0x28),
                }],
            },
            &ArenaWrite {
                offset: 0x1000,
                code: Bytes::from(vec![0x90]),
                rows: vec![row(3)],
                faults: Vec::new(),
            }
        )
    );
    let batches = writes.batches.iter();
    let batches: Vec<_> = batches
        .map(|batch| (batch.at, batch.pokes.as_slice()))
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
        (
            host.kind,
            host.target,
            host.host,
            host.filled,
            host.wait,
            host.rank
        ),
        (
            SpliceKind::Jump,
            0x1040,
            0,
            0b100_0001,
            Wait::BeforeInstall,
            0
        )
    );
    assert_eq!(
        (
            bounce.kind,
            bounce.target,
            bounce.detour,
            bounce.host,
            bounce.wait
        ),
        (SpliceKind::Bounce, 0x1060, 0x1040, 0x500, Wait::None)
    );
    assert_eq!(
        (short.kind, short.target, short.length, short.wait),
        (SpliceKind::Short, 0x506, 2, Wait::BeforeInstall)
    );
    assert_eq!((retarget.target, retarget.wait), (0x2000, Wait::None));
    assert!(remove.removes() && remove.write == [2, 2, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn each_quiescence_has_its_wait() {
    use SpliceKind::{Bounce, Call, Jump, Short, Tracer, Trap};
    for kind in [Jump, Short, Bounce, Trap, Tracer, Call] {
        let between = match kind {
            Jump | Short => Wait::BeforeInstall,
            _ => Wait::None,
        };
        let waits = [Quiesce::None, Quiesce::Between, Quiesce::Inside].map(|of| wait(of, kind));
        assert_eq!(waits, [Wait::None, between, Wait::AfterRemoval], "{kind:?}");
    }
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
fn a_patch_outside_the_arena_is_refused() {
    let mut outside = plan();
    outside.patches[0].address = Addr(0x10);
    let error = converted(&outside).unwrap_err().to_string();
    assert!(error.contains("outside the arena"), "{error}");
}

#[test]
fn every_part_of_the_writes_changes_the_checksum() {
    let plan = plan();
    let sum = |change: fn(&mut Writes)| {
        let mut writes = Writes::of_parts(
            &plan,
            vec![Retire {
                address: 0x500,
                hits: vec![(0, 1)],
            }],
        )
        .unwrap();
        writes.counters.push(Counter {
            id: 1,
            bank: 0,
            slot: 1,
            largest: false,
        });
        change(&mut writes);
        writes.outline(&plan).unwrap().checksum
    };
    let same = sum(|_| ());
    let changes: [fn(&mut Writes); 8] = [
        |writes| writes.arena[0].code[3] ^= 1,
        |writes| writes.arena[0].rows[0].pushed = 16,
        |writes| writes.arena[0].faults.clear(),
        |writes| writes.batches[1].at = 1.5,
        |writes| writes.batches[0].pokes[0].write[1] = 9,
        |writes| writes.batches[0].pokes[0].wait = Wait::None,
        |writes| writes.counters[0].slot = 2,
        |writes| writes.retire[0].hits[0] = (0, 2),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_ne!(sum(change), same, "change {number}");
    }
    assert_eq!(sum(|_| ()), same);
}
