//! Programs in a process: each of their words is updated by a restartable sequence of its own.

use std::sync::Arc;

use gilk_instruments::program::{ActionKind, ExprKind, Half, Input, UserRead, Width};
use iced_x86::{Code, Mnemonic, Register};

use super::sequences::{SEQUENCES, process};
use super::*;
use crate::layout::{InputLocation, Owner, Sequences};
use crate::patch::{PieceKind, TIMER_FACTOR};

/// Programs, with the number of their sequences.
pub(super) const PROGRAMS: [(&str, u32); 34] = [
    ("hit { @n = count() }", 1),
    ("entry { @n = sum(arg0) }", 2),
    ("entry { @n = sum(arg0 + 5); @m = sum(1) }", 4),
    ("entry { @n = avg(arg1) }", 2),
    ("entry { @n = min(arg0) }", 1),
    ("entry { @n = max((s32)arg0) }", 1),
    ("entry { @n = hist(arg0) }", 1),
    ("entry { @n = hist((s64)arg0) }", 1),
    ("entry { @n = lhist(arg0, 3, 21, 3) }", 1),
    ("entry { @n = values(arg0) }", 8),
    ("entry { @n[arg0, arg2] = sum(arg1) }", 14),
    ("cpu @n; entry { @n = arg0; @n += 1 }", 2),
    ("cpu @n; entry { @n += arg0; @m = sum(@n) }", 3),
    ("cpu @n, @m; entry / @n < @m / { @n += 3; @m += arg0 }", 2),
    (
        "global @n; entry / @n % 3 == 0 / { @m = count(); @n += 1 }",
        1,
    ),
    ("global @n; entry { @n += arg0 }", 0),
    ("global @n; entry { @n = arg0 }", 0),
    ("entry { sample(arg0) }", 1),
    ("entry { sample(tsc) }", 1),
    ("entry { sample(7) }", 1),
    ("entry { sample(tsc - arg1) }", 1),
    ("entry { sample(arg0 * 3 + cpu) }", 1),
    (
        "entry / arg2 != 0 / { sample(arg0); @n = count(); sample(tsc + arg1) }",
        3,
    ),
    ("entry / arg0 > 7 && cpu < 4 / { @n = sum(tsc) }", 2),
    ("entry { @n = sum(*(s16 *)uptr(arg0)) }", 2),
    (
        "entry / *(u8 *)uptr(arg1 + 3) == 7 / { sample(*(u64 *)uptr(arg0 + *(u32 *)uptr(arg2))) }",
        1,
    ),
    (
        "entry / str(uptr(arg0)) == \"passwd\" / { @n = count() }",
        1,
    ),
    ("entry { printf(\"%d %x\", arg0, arg1 + 1) }", 1),
    ("entry { printf(\"%d %d %d\", 7, tsc, 9) }", 1),
    (
        "entry / arg2 != 0 / { printf(\"%d %d\", *(u32 *)uptr(arg0), arg1); printf(\"x\"); @n = count() }",
        3,
    ),
    ("thread @n; entry { @n = arg0 }", 0),
    ("thread @n; entry { @n += arg0; sample(@n) }", 1),
    ("call @start; entry { @start = tsc }", 0),
    (
        "thread @n, @m; entry / @n != 0 / { @m += tsc - @n; @s = sum(@m); @n = 0 }",
        2,
    ),
];

/// The layout of the other tests, with room for tables, and the input `cpu`.
pub(super) fn layout_of_process() -> RuntimeLayout {
    let sequences = Sequences {
        stride_log2: 18,
        ..SEQUENCES
    };
    let mut layout = process();
    let words = 0x2000_0000 + (8 << 14);
    layout.rings = Rings::of_sequences(sequences, (Addr(0x3000_0000), 10), words);
    layout.counters[0].slots = 1 << 14;
    layout.shared = vec![Addr(0x2000_0000 + (5 << 18))];
    let cpu = InputLocation::Segment(sequences.cpu_id().unwrap());
    layout.inputs.set(Input::Cpu, Some(cpu));
    layout.timers = Addr(0x2800_0000);
    layout.owner = Owner::process();
    layout
}

