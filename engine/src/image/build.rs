//! Builds an image from its parts.

use super::bounds::Bounds;
use super::entries::{Branch, Entries};
use super::file::Boot;
use super::kallsyms::Symbols;
use super::known::Known;
use super::lookup::Names;
use super::memory::Memory;
use super::modules::{Module, ModuleParts};
use super::sites::Sites;
use super::texts::Texts;
use super::typed::Typed;
use super::{Function, FunctionId, Image, LiveParts, collect, decisions, functions, sweep};
use crate::{Addr, Error, Result, Span};

impl Image {
    /// Builds the image: symbol table, special sites, and one pass over all of the text that finds
    /// where functions are entered other than at their start.
    ///
    /// # Errors
    /// [`Error::Image`] if a part is missing, damaged or of a layout that is not known.
    pub fn from_live(parts: &LiveParts) -> Result<Self> {
        Self::build(parts, &ModuleParts::default(), None)
    }

    /// As [`Image::from_live`], with the functions of modules. A module whose tables are of a form
    /// that is not known is left out.
    ///
    /// # Errors
    /// As [`Image::from_live`].
    pub fn with_modules(parts: &LiveParts, modules: &ModuleParts) -> Result<Self> {
        Self::build(parts, modules, None)
    }

    /// Builds the image; `boot` is what boot would still do to the text of a file.
    pub(super) fn build(
        parts: &LiveParts,
        modules: &ModuleParts,
        boot: Option<Boot>,
    ) -> Result<Self> {
        let live = boot.is_none();
        let boot = boot.unwrap_or_default();
        let symbols = Symbols::parse(&parts.kallsyms)?;
        let bounds = Bounds::of(&symbols)?;
        let text = bounds.text;
        let memory = Memory::new(
            parts
                .memory
                .iter()
                .chain(&modules.memory)
                .map(|(at, bytes)| (*at, bytes.as_slice())),
        );
        for span in bounds.needed() {
            if memory.bytes(span).is_none() {
                let reason = format!(
                    "the memory from {} to {} was not read from the target",
                    span.start, span.end
                );
                return Err(Error::Image { reason });
            }
        }
        let mut tables = collect::Tables::read(&bounds, &memory)?;
        let mut outlines = functions::outlines(&symbols, text);
        tables
            .sites
            .extend(collect::trampolines(&bounds, &outlines));
        let mut blacklist = collect::blacklist(&parts.blacklist, &bounds, &symbols, &outlines)?;
        let mut texts = Texts::new(text);
        let mut read_only = bounds.read_only.clone();
        for module in Module::all(modules, &memory, bounds.kernel)? {
            let own = module.outlines(&symbols);
            let Ok(read) = collect::Tables::read(&module.bounds, &memory) else {
                continue;
            };
            tables.extend(read);
            tables
                .sites
                .extend(collect::trampolines(&module.bounds, &own));
            blacklist.extend(&module.bounds.forbidden);
            read_only.extend(&module.bounds.read_only);
            texts.add(&module);
            outlines.extend(own);
        }
        outlines.sort_by_key(|outline| outline.span.start);
        let decided = decisions::decided(&tables, &symbols, &memory);
        let mut swept = sweep::sweep(&outlines, &texts, &memory);
        boot.widen(&outlines, &mut swept.spans);

        let mut small = tables.sites;
        small.extend(swept.alternatives);
        let known = Sites::new(small.clone(), blacklist.clone());
        let mut functions = Vec::with_capacity(outlines.len());
        let mut compiled = Vec::new();
        for (outline, span) in outlines.iter().zip(&swept.spans) {
            let Some(span) = *span else { continue };
            // What may not be traced may not be probed either: a nop there is something else.
            let taken = |at: Addr| known.overlapping(Span::new(at, 5)).next().is_some();
            let head = memory.bytes_from(span.start, 9).unwrap_or_default();
            if let Some(site) = collect::ftrace(span.start, head, &texts, &symbols, taken) {
                small.push(site);
                compiled.push(span.start);
            }
            let number = u32::try_from(functions.len()).map_err(|_| Error::Image {
                reason: "it has more functions than can be numbered".to_owned(),
            })?;
            functions.push(Function {
                id: FunctionId(number),
                name: texts.qualified(span.start, symbols.name(&outline.symbol)),
                span,
            });
        }

        let mut values = swept.values;
        for span in &read_only {
            values.extend(sweep::pointers(
                *span,
                memory.bytes(*span).unwrap_or_default(),
                &texts,
            ));
        }
        let mut pointed = sweep::plausible(values, &functions, &memory);
        pointed.extend(tables.exceptions.iter().map(|entry| entry.fixup));
        let owner =
            |at: Addr| functions.partition_point(|function: &Function| function.span.start <= at);
        let crossing = tables
            .jumps
            .iter()
            .filter(|entry| owner(entry.code) != owner(entry.target));
        let mut branches = swept.branches;
        branches.extend(boot.branches);
        branches.extend(crossing.map(|entry| Branch {
            target: entry.target,
            source: entry.code,
        }));
        let entries = Entries::new(branches, pointed, &functions);

        read_only.sort_unstable();
        let names = Names::new(&symbols, &functions, &texts);
        let known = Known::new(&symbols);
        // Last: an entry that boot would seal is still the tracer's.
        small.extend(boot.sites);
        let sites = Sites::new(small, blacklist);
        Ok(Self {
            release: parts.release.clone(),
            live,
            text,
            modules: texts.modules,
            kernel: bounds.kernel,
            symbols,
            memory,
            functions,
            names,
            known,
            sites,
            decided,
            entries,
            compiled,
            types: Typed::new(bounds.types),
            read_only,
            notes: bounds.notes,
        })
    }
}
