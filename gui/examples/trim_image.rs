//! Makes `tests/data/fork.image`, the small real image for tests, from a whole image saved by `ilk
//! dump`: `cargo run -p gilk-gui --example trim_image -- whole.image`
//!
//! It keeps the functions of kernel/fork.c, their entries in the kernel's tables, and the names of
//! the symbols that they refer to.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a tool for developers stops at the first error"
)]

use std::collections::BTreeSet;
use std::path::Path;

use gilk_engine::kernel::LiveParts;
use gilk_engine::{Addr, Image};
use iced_x86::{Decoder, DecoderOptions, OpKind};

/// The first function of kernel/fork.c, and the first function after its last but one.
const FIRST: &str = "mmput_async";
const END: &str = "execdomains_proc_show";

struct Symbols(Vec<(u64, char, String)>);

impl Symbols {
    fn parse(kallsyms: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let at = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?.chars().next()?;
            let name = words.next()?.to_owned();
            words.next().is_none().then_some((at, kind, name)) // a fourth word is a module
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

/// Returns the entries of a table whose first field points into the kept text, contiguously. The
/// fields at `relative` are relative to their own addresses.
fn table(
    parts: &LiveParts,
    (start, end): (u64, u64),
    size: usize,
    relative: &[usize],
    kept: impl Fn(u64) -> bool,
) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::new();
    for (number, entry) in bytes(parts, start, end).chunks_exact(size).enumerate() {
        let here = start + (number * size) as u64;
        let field =
            |offset: usize| i32::from_le_bytes(entry[offset..offset + 4].try_into().unwrap());
        let target =
            |offset: usize| (here + offset as u64).wrapping_add_signed(i64::from(field(offset)));
        if !kept(target(0)) {
            continue;
        }
        let there = start + out.len() as u64;
        let mut moved = entry.to_vec();
        for &offset in relative {
            let distance = target(offset)
                .wrapping_sub(there + offset as u64)
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

    // Symbols that the code refers to keep their names.
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
        // A bug_entry may be shorter; the distance between entries shows it.
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
    // Some entries for other functions: an empty blacklist would mean that it could not be read.
    let lines = parts.blacklist.lines();
    small.blacklist = lines
        .clone()
        .take(4)
        .chain(lines.filter(inside))
        .map(|line| format!("{line}\n"))
        .collect();

    let image = Image::from_live(&small).unwrap();
    assert!(image.function_named("kernel_clone").is_ok() && image.functions().len() > 30);
    let out = postcard::to_allocvec(&small).unwrap();
    assert!(
        out.len() < 200_000,
        "{} bytes are too many to keep with the sources",
        out.len()
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fork.image");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, &out).unwrap();
    println!("{} functions, {} bytes", image.functions().len(), out.len());
}