fn written(image: &Image, source: &str) -> Plan {
    let plan = of_source(
        image,
        ("kept", 0, HookType::Pre),
        source,
        &layout_of_process(),
    );
    plan.unwrap_or_else(|error| panic!("{source}: {error}"))
}

#[test]
fn each_word_is_updated_by_a_sequence_of_its_own() {
    let image = super::handmade::image();
    for (source, sequences) in PROGRAMS {
        let plan = written(&image, source);
        assert_eq!(plan.patches[0].sequences, sequences, "{source}");
        passes(&image, &plan);
    }
}

#[test]
fn no_instruction_of_a_program_can_be_left_out() {
    let image = super::handmade::image();
    for (source, _) in PROGRAMS {
        let good = written(&image, source);
        for instruction in instructions_of_instruments(&good) {
            refused_without(&image, (source, &good), &instruction, instruction.len());
        }
    }
}

/// The instructions of the first patch's instruments, in order. None is the one that chooses an entry of the table of
/// storage, which any function of its key may do.
pub(super) fn instructions_of_instruments(plan: &Plan) -> Vec<Instruction> {
    let patch = &plan.patches[0];
    let pieces = patch
        .pieces()
        .filter(|piece| matches!(piece.kind, PieceKind::Instrument(_) | PieceKind::Lost(_)));
    let instructions = pieces.flat_map(|piece| {
        let range = piece.range.start as usize..piece.range.end as usize;
        let at = Addr(patch.address.0 + u64::from(piece.range.start));
        decoded(at, &patch.code[range])
    });
    instructions
        .filter(|instruction| instruction.mnemonic() != Mnemonic::Int3)
        .filter(|instruction| instruction.immediate64() != TIMER_FACTOR)
        .collect()
}

/// Sees that a plan is refused where nops are in the place of the first bytes of an instruction of its first patch.
pub(super) fn refused_without(
    image: &Image,
    (source, good): (&str, &Plan),
    instruction: &Instruction,
    bytes: usize,
) {
    let mut bad = good.clone();
    let patch = &mut bad.patches[0];
    let start = (instruction.ip() - patch.address.0) as usize;
    patch.code[start..start + bytes].fill(0x90);
    assert!(verify(image, bad).is_err(), "{source}: {instruction}");
}

/// The first instruction of a kind, with its bytes in the patch.
fn find(
    plan: &Plan,
    which: impl Fn(&Instruction) -> bool,
) -> (Instruction, std::ops::Range<usize>) {
    let patch = &plan.patches[0];
    let code = patch.code.len() - 32 * patch.sequences as usize;
    let all = decoded(patch.address, &patch.code[..code]);
    let found = all.into_iter().find(which).unwrap();
    let start = (found.ip() - patch.address.0) as usize;
    (found, start..start + found.len())
}

