//! Turns any instruction of a kernel into a case that can run here: memory operands are made to
//! point into scratch memory, branches to exits.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpAccess, OpKind, Register,
};

use super::native::{GS, Machine, ORIGINAL, Random, SCRATCH, SCRATCH_BYTES, STACK, STATUS, State};
use super::runnable::runs_here;

/// Target of short branches: a jump to exit 1.
pub(crate) const STEPPING_STONE: u64 = ORIGINAL - 16;

/// An instruction at its original place, and what to run it with.
pub(crate) struct Case {
    /// The bytes, as they are written to [`ORIGINAL`].
    pub(crate) code: Vec<u8>,
    /// Registers and flags.
    pub(crate) state: State,
    /// The word on top of the stack.
    pub(crate) top: u64,
}

/// A general register's number.
fn number(register: Register) -> usize {
    register.full_register().number()
}

impl Case {
    /// A case for an instruction of any address; `None` if it cannot be run here.
    pub(crate) fn of(machine: &Machine, bytes: &[u8], random: &mut Random) -> Option<Self> {
        let mut code = bytes.to_vec();
        let mut decoder =
            Decoder::with_ip(64, bytes, machine.address(ORIGINAL), DecoderOptions::NONE);
        let instruction = decoder.decode();
        let offsets = decoder.get_constant_offsets(&instruction);
        if instruction.is_invalid() || instruction.len() != bytes.len() || !runs_here(&instruction)
        {
            return None;
        }
        let mut state = State {
            flags: random.next() & STATUS,
            ..State::default()
        };
        for register in &mut state.registers {
            // Small numbers and large ones take different ways through many instructions.
            *register = if random.below(4) == 0 {
                random.below(300)
            } else {
                random.next()
            };
        }
        state.registers[4] = machine.address(STACK);
        for word in state.vectors.as_flattened_mut() {
            *word = random.next();
        }
        if !std::arch::is_x86_feature_detected!("avx") {
            state
                .vectors
                .iter_mut()
                .for_each(|vector| vector[2..].fill(0));
        }
        let mut case = Self {
            code: Vec::new(),
            state,
            top: random.next(),
        };
        case.prepare(machine, &instruction, random);
        let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
        if divides
            && instruction.op0_register() != Register::DL
            && matches!(
                instruction.op0_register().full_register(),
                Register::RDX | Register::RAX
            )
        {
            return None;
        }

        if instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64 {
            let short = offsets.immediate_size() == 1;
            // A short branch needs a stepping stone close by.
            let target = if short {
                machine.address(STEPPING_STONE)
            } else {
                machine.exit(1)
            };
            let displacement = target.wrapping_sub(instruction.next_ip());
            let field = offsets.immediate_offset();
            code[field..field + offsets.immediate_size()]
                .copy_from_slice(&displacement.to_le_bytes()[..offsets.immediate_size()]);
        }
        if (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory) {
            case.point_memory(
                machine,
                &instruction,
                &mut code,
                offsets.displacement_offset(),
                random,
            )?;
        }
        case.code = code;
        Some(case)
    }

    /// Values that implicit operands must have.
    fn prepare(&mut self, machine: &Machine, instruction: &Instruction, random: &mut Random) {
        let scratch = machine.address(SCRATCH + SCRATCH_BYTES as u64 / 2);
        if instruction.is_string_instruction() || instruction.mnemonic() == Mnemonic::Maskmovdqu {
            self.state.registers[6] = scratch;
            self.state.registers[7] = scratch + 0x200;
            self.state.registers[1] = random.below(16);
        }
        match instruction.mnemonic() {
            Mnemonic::Div | Mnemonic::Idiv => {
                self.state.registers = self.state.registers.map(|value| value | 0x0101);
                self.state.registers[4] = machine.address(STACK);
                self.state.registers[0] = random.below(0x7f) | 1;
                // The word at rsp may be the divisor, or any byte of it.
                self.top |= 0x0101_0101_0101_0101;
                // The high half of what is divided, but for bytes.
                self.state.registers[2] = u64::from(instruction.op0_register() == Register::DL);
            }
            Mnemonic::Cpuid => self.state.registers[0] = 0x8000_0000,
            Mnemonic::Xgetbv => self.state.registers[1] = 0,
            Mnemonic::Mov if instruction.op0_register().is_segment_register() => {
                // The empty selector.
                self.state.registers[number(instruction.op1_register())] = 0;
            }
            Mnemonic::Leave => self.state.registers[5] = machine.address(STACK) + 64,
            Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jrcxz
            | Mnemonic::Jecxz => {
                self.state.registers[1] = random.below(3);
            }
            Mnemonic::Xlatb => self.state.registers[3] = scratch,
            Mnemonic::Popfq | Mnemonic::Popf => self.top = random.next() & STATUS | 0x202,
            _ => {}
        }
        if instruction.flow_control() == FlowControl::Return {
            self.top = machine.exit(3);
        }
    }

