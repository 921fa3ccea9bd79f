//! Trims a saved image to the functions of kernel/fork.c, their tables, and the symbols they name:
//! `tests/data/fork.image`, the real kernel code of plain `cargo test`.
//!
//! `cargo run -p gilk-engine --example trim_image -- WHOLE [OUT]`, where WHOLE is an image that
//! `ilk dump --lab -o WHOLE` saved. The result is verified: each of its functions must have a graph,
//! and a plan with a counter before every block.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a development tool: it stops where its input is not as expected"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gilk_engine::cfg::Cfg;
use gilk_engine::code::Function;
use gilk_engine::kernel::LiveParts;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::placement::options;
use gilk_engine::plan::plan;
use gilk_engine::session::Placement;
use gilk_engine::verify::verify;
use gilk_engine::{Addr, Error, HookType, Image, Session};
use gilk_instruments::Library;
use iced_x86::{Decoder, DecoderOptions, OpKind};

/// First function of kernel/fork.c.
const FIRST: &str = "mmput_async";
/// First function after those of kernel/fork.c.
const END: &str = "execdomains_proc_show";

struct Symbols(Vec<(u64, char, String)>);

impl Symbols {
    fn parse(kallsyms: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let at = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?.chars().next()?;
            let name = words.next()?.to_owned();
            words.next().is_none().then_some((at, kind, name)) // A fourth word is a module.
        };
        Self(kallsyms.lines().filter_map(line).collect())
    }

    fn at(&self, name: &str) -> u64 {
        self.0
            .iter()
            .find(|symbol| symbol.2 == name)
            .unwrap_or_else(|| panic!("no symbol {name}"))
            .0
    }
}

fn bytes(parts: &LiveParts, from: u64, to: u64) -> &[u8] {
    let (start, memory) = parts
        .memory
        .iter()
        .find(|(start, memory)| start.0 <= from && to <= start.0 + memory.len() as u64)
        .unwrap_or_else(|| panic!("{from:#x} is not in the image"));
    &memory[(from - start.0) as usize..(to - start.0) as usize]
}

/// Returns the entries of a table whose first field points into the kept text, moved together.
/// The fields at `relative` are distances from themselves.
fn table(
    parts: &LiveParts,
    (start, end): (u64, u64),
    size: usize,
    relative: &[usize],
    kept: impl Fn(u64) -> bool,
) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for (number, entry) in bytes(parts, start, end).chunks_exact(size).enumerate() {
        let entry_at = start + (number * size) as u64;
        let field =
            |offset: usize| i32::from_le_bytes(entry[offset..offset + 4].try_into().unwrap());
        let target = |offset: usize| {
            (entry_at + offset as u64).wrapping_add_signed(i64::from(field(offset)))
        };
        if !kept(target(0)) {
            continue;
        }
        let moved_to = start + out.len() as u64;
        let mut moved = entry.to_vec();
        for &offset in relative {
            let distance = target(offset)
                .wrapping_sub(moved_to + offset as u64)
                .cast_signed();
            moved[offset..offset + 4]
                .copy_from_slice(&i32::try_from(distance).unwrap().to_le_bytes());
        }
        out.extend(moved);
    }
    out
}