#[test]
fn updates_of_other_words_or_by_other_values_are_seen() {
    let image = super::handmade::image();
    let refused = |source: &str, rule: &str, damage: &dyn Fn(&mut Plan)| {
        super::refused(&image, &written(&image, source), rule, damage);
    };
    let is_add = |instruction: &Instruction| {
        instruction.code() == Code::Add_rm64_r64 && instruction.memory_displacement64() != 0
    };
    let is_commit =
        |instruction: &Instruction| is_add(instruction) && !instruction.has_lock_prefix();
    // The next word.
    refused("entry { @n = sum(arg0) }", "OtherAggregate", &|plan| {
        let (_, bytes) = find(plan, is_commit);
        plan.patches[0].code[bytes.end - 4] ^= 8;
    });
    // `sub` for `add`, and a store.
    for opcode in [0x29, 0x89] {
        refused(
            "entry { @n = sum(arg0) }",
            "InSequence|AggregateWrite",
            &|plan| {
                let (_, bytes) = find(plan, is_commit);
                plan.patches[0].code[bytes.start + 1] = opcode;
            },
        );
    }
    // The sum before the count, and another bucket.
    refused("entry { @n = avg(arg0) }", "OtherAggregate", &|plan| {
        let (_, bytes) = find(plan, is_commit);
        plan.patches[0].code[bytes.end - 4] ^= 8;
    });
    refused("entry { @n = hist(arg0) }", "OtherBucket", &|plan| {
        let is_place = |instruction: &Instruction| {
            instruction.mnemonic() == Mnemonic::Inc && instruction.memory_index() != Register::None
        };
        let (_, bytes) = find(plan, is_place);
        plan.patches[0].code[bytes.end - 4] ^= 8;
    });
    // A variable of all CPUs by a CPU's rules, and the other way round.
    refused(
        "global @n; entry { @n += arg0 }",
        "OutsideSequence|Prefix",
        &|plan| {
            let (_, bytes) = find(plan, |instruction| instruction.has_lock_prefix());
            plan.patches[0].code[bytes.start] = 0x3e;
        },
    );
    refused(
        "cpu @n; entry { @m = sum(@n); @n = 1 }",
        "ForeignMemory",
        &|plan| {
            let (_, bytes) = find(plan, |instruction| {
                instruction.code() == Code::Mov_r64_rm64
                    && instruction.memory_displacement64() != 0
                    && instruction.memory_base() != Register::RSP
            });
            plan.patches[0].code[bytes.end - 4] ^= 8;
        },
    );
    // An entry of the table, and the count of values without one, without the lock prefix.
    for mnemonic in [Mnemonic::Cmpxchg, Mnemonic::Add] {
        let source = "thread @n; entry { @n = arg0 }";
        refused(source, "OutsideSequence|Prefix|InSequence", &|plan| {
            let locked = |one: &Instruction| one.has_lock_prefix() && one.mnemonic() == mnemonic;
            let (_, bytes) = find(plan, locked);
            plan.patches[0].code[bytes.start] = 0x3e;
        });
    }
    // A maximum of all CPUs, without the lock prefix.
    refused("entry { @n = max(arg0) }", "OutsideSequence", &|plan| {
        let (_, bytes) = find(plan, |instruction| {
            instruction.mnemonic() == Mnemonic::Cmpxchg
        });
        plan.patches[0].code[bytes.start] = 0x3e;
    });
}

#[test]
fn samples_that_are_not_whole_or_of_another_ring_are_seen() {
    let image = super::handmade::image();
    let source = "entry { sample(arg1) }";
    let refused = |rule: &str, which: &dyn Fn(&Instruction) -> bool, from_end: usize, by: u8| {
        super::refused(&image, &written(&image, source), rule, |plan| {
            let (_, bytes) = find(plan, which);
            plan.patches[0].code[bytes.end - from_end] ^= by;
        });
    };
    let stored = |offset: u64| {
        move |one: &Instruction| {
            one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == 0x3000_0000 + offset
        }
    };
    // The time, the value and the identifier, each elsewhere.
    for offset in [8, 16, 24] {
        refused(
            "OutsideSlot|OtherValue|OtherTime|OtherIdentifier|EarlyMark",
            &stored(offset),
            4,
            32,
        );
    }
    // The head, the limit, and their comparison.
    let is_row = |instruction: &Instruction| {
        instruction.code() == Code::Mov_r64_rm64
            && instruction.memory_displacement64() == 0x2000_0000 + (8 << 14)
    };
    refused("InSequence", &is_row, 4, 8);
    refused("InSequence", &|one| one.code() == Code::Cmp_r64_rm64, 4, 8);
    let good = written(&image, source);
    let full = full_branch(&good);
    refused("InSequence", &|one| one.ip() == full, 5, 1);
    // The slot, and the ring.
    refused(
        "OutsideSlot",
        &|one| one.code() == Code::And_rm32_imm32 || one.code() == Code::And_EAX_imm32,
        4,
        1,
    );
    refused(
        "OutsideSlot",
        &|one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 15,
        1,
        1,
    );
    // The commit, and the loss.
    refused(
        "OtherRingWord",
        &|one| one.mnemonic() == Mnemonic::Inc && !one.has_lock_prefix(),
        4,
        8,
    );
    refused("OtherRingWord", &|one| one.has_lock_prefix(), 4, 8);
    // A clock that is read before the sequence.
    super::refused(
        &image,
        &written(&image, source),
        "InSequence|StaleClock|Since",
        |plan| {
            let (_, bytes) = find(plan, |one| one.mnemonic() == Mnemonic::Rdtsc);
            plan.patches[0].code[bytes].fill(0x90);
        },
    );
}

