//! Instructions by operator.

use gilk_instruments::program::{BinaryOp, Width};
use iced_x86::Code;

/// The instruction that extends the low bytes of one register into another.
pub(super) fn extension(width: Width, signed: bool) -> Option<Code> {
    Some(match (width, signed) {
        (Width::B1, false) => Code::Movzx_r32_rm8,
        (Width::B2, false) => Code::Movzx_r32_rm16,
        (Width::B4, false) => Code::Mov_r32_rm32,
        (Width::B1, true) => Code::Movsx_r64_rm8,
        (Width::B2, true) => Code::Movsx_r64_rm16,
        (Width::B4, true) => Code::Movsxd_r64_rm32,
        (Width::B8, _) => return None,
    })
}

/// Returns the instruction that sets a byte by a comparison, and the branch that is taken if it does not hold.
pub(super) fn condition(op: BinaryOp) -> Option<(Code, Code)> {
    Some(match op {
        BinaryOp::Equal => (Code::Sete_rm8, Code::Jne_rel32_64),
        BinaryOp::Unequal => (Code::Setne_rm8, Code::Je_rel32_64),
        BinaryOp::LessSigned => (Code::Setl_rm8, Code::Jge_rel32_64),
        BinaryOp::LessUnsigned => (Code::Setb_rm8, Code::Jae_rel32_64),
        BinaryOp::LessOrEqualSigned => (Code::Setle_rm8, Code::Jg_rel32_64),
        BinaryOp::LessOrEqualUnsigned => (Code::Setbe_rm8, Code::Ja_rel32_64),
        BinaryOp::GreaterSigned => (Code::Setg_rm8, Code::Jle_rel32_64),
        BinaryOp::GreaterUnsigned => (Code::Seta_rm8, Code::Jbe_rel32_64),
        BinaryOp::GreaterOrEqualSigned => (Code::Setge_rm8, Code::Jl_rel32_64),
        BinaryOp::GreaterOrEqualUnsigned => (Code::Setae_rm8, Code::Jb_rel32_64),
        _ => return None,
    })
}

/// Returns the instructions of an operator that is one instruction: with a register or memory as the second
/// operand, and with a 32-bit constant.
pub(super) fn plain(op: BinaryOp) -> Option<(Code, Code)> {
    Some(match op {
        BinaryOp::Add => (Code::Add_r64_rm64, Code::Add_rm64_imm32),
        BinaryOp::Subtract => (Code::Sub_r64_rm64, Code::Sub_rm64_imm32),
        BinaryOp::And => (Code::And_r64_rm64, Code::And_rm64_imm32),
        BinaryOp::Or => (Code::Or_r64_rm64, Code::Or_rm64_imm32),
        BinaryOp::Xor => (Code::Xor_r64_rm64, Code::Xor_rm64_imm32),
        _ if op.compares() => (Code::Cmp_r64_rm64, Code::Cmp_rm64_imm32),
        _ => return None,
    })
}

/// Returns the instructions of a shift: by a constant, and by cl.
pub(super) fn shift(op: BinaryOp) -> Option<(Code, Code)> {
    Some(match op {
        BinaryOp::ShiftLeft => (Code::Shl_rm64_imm8, Code::Shl_rm64_CL),
        BinaryOp::ShiftRightSigned => (Code::Sar_rm64_imm8, Code::Sar_rm64_CL),
        BinaryOp::ShiftRightUnsigned => (Code::Shr_rm64_imm8, Code::Shr_rm64_CL),
        _ => return None,
    })
}
