//! Symbols, live bytes and the sites that may never be touched.

use iced_x86::{Decoder, DecoderOptions};
use serde::{Deserialize, Serialize};

use crate::isa::decode::is_padding;
use crate::layout::RuntimeLayout;
use crate::{Addr, Result, Span};

mod bounds;
mod build;
mod collect;
mod decisions;
mod entries;
mod faulting;
mod file;
#[cfg(test)]
pub(crate) mod fixture;
mod functions;
mod kallsyms;
mod known;
mod lookup;
mod memory;
mod modules;
mod names;
mod notes;
mod sites;
mod sweep;
mod tables;
mod texts;
mod typed;

pub(crate) use faulting::handles_faults;

pub use decisions::{Decided, Decision, Transfer};
pub use entries::Branch;
pub use file::FileParts;
pub use lookup::name_and_address;
pub use modules::ModuleParts;
pub use sites::{Site, SiteKind, Sites};

use bounds::Bounds;
use entries::Entries;
use kallsyms::Symbols;
use known::Known;
use lookup::Names;
use memory::Memory;
use typed::Typed;

/// Index of a function in its image.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct FunctionId(pub u32);

/// A function symbol and the bytes up to the next one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its place in [`Image::functions`].
    pub id: FunctionId,
    /// The symbol; of several at one address, the one a person would write.
    pub name: String,
    /// Its bytes, without the padding behind them.
    pub span: Span,
}

impl Function {
    /// Whether it is no function but a part that the compiler split off one, `f.cold`: entered only
    /// by branches, and by no convention.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.name.contains(".cold")
    }
}

/// What was read from a running kernel; everything an [`Image`] is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveParts {
    /// `uname -r`.
    pub release: String,
    /// `/proc/kallsyms`.
    pub kallsyms: String,
    /// `/sys/kernel/debug/kprobes/blacklist`.
    pub blacklist: String,
    /// Memory as (address, bytes), at least the spans that [`wanted`] asks for.
    pub memory: Vec<(Addr, Vec<u8>)>,
}

/// A kernel as the engine sees it.
#[derive(Clone, Debug)]
pub struct Image {
    release: String,
    live: bool,
    text: Span,
    kernel: Span,
    symbols: Symbols,
    memory: Memory,
    /// Modules' text, by address, with the module's name.
    modules: Vec<(Span, String)>,
    /// By address.
    functions: Vec<Function>,
    names: Names,
    known: Known,
    sites: Sites,
    /// By address.
    decided: Vec<Decided>,
    entries: Entries,
    /// Sorted entries of functions that have an ftrace site.
    compiled: Vec<Addr>,
    types: Typed,
    /// Read-only data without the types, of modules too; sorted.
    read_only: Vec<Span>,
    notes: Option<Span>,
}

/// The memory to read for an image, given the kernel's symbols: text, read-only data, tables and types,
/// about 25 MB; sorted, and no span touches another.
///
/// # Errors
/// [`Error::Image`](crate::Error::Image) if a symbol that bounds the text or a table is missing, or all addresses are zero
/// (kallsyms read without privilege).
pub fn wanted(kallsyms: &str) -> Result<Vec<Span>> {
    Ok(Bounds::of(&Symbols::parse(kallsyms)?)?.wanted())
}

impl Image {
    /// The kernel as instruments on this target can have it: where nothing in the arena may fault, no
    /// instruction that may is moved.
    #[must_use]
    pub fn on(mut self, layout: &RuntimeLayout) -> Self {
        if layout.faults == 0 {
            self.sites.keep_faults();
        }
        self
    }

