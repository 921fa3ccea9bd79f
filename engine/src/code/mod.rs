//! The neutral form of a target: functions, bytes, fixed sites, and where functions are entered.
//!
//! A reader fills it: [`kernel`](crate::kernel) for Linux kernels, [`elf`](crate::elf) for programs and libraries.
//! Every analysis starts from it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Index;
use std::sync::Arc;

use crate::ids::{self, Id};
use crate::layout::RuntimeLayout;
use crate::{Addr, Refusal, Result, Span};

mod entries;
mod fixed;
mod function;
mod join;
mod known;
mod lookup;
mod memory;
mod origin;
mod plausible;
mod probes;
mod symbols;
mod text;
mod types;

pub use entries::Branch;
pub use fixed::{Decided, Decision, Fixed, FixedSites, Transfer, Why};
pub use function::{Contract, Function, FunctionId};
pub use lookup::name_and_address;
pub use origin::Origin;
pub use probes::{ProbeAddress, ProbeArgument, ProbeOperand, StaticProbe};
pub use text::Text;

pub(crate) use entries::Entries;
pub(crate) use fixed::LONGEST;
pub(crate) use known::{KnownFunctions, KnownNames};
pub(crate) use lookup::FunctionNames;
pub(crate) use memory::{Memory, present};
pub(crate) use plausible::plausible;
pub(crate) use symbols::{Symbol, Symbols};
pub(crate) use text::Texts;
pub(crate) use types::LazyTypes;

/// A target's symbols, bytes and fixed sites.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) release: String,
    pub(crate) origin: Origin,
    /// Functions that the reader refuses whole.
    pub(crate) refused: HashMap<FunctionId, Refusal>,
    pub(crate) is_known: bool,
    pub(crate) live: bool,
    pub(crate) texts: Texts,
    pub(crate) extent: Span,
    pub(crate) symbols: Symbols,
    pub(crate) memory: Memory,
    /// By address.
    pub(crate) functions: Vec<Function>,
    pub(crate) names: FunctionNames,
    pub(crate) known: KnownFunctions,
    pub(crate) fixed: FixedSites,
    pub(crate) entries: Entries,
    /// By address.
    pub(crate) probes: Vec<StaticProbe>,
    pub(crate) types: LazyTypes,
    /// Read-only data without the types, of modules too; sorted.
    pub(crate) read_only: Vec<Span>,
    /// All targets of jumps through tables, by the address of the jump.
    pub(crate) tables: BTreeMap<Addr, Box<[Addr]>>,
    pub(crate) build_id: Option<Vec<u8>>,
}

impl Image {
    /// Returns the image for a target with this layout: where instructions of the arena may not fault,
    /// none that may is moved.
    #[must_use]
    pub fn on(mut self, layout: &RuntimeLayout) -> Self {
        if layout.faults == 0 {
            self.fixed.keep_faults();
        }
        self
    }

    /// Returns the image of a kernel that is taken as one with which the lists of functions by name were compared: if it
    /// is none, a read or a splice in a function that they lack may end the target.
    #[must_use]
    pub fn taken_as_known(mut self) -> Self {
        self.is_known = true;
        self.fixed.believe();
        self
    }

