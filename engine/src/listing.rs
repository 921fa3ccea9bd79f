//! Disassembly for people: Intel syntax, with the kernel's symbols in the operands.

use std::cell::RefCell;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, OpKind, SymbolResolver,
    SymbolResult,
};

use crate::ids::part;
use crate::{Addr, Image};

/// A disassembled instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its address in the target.
    pub at: Addr,
    /// Its encoding, as it is in memory.
    pub bytes: Vec<u8>,
    /// The instruction, with names for addresses.
    pub text: String,
}

/// Disassembles `code`, which is at `at`; names come from `image`, if there is one.
///
/// Bytes that do not decode are one line each, `(bad)`.
#[must_use]
pub fn disassemble(image: Option<&Image>, at: Addr, code: &[u8]) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut formatter = Printer::new(image);
    let mut decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
    while decoder.can_decode() {
        let start = decoder.position();
        let instruction = decoder.decode();
        let address = Addr(instruction.ip());
        if instruction.is_invalid() {
            let next = start + 1;
            lines.push(Line {
                at: address,
                bytes: part(code, start..next).to_vec(),
                text: "(bad)".to_owned(),
            });
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(address.add(1).0);
            continue;
        }
        let bytes = part(code, start..decoder.position()).to_vec();
        lines.push(Line {
            at: address,
            bytes,
            text: formatter.text(&instruction),
        });
    }
    lines
}

/// Formats instructions one by one.
pub struct Printer<'i> {
    image: Option<&'i Image>,
    formatter: IntelFormatter,
    names: PendingNames,
}

/// The names that the instruction being formatted needs: (address, symbol's address, name). The
/// formatter owns its resolver, which therefore cannot borrow the image.
type PendingNames = Rc<RefCell<Vec<(u64, u64, String)>>>;

struct Resolver(PendingNames);

impl SymbolResolver for Resolver {
    fn symbol(
        &mut self,
        _: &Instruction,
        _: u32,
        _: Option<u32>,
        address: u64,
        _: u32,
    ) -> Option<SymbolResult<'_>> {
        let names = self.0.borrow();
        let (_, at, name) = names
            .iter()
            .find(|(requested, _, _)| *requested == address)?;
        Some(SymbolResult::with_string(*at, name.clone()))
    }
}

/// The greatest distance from a symbol that names an address: addresses after the last symbol would get its name.
const FAR: u64 = 1 << 24;

impl<'i> Printer<'i> {
    /// A printer that takes names from `image`, if there is one.
    #[must_use]
    pub fn new(image: Option<&'i Image>) -> Self {
        let names = PendingNames::default();
        let mut formatter =
            IntelFormatter::with_options(Some(Box::new(Resolver(Rc::clone(&names)))), None);
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(true);
        options.set_rip_relative_addresses(false);
        options.set_space_after_operand_separator(true);
        options.set_branch_leading_zeros(false);
        options.set_show_branch_size(false);
        Self {
            image,
            formatter,
            names,
        }
    }

    /// The instruction as text.
    #[must_use]
    pub fn text(&mut self, instruction: &Instruction) -> String {
        let mut names = Vec::new();
        if let Some(image) = self.image {
            for address in addresses(instruction) {
                if let Some((name, distance)) = image
                    .symbol_at(Addr(address))
                    .filter(|&(_, distance)| distance < FAR)
                {
                    names.push((address, address - distance, name.to_owned()));
                }
            }
        }
        self.names.replace(names);
        let mut text = String::new();
        self.formatter.format(instruction, &mut text);
        text
    }
}

/// Kernel addresses in an instruction's operands.
fn addresses(instruction: &Instruction) -> impl Iterator<Item = u64> {
    let memory = if instruction.is_ip_rel_memory_operand() {
        instruction.ip_rel_memory_address()
    } else {
        instruction.memory_displacement64()
    };
    (0..instruction.op_count())
        .filter_map(move |operand| match instruction.op_kind(operand) {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                Some(instruction.near_branch_target())
            }
            OpKind::Immediate64 | OpKind::Immediate32to64 => Some(instruction.immediate(operand)),
            OpKind::Memory => Some(memory),
            _ => None,
        })
        // Small numbers, also small negative ones, are numbers.
        .filter(|&address| address >> 63 == 1 && address < 0xffff_ffff_ffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fixture::Fixture;

    #[test]
    fn operands_have_the_kernels_names() {
        let image = Fixture::new()
            .bytes("first", &[0xc3])
            .bytes("second", &[0xc3])
            .image();
        let second = Fixture::address(1);
        let at = Addr(Fixture::address(0));
        // call second; jmp second+0x10; lea rax, [rip → second]; mov eax, gs:[rip+…]; mov rax, -1; (bad)
        let mut code = vec![0xe8];
        code.extend((second.wrapping_sub(at.0 + 5) as i32).to_le_bytes());
        code.push(0xe9);
        code.extend(((second + 0x10).wrapping_sub(at.0 + 10) as i32).to_le_bytes());
        code.extend([0x48, 0x8d, 0x05]);
        code.extend((second.wrapping_sub(at.0 + 17) as i32).to_le_bytes());
        code.extend([0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x06]);
        let lines = disassemble(Some(&image), at, &code);
        let text: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            text,
            [
                "call second",
                "jmp second+0x10",
                "lea rax, [second]",
                "mov rax, 0xffffffffffffffff",
                "(bad)"
            ]
        );
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.bytes.clone()).collect();
        assert_eq!(bytes, code);
        assert_eq!(lines[2].at, at.add(10));
        let bare = disassemble(None, at, &code);
        assert_eq!(bare[0].text, format!("call {second:#x}"));
    }
}