    /// Makes the memory operand point into the middle of the scratch memory, or near rsp.
    fn point_memory(
        &mut self,
        machine: &Machine,
        instruction: &Instruction,
        code: &mut [u8],
        field: usize,
        random: &mut Random,
    ) -> Option<()> {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let scale = u64::from(instruction.memory_index_scale());
        let displacement = instruction.memory_displacement64();
        // Aligned for any vector.
        let scratch = machine.address(SCRATCH + SCRATCH_BYTES as u64 / 2) + random.below(8) * 64;
        let by_gs = instruction.segment_prefix() == Register::GS;
        let target = if by_gs {
            scratch.wrapping_sub(machine.address(GS))
        } else {
            scratch
        };
        let uses_offset = matches!(
            instruction.mnemonic(),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        ) && instruction.op1_kind() == OpKind::Register;
        let divides = matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
        if divides
            && (base == Register::RAX
                || base == Register::RDX
                || index == Register::RAX
                || index == Register::RDX)
        {
            return None;
        }
        if uses_offset {
            let offset = instruction.op1_register();
            if offset.full_register() == base || offset.full_register() == index {
                return None;
            }
            self.state.registers[number(offset)] = random.below(64);
        }
        let replace = |code: &mut [u8], len: usize, value: u64| {
            code[field..field + len].copy_from_slice(&value.to_le_bytes()[..len]);
        };
        match (base, index) {
            (Register::RIP, _) => replace(code, 4, target.wrapping_sub(instruction.next_ip())),
            (Register::None, Register::None) => {
                replace(
                    code,
                    if offset_is_64_bits(instruction) { 8 } else { 4 },
                    target,
                );
            }
            (Register::None, index) => {
                let value = target.wrapping_sub(displacement) & !(scale - 1);
                self.state.registers[number(index)] = ((value as i64) / scale as i64) as u64;
            }
            (Register::RSP, index) => {
                if by_gs || (displacement as i64).unsigned_abs() > 0x800 {
                    return None;
                }
                if index != Register::None {
                    self.state.registers[number(index)] = random.below(16);
                }
            }
            (base, index) if base == index => {
                let value = target.wrapping_sub(displacement) as i64 / (scale as i64 + 1);
                self.state.registers[number(base)] = value as u64;
            }
            (base, index) => {
                let mut offset = displacement;
                if index != Register::None {
                    let value = random.below(16);
                    self.state.registers[number(index)] = value;
                    offset = offset.wrapping_add(value * scale);
                }
                self.state.registers[number(base)] = target.wrapping_sub(offset);
            }
        }
        Some(())
    }

    /// Fills memory with what the seed says and puts the case's stack there.
    pub(crate) fn fill(&self, machine: &mut Machine, seed: u64) {
        let mut random = Random(seed);
        for window in windows() {
            for chunk in machine.memory()[window].chunks_exact_mut(8) {
                // Never zero: something divides by it.
                chunk.copy_from_slice(&(random.next() | 0x0101_0101_0101_0101).to_le_bytes());
            }
        }
        machine.set_word(STACK, self.top);
    }
}

/// `mov al, [moffs64]` and its like.
fn offset_is_64_bits(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        iced_x86::Code::Mov_AL_moffs8
            | iced_x86::Code::Mov_EAX_moffs32
            | iced_x86::Code::Mov_RAX_moffs64
            | iced_x86::Code::Mov_moffs8_AL
            | iced_x86::Code::Mov_moffs32_EAX
            | iced_x86::Code::Mov_moffs64_RAX
    )
}

/// The memory that a case may touch, as ranges of the mapping.
pub(crate) fn windows() -> [std::ops::Range<usize>; 3] {
    let middle = SCRATCH as usize + SCRATCH_BYTES / 2;
    [
        middle - 0x800..middle + 0x1000,
        STACK as usize - 0x1000..STACK as usize + 0x1000,
        GS as usize..GS as usize + 0x800,
    ]
}

/// Returns the form of an instruction: the same for instructions that differ only in registers and numbers. One of
/// each is tested.
pub(crate) fn form(instruction: &Instruction) -> impl Ord + use<> {
    let shape = |register: Register| match register {
        Register::None => 0,
        Register::RIP => 1,
        Register::RSP | Register::R12 => 2,
        Register::RBP | Register::R13 => 3,
        register if register.number() < 8 => 4,
        _ => 5,
    };
    let mut info = iced_x86::InstructionInfoFactory::new();
    let reads = info.info(instruction).op0_access() == OpAccess::Read;
    (
        instruction.code() as u32,
        instruction.len(),
        (0..instruction.op_count())
            .map(|n| instruction.op_kind(n) as u32)
            .collect::<Vec<_>>(),
        shape(instruction.memory_base()),
        shape(instruction.memory_index()),
        instruction.segment_prefix() as u32,
        instruction.has_lock_prefix()
            || instruction.has_rep_prefix()
            || instruction.has_repne_prefix(),
        reads,
    )
}
