//! Builds an image from an ELF object.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::file::{CodeSymbol, Contents, bad};
use super::frames::{self, FrameEntry};
use super::plt::{self, Stub};
use super::sweep::{self, SweptObject};
use super::tables::{Callees, DataLabels, JumpTargets, ObjectCode};
use super::{ElfParts, names, sites};
use crate::code::{
    Contract, Entries, FixedSites, Function, FunctionId, FunctionNames, KnownFunctions, LazyTypes,
    Memory, Origin, Symbols, Text, Texts, plausible, present,
};
use crate::ids::Id;
use crate::{Addr, Error, Image, Refusal, Result, Rule, Span};

impl Image {
    /// Builds the image of a program or a shared library.
    ///
    /// # Errors
    /// [`Error::Elf`] if the file is neither, for another processor, or damaged.
    pub fn from_elf(parts: &ElfParts<'_>) -> Result<Self> {
        build(parts)
    }

    /// Builds the image of several objects of a process, which overlap nowhere. Its release names the first.
    ///
    /// # Errors
    /// [`Error::Elf`], naming the object, as [`Image::from_elf`]; or if there is none.
    pub fn from_elf_objects(objects: &[ElfParts<'_>]) -> Result<Self> {
        let (first, further) = objects
            .split_first()
            .ok_or_else(|| bad("no object was named"))?;
        let named = |parts: &ElfParts<'_>| {
            build(parts).map_err(|error| match error {
                Error::Elf { reason } => bad(format!("{}: {reason}", parts.name)),
                other => other,
            })
        };
        let mut image = named(first)?;
        for parts in further {
            image.join(named(parts)?)?;
        }
        image.release = match further.len() {
            0 => image.release,
            1 => format!("{} and 1 other object", image.release),
            more => format!("{} and {more} other objects", image.release),
        };
        Ok(image)
    }
}

fn build(parts: &ElfParts<'_>) -> Result<Image> {
    build_with(parts, &|code, function| code.targets(function))
}

