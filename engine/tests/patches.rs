//! Instrument code run natively: its effects, and the state that it must preserve.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "relocation/native.rs"]
mod native;
#[path = "patches/natives.rs"]
mod natives;
#[path = "patches/sources.rs"]
mod sources;
#[path = "patches/stretches.rs"]
mod stretches;
#[path = "patches/support.rs"]
mod support;
#[path = "support/text.rs"]
mod text;

use gilk_engine::Addr;
use gilk_engine::HookType;
use gilk_engine::layout::Abi;
use gilk_engine::liveness::{Live, RegisterSet};
use gilk_engine::patch::{Hooked, PieceKind, TIMER_BYTES, TIMER_FACTOR};
use gilk_engine::placement::{InsnEdge, Point};
use native::{GS, Machine, ORIGINAL, PATCH, Random, STACK, State, TABLES};
use proptest::prelude::*;
use sources::{Kind, NO_ROOM, THREAD};
use support::*;

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Count),
        Just(Kind::Time),
        Just(Kind::Block),
        (0..6u8).prop_map(Kind::Argument),
        Just(Kind::Start),
        Just(Kind::Stop),
    ]
}

fn argument(state: &State, number: u8) -> u64 {
    state.registers[[7, 6, 2, 1, 8, 9][usize::from(number)]]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any instruments at a hook, whatever is live: each leaves its own result, in order, and
    /// nothing else changes. A model of the rings and timers says what to expect.
    #[test]
    fn instruments_do_their_work_and_nothing_else(
        kinds in prop::collection::vec(kinds(), 1..6),
        live in any::<u16>(),
        flags: bool,
        post: bool,
        serial in 8u64..1 << 40,
        room in 0u64..4,
        seed: u64,
        owner in 0u64..4,
        user: bool,
    ) {
        let mut machine = ready(serial, room);
        let mut layout = layout(&machine, 0);
        // In user space words are reached by fs, and 128 bytes below the stack pointer are the code's own.
        machine.by_fs = user;
        let mut red_zone = 0;
        if user {
            red_zone = 128;
            layout.abi = Abi { return_push: Abi::KERNEL.return_push, ..Abi::PROCESS };
        }
        let live = Live { registers: RegisterSet(live), flags };
        let hook = if post { HookType::Post } else { HookType::Pre };
        let instruments: Vec<Hooked<'_>> =
            kinds.iter().zip(0..).map(|(kind, order)| hooked(order, hook, kind.program())).collect();
        let from = Addr(machine.address(ORIGINAL));
        let after_nop = Point::On(InsnEdge { from, to: from.add(NOP.len() as u64) });
        let point = if post { after_nop } else { Point::Entry };
        patch(&mut machine, &NOP, &[(point, &instruments)], live, &layout);

        let key = TASK | u64::from(THREAD);
        let entry = TIMER_TABLE + TIMER_BYTES * (key.wrapping_mul(TIMER_FACTOR) >> (64 - TIMERS_LOG2));
        let mut running = None;
        // Nobody's; its own; another thread's; another timer of the thread.
        let owner = [0, key, key ^ 0x40, key ^ 1][owner as usize];
        let others = owner != 0 && owner != key;
        if owner != 0 {
            machine.set_word(entry, owner);
            machine.set_word(entry + 8, 1000);
            running = (owner == key).then_some(1000);
        }
        let before = random_state(&machine, &mut Random(seed));
        let kept = STACK as usize - red_zone..STACK as usize + 4096;
        machine.memory()[kept.clone()][..red_zone].fill(0xa5);
        let stack = machine.memory()[kept.clone()].to_vec();
        let after = machine.run(PATCH, &before);
        prop_assert_eq!(after.exit, 0);
        untouched(live, &before, &after);
        prop_assert_eq!(&stack[..], &machine.memory()[kept]);

        let mut taken = 0;
        let (mut lost_full, mut no_room) = (0, 0);
        let mut counters = [0u64; 4];
        let mut clock = 1000;
        // Samples of what is at hand that follow each other are reserved two at a time in a ring of eight.
        let grouped = |kind: &Kind| matches!(kind, Kind::Time | Kind::Block | Kind::Argument(_));
        let mut groups = kinds
            .chunk_by(|one, next| grouped(one) && grouped(next))
            .flat_map(|run| run.chunks(2))
            .flat_map(|group| (0..group.len() as u64).rev().map(move |number| (group.len() as u64, number)));
        let mut full = false;
        for (kind, one) in kinds.iter().zip(&instruments) {
            let (samples, further) = groups.next().unwrap();
            let first = further + 1 == samples;
            let expected: Option<Option<u64>> = match *kind {
                Kind::Count => {
                    counters[one.counter.unwrap().slot as usize] += 1;
                    None
                }
                Kind::Time => Some(None),
                Kind::Block => Some(Some(0x2_5a5a)),
                Kind::Argument(number) => Some(Some(argument(&before, number))),
                Kind::Start => {
                    no_room += u64::from(others);
                    running = (!others).then_some(0);
                    None
                }
                Kind::Stop => running.take().map(|_| None),
            };
            let Some(value) = expected else { continue };
            if first {
                full = room - taken < samples;
            }
            if full {
                lost_full += 1;
                continue;
            }
            let at = serial + taken;
            let [mark, got, tsc, id] = slot(&mut machine, at);
            prop_assert_eq!((mark, id), (head(at), one.id.pack()));
            prop_assert!(
                tsc > clock || !first && tsc == clock,
                "samples are in order of time, and those of a group have one"
            );
            clock = tsc;
            match (*kind, value) {
                (_, Some(value)) => prop_assert_eq!(got, value),
                (Kind::Stop, None) => prop_assert!(0 < got && got < tsc),
                (_, None) => prop_assert_eq!(got, tsc),
            }
            taken += 1;
        }
        prop_assert_eq!(machine.word(GS + HEAD), head(serial + taken));
        prop_assert_eq!(machine.word(GS + LIMIT), head(serial + room));
        prop_assert_eq!(machine.word(GS + LOST_FULL), lost_full);
        prop_assert_eq!(machine.word(GS + COUNTERS + 8 * u64::from(NO_ROOM.slot)), no_room);
        for (number, count) in counters.into_iter().enumerate() {
            prop_assert_eq!(machine.word(GS + COUNTERS + 8 * number as u64), count);
        }
        let [now, tsc] = [machine.word(entry), machine.word(entry + 8)];
        match running {
            Some(0) => prop_assert!(tsc > 1000 && now == key),
            Some(_) => prop_assert!(tsc == 1000 && now == key),
            None if others => prop_assert_eq!([now, tsc], [owner, 1000]),
            None => prop_assert_eq!([now, tsc], [0, 0]),
        }
        // Nothing but the reserved slots of this CPU's ring was written.
        let ring = (TABLES + (CPU << STRIDE_LOG2)) as usize;
        let written: Vec<usize> = (0..taken).map(|n| ring + ((serial + n) % 8 * 32) as usize).collect();
        let tables = &machine.memory()[TABLES as usize..(TIMER_TABLE) as usize];
        for (offset, &byte) in tables.iter().enumerate() {
            let at = TABLES as usize + offset;
            if !written.iter().any(|&slot| (slot..slot + 32).contains(&at)) {
                prop_assert_eq!(byte, 0, "byte {:#x} was written", at);
            }
        }
    }
}

