//! Builds an image from its parts.

use std::collections::{BTreeMap, HashMap};

use super::bounds::Bounds;
use super::compared::lists_were_compared;
use super::faulting::handles_faults;
use super::file::Boot;
use super::modules::{Module, ModuleParts};
use super::tables::BugLayout;
use super::{
    LiveParts, collect, decisions, functions, kallsyms, names, notes, notified, sweep, trapping,
};
use crate::code::{
    Branch, Contract, Entries, FixedSites, Function, FunctionId, FunctionNames, KnownFunctions,
    LazyTypes, Memory, Origin, Texts, plausible, present,
};
use crate::ids::Id;
use crate::{Addr, Error, Image, Result, Span};

impl Image {
    /// Builds the image: symbol table, special sites, and one pass over all of the text that finds
    /// where functions are entered other than at their start.
    ///
    /// # Errors
    /// [`Error::Image`] if a part is missing, damaged or of a layout that is not known.
    pub fn from_live(parts: &LiveParts) -> Result<Self> {
        build(parts, &ModuleParts::default(), None)
    }

    /// As [`Image::from_live`], with the functions of modules. A module whose tables are of a form
    /// that is not known, or were not read, is left out.
    ///
    /// # Errors
    /// As [`Image::from_live`].
    pub fn with_modules(parts: &LiveParts, modules: &ModuleParts) -> Result<Self> {
        build(parts, modules, None)
    }
}

/// Builds the image; `boot` holds the changes that boot would still make to the text of a file.
pub(super) fn build(parts: &LiveParts, modules: &ModuleParts, boot: Option<Boot>) -> Result<Image> {
    let live = boot.is_none();
    let boot = boot.unwrap_or_default();
    let symbols = kallsyms::parse(&parts.kallsyms)?;
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
    let bug_layout = BugLayout::of(&bounds, &memory)?;
    let mut tables = collect::Tables::read(&bounds, bug_layout, &memory)?;
    let mut extents = functions::extents(&symbols, text);
    tables.sites.extend(collect::trampolines(&bounds, &extents));
    let collect::Forbidden {
        spans: mut blacklist,
        notifiers,
    } = collect::blacklist(&parts.blacklist, &bounds, &symbols, &extents)?;
    let mut texts = Texts::new(text, None);
    let mut read_only = bounds.read_only.clone();
    for module in Module::all(modules, &symbols, &memory, bounds.kernel, bug_layout)? {
        let module_extents = module.extents(&symbols);
        // A module that is being loaded or removed: none of its functions is in the image.
        let Ok(read) = collect::Tables::read(&module.bounds, bug_layout, &memory) else {
            continue;
        };
        tables.extend(read);
        tables
            .sites
            .extend(collect::trampolines(&module.bounds, &module_extents));
        blacklist.extend(&module.bounds.forbidden);
        read_only.extend(&module.bounds.read_only);
        texts.add(module.texts());
        extents.extend(module_extents);
    }
    extents.sort_by_key(|extent| extent.span.start);
    let decided = decisions::decided(&tables, &symbols, &memory);
    let mut swept = sweep::sweep(&extents, &texts, &memory);
    let notified = notifiers.iter().flat_map(|span| {
        // A page of a module may be gone.
        let code = memory.bytes(*span).unwrap_or_default();
        let traced = collect::ftrace(span.start, code, &texts, &symbols, |_| false);
        notified::targets(code, span.start, traced.map(|site| site.span))
    });
    blacklist.extend(trapping::on_the_path(
        &extents,
        &symbols,
        &swept.branches,
        &notified.collect::<Vec<Addr>>(),
    ));
    boot.widen(&extents, &mut swept.spans);

    let mut small = tables.sites;
    small.extend(swept.alternatives);
    let sites = FixedSites::new(small.clone(), blacklist.clone());
    let mut known_functions = KnownFunctions::new(&symbols, &names::KNOWN);
    // The names are those of other kernels: this one's code says whether they hold.
    known_functions.doubt(|at, known| {
        let index = extents.binary_search_by_key(&at, |extent| extent.span.start);
        let extent = index.ok().and_then(|index| extents.get(index));
        let bytes = extent.and_then(|extent| memory.bytes(extent.span));
        bytes.is_some_and(|bytes| sweep::has_return(bytes, at, |to| known.is_return_thunk(to)))
    });
    let mut functions = Vec::with_capacity(extents.len());
    for (extent, span) in extents.iter().zip(&swept.spans) {
        // All of it is padding, or not all of it was read.
        let Some(span) = *span else { continue };
        // Functions that may not be traced may not be probed either: a nop there is something else.
        let taken = |at: Addr| sites.overlapping(Span::new(at, 5)).next().is_some();
        let head = present(memory.bytes_from(span.start, 9));
        let tracer = collect::ftrace(span.start, head, &texts, &symbols, taken);
        let name = texts.qualified(span.start, symbols.name(&extent.symbol));
        let part = names::is_part(&name);
        let thunk = known_functions.is_return_thunk(span.start)
            || known_functions.is_indirect_thunk(span.start);
        let contract = match tracer {
            Some(_) => Contract::Believed,
            None if part || thunk => Contract::Unknown,
            None => Contract::Read,
        };
        small.extend(tracer);
        functions.push(Function {
            id: FunctionId::new(functions.len()),
            handles_faults: handles_faults(&name),
            name,
            span,
            contract,
            part,
        });
    }

    let mut values = swept.values;
    for span in &read_only {
        values.extend(sweep::pointers(*span, &memory, &texts));
    }
    let mut pointed = plausible(values, &functions, &memory);
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
    let names = FunctionNames::new(&symbols, &functions, &texts, |symbol, name| {
        (symbol.is_text() || symbol.is_module_text()) && !names::is_marker(name)
    });
    // Last: an entry that boot would seal is still the tracer's.
    small.extend(boot.sites);
    let mut fixed = FixedSites::new(small, blacklist);
    fixed.decide(&decided);
    let build_id = bounds.notes.and_then(|notes| memory.bytes(notes));
    let build_id = build_id.and_then(notes::build_id).map(<[u8]>::to_vec);
    let every_name = symbols.entries().iter().map(|symbol| symbols.name(symbol));
    let is_known = lists_were_compared(&parts.release, every_name);
    let mut image = Image {
        release: parts.release.clone(),
        origin: Origin::Kernel,
        refused: HashMap::new(),
        is_known,
        live,
        texts,
        extent: bounds.kernel,
        symbols,
        memory,
        functions,
        names,
        known: known_functions,
        fixed,
        entries,
        probes: Vec::new(),
        types: LazyTypes::new(bounds.types),
        read_only,
        tables: BTreeMap::new(),
        build_id,
    };
    if !image.is_known {
        let functions = image.functions.iter();
        let spans = functions.filter(|function| may_be_assembly(&image, function));
        let spans = spans.map(|function| function.span).collect();
        image.fixed.doubt(spans);
    }
    Ok(image)
}

/// Returns whether a function has neither a site of the tracer nor parameters or a result by the types, as no function of
/// assembly has. A dot is in names that the compiler makes.
fn may_be_assembly(image: &Image, function: &Function) -> bool {
    let is_compiled = |name: &str| {
        name.contains('.') || image.types().is_some_and(|types| types.has_prototype(name))
    };
    function.contract == Contract::Read && !is_compiled(&function.name)
}
