//! Counters of processes: increments by restartable sequences, and what breaks them.

use iced_x86::{Code, Mnemonic, Register};

use super::*;
use crate::layout::{Abi, Guard, Sequences};
use crate::patch::PieceKind;
use crate::placement::Splice;
use crate::reads::MemoryReader;

pub(super) const SEQUENCES: Sequences = Sequences {
    area: Some(SegmentOffset(0xffff_ffff_ffff_f6a0)),
    signature: 0x5305_3053,
    cpus: 5,
    stride_log2: 9,
};

/// A process's layout, but for its arena.
pub(super) fn process() -> RuntimeLayout {
    RuntimeLayout {
        abi: Abi::PROCESS,
        rings: Rings::none(SEQUENCES),
        counters: vec![CounterBank {
            base: SegmentOffset(0x2000_0000),
            slots: 64,
        }],
        shared: vec![Addr(0x2000_0000 + (5 << 9))],
        timers: Addr(0),
        inputs: Inputs::default(),
        guard: Guard::Missing,
        unwinds: true,
        faults: 0,
        users: Some(Addr(layout().arena.start.0 - MemoryReader::BYTES)),
        ..layout()
    }
}

fn counted(image: &Image, placements: Vec<Placement>) -> Plan {
    let library = Library::builtin().unwrap();
    plan(image, &session(placements), &library, &process()).unwrap()
}

/// `kept`, where everything is live.
fn good(image: &Image) -> Plan {
    counted(image, vec![placement("kept", 0, HookType::Pre, "counter")])
}

fn instructions(plan: &Plan) -> Vec<Instruction> {
    let patch = &plan.patches[0];
    let code = patch.code.len() - 32 * patch.sequences as usize;
    decoded(patch.address, &patch.code[..code])
}

/// Writes other bytes over those of the first instruction of a kind, whose other bytes become nops.
fn overwrite(plan: &mut Plan, which: impl Fn(&Instruction) -> bool, bytes: &[u8]) {
    let found = instructions(plan).into_iter().find(which).unwrap();
    assert!(bytes.len() <= found.len(), "{found} is shorter");
    let patch = &mut plan.patches[0];
    let start = (found.ip() - patch.address.0) as usize;
    let place = &mut patch.code[start..start + found.len()];
    place.fill(0x90);
    place[..bytes.len()].copy_from_slice(bytes);
}

/// Changes a byte of the first instruction of a kind, counted from its end.
fn change(plan: &mut Plan, which: impl Fn(&Instruction) -> bool, from_end: usize, by: u8) {
    let found = instructions(plan).into_iter().find(which).unwrap();
    let patch = &mut plan.patches[0];
    let end = (found.next_ip() - patch.address.0) as usize;
    patch.code[end - from_end] ^= by;
}

fn is_load(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_r32_rm32 && instruction.memory_segment() == Register::FS
}

fn is_arm(instruction: &Instruction) -> bool {
    instruction.code() == Code::Mov_rm64_r64 && instruction.memory_segment() == Register::FS
}

fn is_address(instruction: &Instruction) -> bool {
    instruction.code() == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand()
}

fn is_count(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Inc && !instruction.has_lock_prefix()
}

fn is_shared(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Inc && instruction.has_lock_prefix()
}

fn is_compare(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Cmp
}

fn is_shift(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Shl
}

fn is_branch(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Jae
}

#[test]
fn hits_are_counted_by_one_sequence_each() {
    let image = kernel().image();
    let mut sequences = 0;
    // Of `jrcxz` and `loop`, which take three instructions, no rows are right.
    let hooks = hooks(&image).into_iter();
    for (function, block, hook) in hooks.filter(|hook| hook.0 != "counted") {
        let plan = counted(&image, vec![placement(&function, block, hook, "counter")]);
        if plan.sites.iter().any(|site| site.splice == Splice::Trap) {
            refuses(&image, plan, "TrapInProcess");
            continue;
        }
        passes(&image, &plan);
        for patch in &plan.patches {
            sequences += patch.sequences;
            assert!(patch.address.0.is_multiple_of(32));
            let kinds = patch
                .pieces()
                .filter(|one| one.kind == PieceKind::Descriptors);
            assert_eq!(kinds.count(), usize::from(patch.sequences > 0));
        }
    }
    assert!(sequences > 20, "{sequences}");
    // Two at one hook, and a predicate before.
    let image = super::handmade::image();
    let both = ["counter", "counter"].map(|name| placement("kept", 0, HookType::Pre, name));
    let plan = counted(&image, both.to_vec());
    passes(&image, &plan);
    assert_eq!(plan.patches[0].sequences, 2);
    let mut session = session(vec![placement("kept", 0, HookType::Pre, "mine")]);
    let text = "instrument mine \"x.\"; entry / arg0 == 5 / { @n = count() }";
    session.sources.insert("mine".into(), text.to_owned());
    let library = Library::builtin().unwrap();
    let plan = crate::plan::plan(&image, &session, &library, &process()).unwrap();
    passes(&image, &plan);
    assert_eq!(plan.patches[0].sequences, 1);
}