#[test]
fn a_counter_is_one_instruction_and_a_sample_eighteen_where_nothing_is_live() {
    let mut machine = ready(8, 8);
    let layout = layout(&machine, 0);
    let nothing = Live {
        registers: RegisterSet::EMPTY,
        flags: false,
    };
    let cost = |machine: &mut Machine, kind: Kind, live| {
        let instruments = [hooked(0, HookType::Pre, kind.program())];
        let code = patch(
            machine,
            &NOP,
            &[(Point::Entry, &instruments)],
            live,
            &layout,
        );
        // Without the relocated sequence and the branch back.
        code.pieces.iter().map(|piece| piece.executed).sum::<u32>() - 2
    };
    assert_eq!(cost(&mut machine, Kind::Count, nothing), 1);
    assert_eq!(
        cost(
            &mut machine,
            Kind::Count,
            Live {
                flags: true,
                ..nothing
            }
        ),
        5
    );
    assert_eq!(cost(&mut machine, Kind::Time, nothing), 18);
    assert_eq!(cost(&mut machine, Kind::Argument(0), nothing), 18);
    assert_eq!(cost(&mut machine, Kind::Time, Live::ALL), 18 + 2 * 4 + 6);
}

/// Instruments of one point run in their order, between one save of what all of them need and one restore.
#[test]
fn several_at_one_point_share_one_save() {
    let mut machine = ready(8, 8);
    let layout = layout(&machine, 0);
    let mut pieces = |kinds: &[Kind]| {
        let numbered = (0..).zip(kinds);
        let instruments: Vec<Hooked<'_>> = numbered
            .map(|(order, kind)| hooked(order, HookType::Pre, kind.program()))
            .collect();
        let hooks = [(Point::Entry, &instruments[..])];
        let code = patch(&mut machine, &NOP, &hooks, Live::ALL, &layout);
        let ids: Vec<PieceKind> = instruments
            .iter()
            .map(|one| PieceKind::Instrument(one.id))
            .collect();
        (code.pieces, ids)
    };
    let kinds = [
        Kind::Count,
        Kind::Argument(1),
        Kind::Count,
        Kind::Start,
        Kind::Time,
    ];
    let (together, ids) = pieces(&kinds);
    let first = together.iter().map(|piece| piece.kind);
    let first: Vec<PieceKind> = first.take(ids.len() + 2).collect();
    let expected = [&[PieceKind::Save][..], &ids, &[PieceKind::Restore]].concat();
    assert_eq!(first, expected);
    let rest = &together[first.len()..];
    assert!(
        !rest
            .iter()
            .any(|piece| matches!(piece.kind, PieceKind::Save | PieceKind::Restore))
    );
    // What they save together is what the one saves that needs most.
    let alone = kinds.map(|kind| pieces(&[kind]).0[0].executed);
    assert_eq!(Some(&together[0].executed), alone.iter().max());
    assert!(alone.iter().sum::<u32>() > together[0].executed);
}

