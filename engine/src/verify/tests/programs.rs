//! Programs in the language: whatever the compiler makes of one is proven, and no instruction of it can
//! be taken away, turned round or moved without being found out.

use std::sync::Arc;

use gilk_instruments::program::{AggregateId, Checked, Scope, VariableId};
use iced_x86::{FlowControl, OpKind};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::caught::CODE;
use super::entries::place_of_only_entry;
use super::random;
use super::*;
use crate::layout::CounterSlot;
use crate::liveness::{Live, RegisterSet};
use crate::patch::{
    Assembler, Home, Homes, HookProgram, Hooked, Packed, PieceKind, Pieces, Probed,
};
use crate::placement::Point;
use crate::plan::PlannedInstrument;
use crate::plan::faults;

/// A plan of one instrument in the language, at the function's block.
pub(super) fn written(
    image: &Image,
    function: &str,
    block: u32,
    source: &str,
) -> crate::Result<Plan> {
    let mut session = session(vec![placement(function, block, HookType::Pre, "mine")]);
    session.sources.insert("mine".into(), source.into());
    plan(image, &session, &Library::builtin().unwrap(), &layout())
}

fn homes(program: &Checked) -> Homes {
    let mut next = [0; 2];
    let mut take = |words: u32| {
        // Single words are near, histograms out of reach of a displacement.
        let bank = u32::from(words > 2);
        let slot = next[bank as usize];
        next[bank as usize] += words;
        CounterSlot { bank, slot }
    };
    Homes {
        variables: program
            .variables
            .values()
            .iter()
            .map(|variable| match variable.scope {
                Scope::Cpu => Home::Cpu(take(1)),
                Scope::Global => Home::Shared(take(1)),
                Scope::Thread => Home::Thread(7),
                Scope::Call => Home::Call(9),
            })
            .collect(),
        aggregates: program
            .aggregates
            .values()
            .iter()
            .map(|aggregate| take(aggregate.words()))
            .collect(),
        failed: Some(take(1)),
        no_room: Some(take(1)),
    }
}

