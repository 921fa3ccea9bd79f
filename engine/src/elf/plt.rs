//! Procedure linkage tables: stubs that jump to functions of other objects, or of this one once their
//! implementation is chosen.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

use super::file::{Contents, Word};
use crate::code::{Memory, present};
use crate::{Addr, Span};

/// An entry of a procedure linkage table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stub {
    pub(super) span: Span,
    /// The symbol of the function, or its resolver's if it has one; `None` for the entry that calls the
    /// dynamic linker, and for a stub that the relocations do not name.
    pub(super) symbol: Option<String>,
}

/// Returns whether a section of code holds stubs, by its name: linkers give no other mark.
pub(super) fn is_table(section: &str) -> bool {
    matches!(
        section,
        ".plt" | ".plt.sec" | ".plt.got" | ".plt.bnd" | ".iplt"
    )
}

/// Reads the stubs of all tables, by address.
pub(super) fn stubs(contents: &Contents<'_>, memory: &Memory) -> Vec<Stub> {
    let tables = contents.code().filter(|section| is_table(&section.name));
    tables
        .flat_map(|section| {
            // Entries of `.plt.got` have 8 bytes if they need no `endbr64`.
            let small = section.name == ".plt.got" && is_jump(memory, section.span.start);
            let step = if small { 8 } else { 16 };
            (0..section.span.len() / step).map(move |number| {
                let span = Span::new(section.span.start.add(number * step), step);
                Stub {
                    span,
                    symbol: symbol(contents, memory, span),
                }
            })
        })
        .collect()
}

fn is_jump(memory: &Memory, at: Addr) -> bool {
    let bytes = present(memory.bytes_from(at, 15));
    Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE)
        .decode()
        .code()
        == Code::Jmp_rm64
}

/// The symbol of the word that a stub jumps by.
fn symbol(contents: &Contents<'_>, memory: &Memory, span: Span) -> Option<String> {
    let bytes = memory.bytes(span)?;
    let mut decoder = Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE);
    let is_jump = |instruction: &Instruction| {
        instruction.code() == Code::Jmp_rm64 && instruction.memory_base() == Register::RIP
    };
    let jump = decoder.iter().find(is_jump)?;
    let at = Addr(jump.ip_rel_memory_address());
    let found = contents.words.binary_search_by_key(&at, |word| word.at);
    let word = contents.words.get(found.ok()?)?;
    word.symbol.clone().or_else(|| resolved(contents, word))
}

/// The name of the function that a resolver chooses an implementation of.
fn resolved(contents: &Contents<'_>, word: &Word) -> Option<String> {
    let resolver = word.value.filter(|_| word.resolver)?;
    let symbol = contents
        .symbols
        .iter()
        .find(|symbol| symbol.at == resolver)?;
    Some(symbol.name.clone())
}
