//! Compiled programs run natively, beside the interpreter that says what programs mean.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail as tests do"
)]

#[path = "programs/faulting.rs"]
mod faulting;
#[path = "programs/model.rs"]
mod model;
#[path = "relocation/native.rs"]
mod native;
#[path = "programs/random.rs"]
mod random;
#[path = "patches/sources.rs"]
#[allow(dead_code, reason = "only counters are used here")]
mod sources;
#[path = "patches/support.rs"]
mod support;
#[path = "support/text.rs"]
mod text;

use std::sync::Arc;

use faulting::take_faults;
use gilk_engine::layout::Guard;
use gilk_engine::liveness::{Live, RegisterSet};
use gilk_engine::patch::{Code, Fault, Home, HookProgram, Hooked, Probed, Recovery};
use gilk_engine::placement::Point;
use gilk_engine::{Addr, HookType};
use gilk_instruments::interpret;
use gilk_instruments::program::{
    Action, ActionKind, AggregateId, BinaryOp, Checked, Expr, ExprKind, Input, Span, Type,
};
use model::{Model, SERIAL};
use native::{GS, Machine, PATCH, Random, STACK};
use proptest::prelude::*;
use sources::Kind;
use support::*;

fn probed(program: Checked) -> Probed {
    let homes = model::homes(&program);
    Probed {
        checked: Arc::new(program),
        index: 0,
        homes: Arc::new(homes),
    }
}

/// Adapts code for a process, whose addresses are in the lower half: the test of each address is inverted, and faults
/// are handled.
fn in_a_process(machine: &mut Machine, code: &Code) {
    let mut compared = false;
    for instruction in iced_x86::Decoder::with_ip(64, &code.bytes, 0, 0) {
        if std::mem::take(&mut compared) {
            assert_eq!(instruction.code(), iced_x86::Code::Jge_rel32_64);
            machine.memory()[(PATCH + instruction.ip()) as usize + 1] ^= 1;
        }
        compared = instruction.code() == iced_x86::Code::Cmp_rm64_imm32
            && Guard::KERNEL == Guard::Below(Addr(instruction.immediate32to64() as u64));
    }
    let at = |offset: u32| machine.address(PATCH + u64::from(offset));
    let entry = |fault: &Fault| match fault.recovery {
        Recovery::At(fixup) => (at(fault.at), at(fixup)),
        Recovery::Like(_) => panic!("no instruction is moved"),
    };
    take_faults(code.faults.iter().map(entry).collect());
}