/// Builds an image with the tables of jumps that `targets` finds in a function.
pub(super) fn build_with(
    parts: &ElfParts<'_>,
    targets: &dyn Fn(&ObjectCode<'_>, &Function) -> std::result::Result<JumpTargets, Refusal>,
) -> Result<Image> {
    let mut contents = Contents::read(parts.file, parts.slide)?;
    if let Some(debug) = parts.debug {
        let (build_id, code) = (contents.build_id.as_deref(), &contents.linked_code);
        let symbols = debug.of_object(build_id, code, parts.slide)?;
        contents.add_symbols(symbols);
    }
    let of_file = contents.memory.iter().map(|&(at, bytes)| (at, bytes));
    let of_file = Memory::new(of_file);
    for section in &contents.sections {
        if of_file.bytes(section.span).is_none() {
            return Err(bad(format!(
                "its headers are damaged: the bytes of {} are not loaded",
                section.name
            )));
        }
    }
    let memory = match parts.live.as_slice() {
        [] => of_file.clone(),
        live => sites::overlaid(&contents, &of_file, live)?,
    };
    let stubs = plt::stubs(&contents, &memory);
    let frames = match contents.section(".eh_frame") {
        Some(section) => frames::frames(section.span, &memory, parts.slide)?,
        None => Vec::new(),
    };
    let pointers = pointers(&contents, &of_file, parts.slide);
    let swept = sweep::sweep(&contents, &memory, &frames, &stubs, &pointers);
    let symbols = symbols(parts, &contents, &stubs, &swept.functions)?;
    let known_functions = KnownFunctions::new(&symbols, &names::KNOWN);
    let texts = texts(parts, &contents)?;
    let (functions, mut refused) = functions(&contents, &swept, (&symbols, &texts), &pointers);
    let names = FunctionNames::new(&symbols, &functions, &texts, |_, _| true);
    let transactional = functions
        .iter()
        .filter(|function| swept.transactional.contains(&function.span.start));
    refused.extend(transactional.map(|function| {
        let why =
            "it begins a transaction of the processor, which undoes what an instrument writes";
        let refusal = Refusal::new(Rule::System, function.span.start, why);
        (function.id, refusal)
    }));
    refused.extend(sites::restartable(&contents, &memory, &functions));
    refused.extend(sites::changed(&contents, &of_file, &memory, &functions));
    let mut pointed = plausible(swept.values.clone(), &functions, &memory);
    pointed.extend(
        pointers
            .iter()
            .filter(|_| !contents.fixed_addresses)
            .copied(),
    );
    if contents.fixed_addresses {
        pointed.extend(plausible(pointers.clone(), &functions, &memory));
    }
    for frame in &frames {
        match frames::landing_pads(frame, &memory) {
            Some(pads) => pointed.extend(pads),
            None => refuse_pads(frame, &functions, &mut refused),
        }
    }
    let entries = Entries::new(swept.branches.clone(), pointed.clone(), &functions);
    let caught_in = frames.iter().filter(|frame| frame.table.is_some());
    let caught_in = caught_in.flat_map(|frame| overlapping(&functions, frame.span));
    let caught_in = caught_in.map(|function| function.id).collect();
    let code = ObjectCode {
        memory: &memory,
        labels: DataLabels {
            read_only: read_only(&contents),
            code: contents.code().map(|section| section.span).collect(),
            named: swept.data.into_iter().collect(),
        },
        functions: &functions,
        entries: &entries,
        callees: Callees::new(&memory, &functions, &known_functions, caught_in),
    };
    let mut tables = BTreeMap::new();
    for function in &functions {
        if !swept.jumping.contains(&function.span.start) {
            continue;
        }
        if !parts.tables {
            let why = "its tables of jumps are not read";
            let refusal = Refusal::new(Rule::JumpUnknown, function.span.start, why);
            refused.entry(function.id).or_insert(refusal);
            continue;
        }
        match targets(&code, function) {
            Ok(jumps) => {
                pointed.extend(jumps.values().flatten());
                tables.extend(jumps);
            }
            Err(refusal) => {
                refused.entry(function.id).or_insert(refusal);
            }
        }
    }
    let read_only = code.labels.read_only;
    let entries = Entries::new(swept.branches, pointed, &functions);
    Ok(Image {
        release: parts.name.clone(),
        origin: Origin::Object,
        refused,
        is_known: true,
        live: !parts.live.is_empty(),
        texts,
        extent: contents.extent,
        symbols,
        memory,
        functions,
        names,
        known: known_functions,
        fixed: FixedSites::default(),
        entries,
        probes: contents.probes.clone(),
        types: LazyTypes::new(None),
        read_only,
        tables,
        build_id: contents.build_id.clone(),
    })
}

/// The functions that have bytes in a span.
fn overlapping(functions: &[Function], span: Span) -> impl Iterator<Item = &Function> {
    let first = functions.partition_point(|function| function.span.end <= span.start);
    let further = functions.iter().skip(first);
    further.take_while(move |function| function.span.start < span.end)
}

fn refuse_pads(
    frame: &FrameEntry,
    functions: &[Function],
    refused: &mut HashMap<FunctionId, Refusal>,
) {
    for function in overlapping(functions, frame.span) {
        let why = "the table of its landing pads is damaged, or of a form that is not known";
        let refusal = Refusal::new(Rule::JumpUnknown, function.span.start, why);
        refused.entry(function.id).or_insert(refusal);
    }
}

/// The sections of code; the longest is the core's.
fn texts(parts: &ElfParts<'_>, contents: &Contents<'_>) -> Result<Texts> {
    let module = parts.is_library.then(|| parts.name.clone());
    let longest = contents.code().max_by_key(|section| section.span.len());
    let core = longest
        .ok_or_else(|| bad("it has no section of code"))?
        .span;
    let mut texts = Texts::new(core, module.clone());
    texts.add(
        contents
            .code()
            .filter(|section| section.span != core)
            .map(|section| Text {
                span: section.span,
                module: module.clone(),
                own: false,
            }),
    );
    Ok(texts)
}

/// Data that nothing writes once the object is loaded.
fn read_only(contents: &Contents<'_>) -> Vec<Span> {
    let relocated = |span: Span| {
        let first = contents.words.partition_point(|word| word.at < span.start);
        contents
            .words
            .get(first)
            .is_some_and(|word| word.at < span.end)
    };
    contents
        .sections
        .iter()
        .filter(|section| !section.writable && !relocated(section.span))
        .map(|section| section.span)
        .collect()
}

/// Addresses of code in data: what the dynamic linker writes, and, where addresses are fixed, every
/// aligned word that may be one.
fn pointers(contents: &Contents<'_>, memory: &Memory, slide: u64) -> Vec<Addr> {
    let words = contents.words.iter().filter_map(|word| word.value);
    let mut pointers: Vec<Addr> = words.chain(contents.roots.iter().copied()).collect();
    // Until a function is first called, its stub jumps to its own next instruction.
    let looked_up = contents.words.iter().filter(|word| word.symbol.is_some());
    pointers.extend(looked_up.filter_map(|word| {
        let bytes = memory.bytes_from(word.at, 8)?;
        Some(Addr(u64::from_le_bytes(*bytes.first_chunk()?)).add(slide))
    }));
    if contents.fixed_addresses {
        let data = contents
            .sections
            .iter()
            .filter(|section| !section.executable);
        for section in data {
            let bytes = present(memory.bytes(section.span));
            let skipped = section.span.start.0.next_multiple_of(8) - section.span.start.0;
            let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
            // A short section may end before the first boundary.
            let (words, _) = bytes.get(skipped..).unwrap_or_default().as_chunks::<8>();
            pointers.extend(words.iter().map(|word| Addr(u64::from_le_bytes(*word))));
        }
    }
    pointers.retain(|&at| contents.code_at(at).is_some());
    pointers.sort_unstable();
    pointers.dedup();
    pointers
}

/// The symbols, with names for stubs, and for functions that have none.
fn symbols(
    parts: &ElfParts<'_>,
    contents: &Contents<'_>,
    stubs: &[Stub],
    functions: &[Span],
) -> Result<Symbols> {
    let owner = parts.is_library.then_some(parts.name.as_str());
    let mut symbols = Symbols::with_capacity(64 * contents.symbols.len());
    let mut named: HashSet<Addr> = HashSet::new();
    let mut push = |at: Addr, kind: u8, name: &str| {
        named.insert(at);
        symbols
            .push(at, kind, owner, name)
            .ok_or_else(|| bad("its names take up more than 4 GiB"))
    };
    let shown = |symbol: &CodeSymbol| names::shown(&symbol.name, symbol.resolver).into_owned();
    let named_symbols = contents
        .symbols
        .iter()
        .map(|symbol| (shown(symbol), symbol));
    let mut all: Vec<(String, &CodeSymbol)> = named_symbols.collect();
    // The dynamic symbols are symbols of the whole table, too, where their names may have a version.
    all.sort_by(|(name, symbol), (other_name, other)| {
        (symbol.at, name, symbol.local).cmp(&(other.at, other_name, other.local))
    });
    all.dedup_by(|(name, symbol), (other_name, other)| symbol.at == other.at && name == other_name);
    for (name, symbol) in all {
        let kind = match (symbol.weak, symbol.local) {
            (true, _) => b'W',
            (_, true) => b't',
            _ => b'T',
        };
        push(symbol.at, kind, &name)?;
    }
    for stub in stubs {
        if let Some(name) = &stub.symbol {
            push(stub.span.start, b't', &format!("{name}.plt"))?;
        }
    }
    let unnamed: Vec<Addr> = functions
        .iter()
        .map(|span| span.start)
        .filter(|start| !named.contains(start))
        .collect();
    for start in unnamed {
        // By the address in the file, which is the same wherever the object is loaded.
        let name = format!("sub_{:x}", start.0.wrapping_sub(parts.slide));
        symbols
            .push(start, b't', owner, &name)
            .ok_or_else(|| bad("its names take up more than 4 GiB"))?;
    }
    symbols.sort(|name, symbol| names::strangeness(name, symbol.is_weak() || symbol.kind == b't'));
    Ok(symbols)
}

/// The functions, and those that are refused whatever their code is.
fn functions(
    contents: &Contents<'_>,
    swept: &SweptObject,
    (symbols, texts): (&Symbols, &Texts),
    pointers: &[Addr],
) -> (Vec<Function>, HashMap<FunctionId, Refusal>) {
    let exported: HashSet<Addr> = contents
        .symbols
        .iter()
        .filter(|symbol| symbol.exported)
        .map(|symbol| symbol.at)
        .collect();
    // A debug file may have a further name, which is no reason to believe more.
    let unusual: HashSet<Addr> = contents
        .symbols
        .iter()
        .filter(|symbol| symbol.exported)
        .filter(|symbol| !names::is_plain_export(&names::shown(&symbol.name, false)))
        .map(|symbol| symbol.at)
        .collect();
    let with_symbol: HashSet<Addr> = contents.symbols.iter().map(|symbol| symbol.at).collect();
    let calls: HashSet<Addr> = swept.branches.iter().map(|branch| branch.target).collect();
    let values: HashSet<Addr> = swept.values.iter().chain(pointers).copied().collect();
    let foreign =
        names::keeps_own_conventions(symbols) || contents.section(".go.buildinfo").is_some();
    let mut functions = Vec::with_capacity(swept.functions.len());
    for &span in &swept.functions {
        let preferred = symbols.preferred(span.start);
        let name = preferred.map_or_else(String::new, |symbol| symbols.name(symbol).to_owned());
        debug_assert!(
            preferred.is_some_and(|symbol| symbol.at == span.start),
            "a function without a name"
        );
        let is_stub = contents
            .code_at(span.start)
            .is_some_and(|section| plt::is_table(&section.name));
        // Without symbols, parts are known by that nothing calls or points to them; functions that end
        // others by jumps may be like that, too: nothing is believed of either.
        let has_entry = with_symbol.contains(&span.start)
            || values.contains(&span.start)
            || swept.called.contains(&span.start);
        let part = names::is_part(&name) || !has_entry && !is_stub;
        let contract = match (part, is_stub) {
            (true, _) => Contract::Unknown,
            // A caller cannot know what a stub jumps to, so it relies on the convention alone.
            (_, true) if !foreign && names::is_plain_import(&name) => Contract::Believed,
            (_, true) => Contract::Unknown,
            // GCC's -fipa-ra lets callers in the same file rely on the registers that a function leaves
            // alone. A function that nothing in its object calls or jumps to has no such callers.
            _ if !foreign
                && exported.contains(&span.start)
                && !calls.contains(&span.start)
                && names::is_plain_export(&name)
                && !unusual.contains(&span.start) =>
            {
                Contract::Believed
            }
            _ => Contract::Read,
        };
        functions.push(Function {
            id: FunctionId::new(functions.len()),
            name: texts.qualified(span.start, &name),
            span,
            contract,
            part,
            handles_faults: false,
        });
    }
    (functions, HashMap::new())
}