fn main() {
    let whole = std::env::args()
        .nth(1)
        .expect("name an image that `ilk dump` saved");
    let parts: LiveParts = postcard::from_bytes(&std::fs::read(whole).unwrap()).unwrap();
    let symbols = Symbols::parse(&parts.kallsyms);
    let (start, end) = (symbols.at(FIRST), symbols.at(END));
    let kept = |at: u64| (start..end).contains(&at);
    let text = bytes(&parts, start, end).to_vec();

    // Symbols that the code refers to are kept.
    let mut named = BTreeSet::new();
    for instruction in Decoder::with_ip(64, &text, start, DecoderOptions::NONE) {
        if instruction
            .op_kinds()
            .any(|kind| kind == OpKind::NearBranch64)
        {
            named.insert(instruction.near_branch64());
        }
        if instruction.is_ip_rel_memory_operand() {
            named.insert(instruction.ip_rel_memory_address());
        }
        named.extend(
            instruction
                .op_kinds()
                .any(|kind| kind == OpKind::Immediate32to64)
                .then(|| instruction.immediate32to64().cast_unsigned()),
        );
    }
    let tables: [(&str, &str, usize, &[usize]); 4] = [
        ("__start___jump_table", "__stop___jump_table", 16, &[0, 4]),
        (
            "__start_static_call_sites",
            "__stop_static_call_sites",
            8,
            &[0, 4],
        ),
        ("__start___ex_table", "__stop___ex_table", 12, &[0, 4]),
        ("__start___bug_table", "__stop___bug_table", 12, &[0, 4]),
    ];
    let mut small = LiveParts {
        release: parts.release.clone(),
        ..LiveParts::default()
    };
    let mut lines = vec![
        (symbols.at("_text"), 'T', "_text".to_owned()),
        (symbols.at("_end"), 'B', "_end".to_owned()),
        (start, 'T', "_stext".to_owned()),
        (end, 'T', "_etext".to_owned()),
        (
            symbols.at("__start_rodata"),
            'R',
            "__start_rodata".to_owned(),
        ),
        (symbols.at("__start_rodata"), 'R', "__end_rodata".to_owned()),
    ];
    small.memory.push((Addr(start), text));
    for (first, last, size, relative) in tables {
        let at = symbols.at(first);
        // Kernels without CONFIG_DEBUG_BUGVERBOSE have shorter entries; lab kernels do not.
        let entries = table(&parts, (at, symbols.at(last)), size, relative, kept);
        lines.push((at, 'D', first.to_owned()));
        lines.push((at + entries.len() as u64, 'D', last.to_owned()));
        if !entries.is_empty() {
            small.memory.push((Addr(at), entries));
        }
    }
    lines.extend(
        symbols
            .0
            .iter()
            .filter(|(at, ..)| kept(*at) || named.contains(at))
            .cloned(),
    );
    lines.sort();
    lines.dedup();
    small.kallsyms = lines
        .iter()
        .map(|(at, kind, name)| format!("{at:016x} {kind} {name}\n"))
        .collect();
    let inside = |line: &&str| {
        line.split(['-', '\t'])
            .next()
            .and_then(|at| u64::from_str_radix(at.trim_start_matches("0x"), 16).ok())
            .is_some_and(kept)
    };
    // A few other lines: an empty list would mean that it could not be read.
    let lines = parts.blacklist.lines();
    small.blacklist = lines
        .clone()
        .take(4)
        .chain(lines.filter(inside))
        .map(|line| format!("{line}\n"))
        .collect();

    let image = Image::from_live(&small).unwrap();
    assert!(image.function_named("kernel_clone").is_ok() && image.functions().len() > 30);
    let planned = image
        .functions()
        .iter()
        .filter(|function| is_planned(&image, function))
        .count();
    let out = postcard::to_allocvec(&small).unwrap();
    assert!(
        out.len() < 200_000,
        "{} bytes are too many to keep with the sources",
        out.len()
    );
    let path = std::env::args_os().nth(2).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fork.image"),
        PathBuf::from,
    );
    std::fs::write(&path, &out).unwrap();
    println!(
        "{}: {} functions, {planned} of them planned and verified, {} bytes",
        path.display(),
        image.functions().len(),
        out.len()
    );
}

/// Plans a counter before every block of a function, as far as blocks have such a hook, and verifies
/// the plan; returns whether any block has.
fn is_planned(image: &Image, function: &Function) -> bool {
    let cfg = Cfg::of(image, function.id);
    let placements: Vec<Placement> = options(image, &cfg)
        .iter()
        .filter(|block| block.pre.is_ok())
        .map(|block| Placement {
            function: function.name.as_str().into(),
            block: block.block.0,
            hook: HookType::Pre,
            instrument: "counter".into(),
            launch: 0.0,
            splash: 1.0,
        })
        .collect();
    if placements.is_empty() {
        return false;
    }
    let session = Session {
        placements,
        ..Session::empty()
    };
    let layout = RuntimeLayout::supposed(Addr(0xffff_ffff_c000_0000));
    match plan(image, &session, &Library::builtin().unwrap(), &layout) {
        Ok(plan) => verify(image, plan).is_ok() || panic!("{} is not verified", function.name),
        // A hook may be had alone, but not with all others.
        Err(Error::Refused { .. }) => false,
        Err(error) => panic!("{}: {error}", function.name),
    }
}