fn as_hooked(probed: &Probed, order: u8) -> Hooked<'_> {
    hooked(order, HookType::Pre, HookProgram::Probe(probed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any program, whatever is live and whatever is in registers, memory and words: it leaves what the
    /// interpreter says, and nothing else. Run three times, so that what it keeps is read again.
    #[test]
    fn compiled_programs_do_what_the_interpreter_says(
        program in random::program(),
        live in any::<u16>(),
        flags: bool,
        room in 0u64..6,
        crowd in prop_oneof![Just(0), any::<u64>()],
        seed: u64,
        everywhere: bool,
        red_zone: bool,
    ) {
        let probed = probed(program);
        let mut machine = ready(SERIAL, room);
        let mut layout = model::layout(&mut machine, seed);
        if everywhere {
            layout.guard = Guard::Everywhere;
        }
        let zone = if red_zone { 128 } else { 0 };
        layout.abi.red_zone = zone;
        let kept = STACK as usize - usize::from(zone)..STACK as usize + 4096;
        prop_assume!(probed.refusal(&layout).is_none());
        let live = Live { registers: RegisterSet(live), flags };
        // A counter before and one after it: they share one save with it.
        let count = |order| Hooked { counter: layout.nth_counter(model::COUNTER + u64::from(order)),
            ..hooked(order, HookType::Pre, Kind::Count.program()) };
        let instruments = [count(0), as_hooked(&probed, 1), count(2)];
        let point = Point::Entry;
        let code = patch(&mut machine, &NOP, &[(point, &instruments)], live, &layout);
        in_a_process(&mut machine, &code);
        let mut random = Random(seed);
        let mut model = Model::new(&mut machine, &probed, instruments[1].id, room);
        model.crowd(&mut machine, crowd);
        for hit in 1..=3 {
            let before = model::state(&machine, &mut random, &mut model);
            model.stack = (0..8).map(|_| random.next()).collect();
            for (place, &word) in (0..).zip(&model.stack) {
                machine.set_word(STACK + 8 * place, word);
            }
            let stack = machine.memory()[kept.clone()].to_vec();
            let after = machine.run(PATCH, &before);
            prop_assert_eq!(after.exit, 0);
            untouched(live, &before, &after);
            prop_assert_eq!(&stack[..], &machine.memory()[kept.clone()]);
            model.registers = before.registers;
            model.begin();
            let probe = probed.probe().unwrap().clone();
            interpret::run(&probed.checked, &probe, &mut model);
            model.compare(&mut machine);
            for order in [0, 2] {
                let word = machine.word(GS + COUNTERS + 8 * (model::COUNTER + order));
                prop_assert_eq!(word, hit);
            }
        }
    }
}

fn expr(kind: ExprKind) -> Expr {
    Expr {
        kind,
        ty: Type::U64,
        span: Span::default(),
    }
}

/// A probe executes at most as many instructions as its printed cost, where nothing has to be saved.
#[test]
fn no_more_is_executed_than_the_cost_that_is_printed() {
    let emitted = |statements: &str| {
        let text = format!(
            "instrument mine \"x.\"; shared cpu @c; shared global @g; hit {{ {statements} }}"
        );
        let source = gilk_instruments::Source::parse(&text).unwrap();
        let checked = source.check(&gilk_instruments::Context::default()).unwrap();
        let cost = checked.cost(&checked.probes[0]).instructions as usize;
        let probed = probed(checked);
        let mut machine = ready(SERIAL, 4);
        let layout = model::layout(&mut machine, 1);
        assert_eq!(probed.refusal(&layout), None);
        let dead = Live {
            registers: RegisterSet::EMPTY,
            flags: false,
        };
        let instruments = [as_hooked(&probed, 0)];
        let here = [(Point::Entry, &instruments[..])];
        let code = patch(&mut machine, &NOP, &here, dead, &layout);
        let all = iced_x86::Decoder::with_ip(64, &code.bytes, 0, 0);
        (all.into_iter().count(), cost)
    };
    let (around, one) = emitted("@a = count()");
    assert_eq!(one, 1);
    let values = [
        "tsc",
        "nsecs",
        "pid",
        "tid",
        "cpu",
        "block",
        "id",
        "arg0",
        "arg5",
        "curtask",
        "reg(\"r12d\")",
        "@c",
        "@g",
        "arg0 * arg1 + 5",
        "arg0 / 3",
        "arg0 / arg1",
        "(s64)arg0 % (s64)arg1",
        "arg0 << arg1",
        "!arg0",
        "-arg0",
        "(s8)arg0",
        "arg0 < arg1",
        "tsc - nsecs + tsc",
        "0x1234567812345678 ^ arg2",
    ];
    let statements = [
        "@a = sum(V)",
        "@a = avg(V)",
        "@a = hist(V)",
        "@a = lhist(V, 0, 1000, 7)",
        "@c = V",
        "@c += V",
        "@g = V",
        "@g += V",
    ];
    for value in values {
        for statement in statements {
            let statement = statement.replace('V', value);
            let (all, cost) = emitted(&statement);
            assert!(
                all - around < cost,
                "{statement}: {} executed, {cost} printed",
                all - around + 1
            );
        }
    }
}

fn sampling(value: Expr) -> Probed {
    probed(random::of_probe(
        None,
        vec![Action {
            kind: ActionKind::Sample(value),
            span: Span::default(),
        }],
    ))
}

/// A machine with one in its patch, where everything is live.
fn placed(probed: &Probed) -> Machine {
    let mut machine = ready(SERIAL, 4);
    let layout = model::layout(&mut machine, 1);
    assert_eq!(probed.refusal(&layout), None);
    let instruments = [as_hooked(probed, 0)];
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
    machine
}

/// The word that a target adds to scaled ticks.
const CLOCK: u64 = 1_000_000_000_000_u64.wrapping_neg();

/// Runs one and gives value and time of its sample.
fn sample(value: Expr) -> (u64, u64) {
    let mut machine = placed(&sampling(value));
    machine.set_word(GS + model::CLOCK_OFFSET, CLOCK);
    machine.run(PATCH, &random_state(&machine, &mut Random(1)));
    let [_, value, tsc, _] = slot(&mut machine, SERIAL);
    (value, tsc)
}

#[test]
fn clocks_are_those_of_the_sample_or_read_just_before() {
    let input = |input| expr(ExprKind::Input(input));
    let (value, tsc) = sample(input(Input::Tsc));
    assert_eq!(value, tsc);

    let minus = |left, right| {
        expr(ExprKind::Binary(
            BinaryOp::Subtract,
            Box::new(left),
            Box::new(right),
        ))
    };
    let (value, tsc) = sample(minus(input(Input::Tsc), expr(ExprKind::Constant(1000))));
    assert_eq!(value, tsc - 1000);

    let (value, _) = sample(minus(input(Input::Tsc), input(Input::Tsc)));
    assert_eq!(value, 0, "one clock is read for both");

    // 2.5 ticks a nanosecond.
    let (value, tsc) = sample(input(Input::Nsecs));
    let nsecs = (u128::from(tsc) * 2 / 5) as u64;
    let scaled = value.wrapping_sub(CLOCK);
    assert!(
        scaled <= nsecs && nsecs - scaled < 1_000_000 + nsecs / 1_000_000,
        "{scaled} {nsecs}"
    );
    let (value, _) = sample(minus(input(Input::Nsecs), input(Input::Nsecs)));
    assert_eq!(value, 0, "one clock and one word are read for both");
}

/// An operation that the processor faults on has the language's result.
#[test]
fn numbers_with_signs_are_divided_whatever_they_are() {
    let numbers = [0, 1, 7, -1, -7, 1 << 40, i64::MAX, i64::MIN, i64::MIN + 1];
    let argument = |number| Box::new(expr(ExprKind::Input(Input::Argument(number))));
    for op in [BinaryOp::DivideSigned, BinaryOp::RemainderSigned] {
        let by_all = numbers.map(|by| Box::new(expr(ExprKind::Constant(by.cast_unsigned()))));
        for (known, by) in [argument(1)].into_iter().chain(by_all).enumerate() {
            let probed = sampling(expr(ExprKind::Binary(op, argument(0), by)));
            let mut machine = placed(&probed);
            for left in numbers {
                let only = known.checked_sub(1).map(|known| numbers[known]);
                for right in only.map_or(numbers.to_vec(), |only| vec![only]) {
                    let mut state = random_state(&machine, &mut Random(1));
                    let [left, right] = [left, right].map(i64::cast_unsigned);
                    (state.registers[7], state.registers[6]) = (left, right);
                    let serial = machine.word(GS + HEAD);
                    machine.run(PATCH, &state);
                    let [_, value, ..] = slot(&mut machine, SERIAL);
                    assert_eq!(value, op.apply(left, right), "{op:?} {left:#x} {right:#x}");
                    machine.set_word(GS + HEAD, serial);
                }
            }
        }
    }
}

#[test]
fn what_a_simple_probe_costs() {
    let cost = |probe: &Probed, live| {
        let mut machine = ready(SERIAL, 4);
        let layout = model::layout(&mut machine, 1);
        let instruments = [as_hooked(probe, 0)];
        let code = patch(
            &mut machine,
            &NOP,
            &[(Point::Entry, &instruments)],
            live,
            &layout,
        );
        code.pieces.iter().map(|piece| piece.executed).sum::<u32>() - 2
    };
    let nothing = Live {
        registers: RegisterSet::EMPTY,
        flags: false,
    };
    let all = Live {
        registers: RegisterSet::ALL,
        flags: true,
    };
    // As many as the instrument that samples an argument.
    let argument = sampling(expr(ExprKind::Input(Input::Argument(0))));
    assert_eq!(cost(&argument, nothing), 18);

    // The task, its number, a comparison, a branch; the counter.
    let pid = expr(ExprKind::Input(Input::Pid));
    let is = Expr {
        kind: ExprKind::Binary(
            BinaryOp::Equal,
            Box::new(pid),
            Box::new(expr(ExprKind::Constant(77))),
        ),
        ..argument_expr()
    };
    let counting = probed(random::of_probe(Some(is), vec![counting()]));
    assert!(matches!(
        counting.homes.variables.values().first(),
        Some(Home::Cpu(_))
    ));
    assert_eq!(cost(&counting, nothing), 5);
    // A register pushed and popped, rax likewise, and four for the flags.
    assert_eq!(cost(&counting, all), 5 + 8);
}

fn argument_expr() -> Expr {
    expr(ExprKind::Input(Input::Argument(0)))
}

/// One that counts in its first aggregate.
fn counting() -> Action {
    Action {
        kind: ActionKind::Update(AggregateId(0), None),
        span: Span::default(),
    }
}