/// The address of the branch that is taken where the ring has too few slots: the one after the comparison with its limit.
fn full_branch(plan: &Plan) -> u64 {
    let (compare, _) = find(plan, |one| one.code() == Code::Cmp_r64_rm64);
    compare.next_ip()
}

/// Makes a plan that reads a number of eight bytes at 0 one that reads something else, with a request.
fn requests(good: &Plan, read: UserRead, request: u32) -> Plan {
    let mut plan = good.clone();
    for one in plan.instruments.iter_mut() {
        let probed = Arc::make_mut(one.probe.as_mut().unwrap());
        for action in &mut Arc::make_mut(&mut probed.checked).probes[0].actions {
            let ActionKind::Update(_, Some(expr)) = &mut action.kind else {
                panic!("{action:?}");
            };
            let ExprKind::User { read: to, .. } = &mut expr.kind else {
                panic!("{expr:?}");
            };
            *to = read;
        }
    }
    let (_, bytes) = find(&plan, |one| one.code() == Code::Pushq_imm32);
    let place = bytes.end - 4..bytes.end;
    plan.patches[0].code[place].copy_from_slice(&request.to_le_bytes());
    plan
}

/// The number of the process and the halves of a thread's name are read by one request each.
#[test]
fn numbers_and_names_of_the_running_thread_are_requested() {
    let image = super::handmade::image();
    let good = written(&image, "entry { @n = sum(*(u64 *)uptr(0)) }");
    let reads = [
        (UserRead::Bytes(Width::B8), 0x800),
        (UserRead::Process, 4),
        (UserRead::Comm(Half::First), 5),
        (UserRead::Comm(Half::Second), 0x105),
    ];
    for (read, right) in reads {
        passes(&image, &requests(&good, read, right));
        for wrong in (0..9 << 8).filter(|request| *request != right) {
            let bad = requests(&good, read, wrong);
            assert!(verify(&image, bad).is_err(), "{read:?} by {wrong:#x}");
        }
    }
    // No code of a process keeps names of addresses, or reads texts.
    for (read, request) in [
        (UserRead::Name, 2),
        (UserRead::Text(Half::First), 1),
        (UserRead::Text(Half::Second), 0x101),
    ] {
        assert!(verify(&image, requests(&good, read, request)).is_err());
    }
}

pub(super) type InstructionKind = fn(&Instruction) -> bool;

/// Damages the bytes of the instruction of a kind and number: a rule catches it.
#[track_caller]
pub(super) fn damaged(
    image: &Image,
    good: &Plan,
    rule: &str,
    (which, number): (InstructionKind, usize),
    damage: &dyn Fn(&mut [u8]),
) {
    super::refused(image, good, rule, |plan| {
        let all = instructions_of_instruments(plan);
        let found = all.iter().filter(|one| which(one)).nth(number).unwrap();
        let patch = &mut plan.patches[0];
        let start = (found.ip() - patch.address.0) as usize;
        damage(&mut patch.code[start..start + found.len()]);
    });
}

pub(super) fn nops(bytes: &mut [u8]) {
    bytes.fill(0x90);
}

/// Changes the byte that is so many before the end.
pub(super) fn byte(from_end: usize, by: u8) -> impl Fn(&mut [u8]) {
    move |bytes| {
        let place = bytes.len() - from_end;
        bytes[place] ^= by;
    }
}

