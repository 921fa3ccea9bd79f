//! Numbers that may be addresses of code.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use super::{Function, Memory, present};
use crate::Addr;

/// Returns the values at which an instruction begins that may execute, of those that look like addresses
/// inside functions: identifiers of devices, masks and the like do by chance. Pointers to functions are
/// left out, those to parts of them are not.
pub(crate) fn plausible(
    mut values: Vec<Addr>,
    functions: &[Function],
    memory: &Memory,
) -> Vec<Addr> {
    values.sort_unstable();
    values.dedup();
    let mut kept = Vec::new();
    let mut values = values.into_iter().peekable();
    let mut instruction = Instruction::default();
    for function in functions {
        let first = function.span.start.add(u64::from(!function.is_part()));
        while values.next_if(|&value| value < first).is_some() {}
        if values
            .peek()
            .is_none_or(|&value| value >= function.span.end)
        {
            continue;
        }
        let bytes = present(memory.bytes(function.span));
        let mut decoder = Decoder::with_ip(64, bytes, function.span.start.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let at = Addr(instruction.ip());
            while values.next_if(|&value| value < at).is_some() {}
            if values.next_if_eq(&at).is_some() && instruction.code() != Code::Int3 {
                kept.push(at);
            }
        }
    }
    kept
}