/// Verifies a plan that must be refused, by a rule.
#[track_caller]
fn refuses(image: &Image, plan: Plan, rule: &str) {
    match verify(image, plan) {
        Ok(_) => panic!("the damage was not seen; it should be {rule:?}"),
        Err(violations) => assert!(
            has_rule(&violations, rule),
            "it should be {rule:?}, and is\n{}",
            list(&violations)
        ),
    }
}

#[test]
fn each_part_of_a_sequence_is_proven() {
    let image = super::handmade::image();
    let good = good(&image);
    let refused = |rule: &str, damage: &dyn Fn(&mut Plan)| refused(&image, &good, rule, damage);

    // The store that arms the sequence, and the address that it stores.
    refused("NoDescriptor", &|plan| change(plan, is_address, 4, 0x20));
    refused("OutsideSequence", &|plan| change(plan, is_arm, 4, 0x10));
    refused("NarrowMemory", &|plan| {
        overwrite(plan, is_arm, &[]);
    });
    // The number of the CPU, and the test of it.
    refused("InSequence", &|plan| change(plan, is_load, 4, 4));
    refused("InSequence", &|plan| change(plan, is_compare, 4, 1));
    refused("InSequence", &|plan| overwrite(plan, is_branch, &[]));
    refused("InSequence", &|plan| change(plan, is_branch, 5, 1));
    // Nothing is stored before the commit, and the stack does not move.
    refused("InSequence", &|plan| {
        overwrite(plan, is_shift, &[0x48, 0x89, 0x00]);
    });
    refused("InSequence", &|plan| {
        overwrite(plan, is_shift, &[0x50, 0x58]);
    });
    refused("InSequence", &|plan| {
        overwrite(plan, is_shift, &[0x0f, 0x05]);
    });
    refused("InSequence", &|plan| {
        overwrite(plan, is_shift, &[0x48, 0x8b, 0x00]);
    });
    refused("InSequence", &|plan| overwrite(plan, is_shift, &[0x9d]));
    // The one increment, of this CPU's word.
    refused("OtherAggregate", &|plan| change(plan, is_shift, 1, 1));
    refused("OtherAggregate", &|plan| {
        overwrite(plan, is_shift, &[0x48, 0x8d, 0x40, 0]);
    });
    refused("OtherAggregate", &|plan| change(plan, is_count, 4, 8));
    refused("InSequence", &|plan| {
        // dec
        change(plan, is_count, 5, 8);
    });
    // That of threads without an area.
    refused("OtherAggregate", &|plan| change(plan, is_shared, 4, 8));
    refused("InSequence", &|plan| {
        let found = instructions(plan).into_iter().find(is_shared).unwrap();
        let start = (found.ip() - plan.patches[0].address.0) as usize;
        // Without the lock prefix, two such threads may lose a hit.
        plan.patches[0].code[start] = 0x3e;
    });
}

