//! Static probes: instructions that a program's author has marked, with the operands that are there when they execute.

use gilk_instruments::program::Gpr;

use crate::Addr;

/// A static probe (`DTRACE_PROBE` of SystemTap's sys/sdt.h): a `nop` of a program, with a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StaticProbe {
    /// The `nop`, which begins a block.
    pub at: Addr,
    /// The name of the program or library that its author gave: `python`.
    pub provider: String,
    /// The name of the place: `gc__start`.
    pub name: String,
    /// A number of two bytes in the program's writable data, of tracers that use the probe: while it is 0, the program
    /// does not reach the `nop`.
    pub semaphore: Option<Addr>,
    /// Its arguments, in order.
    pub arguments: Vec<ProbeArgument>,
}

/// An argument of a static probe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeArgument {
    /// As the note has it, with its size in bytes and its operand: `-4@%eax`.
    pub text: String,
    /// Bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// True if it has a sign.
    pub signed: bool,
    /// Its location.
    pub operand: ProbeOperand,
}

/// The location of an argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeOperand {
    /// The low bytes of a register.
    Register(Gpr),
    /// The second byte of a register: `%ah`.
    SecondByte(Gpr),
    /// A number that the code knows.
    Constant(i64),
    /// Bytes at an address.
    Memory(ProbeAddress),
    /// Bytes at an address that has a name or a segment.
    Named,
    /// A register of vectors, or a form that is not known.
    Other,
}

/// An address that registers have when a static probe executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeAddress {
    /// A number that is added.
    pub displacement: i64,
    /// A register that is added.
    pub base: Option<Gpr>,
    /// A register that is added, and the number that it is multiplied by: 1, 2, 4 or 8.
    pub index: Option<(Gpr, u8)>,
}

impl StaticProbe {
    /// Returns its provider and name as scripts have them: `python:gc__start`.
    #[must_use]
    pub fn title(&self) -> String {
        format!("{}:{}", self.provider, self.name)
    }
}

impl ProbeArgument {
    /// Reads an argument of a note (the assembler's syntax of AT&T): a size, which is negative of numbers with a sign, and
    /// an operand.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let other = |bytes, signed| Self {
            text: text.to_owned(),
            bytes,
            signed,
            operand: ProbeOperand::Other,
        };
        let Some((size, operand)) = text.split_once('@') else {
            return other(8, false);
        };
        let signed = size.starts_with('-');
        let bytes = match size.trim_start_matches('-') {
            "1" => 1,
            "2" => 2,
            "4" => 4,
            "8" => 8,
            // `8f` is a floating-point number.
            _ => return other(8, signed),
        };
        let (operand, bytes) = if let Some(name) = operand.strip_prefix('%')
            && !operand.contains([':', '('])
        {
            match register(name) {
                Some((operand, width)) => (operand, bytes.min(width)),
                None => (ProbeOperand::Other, bytes),
            }
        } else if let Some(number) = operand.strip_prefix('$') {
            let number = constant(number).map(ProbeOperand::Constant);
            (number.unwrap_or(ProbeOperand::Other), bytes)
        } else {
            let address = address(operand).map(ProbeOperand::Memory);
            (address.unwrap_or(ProbeOperand::Named), bytes)
        };
        Self {
            text: text.to_owned(),
            bytes,
            signed,
            operand,
        }
    }
}

/// Reads an address: `-24(%rbp)`, `(%rax,%rcx,8)`.
fn address(text: &str) -> Option<ProbeAddress> {
    let (displacement, registers) = text.strip_suffix(')')?.split_once('(')?;
    let displacement = match displacement {
        "" => 0,
        displacement => constant(displacement)?,
    };
    let whole = |name: &str| match register(name.trim().strip_prefix('%')?)? {
        (ProbeOperand::Register(gpr), 8) => Some(gpr),
        _ => None,
    };
    let mut parts = registers.split(',');
    let base = match parts.next()?.trim() {
        "" => None,
        base => Some(whole(base)?),
    };
    let index = match parts.next() {
        None => None,
        Some(index) => {
            let scale = match parts.next().map(str::trim) {
                None | Some("1") => 1,
                Some("2") => 2,
                Some("4") => 4,
                Some("8") => 8,
                Some(_) => return None,
            };
            Some((whole(index)?, scale))
        }
    };
    parts.next().is_none().then_some(ProbeAddress {
        displacement,
        base,
        index,
    })
}

