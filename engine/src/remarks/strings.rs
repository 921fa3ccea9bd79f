//! Texts in read-only data.

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::{Addr, Image};

/// Shorter ones may be anything.
const SHORTEST: usize = 2;
/// Letters of a text that are looked at.
const LONGEST: usize = 4096;

/// The text whose address an instruction makes: printable to its NUL, in read-only data.
pub(super) fn text<'i>(image: &'i Image, instruction: &Instruction) -> Option<&'i str> {
    let at = address(instruction)?;
    let bytes = image.read_only_from(at)?;
    let bytes = bytes.get(..LONGEST.min(bytes.len()))?;
    // A level is no text: `include/linux/kern_levels.h`.
    let bytes = match bytes {
        [1, b'0'..=b'7' | b'c', rest @ ..] => rest,
        all => all,
    };
    let end = bytes.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let printable = |letter: char| letter.is_ascii_graphic() || matches!(letter, ' ' | '\n' | '\t');
    (text.len() >= SHORTEST && text.chars().all(printable)).then_some(text)
}

/// The address that an instruction makes a value of.
fn address(instruction: &Instruction) -> Option<Addr> {
    if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
        return Some(Addr(instruction.ip_rel_memory_address()));
    }
    let last = instruction.op_count().checked_sub(1)?;
    let made = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Push);
    let wide = matches!(
        instruction.op_kind(last),
        OpKind::Immediate64 | OpKind::Immediate32to64
    );
    (made && wide).then(|| Addr(instruction.immediate(last)))
}