#[test]
fn each_bit_of_a_descriptor_is_proven() {
    let image = super::handmade::image();
    let good = good(&image);
    passes(&image, &good);
    let code = good.patches[0].code.len();
    for bit in 0..32 * 8 {
        let mut bad = good.clone();
        bad.patches[0].code[code - 32 + bit / 8] ^= 1 << (bit % 8);
        refuses(&image, bad, "Descriptor|NoDescriptor|InSequence");
    }
    let refused = |rule: &str, damage: &dyn Fn(&mut Plan)| refused(&image, &good, rule, damage);
    refused("Descriptor: signature", &|plan| {
        change(plan, |one| one.mnemonic() == Mnemonic::Nop, 1, 1);
    });
    refused("Descriptor: longer", &|plan| {
        plan.patches[0].sequences = 1000;
    });
    refused("NoDescriptor|Unreached", &|plan| {
        plan.patches[0].sequences = 0;
    });
    refused("Descriptor: aligned", &|plan| {
        plan.patches[0].address.0 += 16;
    });
    refused("Descriptor: never stored", &|plan| {
        let patch = &mut plan.patches[0];
        let tail = patch.code.len() - 32;
        let again = patch.code[tail..].to_vec();
        patch.code = [&patch.code[..], &again[..]].concat().into();
        patch.sequences = 2;
    });
    // Where nothing is restarted, there are no descriptors.
    refused("Descriptor: no use", &|plan| {
        plan.layout.rings = layout().rings;
    });
}

#[test]
fn the_layout_of_a_process_is_checked_and_is_that_of_the_code() {
    let image = super::handmade::image();
    let good = good(&image);
    let refused = |rule: &str, change: &dyn Fn(&mut Sequences)| {
        refused(&image, &good, rule, |plan| {
            let mut other = SEQUENCES;
            change(&mut other);
            plan.layout.rings = Rings::none(other);
        });
    };
    refused("OutsideSequence", &|other| {
        other.area.as_mut().unwrap().0 -= 8;
    });
    refused("Descriptor: signature", &|other| other.signature += 1);
    refused("InSequence", &|other| other.cpus += 1);
    refused("OtherAggregate", &|other| other.stride_log2 += 1);
    refused("SequenceRows: overlap", &|other| other.stride_log2 = 8);
    refused("SequenceRows: numbered", &|other| other.cpus = 0);
    super::refused(&image, &good, "SequenceRows: shared elsewhere", |plan| {
        plan.layout.shared = vec![Addr(0x2000_0000)];
    });
    refused("SequenceRows: 2 GiB", &|other| other.cpus = 1 << 22);
    super::refused(&image, &good, "SequenceRows: arena", |plan| {
        plan.layout.arena = Span::new(Addr(0x2000_0000), 0x1000);
    });
    let wrong = |change: &dyn Fn(&mut RuntimeLayout), words: &str| {
        let mut layout = process();
        change(&mut layout);
        let said = layout.check().unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    };
    assert_eq!(process().check(), Ok(()));
    let set = |change: &dyn Fn(&mut Sequences), layout: &mut RuntimeLayout| {
        let mut other = SEQUENCES;
        change(&mut other);
        layout.rings = Rings::none(other);
        layout.shared.clear();
    };
    wrong(
        &|layout| set(&|other| other.area = Some(SegmentOffset(1 << 40)), layout),
        "rseq area",
    );
    wrong(&|layout| set(&|other| other.cpus = 0, layout), "0 CPUs");
    wrong(
        &|layout| set(&|other| other.cpus = 1 << 22, layout),
        "out of reach",
    );
    wrong(
        &|layout| set(&|other| other.stride_log2 = 8, layout),
        "512 bytes",
    );
    wrong(&|layout| layout.arena.start.0 += 16, "arena begins");
    wrong(&|layout| layout.shared = vec![Addr(8)], "all CPUs share");
}

#[test]
fn effects_without_words_are_refused_in_a_process() {
    let image = super::handmade::image();
    for (source, rule, words) in [
        ("hit { sample(1) }", "ring-owner", "it samples"),
        (
            "thread @n; hit { @n = 1 }",
            "ring-owner",
            "variable of a thread",
        ),
        (
            "shared thread @n; hit / @n == 1 / { @m = count() }",
            "ring-owner",
            "variable of a thread",
        ),
        (
            "hit / *(u64 *)arg0 == 1 / { @m = count() }",
            "unguarded",
            "reads memory",
        ),
        (
            "hit / pid == 1 / { @m = count() }",
            "program-unsupported",
            "Pid",
        ),
        (
            "hit / ustack == 1 / { @m = count() }",
            "program-unsupported",
            "the stack of the running process",
        ),
    ] {
        match of_source(&image, ("kept", 0, HookType::Pre), source, &process()) {
            Err(crate::Error::Refused { refusal, .. }) => {
                assert_eq!(refusal.rule.name(), rule, "{source}: {refusal}");
                assert!(refusal.why.contains(words), "{source}: {refusal}");
            }
            other => panic!("{source}: {other:?}"),
        }
    }
}
