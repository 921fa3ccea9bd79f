//! Good plans pass; a plan broken in any way that is thought of here does not.

pub(crate) mod caught;
mod conventions;
mod endings;
mod entries;
mod faults;
mod flips;
mod garbage;
mod good;
mod handmade;
mod interpreter;
mod liveness;
mod loads;
mod machine;
mod mutations;
pub(crate) mod natives;
mod numbered;
mod numbers;
mod placements;
mod placer;
mod processes;
mod programs;
#[path = "../../../tests/programs/random.rs"]
mod random;
mod reads;
mod replaced;
mod retirements;
mod samples;
mod schedules;
mod sequence_programs;
mod sequences;
mod sites;
mod stacks;
mod tactics;
mod unregistered;
mod unwinding;

use gilk_instruments::Library;
use gilk_instruments::program::Event;
use iced_x86::code_asm::*;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic};

use self::caught::Caught;
use super::{Violation, verify};
use crate::cfg::{BlockIndex, Cfg};
use crate::kernel::fixture::{DATA, Fixture};
use crate::layout::{
    CounterBank, EventCounter, Events, Inputs, Owner, RingOwner, Rings, RuntimeLayout,
    SegmentOffset,
};
use crate::placement::Wanted;
use crate::plan::{Plan, plan_placed};
use crate::session::Placement;
use crate::{Addr, HookType, Image, Session, Span};

/// Address of the arena, in reach of the fixture's text.
const ARENA: u64 = 0xffff_ffff_c000_0000;

fn layout() -> RuntimeLayout {
    RuntimeLayout {
        arena: Span::new(Addr(ARENA), 4 << 20),
        unwinds: false,
        faults: 1 << 16,
        rings: Rings {
            per: RingOwner::Cpu,
            base: Addr(0xffff_c900_0400_0000),
            stride_log2: 21,
            slots_log2: 16,
            head: SegmentOffset(0x3_0000),
            limit: SegmentOffset(0x3_0008),
            lost_full: SegmentOffset(0x3_0010),
        },
        owner: Owner::kernel(SegmentOffset(0x1_fbc0)),
        inputs: Inputs::supposed(SegmentOffset(0x1_fbc0)),
        counters: vec![
            CounterBank {
                base: SegmentOffset(0x3_1000),
                slots: 40,
            },
            CounterBank {
                base: SegmentOffset(0x7_1234_5678),
                slots: 4096,
            },
        ],
        timers: Addr(0xffff_c900_0800_0000),
        timers_log2: 12,
        shared: RuntimeLayout::supposed_shared(2),
        events: Events {
            counters: [(Event::Cycles, 1 << 30, 48), (Event::CacheMisses, 2, 40)]
                .map(|(event, index, width)| EventCounter {
                    event,
                    index,
                    width,
                })
                .into(),
            refused: [(Event::Branches, "none is free".to_owned())].into(),
        },
        ..RuntimeLayout::supposed(Addr(ARENA))
    }
}

