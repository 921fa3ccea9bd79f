//! Generated sequences of several instructions, with any end a block may have.

use gilk_engine::Addr;
use gilk_engine::isa::relocate::relocate;
use gilk_engine::layout::Abi;
use iced_x86::code_asm::{CodeAssembler, qword_ptr, registers::*};
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};
use proptest::prelude::*;

use super::agree;
use super::case::{Case, STEPPING_STONE};
use super::native::{
    GS, Machine, ORIGINAL, PATCH, Random, SCRATCH, SCRATCH_BYTES, STACK, STATUS, State,
};

/// The end of a sequence.
#[derive(Clone, Copy, Debug)]
enum End {
    FallThrough,
    JumpShort,
    JumpNear,
    ConditionalShort(u8),
    ConditionalNear(u8),
    /// `loopne`, `loope`, `loop`, `jrcxz`.
    Counted(u8),
    Call,
    Return,
}

fn ends() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::FallThrough),
        Just(End::JumpShort),
        Just(End::JumpNear),
        (0..16u8).prop_map(End::ConditionalShort),
        (0..16u8).prop_map(End::ConditionalNear),
        (0..4u8).prop_map(End::Counted),
        Just(End::Call),
        Just(End::Return),
    ]
}

/// One instruction; rbx and rbp point to memory and are never written.
fn instruction(a: &mut CodeAssembler, machine: &Machine, kind: u8, random: &mut Random) {
    let data = [
        rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
    ];
    let mut any = || data[random.below(data.len() as u64) as usize];
    let (x, y) = (any(), any());
    let scratch = machine.address(SCRATCH + SCRATCH_BYTES as u64 / 2) + random.below(64) * 8;
    let displacement = random.below(128) as i32 * 8;
    // With rip as base, the displacement is the target.
    let relative = MemoryOperand::with_base_displ(Register::RIP, scratch as i64);
    let mut per_cpu = MemoryOperand::with_base_displ(
        Register::RIP,
        scratch.wrapping_sub(machine.address(GS)) as i64,
    );
    per_cpu.segment_prefix = Register::GS;
    let x_register: Register = x.into();
    let mut add =
        |instruction: Result<Instruction, IcedError>| a.add_instruction(instruction.unwrap());
    match kind {
        0 => a.add(x, y),
        1 => a.adc(x, qword_ptr(rbx + displacement)),
        2 => a.sub(qword_ptr(rbp + displacement), x),
        3 => add(Instruction::with2(Code::Mov_r64_rm64, x_register, relative)),
        4 => add(Instruction::with2(Code::Mov_rm64_r64, relative, x_register)),
        5 => add(Instruction::with2(Code::Lea_r64_m, x_register, relative)),
        6 => add(Instruction::with2(Code::Mov_r64_rm64, x_register, per_cpu)),
        7 => add(Instruction::with1(Code::Inc_rm64, per_cpu)),
        // An immediate follows the displacement.
        8 => add(Instruction::with2(Code::Cmp_rm64_imm8, relative, 7)),
        9 => a.test(x, y),
        10 => a.cmovb(x, y),
        11 => a.seto(al),
        12 => a.rcl(x, 3),
        13 => add(Instruction::with1(Code::Push_rm64, relative)).and_then(|()| a.pop(x)),
        14 => add(Instruction::with3(
            Code::Imul_r64_rm64_imm32,
            x_register,
            relative,
            12345,
        )),
        15 => a.lock().xadd(qword_ptr(rbx + displacement), x),
        16 => a.pushfq().and_then(|()| a.popfq()),
        17 => a.mov(x, random.next()),
        18 => add(Instruction::with2(Code::Bt_rm64_imm8, per_cpu, 5)),
        _ => add(Instruction::with2(
            Code::Xchg_rm64_r64,
            relative,
            x_register,
        )),
    }
    .unwrap();
}

fn end(machine: &Machine, code: &mut Vec<u8>, end: End) {
    let here = machine.address(ORIGINAL) + code.len() as u64;
    let near = |opcode: &[u8], target: u64| {
        let from = here + opcode.len() as u64 + 4;
        [opcode, &(target.wrapping_sub(from) as i32).to_le_bytes()].concat()
    };
    let short = |opcode: u8| {
        let back = (machine.address(ORIGINAL) + code.len() as u64 + 2) as i64;
        vec![
            opcode,
            i8::try_from(machine.address(STEPPING_STONE) as i64 - back).unwrap() as u8,
        ]
    };
    let bytes = match end {
        End::FallThrough => Vec::new(),
        End::JumpShort => short(0xeb),
        End::JumpNear => near(&[0xe9], machine.exit(1)),
        End::ConditionalShort(condition) => short(0x70 | condition),
        End::ConditionalNear(condition) => near(&[0x0f, 0x80 | condition], machine.exit(1)),
        End::Counted(which) => short(0xe0 | which),
        End::Call => near(&[0xe8], machine.exit(2)),
        End::Return => vec![0xc3],
    };
    code.extend_from_slice(&bytes);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_sequence_does_the_same_in_a_patch(
        kinds in prop::collection::vec(0..20u8, 0..8),
        ending in ends(),
        seed: u64,
    ) {
        let mut machine = Machine::new();
        let mut random = Random(seed);
        let mut assembler = CodeAssembler::new(64).unwrap();
        for kind in kinds {
            instruction(&mut assembler, &machine, kind, &mut random);
        }
        let mut code = assembler.assemble(machine.address(ORIGINAL)).unwrap();
        end(&machine, &mut code, ending);

        let mut state = State { flags: random.next() & STATUS, ..State::default() };
        for register in &mut state.registers {
            *register = random.next();
        }
        let scratch = machine.address(SCRATCH + SCRATCH_BYTES as u64 / 2);
        state.registers[3] = scratch;
        state.registers[5] = scratch;
        state.registers[4] = machine.address(STACK);
        if matches!(ending, End::Counted(_)) {
            state.registers[1] = random.below(3);
        }
        let case = Case { top: machine.exit(3), code, state };
        prop_assert_eq!(agree(&mut machine, &case, seed), Ok(()));
        // Moved back, it is as long as near branches, and nops before a return, make it, and no longer.
        let there = relocate(&case.code, Addr(machine.address(ORIGINAL)), Addr(machine.address(PATCH)), &Abi::KERNEL).unwrap();
        prop_assert!(there.bytes.len() <= case.code.len() + 12 + 32);
    }
}
