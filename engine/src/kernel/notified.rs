//! Branches out of a notifier of traps that an `int3` may take, as far as its own code decides it.
//!
//! A notifier is called for every kind of trap, and most begin with a comparison of the kind, its second argument.
//! While that argument is in its register, such a comparison has one result.

use std::collections::HashSet;

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpKind, Register,
};

use crate::isa::decode::{branch_target, is_direct_call};
use crate::isa::effect::{STATUS, plain};
use crate::{Addr, Span};

/// `DIE_INT3` of arch/x86/include/asm/kdebug.h.
const INT3: u64 = 2;

/// Knowledge between two instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Knowledge {
    /// The kind of trap is in `rsi`.
    has_kind: bool,
    /// The number that the flags are a comparison of the kind with.
    compared: Option<u64>,
}

/// Returns the targets outside of a notifier's code that it may branch to for an `int3`. `traced` is the tracer's site,
/// whose call changes no register. Indirect branches are not followed.
pub(super) fn targets(code: &[u8], start: Addr, traced: Option<Span>) -> Vec<Addr> {
    let span = Span::new(start, code.len() as u64);
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    let entered = Knowledge {
        has_kind: true,
        compared: None,
    };
    let mut worklist = vec![(start, entered)];
    let (mut visited, mut targets) = (HashSet::new(), Vec::new());
    while let Some((at, mut state)) = worklist.pop() {
        let rest = usize::try_from(at.0 - start.0).ok();
        let bytes = rest.and_then(|rest| code.get(rest..)).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let ip = Addr(instruction.ip());
            if !visited.insert((ip, state)) {
                break;
            }
            if traced.is_some_and(|site| site.contains(ip)) {
                continue;
            }
            let target = branch_target(&instruction);
            let verdict = match instruction.flow_control() {
                FlowControl::ConditionalBranch => decided(&instruction, state),
                FlowControl::UnconditionalBranch => Some(true),
                _ => Some(false),
            };
            let is_taken = is_direct_call(&instruction) || verdict != Some(false);
            if let Some(target) = target.filter(|_| is_taken) {
                if span.contains(target) && !is_direct_call(&instruction) {
                    worklist.push((target, state));
                } else {
                    targets.push(target);
                }
            }
            // After the `ud2` of a warning control falls through.
            let ends = matches!(
                instruction.flow_control(),
                FlowControl::Return | FlowControl::IndirectBranch
            );
            if ends || verdict == Some(true) {
                break;
            }
            state = after(&mut factory, &instruction, state);
        }
    }
    targets.sort_unstable();
    targets.dedup();
    targets
}

/// Returns whether a conditional branch is taken; `None` if that is not known.
fn decided(instruction: &Instruction, state: Knowledge) -> Option<bool> {
    let number = state.compared?;
    let signed = (INT3.cast_signed(), number.cast_signed());
    Some(match instruction.condition_code() {
        ConditionCode::e => INT3 == number,
        ConditionCode::ne => INT3 != number,
        ConditionCode::b => INT3 < number,
        ConditionCode::ae => INT3 >= number,
        ConditionCode::be => INT3 <= number,
        ConditionCode::a => INT3 > number,
        ConditionCode::l => signed.0 < signed.1,
        ConditionCode::ge => signed.0 >= signed.1,
        ConditionCode::le => signed.0 <= signed.1,
        ConditionCode::g => signed.0 > signed.1,
        _ => return None,
    })
}

/// The state after an instruction through which control falls.
fn after(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    state: Knowledge,
) -> Knowledge {
    // A function that is called may change the register.
    if instruction.flow_control() != FlowControl::Next
        && instruction.flow_control() != FlowControl::ConditionalBranch
    {
        return Knowledge::default();
    }
    let is_comparison = instruction.mnemonic() == Mnemonic::Cmp
        && matches!(instruction.op0_kind(), OpKind::Register)
        && matches!(instruction.op0_register(), Register::RSI | Register::ESI)
        && !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory);
    let flags_change = instruction.rflags_modified() & STATUS != 0;
    let compared = match (is_comparison && state.has_kind, flags_change) {
        (true, _) => Some(instruction.immediate(1)),
        (false, true) => None,
        (false, false) => state.compared,
    };
    let writes = plain(factory, instruction).writes;
    Knowledge {
        has_kind: state.has_kind && !writes.contains(Register::RSI),
        compared,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::IcedError;
    use iced_x86::code_asm::{CodeAssembler, esi, rax, rsi};

    use super::*;

    const START: u64 = 0xffff_ffff_8100_0000;
    const TRACER: u64 = START + 0x1000;
    const HANDLER: u64 = START + 0x2000;

    /// The targets of a function that begins with a call of the tracer.
    fn of(write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Vec<u64> {
        let mut assembler = CodeAssembler::new(64).unwrap();
        assembler.call(TRACER).unwrap();
        write(&mut assembler).unwrap();
        let code = assembler.assemble(START).unwrap();
        let found = targets(&code, Addr(START), Some(Span::new(Addr(START), 5)));
        found.into_iter().map(|target| target.0).collect()
    }

    #[test]
    fn the_handler_of_another_trap_is_not_executed() {
        let other = of(|a| {
            let mut is_mine = a.create_label();
            a.cmp(rsi, 3)?;
            a.je(is_mine)?;
            a.ret()?;
            a.set_label(&mut is_mine)?;
            a.jmp(HANDLER)
        });
        assert_eq!(other, [0; 0]);
        let mine = of(|a| {
            let mut is_other = a.create_label();
            a.cmp(esi, 2)?;
            a.jne(is_other)?;
            a.call(HANDLER)?;
            a.set_label(&mut is_other)?;
            a.ret()
        });
        assert_eq!(mine, [HANDLER]);
    }

    #[test]
    fn both_sides_of_what_is_not_decided_are_followed() {
        let overwritten = of(|a| {
            let mut is_mine = a.create_label();
            a.mov(rsi, rax)?;
            a.cmp(rsi, 3)?;
            a.je(is_mine)?;
            a.ret()?;
            a.set_label(&mut is_mine)?;
            a.jmp(HANDLER)
        });
        assert_eq!(overwritten, [HANDLER]);
        let later = of(|a| {
            let mut is_mine = a.create_label();
            a.cmp(rsi, 3)?;
            a.test(rax, rax)?;
            a.je(is_mine)?;
            a.ret()?;
            a.set_label(&mut is_mine)?;
            a.call(HANDLER)?;
            a.ret()
        });
        assert_eq!(later, [HANDLER]);
        let after_a_call = of(|a| {
            let mut is_mine = a.create_label();
            a.call(HANDLER)?;
            a.cmp(rsi, 3)?;
            a.je(is_mine)?;
            a.ret()?;
            a.set_label(&mut is_mine)?;
            a.jmp(TRACER)
        });
        assert_eq!(after_a_call, [TRACER, HANDLER]);
    }

    #[test]
    fn loops_end() {
        let repeated = of(|a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.cmp(rsi, 7)?;
            a.jb(again)?;
            a.jmp(HANDLER)
        });
        assert_eq!(repeated, [0; 0]);
    }
}