/// Functions with every kind of block that can be spliced.
fn kernel() -> Fixture {
    Fixture::new()
        .compiled("worker", |a| {
            let (mut again, mut small, mut out) =
                (a.create_label(), a.create_label(), a.create_label());
            a.push(rbx)?;
            a.push(rbp)?;
            a.mov(rbx, rdi)?;
            a.mov(rbp, rsi)?;
            a.test(rdi, rdi)?;
            a.je(out)?;
            a.lea(rdx, qword_ptr(DATA + 0x40))?;
            a.mov(rax, qword_ptr(DATA + 0x48).gs())?;
            a.mov(ecx, 10)?;
            a.set_label(&mut again)?;
            a.add(rax, qword_ptr(rbx))?;
            a.add(rbx, 8)?;
            a.lock().add(qword_ptr(rdx), rax)?;
            a.dec(rcx)?;
            a.jne(again)?;
            a.mov(rdi, rax)?;
            a.mov(rsi, rdx)?;
            a.call(Fixture::address(1))?;
            a.cmp(rax, rbp)?;
            a.lea(rdx, ptr(rax + rbp * 4 + 3))?;
            a.jb(small)?;
            a.mov(rax, rbp)?;
            a.lea(rax, ptr(rax - 3))?;
            a.set_label(&mut small)?;
            a.adc(rdx, rbp)?;
            a.mov(qword_ptr(rbp + 0x18), rdx)?;
            a.set_label(&mut out)?;
            a.pop(rbp)?;
            a.pop(rbx)?;
            a.mov(eax, 1)?;
            a.ret()
        })
        .compiled("helper", |a| {
            a.lea(rax, ptr(rdi + rdi * 2))?;
            a.xor(eax, 0x1234)?;
            a.ret()
        })
        .compiled("tail", |a| {
            a.mov(rsi, 5i64)?;
            a.add(rdi, rsi)?;
            a.jmp(Fixture::address(1))
        })
        .compiled("counted", |a| {
            let (mut again, mut none) = (a.create_label(), a.create_label());
            a.mov(ecx, edi)?;
            a.lea(rax, ptr(rsi + 7))?;
            a.jrcxz(none)?;
            a.set_label(&mut again)?;
            a.imul_3(rax, rax, 33)?;
            a.xor(rax, rcx)?;
            a.loop_(again)?;
            a.set_label(&mut none)?;
            a.mov(rdx, rax)?;
            a.shr(rdx, 7)?;
            a.ret()
        })
        .asm("assembly", |a| {
            // No ftrace site: everything is live after its return.
            let mut skip = a.create_label();
            a.mov(r11, rdi)?;
            a.add(r11, rsi)?;
            a.cmp(r11, 100)?;
            a.ja(skip)?;
            a.mov(r10, r11)?;
            a.rep().movsb()?;
            a.set_label(&mut skip)?;
            a.mov(rax, r11)?;
            a.sbb(rdx, 0)?;
            a.ret()
        })
}

fn placement(function: &str, block: u32, hook: HookType, instrument: &str) -> Placement {
    Placement {
        function: function.into(),
        block,
        hook,
        instrument: instrument.into(),
        launch: 1.0,
        splash: 2.0,
    }
}

fn session(placements: Vec<Placement>) -> Session {
    Session {
        placements,
        ..Session::empty()
    }
}

fn plan(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    plan_placed(image, session, library, layout, |graphs, wanted| {
        placer::place(image, graphs, wanted, true)
    })
}

/// Plans an instrument, which is written after its name and summary, at a hook.
fn of_source(
    image: &Image,
    (function, block, hook): (&str, u32, HookType),
    source: &str,
    layout: &RuntimeLayout,
) -> crate::Result<Plan> {
    let mut session = session(vec![placement(function, block, hook, "mine")]);
    let text = format!("instrument mine \"x.\"; {source}");
    session.sources.insert("mine".into(), text);
    plan(image, &session, &Library::builtin().unwrap(), layout)
}

/// A target whose unwinder finds rows of patches.
fn unwinding() -> RuntimeLayout {
    RuntimeLayout {
        unwinds: true,
        ..layout()
    }
}

/// Leaves out each word of a call of the target's code in an instrument, `is_word` among them, and flips these bits of
/// its constants and of its distance.
fn alters_calls(
    image: &Image,
    (plan, source): (&Plan, &str),
    (left_out, changed): (&mut Caught, &mut Caught),
    is_word: impl Fn(&Instruction) -> bool,
    bits: [u8; 2],
) {
    passes(image, plan);
    let made = natives::made(plan);
    assert!(made.iter().any(|(_, one)| one.is_call_near()), "{source}");
    for (at, one) in made {
        // What is requested of the code, and the function.
        let is_request = one.code() == Code::Pushq_imm32 || one.is_call_near();
        if is_request || one.mnemonic() == Mnemonic::Pop || is_word(&one) {
            let mut bad = plan.clone();
            bad.patches[0].code[at..at + one.len()].fill(0x90);
            left_out.must_refuse(image, bad, format_args!("{source}: without `{one}`"));
        }
        for place in if is_request { 1..5 } else { 0..0 } {
            for bit in bits {
                let mut bad = plan.clone();
                bad.patches[0].code[at + place] ^= bit;
                changed.must_refuse(image, bad, format_args!("{source}: `{one}`, byte {place}"));
            }
        }
    }
}

