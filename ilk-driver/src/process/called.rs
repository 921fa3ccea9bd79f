//! Functions that a function of a process calls, those of other objects too: through stubs of linkage tables, and through
//! words that the dynamic linker has bound.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use gilk_engine::cfg::Cfg;
use gilk_engine::code::{Function, FunctionId};
use gilk_engine::{Addr, Image, Span};

use super::maps::{self, MappedSpan};
use super::replaced::symbols::ProcessSymbols;
use super::subject::Subject;
use super::target::ProcessLayouts;

/// The end of the names of stubs.
const STUB: &str = ".plt";
/// Stubs that jump to stubs are followed so far.
const FOLLOWED: usize = 4;
/// `push imm32`, by which a stub that is not bound yet begins to call the dynamic linker.
const PUSH: u8 = 0x68;
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// The functions that a function calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalledFunctions {
    /// Each with the symbol by which it is called, if that is in a linkage table: the function may have another name.
    pub known: BTreeMap<FunctionId, Option<String>>,
    /// Symbols of functions that are not known, each with the reason.
    pub unknown: BTreeMap<String, String>,
}

impl ProcessLayouts {
    /// Returns the functions of an image of the process that a function calls, but for itself. Calls through registers and
    /// through words that may change are not followed, except those of linkage tables.
    #[must_use]
    pub fn called(&self, image: &Image, caller: &Cfg) -> CalledFunctions {
        let words = BoundWords {
            subject: &self.subject,
            image,
            maps: maps::read(self.pid()).unwrap_or_default(),
            symbols: OnceCell::new(),
        };
        let mut called = CalledFunctions::default();
        let instructions = caller.blocks.iter();
        for instruction in instructions.flat_map(|block| block.instructions.iter()) {
            let is_through_word =
                instruction.is_call_near_indirect() && instruction.is_ip_rel_memory_operand();
            let (function, symbol) = if instruction.is_call_near() {
                let Some(target) = words.function(Addr(instruction.near_branch_target())) else {
                    continue;
                };
                match symbol(target) {
                    None => (Ok(target), None),
                    Some(symbol) => (words.through(target, symbol), Some(symbol)),
                }
            } else if is_through_word {
                let word = words.fixed(Addr(instruction.ip_rel_memory_address()));
                let Some(function) = word.and_then(|at| words.function(at)) else {
                    continue;
                };
                (Ok(function), None)
            } else {
                continue;
            };
            match (function, symbol) {
                (Ok(function), _) if function.span.start == caller.span.start => {}
                (Ok(function), symbol) => {
                    let known = called.known.entry(function.id).or_default();
                    *known = known.take().or(symbol.map(str::to_owned));
                }
                (Err(why), symbol) => {
                    let symbol = symbol.unwrap_or_default();
                    called.unknown.insert(symbol.to_owned(), why);
                }
            }
        }
        called
    }
}

/// Returns the symbol of a stub of a linkage table; `None` of another function.
fn symbol(function: &Function) -> Option<&str> {
    let name = function.name.strip_suffix(STUB)?;
    Some(name.split_once(':').map_or(name, |(_, symbol)| symbol))
}

/// Words of a process that have the addresses of functions.
struct BoundWords<'s> {
    subject: &'s Subject,
    image: &'s Image,
    maps: Vec<MappedSpan>,
    /// Read when a word is not bound yet.
    symbols: OnceCell<Result<ProcessSymbols, String>>,
}

impl<'s> BoundWords<'s> {
    /// The function that begins at an address.
    fn function(&self, at: Addr) -> Option<&'s Function> {
        let function = self.image.function_at(at)?;
        (function.span.start == at).then_some(function)
    }

    fn word(&self, at: Addr) -> Option<Addr> {
        let mut bytes = [0; 8];
        self.subject.memory.read_exact_at(&mut bytes, at.0).ok()?;
        Some(Addr(u64::from_le_bytes(bytes)))
    }

    /// The word at an address, if the process cannot write it.
    fn fixed(&self, at: Addr) -> Option<Addr> {
        let mapped = self.maps.iter().find(|one| one.span.contains(at))?;
        self.word(at).filter(|_| !mapped.writable)
    }

    /// The function that a stub jumps to.
    fn through(&self, stub: &'s Function, name: &str) -> Result<&'s Function, String> {
        let mut stub = stub;
        for _ in 0..FOLLOWED {
            let word = self.word_of(stub).and_then(|at| self.word(at));
            let bound = word.filter(|&at| !self.is_unbound(at));
            match bound.and_then(|at| self.function(at)) {
                Some(function) if symbol(function).is_none() => return Ok(function),
                Some(further) => stub = further,
                None => return self.unbound(name),
            }
        }
        Err("its stubs call each other".to_owned())
    }

    /// The address of the word by which a stub jumps.
    fn word_of(&self, stub: &Function) -> Option<Addr> {
        let graph = Cfg::of(self.image, stub.id);
        let mut instructions = graph.blocks.first()?.instructions.iter();
        let jump = instructions.find(|instruction| {
            instruction.is_jmp_near_indirect() && instruction.is_ip_rel_memory_operand()
        })?;
        Some(Addr(jump.ip_rel_memory_address()))
    }

    /// Returns whether code at an address has the dynamic linker bind a word.
    fn is_unbound(&self, at: Addr) -> bool {
        let bytes = self.image.bytes(Span::new(at, 5)).unwrap_or_default();
        bytes.first() == Some(&PUSH)
            || bytes.starts_with(&ENDBR) && bytes.get(ENDBR.len()) == Some(&PUSH)
    }

    /// The function of a symbol that is not bound yet.
    fn unbound(&self, name: &str) -> Result<&'s Function, String> {
        let symbols = self.symbols.get_or_init(|| {
            let read = ProcessSymbols::read(self.subject.pid, &self.subject.memory);
            read.map_err(|error| error.to_string())
        });
        let at = symbols.as_ref().map_err(Clone::clone)?.find(name)?;
        let at = at.ok_or("it is not bound yet, and no object of the process defines it")?;
        let function = self.function(at);
        function.ok_or_else(|| format!("no function is known at its address {at}"))
    }
}