    /// The kernel's release, as `uname -r` says it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Whether the bytes are those of a running kernel. Those of a file are what boot starts from:
    /// what it would rewrite is a [`SiteKind::Alternative`] there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The identifier that the kernel's build gave it, which its debug information has too; `None` if
    /// its notes have none, or were not read.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        notes::build_id(self.memory.bytes(self.notes?)?)
    }

    /// The core kernel's text, without what boot frees.
    #[must_use]
    pub fn text(&self) -> Span {
        self.text
    }

    /// The core kernel: its text, its data, and what boot frees. Modules and code made at run time lie outside.
    #[must_use]
    pub fn kernel(&self) -> Span {
        self.kernel
    }

    /// The module in whose text `at` lies.
    #[must_use]
    pub fn module_at(&self, at: Addr) -> Option<&str> {
        self.module_text(at).map(|(_, name)| name.as_str())
    }

    /// The section of a module's text that `at` lies in, and the module.
    fn module_text(&self, at: Addr) -> Option<&(Span, String)> {
        let behind = self.modules.partition_point(|(text, _)| text.start <= at);
        let found = self.modules.get(behind.checked_sub(1)?);
        found.filter(|(text, _)| text.contains(at))
    }

    /// All of the text that `at` lies in: the core kernel's, or a section of a module's.
    #[must_use]
    pub fn text_of(&self, at: Addr) -> Span {
        self.module_text(at).map_or(self.text, |(text, _)| *text)
    }

    /// Every function of the core kernel's text and of modules', by address.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// One function.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.0 as usize)
    }

    /// The function of a name: any of its symbols, or `name@0xaddress` where several share the name.
    /// Those of modules are `module:name`.
    ///
    /// # Errors
    /// [`Error::NoFunction`](crate::Error::NoFunction) with near names, [`Error::Ambiguous`](crate::Error::Ambiguous) with what to write instead.
    pub fn function_named(&self, name: &str) -> Result<&Function> {
        self.names.find(name, &self.symbols, &self.functions)
    }

    /// The function one of whose bytes is at `at`.
    #[must_use]
    pub fn function_at(&self, at: Addr) -> Option<&Function> {
        let behind = self
            .functions
            .partition_point(|function| function.span.start <= at);
        self.functions
            .get(behind.checked_sub(1)?)
            .filter(|function| function.span.contains(at))
    }

    /// The bytes behind a function that belong to nothing, up to the next symbol: `int3` and nops, which
    /// nobody runs unless the function runs on into them. Room that belongs to the next function's
    /// entry (`__pfx_`, `__cfi_`) begins with a symbol, so it is no part of this.
    #[must_use]
    pub fn padding_behind(&self, function: FunctionId) -> Span {
        let span = { self.function(function) }.map_or(Span::default(), |function| function.span);
        let start = span.end;
        let next = self
            .symbols
            .entries()
            .partition_point(|symbol| symbol.at < start);
        let next = self
            .symbols
            .entries()
            .get(next)
            .map_or(start, |symbol| symbol.at);
        let end = next.min(self.text_of(span.start).end).max(start);
        let bytes = self.bytes(Span { start, end }).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
        let mut behind = start;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if !is_padding(&instruction) {
                break;
            }
            behind = Addr(instruction.next_ip());
        }
        Span { start, end: behind }
    }

    /// Where, among padding, the kernel's tracer may write all the same. A weak function that another took
    /// the place of keeps its code and the tracer's five bytes at its entry, and loses its symbol: then
    /// its entry looks like padding. But padding does not begin where functions do.
    #[must_use]
    pub fn entry_in(&self, padding: Span) -> Option<Span> {
        const NOP: &[u8] = &[0x0f, 0x1f, 0x44, 0, 0];
        const SEALED: [&[u8]; 4] = [
            &[],
            &[0xf3, 0x0f, 0x1e, 0xfa],
            &[0x66, 0x0f, 0x1f, 0],
            &[0x0f, 0x1f, 0x40, 0xd6],
        ];
        let aligned = (padding.start.0 & !15..padding.end.0).step_by(16).map(Addr);
        aligned
            .filter_map(|at| {
                let bytes = self.bytes_from(at, 9)?;
                let behind = |sealed: &&&[u8]| bytes.starts_with(&[**sealed, NOP].concat());
                let sealed = SEALED.iter().find(behind)?;
                Some(Span::new(at, (sealed.len() + NOP.len()) as u64))
            })
            .filter(|entry| entry.start < padding.end && padding.start < entry.end)
            .last()
    }

    /// The nearest symbol (text, data or module) at or before `at`, and the distance to it in bytes.
    #[must_use]
    pub fn symbol_at(&self, at: Addr) -> Option<(&str, u64)> {
        let best = self.symbols.at_or_before(at).min_by_key(|symbol| {
            names::strangeness(
                self.symbols.name(symbol),
                matches!(symbol.kind, b'w' | b'W'),
            )
        })?;
        Some((self.symbols.name(best), at.0 - best.at.0))
    }

    /// Live bytes, if all of the span was read.
    #[must_use]
    pub fn bytes(&self, span: Span) -> Option<&[u8]> {
        self.memory.bytes(span)
    }

    /// Live bytes from `at`: `len`, or as many as there are before what was read ends.
    #[must_use]
    pub fn bytes_from(&self, at: Addr, len: usize) -> Option<&[u8]> {
        self.memory.bytes_from(at, len)
    }

    /// The kernel's types, if it was built with type data and that was read. The first call indexes
    /// them, which takes some 50 ms.
    #[must_use]
    pub fn types(&self) -> Option<&gilk_instruments::Types> {
        self.types.get(&self.memory)
    }

    /// The bytes of read-only data from `at` to where that ends; `None` if `at` is not in it.
    pub(crate) fn read_only_from(&self, at: Addr) -> Option<&[u8]> {
        let behind = self.read_only.partition_point(|span| span.start <= at);
        let span = self.read_only.get(behind.checked_sub(1)?)?;
        let rest = Span {
            start: at,
            end: span.end,
        };
        span.contains(at).then(|| self.memory.bytes(rest))?
    }

    /// The sites that may never be touched, or whose address means something.
    #[must_use]
    pub fn sites(&self) -> &Sites {
        &self.sites
    }

    /// What decides what the kernel writes at the static key or static call that begins at `at`;
    /// `None` too for those of which that is not known.
    #[must_use]
    pub fn decided(&self, at: Addr) -> Option<&Decided> {
        let number = self
            .decided
            .binary_search_by_key(&at, |decided| decided.span.start);
        self.decided.get(number.ok()?)
    }

    /// Addresses inside `span`, sorted, that are reached other than by the branches of their own
    /// function: other functions' branches, calls, pointers in read-only data, exception fixups,
    /// static keys of other functions, and addresses that an instruction of any function makes a value
    /// of (`lea`, `push`). Never the start of a function.
    #[must_use]
    pub fn entered(&self, span: Span) -> &[Addr] {
        self.entries.entered(span)
    }

    /// The branches, calls and static keys of other functions that lead into `span`, and a function's
    /// calls into itself, sorted by where they lead; those to the start of a function only if it is a
    /// part of one ([`Function::is_part`]).
    #[must_use]
    pub fn branches_into(&self, span: Span) -> &[Branch] {
        self.entries.branches_into(span)
    }

    /// Addresses inside `span`, sorted, to which control may come from nobody knows where: fixups of
    /// exceptions, and what read-only data or an instruction's value may point at. Never the start of a
    /// function, but for its parts.
    #[must_use]
    pub fn pointed_at(&self, span: Span) -> &[Addr] {
        self.entries.pointed_at(span)
    }

    /// Whether the function at `entry` is compiled C that follows the calling convention: it has an
    /// ftrace site. (GCC does not adapt the convention between functions of files built with `-pg`.)
    #[must_use]
    pub fn is_compiled(&self, entry: Addr) -> bool {
        self.compiled.binary_search(&entry).is_ok()
    }

    /// Whether `at` is a thunk of a return or of an indirect branch.
    pub(crate) fn is_thunk(&self, at: Addr) -> bool {
        self.is_return_thunk(at) || self.is_indirect_thunk(at)
    }

    /// Whether a jump to `at` is a return.
    pub(crate) fn is_return_thunk(&self, at: Addr) -> bool {
        self.known.is_return_thunk(at)
    }

    /// Whether a jump to `at` is a jump through a register.
    pub(crate) fn is_indirect_thunk(&self, at: Addr) -> bool {
        self.known.is_indirect_thunk(at)
    }

    /// Whether a call to `at` never returns.
    pub(crate) fn never_returns(&self, at: Addr) -> bool {
        self.known.never_returns(at)
    }
}
