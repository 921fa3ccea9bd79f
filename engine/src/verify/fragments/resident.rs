//! The resident code, instruction by instruction.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::reader::is_word;
use super::violation::FragmentRule;
use crate::Addr;
use crate::cache::CacheLayout;
use crate::cache::resident::Resident;

/// Proves the resident code of an arena.
pub(super) fn prove(resident: &Resident, layout: &CacheLayout) -> Result<(), FragmentRule> {
    let bytes = resident.bytes.as_slice();
    let decoder = Decoder::with_ip(64, bytes, resident.start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let ip = |index: usize| all.get(index).map(|one: &Instruction| Addr(one.ip()));
    let spill = |place| ResidentCheck::Store(Register::RCX, place);
    // The offsets are those of places below the stack pointer.
    let search = [
        ResidentCheck::Bytes(&[0x48, 0xf7, 0xd1]),       // not rcx
        ResidentCheck::Bytes(&[0x48, 0x8d, 0x0c, 0x11]), // lea rcx, [rcx+rdx]
        ResidentCheck::Store(Register::RAX, -160),
        ResidentCheck::Store(Register::RSI, -168),
        ResidentCheck::Bytes(&[0x9f]),             // lahf
        ResidentCheck::Bytes(&[0x0f, 0x90, 0xc0]), // seto al
        ResidentCheck::Hash,
        ResidentCheck::Bytes(&[0x48, 0xc1, 0xea, 31]), // shr rdx, 31
        ResidentCheck::Mask,
        ResidentCheck::LoadWord(Register::RSI, layout.targets),
        ResidentCheck::Bytes(&[0x48, 0x39, 0xce]), // cmp rsi, rcx
        ResidentCheck::Branch(Code::Je_rel8_64, 16),
        ResidentCheck::Bytes(&[0x48, 0x85, 0xf6]), // test rsi, rsi
        ResidentCheck::Branch(Code::Je_rel8_64, 24),
        ResidentCheck::Bytes(&[0x83, 0xc2, 2]), // add edx, 2
        ResidentCheck::Branch(Code::Jmp_rel8_64, 8),
        // Found.
        ResidentCheck::LoadWord(Register::RSI, layout.targets.add(8)),
        ResidentCheck::Bytes(&[0x0f, 0xb7, 0xd1]), // movzx edx, cx
        ResidentCheck::StoreWord(Register::RSI, layout.recent),
        ResidentCheck::Bytes(&[0x04, 0x7f]), // add al, 0x7f
        ResidentCheck::Bytes(&[0x9e]),       // sahf
        ResidentCheck::Load(Register::RSI, -168),
        ResidentCheck::Load(Register::RAX, -160),
        ResidentCheck::JumpWord(layout.recent),
    ];
    let missed = [
        ResidentCheck::Bytes(&[0x04, 0x7f]),
        ResidentCheck::Bytes(&[0x9e]),
        ResidentCheck::Load(Register::RSI, -168),
        ResidentCheck::Load(Register::RAX, -160),
    ];
    let stop = [
        spill(-160),
        ResidentCheck::Lost,
        ResidentCheck::Short(Code::Jrcxz_rel8_64, 4),
        ResidentCheck::Load(Register::RCX, -152),
        ResidentCheck::Load(Register::RDX, -144),
        ResidentCheck::JumpPlace(-160),
        ResidentCheck::Bytes(&[0xcc]),
    ];
    let mut expected: Vec<ResidentCheck> = Vec::new();
    expected.extend(search);
    expected.extend(missed);
    let dropped = expected.len();
    expected.extend(stop);
    let stop_missed = expected.len();
    let mut index = 0;
    for check in &expected {
        check.holds(&all, index, bytes, resident.start, layout)?;
        index += 1;
    }
    if ip(2) != Some(resident.search) || ip(0) != Some(resident.differs) {
        return Err(FragmentRule::Resident);
    }
    if ip(3) != Some(resident.second_spill) {
        return Err(FragmentRule::Resident);
    }
    if ip(stop_missed - 1) != Some(resident.missed) || ip(dropped) != Some(resident.dropped) {
        return Err(FragmentRule::Resident);
    }
    while all.get(index).is_some_and(|one| one.code() == Code::Int3) {
        index += 1;
    }
    if ip(index) != Some(resident.step) {
        return Err(FragmentRule::Resident);
    }
    for check in &stop {
        check.holds(&all, index, bytes, resident.start, layout)?;
        index += 1;
    }
    if ip(index - 1) != Some(resident.stepped) {
        return Err(FragmentRule::Resident);
    }
    Ok(())
}

/// An instruction that must stand at a place.
#[derive(Clone, Copy)]
enum ResidentCheck {
    Bytes(&'static [u8]),
    Store(Register, i64),
    Load(Register, i64),
    LoadWord(Register, Addr),
    StoreWord(Register, Addr),
    JumpWord(Addr),
    JumpPlace(i64),
    /// To the instruction of a number.
    Branch(Code, usize),
    /// Over some instructions.
    Short(Code, usize),
    Hash,
    Mask,
    Lost,
}

impl ResidentCheck {
    fn holds(
        self,
        all: &[Instruction],
        index: usize,
        bytes: &[u8],
        start: Addr,
        layout: &CacheLayout,
    ) -> Result<(), FragmentRule> {
        let instruction = all.get(index).ok_or(FragmentRule::Resident)?;
        let place = |place: i64| {
            instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64().cast_signed() == place
        };
        let to = |index: usize| {
            let target = all.get(index).map(Instruction::ip);
            target == Some(instruction.near_branch_target())
        };
        let code = instruction.code();
        let right = match self {
            Self::Bytes(expected) => {
                let offset = usize::try_from(instruction.ip() - start.0).unwrap_or(usize::MAX);
                let found = bytes
                    .get(offset..)
                    .and_then(|rest| rest.get(..instruction.len()));
                found == Some(expected)
            }
            Self::Store(register, at) => {
                code == Code::Mov_rm64_r64 && place(at) && instruction.op1_register() == register
            }
            Self::Load(register, at) => {
                code == Code::Mov_r64_rm64 && place(at) && instruction.op0_register() == register
            }
            Self::LoadWord(register, at) => {
                code == Code::Mov_r64_rm64
                    && is_word(instruction, at, Register::RDX)
                    && instruction.op0_register() == register
            }
            Self::StoreWord(register, at) => {
                code == Code::Mov_rm64_r64
                    && is_word(instruction, at, Register::RDX)
                    && instruction.op1_register() == register
            }
            Self::JumpWord(at) => code == Code::Jmp_rm64 && is_word(instruction, at, Register::RDX),
            Self::JumpPlace(at) => {
                code == Code::Jmp_rm64 && instruction.op0_kind() == OpKind::Memory && place(at)
            }
            Self::Branch(expected, index) => code == expected && to(index),
            Self::Short(expected, over) => code == expected && to(index + over),
            Self::Hash => {
                code == Code::Imul_r64_rm64_imm32
                    && instruction.op0_register() == Register::RDX
                    && instruction.op1_register() == Register::RCX
                    && instruction.immediate(2) == 0x4f1b_bcdd
            }
            Self::Mask => {
                code == Code::And_rm32_imm32
                    && instruction.op0_register() == Register::EDX
                    && instruction.immediate(1) == (2_u64 << layout.targets_log2) - 2
            }
            Self::Lost => {
                code == Code::Movzx_r32_rm8
                    && instruction.op0_register() == Register::ECX
                    && is_word(instruction, layout.agent.add(3), Register::None)
            }
        };
        if right {
            Ok(())
        } else {
            Err(FragmentRule::Resident)
        }
    }
}