    /// Returns whether the lists of functions by name were compared with the target: of those that handle faults, and of
    /// assembly in which no splice may stand.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.is_known
    }

    /// The kind of the target.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.origin
    }

    /// The target as a heading has it: `Linux 6.1.0`, or the name of a file.
    #[must_use]
    pub fn title(&self) -> String {
        match self.origin {
            Origin::Kernel => format!("Linux {}", self.release),
            Origin::Object => self.release.clone(),
        }
    }

    /// The refusal of a function of which not all ways of control are known, or that the target may
    /// change.
    pub(crate) fn refused(&self, function: FunctionId) -> Option<&Refusal> {
        self.refused.get(&function)
    }

    /// The target's release, as `uname -r` prints it; of a program or library, its name.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// Returns whether the bytes are those of a running target. Those of a file are the input of boot:
    /// instructions that boot may rewrite are [`Why::Alternative`] there.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// The identifier that the build gave the target, which its debug information has too; `None` if its
    /// notes have none, or were not read.
    #[must_use]
    pub fn build_id(&self) -> Option<&[u8]> {
        self.build_id.as_deref()
    }

    /// The text of the target's core: of a kernel, without what boot frees.
    #[must_use]
    pub fn text(&self) -> Span {
        self.texts.core()
    }

    /// The addresses of the target's core: text, data, and what boot frees. Modules and code
    /// generated at run time lie outside.
    #[must_use]
    pub fn extent(&self) -> Span {
        self.extent
    }

    /// Returns whether `at` belongs to the target: to its core, or to the text of a module.
    #[must_use]
    pub fn contains(&self, at: Addr) -> bool {
        self.extent.contains(at) || self.text_at(at).is_some()
    }

    /// The text that `at` lies in.
    #[must_use]
    pub fn text_at(&self, at: Addr) -> Option<&Text> {
        self.texts.at(at)
    }

    /// The module in whose text `at` lies.
    #[must_use]
    pub fn module_at(&self, at: Addr) -> Option<&str> {
        self.text_at(at)?.module.as_deref()
    }

    /// The bytes of the text that `at` lies in; of the core's, if it lies in none.
    #[must_use]
    pub fn text_of(&self, at: Addr) -> Span {
        self.text_at(at).map_or(self.text(), |text| text.span)
    }

    /// The first symbol after `at` or at it.
    pub(crate) fn next_symbol(&self, at: Addr) -> Option<Addr> {
        let entries = self.symbols.entries();
        let next = entries.partition_point(|symbol| symbol.at < at);
        entries.get(next).map(|symbol| symbol.at)
    }

    /// The functions of the core's text and of modules, by address.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function of an identifier, or `None` if the image has none: for an identifier that comes from outside.
    /// One that is of this image indexes it.
    #[must_use]
    pub fn function(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id.index())
    }

    /// Finds a function by any of its symbols, or by `name@0xaddress` where several share the name.
    /// Names in modules are `module:name`.
    ///
    /// # Errors
    /// [`Error::NoFunction`](crate::Error::NoFunction) with near names, [`Error::Ambiguous`](crate::Error::Ambiguous) with what to write instead.
    pub fn function_named(&self, name: &str) -> Result<&Function> {
        self.names.find(name, &self.symbols, &self.functions)
    }

    /// The function that has a byte at `at`.
    #[must_use]
    pub fn function_at(&self, at: Addr) -> Option<&Function> {
        let after = self
            .functions
            .partition_point(|function| function.span.start <= at);
        self.functions
            .get(after.checked_sub(1)?)
            .filter(|function| function.span.contains(at))
    }

    /// The name of the function at `at`, with the distance from its start: `vfs_read+0x1c`.
    #[must_use]
    pub fn named(&self, at: Addr) -> Option<String> {
        let function = self.function_at(at)?;
        Some(match function.span.start.to(at) {
            0 => function.name.clone(),
            offset => format!("{}+{offset:#x}", function.name),
        })
    }

    /// The nearest symbol (text, data or module) at or before `at`, and its distance in bytes.
    #[must_use]
    pub fn symbol_at(&self, at: Addr) -> Option<(&str, u64)> {
        let best = self.symbols.preferred(at)?;
        Some((self.symbols.name(best), at.0 - best.at.0))
    }

    /// The bytes of `span`, if all of them were read.
    #[must_use]
    pub fn bytes(&self, span: Span) -> Option<&[u8]> {
        self.memory.bytes(span)
    }

    /// `len` bytes from `at`, or as many as were read.
    #[must_use]
    pub fn bytes_from(&self, at: Addr, len: usize) -> Option<&[u8]> {
        self.memory.bytes_from(at, len)
    }

    /// The target's types, if it has type data and that was read. The first call indexes them, which
    /// takes some 50 ms.
    #[must_use]
    pub fn types(&self) -> Option<&gilk_instruments::Types> {
        self.types.get(&self.memory)
    }

    /// The target's types, if a call of [`Image::types`] has indexed them.
    #[must_use]
    pub fn indexed_types(&self) -> Option<Arc<gilk_instruments::Types>> {
        self.types.indexed()
    }

    /// Uses the indexed types of an earlier image if its type data were the same bytes.
    pub fn reuse_types(&self, earlier: Arc<gilk_instruments::Types>) {
        self.types.reuse(earlier, &self.memory);
    }

    /// Sets the types of an image whose memory has none, as those of programs; returns whether none were requested before.
    #[must_use]
    pub fn set_types(&self, types: gilk_instruments::Types) -> bool {
        self.types.set(types)
    }

    /// All targets of the jump through a table at `at`, sorted; empty if it is none, or the reader does not know them. Those
    /// of kernels are not known.
    #[must_use]
    pub fn table_targets(&self, at: Addr) -> &[Addr] {
        self.tables.get(&at).map_or(&[], |targets| targets)
    }

    /// The bytes of read-only data from `at` to its end; `None` if `at` is not in it.
    pub(crate) fn read_only_from(&self, at: Addr) -> Option<&[u8]> {
        let span = Span::holding(&self.read_only, at)?;
        let rest = Span {
            start: at,
            end: span.end,
        };
        self.memory.bytes(rest)
    }

    /// The fixed sites.
    #[must_use]
    pub fn fixed(&self) -> &FixedSites {
        &self.fixed
    }

    /// The decision of the static key or static call that begins at `at`, if it is known.
    #[must_use]
    pub fn decided(&self, at: Addr) -> Option<Decided> {
        self.fixed.decided(at)
    }

    /// Addresses inside `span`, sorted, that are reached other than by branches of their own function:
    /// by branches and calls of other functions, pointers in read-only data, exception fixups, static
    /// keys of other functions, and values that an instruction of any function computes (`lea`,
    /// `push`). Never the start of a function.
    #[must_use]
    pub fn entered(&self, span: Span) -> &[Addr] {
        self.entries.entered(span)
    }

    /// The branches, calls and static keys of other functions that target `span`, and calls of a
    /// function into itself, sorted by target; those to the start of a function only if it is a part
    /// of one ([`Function::is_part`]).
    #[must_use]
    pub fn branches_into(&self, span: Span) -> &[Branch] {
        self.entries.branches_into(span)
    }

    /// Addresses inside `span`, sorted, that may be reached from unknown sources: exception fixups, and
    /// targets of read-only data or of values that instructions compute. Of the starts of functions,
    /// only those of parts.
    #[must_use]
    pub fn pointed_at(&self, span: Span) -> &[Addr] {
        self.entries.pointed_at(span)
    }

    /// The static probes of a program and its libraries, by address.
    #[must_use]
    pub fn probes(&self) -> &[StaticProbe] {
        &self.probes
    }

    /// The static probes inside `span`.
    pub(crate) fn probes_in(&self, span: Span) -> &[StaticProbe] {
        let first = self.probes.partition_point(|probe| probe.at < span.start);
        let end = self.probes.partition_point(|probe| probe.at < span.end);
        ids::part(&self.probes, first..end)
    }

    /// The calling-convention contract of the function that begins at `entry`.
    #[must_use]
    pub fn contract(&self, entry: Addr) -> Contract {
        let function = self.function_at(entry);
        function
            .filter(|function| function.span.start == entry)
            .map_or(Contract::Unknown, |function| function.contract)
    }

    /// Returns whether the target may execute the function while it handles a fault.
    #[must_use]
    pub fn handles_faults(&self, function: FunctionId) -> bool {
        self[function].handles_faults
    }

    /// Returns whether the function that begins at `entry` is known to keep the calling convention.
    #[must_use]
    pub fn keeps_convention(&self, entry: Addr) -> bool {
        self.contract(entry) == Contract::Believed
    }

    /// Returns whether a jump to `at` is a return.
    pub(crate) fn is_return_thunk(&self, at: Addr) -> bool {
        self.known.is_return_thunk(at)
    }

    /// Returns whether a jump to `at` is a jump through a register.
    pub(crate) fn is_indirect_thunk(&self, at: Addr) -> bool {
        self.known.is_indirect_thunk(at)
    }

    /// Returns whether a call to `at` never returns.
    pub(crate) fn never_returns(&self, at: Addr) -> bool {
        self.known.never_returns(at)
    }
}

impl Index<FunctionId> for Image {
    type Output = Function;

    /// One function. Panics at an identifier of another image; see [`Image::function`].
    fn index(&self, function: FunctionId) -> &Function {
        ids::entry(&self.functions, function)
    }
}
