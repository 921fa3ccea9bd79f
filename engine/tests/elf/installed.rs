//! Installed programs and libraries: all are read, and little of their text is refused.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gilk_engine::cfg::Cfg;
use gilk_engine::elf::{ElfParts, is_program};
use gilk_engine::{Image, Rule};

/// Text that is refused, by rule.
#[derive(Default)]
struct Tally {
    files: usize,
    functions: usize,
    blocks: usize,
    bytes: u64,
    refused: BTreeMap<Rule, (usize, u64)>,
}

/// The installed files, in order; those of `GILK_ELF`, separated by colons, if that is set.
fn files() -> Vec<PathBuf> {
    if let Some(paths) = std::env::var_os("GILK_ELF") {
        return std::env::split_paths(&paths).collect();
    }
    let folders = [
        "/usr/bin",
        "/usr/sbin",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/lib64",
    ];
    let mut files: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())))
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files.dedup();
    files
}

/// All of them if `GILK_WHOLE` is set, otherwise small ones, some dozens.
#[test]
fn installed_objects_are_read_and_little_of_them_is_refused() {
    let whole = std::env::var_os("GILK_WHOLE").is_some();
    let small = |path: &PathBuf| path.metadata().is_ok_and(|file| file.len() < 200_000);
    let taken = files().into_iter().filter(|path| whole || small(path));
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for path in taken.take(if whole { usize::MAX } else { 50 }) {
        let Ok(file) = std::fs::read(&path) else {
            continue;
        };
        if !is_program(&file) {
            continue;
        }
        let name = path.display().to_string();
        match Image::from_elf(&ElfParts::of_file(&name, &file)) {
            Ok(image) => read(&image, &mut tally),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    println!(
        "{} files, {} functions, {} blocks, {} bytes of text in functions; refused: {:?}",
        tally.files, tally.functions, tally.blocks, tally.bytes, tally.refused
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tally.files > 0 && tally.blocks > 1000);
    let refused: u64 = tally.refused.values().map(|(_, bytes)| bytes).sum();
    assert!(
        refused * 20 < tally.bytes,
        "{refused} bytes: more than a twentieth is refused"
    );
}

fn read(image: &Image, tally: &mut Tally) {
    let detailed = std::env::var_os("GILK_DETAILS").is_some();
    tally.files += 1;
    let (mut own, mut bytes) = (0, 0);
    for function in image.functions() {
        let cfg = Cfg::of(image, function.id);
        tally.functions += 1;
        tally.blocks += cfg.blocks.len();
        bytes += function.span.len();
        if let Some(refusal) = cfg.refusal {
            let (count, bytes) = tally.refused.entry(refusal.rule).or_default();
            *count += 1;
            *bytes += function.span.len();
            own += function.span.len();
            if detailed {
                println!("{}: {} {refusal}", image.title(), function.name);
            }
        }
    }
    tally.bytes += bytes;
    if detailed {
        println!("{}: {own} of {bytes} bytes refused", image.title());
    }
}