/// Each damage of a line of three words, with the rule that catches it.
#[test]
fn each_part_of_a_line_is_proven() {
    const RING: u64 = 0x3000_0000;
    let image = super::handmade::image();
    let source = "entry { printf(\"%d %d\", arg1, arg2 + 1) }";
    let good = written(&image, source);
    passes(&image, &good);
    let refused =
        |rule: &str, which: InstructionKind, number: usize, damage: &dyn Fn(&mut [u8])| {
            damaged(&image, &good, rule, (which, number), damage);
        };
    let room: InstructionKind =
        |one| one.code() == Code::Lea_r64_m && one.memory_displacement64() == 2;
    let compare: InstructionKind = |one| one.code() == Code::Cmp_r64_rm64;
    let full: InstructionKind = |one| one.mnemonic() == Mnemonic::Jae;
    let place: InstructionKind = |one| one.code() == Code::And_rm32_imm32;
    let scale: InstructionKind = |one| one.mnemonic() == Mnemonic::Shl && one.immediate8() == 5;
    let time: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 16;
    let value: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 8;
    let identifier: InstructionKind =
        |one| one.code() == Code::Mov_rm64_r64 && one.memory_displacement64() == RING + 24;
    let id: InstructionKind = |one| one.code() == Code::Mov_r64_imm64;
    let commit: InstructionKind =
        |one| one.code() == Code::Add_rm64_imm8 && one.memory_base() != Register::None;
    let format: InstructionKind =
        |one| one.code() == Code::Mov_rm64_imm32 && one.memory_displacement64() == RING + 8;

    // Room for all words: neither fewer nor more are compared, nor for equality.
    for by in [1, 2, 3] {
        refused("RingFull", room, 0, &byte(1, by));
    }
    refused("RingFull|InSequence", room, 0, &nops);
    refused("InSequence", compare, 0, &byte(4, 8));
    // `jb`, `je` and `ja` for `jae`, and no branch.
    for by in [1, 7, 4] {
        refused("InSequence", full, 1, &byte(5, by));
    }
    refused("InSequence", full, 1, &nops);
    // Each word of each slot: missing, in another slot, and in another place of its own.
    for slot in 0..3 {
        for which in [time, identifier] {
            refused("InSequence", which, slot, &nops);
            refused("OutsideSlot|EarlyMark", which, slot, &byte(4, 32));
            refused("OutsideSlot|EarlyMark", which, slot, &byte(3, 1));
            refused(
                "OutsideSlot|OtherValue|OtherTime|OtherIdentifier|EarlyMark",
                which,
                slot,
                &byte(4, 24),
            );
        }
        refused("OutsideSlot", place, slot, &byte(4, 1));
        refused("OutsideSlot", scale, slot, &byte(1, 1));
        refused("InSequence|OutsideSlot", place, slot, &nops);
    }
    refused("InSequence", format, 0, &nops);
    refused("OtherValue", format, 0, &byte(4, 1));
    for number in 0..2 {
        refused("InSequence", value, number, &nops);
    }
    // Another identifier, and the mark of a further word where there is none, or none where there is one.
    for number in 0..2 {
        refused("OtherIdentifier", id, number, &byte(8, 1));
        refused("OtherIdentifier", id, number, &byte(2, 1));
    }
    // The next slot is the next one.
    let next: InstructionKind =
        |one| one.code() == Code::Lea_r64_m && one.memory_base() == Register::RAX;
    for number in 1..4 {
        refused("OutsideSlot", next, number, &byte(1, 4));
    }
    // The commit adds as many as were filled, to the head.
    for by in [1, 2, 7] {
        refused("InSequence", commit, 0, &byte(1, by));
    }
    refused("OtherRingWord", commit, 0, &byte(5, 8));
    // `sub` for `add`.
    refused("InSequence", commit, 0, &byte(6, 0x28));
    let values = [("arg1, arg2", "arg2 + 1"), ("arg2 + 1, arg1", "arg1")];
    for (arguments, _) in values {
        // Another program: values in other slots, and fewer or more words.
        let mut bad = good.clone();
        let other = written(
            &image,
            &format!("entry {{ printf(\"%d %d\", {arguments}) }}"),
        );
        bad.instruments = other.instruments;
        assert!(verify(&image, bad).is_err(), "{arguments}");
    }
}