/// Reads a number: `-5`, `0x10`.
fn constant(text: &str) -> Option<i64> {
    let (digits, negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let number = number.ok()?.cast_signed();
    Some(if negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// Finds a general register by the name of a part of it, and the bytes of that part.
fn register(name: &str) -> Option<(ProbeOperand, u8)> {
    for (gpr, word) in Gpr::ALL.into_iter().zip(Gpr::NAMES) {
        let numbered = word.starts_with('r');
        let parts = match numbered {
            true => [
                (word.to_owned(), 8),
                (format!("{word}d"), 4),
                (format!("{word}w"), 2),
                (format!("{word}b"), 1),
            ],
            false => [
                (format!("r{word}"), 8),
                (format!("e{word}"), 4),
                (word.to_owned(), 2),
                (format!("{}l", word.trim_end_matches('x')), 1),
            ],
        };
        let part = parts.iter().find(|(part, _)| part == name);
        if let Some((_, bytes)) = part {
            return Some((ProbeOperand::Register(gpr), *bytes));
        }
        let letter = word.strip_suffix('x');
        if letter.is_some_and(|letter| name.strip_suffix('h') == Some(letter)) {
            return Some((ProbeOperand::SecondByte(gpr), 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_assemblers_write_them() {
        use ProbeOperand::{Constant, Memory, Named, Other, Register, SecondByte};
        let at = |displacement, base, index| {
            Memory(ProbeAddress {
                displacement,
                base,
                index,
            })
        };
        for (text, bytes, signed, operand) in [
            ("8@%rdi", 8, false, Register(Gpr::Rdi)),
            ("-4@%eax", 4, true, Register(Gpr::Rax)),
            ("-4@%r12d", 4, true, Register(Gpr::R12)),
            ("2@%r9w", 2, false, Register(Gpr::R9)),
            ("-2@%bp", 2, true, Register(Gpr::Rbp)),
            ("1@%sil", 1, false, Register(Gpr::Rsi)),
            ("1@%r8b", 1, false, Register(Gpr::R8)),
            ("-1@%dl", 1, true, Register(Gpr::Rdx)),
            ("1@%ch", 1, false, SecondByte(Gpr::Rcx)),
            // No more of the register than its name says.
            ("8@%eax", 4, false, Register(Gpr::Rax)),
            ("-4@$-5", 4, true, Constant(-5)),
            ("8@$0x10", 8, false, Constant(16)),
            ("8@$18446744073709551615", 8, false, Constant(-1)),
            ("-4@112(%rsp)", 4, true, at(112, Some(Gpr::Rsp), None)),
            ("8@-24(%rbp)", 8, false, at(-24, Some(Gpr::Rbp), None)),
            ("2@(%rax)", 2, false, at(0, Some(Gpr::Rax), None)),
            (
                "8@0x10(%rax,%r12,8)",
                8,
                false,
                at(16, Some(Gpr::Rax), Some((Gpr::R12, 8))),
            ),
            ("8@(,%rcx,4)", 8, false, at(0, None, Some((Gpr::Rcx, 4)))),
            (
                "8@(%rdi,%rcx)",
                8,
                false,
                at(0, Some(Gpr::Rdi), Some((Gpr::Rcx, 1))),
            ),
            ("8@(%rdi,%rcx,3)", 8, false, Named),
            ("8@(%edi)", 8, false, Named),
            ("8@%fs:0", 8, false, Named),
            ("8@%fs:(%rax)", 8, false, Named),
            ("4@counter(%rip)", 4, false, Named),
            ("8@%xmm0", 8, false, Other),
            ("8f@%xmm0", 8, false, Other),
            ("%rax", 8, false, Other),
            ("8@$nonsense", 8, false, Other),
            ("", 8, false, Other),
        ] {
            let read = ProbeArgument::parse(text);
            assert_eq!(
                (read.bytes, read.signed, read.operand),
                (bytes, signed, operand),
                "{text}"
            );
            assert_eq!(read.text, text);
        }
    }
}
