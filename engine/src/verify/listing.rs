//! Code of a fixed form, compared with its listing instruction by instruction.
//!
//! A line is an instruction as the decoder writes it, so encodings that execute alike are equal and all else differs. A
//! word in capitals stands for a number, `@n` for the address of instruction `n` of the same code, and `@NAME` for a
//! number that is the target of a branch.

use iced_x86::{Decoder, DecoderOptions, Instruction};
use thiserror::Error;

use crate::Addr;

/// A difference between code and its listing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListingViolation {
    /// An instruction is not the one of the listing.
    #[error("the instruction at {at} is `{found}`, and not `{expected}`")]
    Instruction {
        /// Its address.
        at: Addr,
        /// The instruction there, an invalid one where the code has ended.
        found: String,
        /// That of the listing.
        expected: String,
    },
    /// Bytes follow the code.
    #[error("the code at {0} is longer than its listing")]
    Longer(Addr),
}

/// Compares code with its listing, in which the numbers have the place of their names.
pub(super) fn compare(
    start: Addr,
    code: &[u8],
    listing: &[&str],
    numbers: &[(&str, u64)],
) -> Result<(), ListingViolation> {
    let decoder = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let mut at = start;
    for (index, line) in listing.iter().enumerate() {
        let expected = expected(line, numbers, &all);
        let instruction = all.get(index).copied().unwrap_or_default();
        let found = instruction.to_string();
        if found != expected {
            return Err(ListingViolation::Instruction {
                at,
                found,
                expected,
            });
        }
        at = Addr(instruction.next_ip());
    }
    match all.len() == listing.len() {
        true => Ok(()),
        false => Err(ListingViolation::Longer(start)),
    }
}

/// Returns the instruction of a line. A target that the code does not have stays `@n`, which no instruction is.
fn expected(line: &str, numbers: &[(&str, u64)], all: &[Instruction]) -> String {
    let target = line.split_once('@').and_then(|(branch, target)| {
        let at = match target.parse::<usize>() {
            Ok(index) => all.get(index)?.ip(),
            Err(_) => numbers.iter().find(|(name, _)| *name == target)?.1,
        };
        Some(format!("{branch}{}h", leading_digit(format!("{at:016X}"))))
    });
    target.unwrap_or_else(|| {
        let mut expected = line.to_owned();
        for (name, value) in numbers {
            expected = expected.replace(name, &number(*value));
        }
        expected
    })
}

/// A number as instructions are written with it.
fn number(number: u64) -> String {
    match number {
        0..10 => number.to_string(),
        _ => leading_digit(format!("{number:X}")) + "h",
    }
}

fn leading_digit(digits: String) -> String {
    match digits.starts_with(|digit: char| digit.is_ascii_digit()) {
        true => digits,
        false => format!("0{digits}"),
    }
}
