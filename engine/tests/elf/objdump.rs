//! Installed programs as objdump disassembles them: the same functions, stubs and instructions.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gilk_engine::cfg::Cfg;
use gilk_engine::code::FunctionId;
use gilk_engine::{Addr, Image};

use crate::image;

#[derive(Default)]
struct Compared {
    instructions: usize,
    targets: usize,
    names: usize,
    stubs: usize,
    different: Vec<String>,
}

/// The programs to compare: `GILK_PROGRAMS` of them, or three.
fn files() -> Vec<PathBuf> {
    let most = std::env::var("GILK_PROGRAMS").map_or(3, |most| most.parse().unwrap());
    [
        "/usr/bin/gzip",
        "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/bin/bash",
        "/usr/bin/perl",
    ]
    .iter()
    .map(PathBuf::from)
    .filter(|path| path.exists())
    .take(most)
    .collect()
}

#[test]
fn programs_read_as_objdump_reads_them() {
    let mut compared = Compared::default();
    for path in files() {
        compare(&image(&path), &path, &mut compared);
    }
    println!(
        "{} instructions, {} targets of branches, {} names, {} stubs",
        compared.instructions, compared.targets, compared.names, compared.stubs
    );
    assert!(
        compared.different.is_empty(),
        "{} differ: {:#?}",
        compared.different.len(),
        compared.different.iter().take(40).collect::<Vec<_>>()
    );
    assert!(compared.instructions > 100_000 && compared.stubs > 100);
}

/// A graph as it is looked up by its instructions.
struct Graph {
    /// The length of each instruction of a block.
    instructions: HashMap<u64, usize>,
    starts: Vec<u64>,
    /// Addresses after `lock` prefixes that branches skip.
    after_locks: Vec<u64>,
    refused: bool,
}

impl Graph {
    fn of(image: &Image, function: FunctionId) -> Self {
        let cfg = Cfg::of(image, function);
        let all = cfg
            .blocks
            .iter()
            .flat_map(|block| block.instructions.iter());
        let skipped = cfg.blocks.iter().filter(|block| block.skipped);
        Self {
            after_locks: skipped.map(|block| block.span.start.0 + 1).collect(),
            instructions: all.map(|each| (each.ip(), each.len())).collect(),
            starts: cfg.blocks.iter().map(|block| block.span.start.0).collect(),
            refused: cfg.blocks.is_empty(),
        }
    }
}

fn compare(image: &Image, path: &Path, compared: &mut Compared) {
    let mut child = Command::new("objdump")
        .args(["-d", "-w"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("objdump of binutils");
    let mut graphs: HashMap<FunctionId, Graph> = HashMap::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((at, name)) = line
            .strip_suffix(">:")
            .and_then(|line| line.split_once(" <"))
        {
            let at = Addr(u64::from_str_radix(at, 16).unwrap());
            header(image, at, name, compared);
            continue;
        }
        let Some((at, rest)) = line.trim_start().split_once(":\t") else {
            continue;
        };
        let Ok(at) = u64::from_str_radix(at, 16) else {
            continue;
        };
        let (bytes, text) = rest.split_once('\t').unwrap_or((rest, ""));
        let len = bytes.split_whitespace().count();
        let Some(function) = image.function_at(Addr(at)) else {
            continue;
        };
        let graph = graphs
            .entry(function.id)
            .or_insert_with(|| Graph::of(image, function.id));
        if graph.refused {
            continue;
        }
        let padding = text.is_empty() || text.contains("nop") || text.contains("int3");
        match graph.instructions.get(&at) {
            Some(&ours) if ours == len => compared.instructions += 1,
            // Padding is in no block.
            None if padding || text.contains("xchg   %ax,%ax") => {}
            ours => compared.different.push(format!(
                "{} {at:#x} in {}: {text:?} has {len} bytes, and {ours:?} for us",
                path.display(),
                function.name
            )),
        }
        let mut words = text.split_whitespace();
        let is_jump = words.next().is_some_and(|word| word.starts_with('j'));
        let target = words
            .next()
            .and_then(|word| u64::from_str_radix(word, 16).ok());
        if let Some(target) = target.filter(|&to| is_jump && function.span.contains(Addr(to))) {
            compared.targets += 1;
            if !graph.starts.contains(&target) && !graph.after_locks.contains(&target) {
                compared.different.push(format!(
                    "{} {at:#x}: {text:?}, and no block begins there",
                    path.display()
                ));
            }
        }
    }
    assert!(child.wait().unwrap().success());
}

/// The header of a function: objdump names symbols of code, and stubs `name@plt`.
fn header(image: &Image, at: Addr, name: &str, compared: &mut Compared) {
    if let Some(name) = name.strip_suffix("@plt") {
        // Those of `*ABS*+0x…` have a resolver without a name.
        if name.starts_with("*ABS*") {
            return;
        }
        compared.stubs += 1;
        let ours = image.symbol_at(at).map(|(name, _)| name.to_owned());
        if ours.as_deref() != Some(&format!("{name}.plt")) {
            compared
                .different
                .push(format!("{at}: {name}@plt is {ours:?} for us"));
        }
        return;
    }
    // Sections and places beside symbols are no functions.
    if name.starts_with('.') || name.contains("-0x") || name.contains("+0x") {
        return;
    }
    let name = name.split('@').next().unwrap_or(name);
    compared.names += 1;
    let known = |name: &str| {
        image
            .function_named(&format!("{name}@{at}"))
            .is_ok_and(|function| function.span.start == at)
    };
    if !known(name) && !known(&format!("{name}.resolver")) {
        compared.different.push(format!(
            "{at}: {name} is {:?} for us",
            image.function_at(at).map(|function| &function.name)
        ));
    }
}