/// The plan with another program in place of its own; `None` if it is refused by rule.
fn with_program(image: &Image, plan: &Plan, program: Checked, live: Live) -> Option<Plan> {
    let mut plan = plan.clone();
    let probed = Probed {
        homes: Arc::new(homes(&program)),
        checked: Arc::new(program),
        index: 0,
    };
    if probed.refusal(&plan.layout).is_some() {
        return None;
    }
    let instrument = &mut plan.instruments[0];
    let hooked = Hooked {
        id: instrument.id,
        program: HookProgram::Probe(&probed),
        counter: None,
    };
    plan.faults.clear();
    for patch in &mut plan.patches {
        let site = &plan.sites[patch.site.0 as usize];
        let hooked = [hooked];
        let hooks: Vec<(Point, &[Hooked<'_>])> = patch
            .hooks
            .iter()
            .map(|(point, _)| (*point, &hooked[..]))
            .collect();
        let code = Assembler::new(image, &plan.layout)
            .assemble(patch.address, site, &hooks, &|_| live)
            .unwrap();
        plan.faults.extend(faults(&code, patch.address));
        patch.code = code.bytes.into();
        patch.rows = code.rows.into();
        patch.pieces = Pieces::pack(&code.pieces, &[instrument.id], &mut Packed::default());
    }
    instrument.probe = Some(Arc::new(probed));
    Some(plan)
}

proptest! {
    // The same programs every time: of 60,000 others, the proof could not follow one that was right (what it
    // kept for its thread, a truth moved by the bits that the key leaves free), and refused it.
    #![proptest_config(ProptestConfig {
        cases: 400,
        max_shrink_iters: 200,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_compiled_is_proven(program in random::program(), all: bool) {
        let image = kernel().image();
        let plan = written(&image, "helper", 0, "instrument mine \"x.\"; hit { sample(1) }").unwrap();
        // At its entry rax, r10 and r11 are dead.
        let arguments = RegisterSet(!(1 | 1 << 10 | 1 << 11));
        let live = if all { Live { registers: RegisterSet::ALL, flags: true } }
            else { Live { registers: arguments, flags: false } };
        let text = format!("{program:?}");
        let mut always = program.clone();
        always.probes[0].predicate = None;
        let refused = |program| {
            let plan = with_program(&image, &plan, program, live)?;
            verify(&image, plan).err().map(|violations| list(&violations))
        };
        // Of a predicate that always or never holds some code is never run; at an entry nothing is returned.
        if refused(program).is_some()
            && let Some(said) = refused(always)
        {
            let early = text.contains("Input(Returned)") && said.contains("[ReturnedUnknown]");
            // The proof knows more constant addresses than the compiler, and that those of a process are not read.
            let early = early || text.contains("Load") && said.contains("[NeverFaults]");
            assert!(early || said.contains("[Undetermined]"), "{said}\n{text}");
        }
    }
}

/// Programs with every kind of test, value and action.
const PROGRAMS: [&str; 31] = [
    "hit / pid == 77 && arg0 != 0 / { @n = count() }",
    "hit / comm == \"swapper/0\" || (s64)arg1 < -3 / { sample(arg0 + arg1 * 3) }",
    "hit { sample((arg0 >> 3) / 10 + arg1 % 7 + (arg2 & 0xff) * tid) }",
    "cpu @c; global @g; hit { @c = arg0; @g += arg1; @c += 5 }",
    "global @g; thread @t; hit { @g = cpu; @t += arg0; @t += @g }",
    "thread @t; hit / @t == 0 / { @t = arg0 | 1; sample(@t + nsecs) }",
    "hit { @a = sum(arg0); @b = avg(arg1); @c = max(arg2); @d = min((s64)arg0) }",
    "hit { @a = hist(arg0); @b = hist((s64)arg1) }",
    "hit { @a = lhist((s64)arg0, -5, 95, 7); @b = lhist(arg1, 0, 64, 8) }",
    "thread @t; hit { sample(tsc - @t); @t = tsc }",
    "hit / *(u32 *)(arg0 + 8) == 7 && *(s16 *)arg1 < -3 / { @n = count() }",
    "hit { sample(*(u64 *)(*(u64 *)(arg0 + 16) + 24)); @a = hist(*(u8 *)arg1) }",
    "hit { sample(*(u32 *)0x10 + *(u8 *)arg0 + *(s8 *)arg0) }",
    // A fact of one action about an address has no meaning for the loads of the next.
    "hit { sample(*(u64 *)(*(u64 *)(arg0 + 16) + 24)); sample(*(u32 *)(*(u64 *)(arg0 + 16) + 8)) }",
    "hit { sample(*(u32 *)(arg0 + 8)); sample(*(u16 *)arg1 - *(u32 *)(arg0 + 8)) }",
    "hit { sample(*(u32 *)arg0 - *(u8 *)arg0); sample(*(u8 *)arg0 - *(u32 *)arg0) }",
    "hit { sample((s64)arg0 / (s64)arg1 - (s64)arg2 % (s64)tid) }",
    "hit { sample(*(u64 *)(arg0 + arg1) - *(u8 *)(8 + arg0) + *(u64 *)(arg1 + arg0) - *(u8 *)(arg0 + 8)) }",
    "hit / cache_misses > arg0 / { sample(arg1 - cycles * 3 - cache_misses - cycles); @a = hist(cycles << arg1) }",
    "entry { sample(arg6 - arg7 * 3); @a = hist(reg(\"sp\")) }",
    "thread @t; entry { @t = 0; sample(@t) }",
    "call @c; entry { @c = arg0 - 7; sample(arg0); @c = 0 }",
    "thread @t; entry / arg0 / { @t -= arg1; sample(@t) }",
    "hit { @n[comm] = count() }",
    "hit { @s[arg2, arg0] = sum(arg1) }",
    "hit { @m[comm, arg0] = avg(arg1) }",
    "hit { @h[arg0] = hist((s64)arg1) }",
    "hit { @l[comm] = lhist((s64)arg0, -5, 95, 7) }",
    "hit / arg0 > 9 / { printf(\"%s %d\", comm, arg0 * 3) }",
    "hit { printf(\"%d %d %d %d %d %d\", arg0, arg1, arg2, tid, cpu, nsecs); printf(\"again\") }",
    "thread @t; hit { printf(\"%d %x\", *(u32 *)(arg0 + 8), @t); @t = arg1 }",
];

pub(super) fn programs() -> impl Iterator<Item = Plan> {
    let image = kernel().image();
    PROGRAMS.into_iter().map(move |program| {
        let source = format!("instrument mine \"x.\";\n{program}");
        let planned = written(&image, "helper", 0, &source);
        planned.unwrap_or_else(|error| panic!("{program}: {error}"))
    })
}

/// Instructions of the instrument, by offset in its patch.
pub(super) fn instrument(plan: &Plan) -> Vec<(usize, Instruction)> {
    let patch = &plan.patches[0];
    let own = |kind: &PieceKind| matches!(kind, PieceKind::Instrument(_) | PieceKind::Lost(_));
    let mut all = Vec::new();
    for piece in patch.pieces().filter(|piece| own(&piece.kind)) {
        let from = piece.range.start as usize;
        let code = &patch.code[from..piece.range.end as usize];
        for one in Decoder::with_ip(64, code, patch.address.0 + from as u64, 0) {
            all.push(((one.ip() - patch.address.0) as usize, one));
        }
    }
    all
}

#[test]
fn no_instruction_of_a_program_can_be_left_out() {
    let image = kernel().image();
    let mut caught = Caught::new("instructions left out", &[CODE]);
    for (number, plan) in programs().enumerate() {
        passes(&image, &plan);
        let place = place_of_only_entry(&plan);
        for (at, one) in instrument(&plan) {
            if place
                .as_ref()
                .is_some_and(|place| place.contains(&one.ip()))
            {
                continue;
            }
            let mut bad = plan.clone();
            bad.patches[0].code[at..at + one.len()].fill(0x90);
            let what = format_args!("program {number}: without `{one}`");
            caught.must_refuse(&image, bad, what);
        }
    }
}

#[test]
fn no_condition_operand_or_constant_of_a_program_can_be_another() {
    let image = kernel().image();
    let mut tried = 0;
    let mut caught = Caught::new("other operands", &[CODE]);
    for (number, plan) in programs().enumerate() {
        let place = place_of_only_entry(&plan);
        for (at, one) in instrument(&plan) {
            if place
                .as_ref()
                .is_some_and(|place| place.contains(&one.ip()))
            {
                continue;
            }
            let mut changes: Vec<(usize, u8)> = Vec::new();
            // The last byte is of the displacement or the immediate, where there is one: a small number more.
            let ends_with_number = one.op_count() > 0
                && matches!(
                    one.op_kind(one.op_count() - 1),
                    OpKind::Immediate8to64
                        | OpKind::Immediate8
                        | OpKind::Immediate32
                        | OpKind::Immediate64
                        | OpKind::Immediate32to64
                );
            if ends_with_number {
                changes.push((at + one.len() - 1, 1));
            }
            // So is the last byte of a displacement that is the last of the instruction.
            let last = one.op_count().checked_sub(1);
            let immediate = last.is_some_and(|last| {
                let kind = one.op_kind(last);
                kind != OpKind::Memory && kind != OpKind::Register
            });
            if one.memory_displ_size() > 1 && !immediate {
                changes.push((at + one.len() - 1, 1));
            }
            let conditional = one.flow_control() == FlowControl::ConditionalBranch;
            let code = &plan.patches[0].code;
            if conditional {
                // 0f 8x, or 7x: the lowest bit turns the condition round.
                changes.push((at + usize::from(code[at] == 0x0f), 1));
            } else if let Some(place) = (at..at + one.len()).find(|&place| code[place] == 0x0f)
                && matches!(code[place + 1], 0x40..=0x4f | 0x90..=0x9f)
            {
                changes.push((place + 1, 1));
            }
            for (place, bit) in changes {
                let mut bad = plan.clone();
                bad.patches[0].code[place] ^= bit;
                tried += 1;
                let text = decoded(bad.patches[0].address, &bad.patches[0].code);
                let now = text.iter().find(|now| now.ip() == one.ip());
                let now = now.map(ToString::to_string);
                let what = format_args!("program {number}: {now:?} instead of `{one}`");
                caught.must_refuse(&image, bad, what);
            }
        }
    }
    assert!(tried > 100, "{tried} changes");
}

/// A counter of an event is read by its own number, and what comes of it has as many bits as it.
#[test]
fn no_counter_of_an_event_can_be_anothers() {
    let image = kernel().image();
    let source = "instrument mine \"x.\"; hit { sample(cycles + cache_misses * 2) }";
    let good = &written(&image, "helper", 0, source).unwrap();
    refused(&image, good, "UnknownEvent", |plan| {
        plan.layout.events.counters[0].index = 7;
    });
    refused(&image, good, "OtherEvent", |plan| {
        plan.layout.events.counters[0].event = Event::Branches;
    });
    refused(&image, good, "OtherValue", |plan| {
        plan.layout.events.counters[1].width = 32;
    });
    let other = source.replace("cycles", "branches");
    let error = written(&image, "helper", 0, &other)
        .unwrap_err()
        .to_string();
    let why = "there is no counter of branches here: none is free";
    assert!(error.contains(why), "{error}");
}

/// The words that the plan states are checked too.
#[test]
fn no_word_of_a_program_can_be_anothers() {
    let image = kernel().image();
    let plans: Vec<Plan> = programs().collect();
    let moved = |plan: &Plan, change: &dyn Fn(&mut Homes)| {
        let mut bad = plan.clone();
        let mut probed = (*bad.instruments[0].probe.clone().unwrap()).clone();
        let mut homes = (*probed.homes).clone();
        change(&mut homes);
        probed.homes = Arc::new(homes);
        bad.instruments[0].probe = Some(Arc::new(probed));
        Caught::new("other words", &[CODE, &["CounterBank", "SameCounter"]]).must_refuse(
            &image,
            bad,
            "another word",
        );
    };
    moved(&plans[0], &|homes| {
        homes.aggregates[AggregateId(0)].slot += 1;
    });
    moved(&plans[3], &|homes| {
        let (one, other) = (VariableId(0), VariableId(1));
        let home = homes.variables[one];
        homes.variables[one] = homes.variables[other];
        homes.variables[other] = home;
    });
    moved(&plans[5], &|homes| {
        homes.variables[VariableId(0)] = Home::Thread(1);
    });
    moved(&plans[7], &|homes| {
        homes.aggregates[AggregateId(0)].bank = 0;
    });
    moved(&plans[5], &|homes| homes.no_room = None);
    moved(&plans[9], &|homes| {
        homes.no_room = Some(CounterSlot { bank: 0, slot: 77 });
    });
    moved(&plans[10], &|homes| homes.failed = None);
    moved(&plans[11], &|homes| {
        homes.failed = Some(homes.aggregates[AggregateId(0)]);
    });
}

#[test]
fn entry_and_return_probes_stand_at_every_exit() {
    let image = kernel().image();
    let source = "instrument mine \"x.\" unit \"ticks\" duration;\ncall @start;\n\
        entry { @start = tsc }\nreturn / @start / { sample(tsc - @start); @start = 0 }";
    // A tail call is passed on: marked, looked at where it comes back, and the mark taken away.
    for (function, exits) in [("worker", 1), ("helper", 1), ("tail", 3)] {
        let plan = written(&image, function, 0, source).unwrap();
        passes(&image, &plan);
        assert_eq!(plan.instruments.len(), 1 + exits, "{function}");
        let homes =
            |instrument: &PlannedInstrument| instrument.probe.clone().unwrap().homes.clone();
        let all = plan.instruments.iter();
        assert!(
            all.clone()
                .all(|instrument| homes(instrument) == homes(&plan.instruments[0]))
        );
        assert!(all.clone().all(|instrument| instrument.placement == 0));
    }
    let returned = "instrument mine \"x.\"; return { sample(retval) }";
    for function in ["helper", "tail"] {
        passes(&image, &written(&image, function, 0, returned).unwrap());
    }
    let gone = written(
        &image,
        "tail",
        0,
        "instrument mine \"x.\"; post { sample(arg1) }",
    );
    let gone = gone.unwrap_err().to_string();
    assert!(gone.contains("argument-gone"), "{gone}");
}

#[test]
fn arguments_on_the_stack_are_read_at_the_entry_only() {
    let image = kernel().image();
    let source = |hook: &str| format!("instrument mine \"x.\"; {hook} {{ sample(arg6) }}");
    passes(
        &image,
        &written(&image, "worker", 0, &source("entry")).unwrap(),
    );
    // The same code, where the stack pointer may be another.
    let entry = written(&image, "worker", 0, &source("entry")).unwrap();
    let program = (*entry.instruments[0].probe.clone().unwrap().checked).clone();
    let hook = "hit { sample(1) }";
    for (block, right) in [(0, true), (1, false)] {
        let plan = written(
            &image,
            "worker",
            block,
            &format!("instrument mine \"x.\"; {hook}"),
        );
        let live = Live {
            registers: RegisterSet::ALL,
            flags: true,
        };
        let plan = with_program(&image, &plan.unwrap(), program.clone(), live).unwrap();
        let refused = verify(&image, plan)
            .err()
            .map(|violations| list(&violations));
        assert_eq!(refused.is_none(), right, "{refused:?}");
        assert!(refused.is_none_or(|said| said.contains("[StackArgument]")));
    }
}