/// Returns the number of instruments that count failed reads.
fn failure_counters(plan: &Plan) -> usize {
    let probes = plan.instruments.iter();
    let counters = probes.filter_map(|one| one.probe.as_ref()?.homes.failed);
    counters.count()
}

fn planned(image: &Image, placements: Vec<Placement>) -> Plan {
    plan(
        image,
        &session(placements),
        &Library::builtin().unwrap(),
        &layout(),
    )
    .unwrap()
}

/// The same, with as little displaced as can be.
fn planned_close(image: &Image, placements: Vec<Placement>) -> Plan {
    plan_placed(
        image,
        &session(placements),
        &Library::builtin().unwrap(),
        &layout(),
        |graphs, wanted| placer::place(image, graphs, wanted, false),
    )
    .unwrap()
}

/// All hooks that a block may have.
const ALL: [HookType; 4] = [
    HookType::Pre,
    HookType::Post,
    HookType::Taken,
    HookType::Untaken,
];

/// Every hook of every function that can be reached: function, block, hook.
fn hooks(image: &Image) -> Vec<(String, u32, HookType)> {
    let mut hooks = Vec::new();
    for function in image.functions() {
        let cfg = Cfg::of(image, function.id);
        let wanted: Vec<Wanted> = (0..cfg.blocks.len() as u32)
            .flat_map(|block| ALL.map(|hook| (block, hook)))
            .map(|(block, hook)| Wanted {
                graph: 0,
                block: BlockIndex(block),
                hook,
            })
            .collect();
        let placed = placer::place(image, &[&cfg], &wanted, true);
        for (want, reached) in wanted.iter().zip(placed.hooks) {
            if reached.is_ok() {
                hooks.push((function.name.clone(), want.block.0, want.hook));
            }
        }
    }
    hooks
}

fn passes(image: &Image, plan: &Plan) {
    if let Err(violations) = verify(image, plan.clone()) {
        panic!("a good plan is refused:\n{}", list(&violations));
    }
}

fn list(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(|violation| {
            let reason = violation.reason();
            format!("{violation} [{}] {reason}\n", reason.rule())
        })
        .collect()
}

/// Returns whether a violation of the rule is among them. `expected` is the name of the rule, or of several
/// with `|` between them, and after a colon words of the violation's text.
fn has_rule(violations: &[Violation], expected: &str) -> bool {
    let (rules, words) = expected.split_once(": ").unwrap_or((expected, ""));
    violations.iter().any(|violation| {
        let rule = violation.reason().rule();
        rules.split('|').any(|known| known == rule) && violation.to_string().contains(words)
    })
}

/// Breaks a copy of a good plan and sees that it is refused, by the rule.
#[track_caller]
fn refused(image: &Image, good: &Plan, rule: &str, damage: impl FnOnce(&mut Plan)) {
    passes(image, good);
    let mut bad = good.clone();
    damage(&mut bad);
    sees(image, good, bad, rule);
}

/// Sees that a plan that differs from a good one is refused, by the rule.
#[track_caller]
fn sees(image: &Image, good: &Plan, bad: Plan, rule: &str) {
    assert_ne!(*good, bad, "nothing was damaged");
    match verify(image, bad) {
        Ok(_) => panic!("the damage was not seen; it should be {rule:?}"),
        Err(violations) => assert!(
            has_rule(&violations, rule),
            "it should be {rule:?}, and is\n{}",
            list(&violations)
        ),
    }
}

/// The instructions of a patch up to its int3, in order.
fn decoded(at: Addr, code: &[u8]) -> Vec<Instruction> {
    Decoder::with_ip(64, code, at.0, DecoderOptions::NONE)
        .into_iter()
        .collect()
}