/// Returns whether another instruction does the same in registers of another width: the number of a CPU has 32 bits, and
/// of the number of a slot the low ones are taken.
fn is_of_other_width(one: &Instruction, other: &Instruction) -> bool {
    let register = |one: &Instruction, operand| one.op_register(operand).full_register();
    let same = |operand| register(one, operand) == register(other, operand);
    let address = one.memory_base() == other.memory_base()
        && one.memory_displacement64() == other.memory_displacement64();
    let number = one.try_immediate(1).ok() == other.try_immediate(1).ok();
    let computes = matches!(
        one.code(),
        Code::Mov_r64_rm64 | Code::Lea_r64_m | Code::And_rm32_imm32
    );
    computes && one.mnemonic() == other.mnemonic() && same(0) && same(1) && address && number
}

/// Each bit of a line's code matters, but those that have no meaning.
#[test]
fn no_bit_of_a_line_can_change() {
    let image = super::handmade::image();
    let good = written(&image, "entry { printf(\"%d %d\", arg1, arg2 + 1) }");
    let mut changed = 0;
    // Of the nop only the signature has a meaning (`sequences`).
    let instructions = instructions_of_instruments(&good).into_iter();
    for instruction in instructions.filter(|one| one.mnemonic() != Mnemonic::Nop) {
        let start = (instruction.ip() - good.patches[0].address.0) as usize;
        for bit in 0..8 * instruction.len() {
            let mut bad = good.clone();
            bad.patches[0].code[start + bit / 8] ^= 1 << (bit % 8);
            let other = decoded(Addr(instruction.ip()), &bad.patches[0].code[start..])[0];
            let same = super::unregistered::does_the_same(&instruction, &other)
                || is_of_other_width(&instruction, &other);
            if !same {
                changed += 1;
                assert!(verify(&image, bad).is_err(), "{instruction}: {other}");
            }
        }
    }
    assert!(changed > 1500, "{changed}");
}

#[test]
fn memory_is_read_by_the_code_before_the_arena_alone() {
    let image = super::handmade::image();
    let source = "entry { @n = sum(*(u32 *)uptr(arg0)) }";
    let good = written(&image, source);
    let is_call = |one: &Instruction| one.mnemonic() == Mnemonic::Call;
    // Another address, and no code there at all.
    super::refused(&image, &good, "OutsideSequence", |plan| {
        let (_, bytes) = find(plan, is_call);
        plan.patches[0].code[bytes.end - 4] ^= 4;
    });
    super::refused(&image, &good, "OutsideSequence", |plan| {
        plan.layout.users = None;
    });
    // The stack instead of a number, and another number of bytes.
    for request in [0x403_i32, 0x201, 0x800] {
        super::refused(&image, &good, "OtherUserRead", |plan| {
            let (_, bytes) = find(plan, |one| one.code() == Code::Pushq_imm32);
            let place = bytes.end - 4..bytes.end;
            plan.patches[0].code[place].copy_from_slice(&request.to_le_bytes());
        });
    }
    // A red zone that is overwritten.
    super::refused(&image, &good, "RedZone|SteppedOver", |plan| {
        let (_, bytes) = find(plan, |one| one.mnemonic() == Mnemonic::Lea);
        plan.patches[0].code[bytes].fill(0x90);
    });
    // Each arena has its own.
    let mut layout = layout_of_process();
    let far = Addr(layout.arena.start.0 - (1 << 40));
    layout.further_arenas = vec![Span::new(far, 1 << 16)];
    let readers: Vec<Addr> = layout.readers().collect();
    assert_eq!(
        readers,
        [layout.arena.start, far].map(|at| Addr(at.0 - crate::reads::MemoryReader::BYTES))
    );
    assert_eq!(layout.reader_near(Addr(far.0 + 64)), Some(readers[1]));
    layout.users = layout.users.map(|at| at.add(32));
    let said = layout.check().unwrap_err().to_string();
    assert!(said.contains("not before the arena"), "{said}");
}