#[test]
fn a_counter_out_of_reach_of_a_displacement_is_reached_through_a_register() {
    for (live, cost) in [
        (Live::ALL, 10),
        (
            Live {
                registers: RegisterSet::EMPTY,
                flags: false,
            },
            2,
        ),
    ] {
        let far = Box::new([0u64; 4]);
        let mut machine = ready(8, 8);
        let layout = layout(&machine, far.as_ptr() as u64);
        assert_eq!(
            layout.counters[1].base.near(),
            None,
            "the heap is far from the low 2 GiB"
        );
        let counter = Hooked {
            counter: layout.nth_counter(7),
            ..hooked(0, HookType::Pre, Kind::Count.program())
        };
        let instruments = [counter];
        let code = patch(
            &mut machine,
            &NOP,
            &[(Point::Entry, &instruments)],
            live,
            &layout,
        );
        assert_eq!(
            code.pieces.iter().map(|piece| piece.executed).sum::<u32>() - 2,
            cost
        );
        let before = random_state(&machine, &mut Random(1));
        for _ in 0..3 {
            let after = machine.run(PATCH, &before);
            untouched(live, &before, &after);
        }
        assert_eq!(*std::hint::black_box(far), [0, 0, 3, 0]);
    }
}

/// The end of the block is split away: post-hook instruments run whichever way it then goes, and
/// the flags it tests are those of the block.
#[test]
fn post_hook_instruments_run_before_the_branch_that_ends_the_block() {
    // cmp edi, esi; je exit 1; and the same as a fall through.
    let mut machine = ready(8, 8);
    let layout = layout(&machine, 0);
    let target = machine.exit(1);
    let mut original = vec![0x39, 0xf7, 0x0f, 0x84];
    original.extend_from_slice(
        &((target as i64 - (machine.address(ORIGINAL) + 8) as i64) as i32).to_le_bytes(),
    );
    let pre = [hooked(0, HookType::Pre, Kind::Count.program())];
    let post = [
        hooked(1, HookType::Post, Kind::Count.program()),
        hooked(2, HookType::Post, Kind::Argument(2).program()),
    ];
    let live = Live {
        registers: RegisterSet::ALL,
        flags: true,
    };
    let branch = Point::Before(Addr(machine.address(ORIGINAL) + 2));
    let hooks = [(Point::Entry, &pre[..]), (branch, &post[..])];
    patch(&mut machine, &original, &hooks, live, &layout);

    let mut random = Random(3);
    for (round, equal) in [true, false, true, false].into_iter().enumerate() {
        let mut before = random_state(&machine, &mut random);
        if equal {
            before.registers[7] = before.registers[6];
        }
        let plain = machine.run(ORIGINAL, &before);
        let patched = machine.run(PATCH, &before);
        assert_eq!(plain, patched);
        assert_eq!(patched.exit, u64::from(equal));
        assert_eq!(machine.word(GS + COUNTERS), round as u64 + 1);
        assert_eq!(machine.word(GS + COUNTERS + 8), round as u64 + 1);
        assert_eq!(slot(&mut machine, 8 + round as u64)[1], before.registers[2]);
    }
}

/// A ring used round and round: every lap has its marks, and what does not fit is counted.
#[test]
fn a_ring_is_filled_lap_by_lap_and_then_counts_what_it_loses() {
    let mut machine = ready(8, 8);
    let layout = layout(&machine, 0);
    let instruments = [hooked(0, HookType::Pre, Kind::Time.program())];
    let live = Live {
        registers: RegisterSet::ALL,
        flags: true,
    };
    patch(
        &mut machine,
        &NOP,
        &[(Point::Entry, &instruments)],
        live,
        &layout,
    );
    let before = random_state(&machine, &mut Random(9));
    let mut last = 0;
    // The lap has 32 bits: it runs over into nothing else.
    for (round, lap) in [1, 2, 0xffff, 0x1_0000, 0xffff_fffe, 0xffff_ffff, 0]
        .into_iter()
        .enumerate()
    {
        let serial = lap * 8;
        machine.set_word(GS + HEAD, head(serial));
        machine.set_word(GS + LIMIT, head(serial + 8));
        for _ in 0..9 {
            machine.run(PATCH, &before);
        }
        assert_eq!(machine.word(GS + LOST_FULL), round as u64 + 1);
        for n in 0..8 {
            let [mark, value, tsc, id] = slot(&mut machine, serial + n);
            assert_eq!((mark, id), (head(serial + n), instruments[0].id.pack()));
            assert!(value == tsc && last < tsc, "samples are in order of time");
            last = tsc;
        }
    }
}
