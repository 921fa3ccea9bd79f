//! Symbols in separate debug files: a stripped object with one has the functions of the object that is not stripped.

use std::path::Path;
use std::process::Command;

use gilk_engine::Image;
use gilk_engine::cfg::Cfg;
use gilk_engine::elf::{DebugSymbols, ElfParts};

use super::compiled::{SWITCH, library};
use super::damaged::damage;
use crate::random::Random;
use crate::{image, set};

/// Functions that are exported, static, weak, of several names, parts of others, and chosen when the library is loaded.
const SOURCE: &str = "
#include <stdlib.h>
int outer(int);
static __attribute__((noinline)) int inner(int x) { return outer(x) + 1; }
__attribute__((weak)) int weak_one(int x) { return inner(x) * 2; }
int __other(int x) { if (__builtin_expect(x == 3, 0)) { outer(1); outer(2); abort(); } return x; }
int other(int) __attribute__((alias(\"__other\"), visibility(\"hidden\")));
static int one(int x) { return x + 1; }
static int two(int x) { return x + 2; }
static void *resolve(void) { return getenv(\"NONE\") ? one : two; }
int chosen_late(int) __attribute__((ifunc(\"resolve\")));
int uses(int x) { return chosen_late(x) + other(x); }
";

fn tool(name: &str, arguments: &[&str], folder: &Path) {
    let mut command = match name {
        "strip" => Command::new("strip"),
        _ => Command::new("objcopy"),
    };
    let done = command.current_dir(folder).args(arguments).status();
    assert!(done.unwrap().success(), "{name} {arguments:?}");
}

/// A library as it was linked, its stripped file, and its debug file.
struct Split {
    whole: Image,
    stripped: Vec<u8>,
    debug: Vec<u8>,
}

impl Split {
    fn of(source: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = ["-g", "-O2", "-Wl,--build-id"];
        let path = library(&folder, Command::new("cc"), source, &options);
        let whole = image(&path);
        let folder = folder.path();
        tool(
            "objcopy",
            &["--only-keep-debug", "library.so", "debug"],
            folder,
        );
        tool("strip", &["--strip-all", "library.so"], folder);
        Self {
            whole,
            stripped: std::fs::read(path).unwrap(),
            debug: std::fs::read(folder.join("debug")).unwrap(),
        }
    }

    /// The symbols of a debug file of this build.
    fn symbols(&self, debug: &[u8]) -> gilk_engine::Result<Option<DebugSymbols>> {
        DebugSymbols::read("the.debug", self.whole.build_id().unwrap(), debug)
    }

    /// The image of the stripped library with these symbols.
    fn read(&self, debug: Option<&DebugSymbols>) -> gilk_engine::Result<Image> {
        Image::from_elf(&ElfParts {
            debug,
            ..ElfParts::of_file("library", &self.stripped)
        })
    }
}

/// Names, bounds, contracts and refusals: nothing is believed of the one that is not of the other.
#[test]
fn a_debug_file_makes_the_functions_those_of_the_object_before_it_was_stripped() {
    for source in [SOURCE, SWITCH] {
        let split = Split::of(source);
        let without = split.read(None).unwrap();
        assert_ne!(without.functions(), split.whole.functions());
        let debug = split.symbols(&split.debug).unwrap().unwrap();
        let with = split.read(Some(&debug)).unwrap();
        assert_eq!(with.functions(), split.whole.functions());
        for function in with.functions() {
            let [one, other] = [&with, &split.whole].map(|image| Cfg::of(image, function.id));
            assert_eq!(one.refusal, other.refusal, "{}", function.name);
            assert_eq!(one.blocks.len(), other.blocks.len(), "{}", function.name);
        }
        // Those that other objects call are the same as without.
        let exported = |image: &Image| {
            let functions = image.functions().iter();
            let exported = functions.map(|function| (function.span.start, function.contract));
            let believed =
                |(_, contract): &(_, _)| *contract == gilk_engine::code::Contract::Believed;
            exported.filter(believed).collect::<Vec<_>>()
        };
        assert_eq!(exported(&with), exported(&without));
    }
}

#[test]
fn a_debug_file_of_another_object_is_not_used() {
    let (one, other) = (Split::of(SOURCE), Split::of(SWITCH));
    assert!(one.symbols(&other.debug).unwrap().is_none());
    let foreign = other.symbols(&other.debug).unwrap().unwrap();
    let error = one.read(Some(&foreign)).unwrap_err().to_string();
    assert!(error.contains("the.debug is of another build"), "{error}");
    // The stripped object itself has the identifier, and no names.
    assert!(one.symbols(&one.stripped).unwrap().is_none());
    // Code that was moved since, under the same identifier.
    let mut moved = one.debug.clone();
    let number = |at: usize, bytes: usize| {
        let bytes = one.debug[at..at + bytes].iter().rev();
        bytes.fold(0, |number: usize, byte| number << 8 | usize::from(*byte))
    };
    let (table, count) = (number(0x28, 8), number(0x3c, 2));
    let mut headers = (0..count).map(|index| table + 64 * index);
    // SHF_EXECINSTR
    let code = headers.rfind(|at| number(at + 8, 8) & 4 != 0);
    moved[code.unwrap() + 0x20] ^= 1;
    let moved = one.symbols(&moved).unwrap().unwrap();
    let error = one.read(Some(&moved)).unwrap_err().to_string();
    assert!(error.contains("other sections of code"), "{error}");
}

/// `GILK_DAMAGED` files, 200 otherwise, by the seed `GILK_SEED`.
#[test]
fn damaged_debug_files_are_refused_by_name_or_read() {
    let split = Split::of(SOURCE);
    let mut random = Random(set("GILK_SEED", 1));
    let (mut read, mut refused) = (0, 0);
    for _ in 0..set("GILK_DAMAGED", 200) {
        let file = damage(&mut random, &split.debug, |random, len| {
            match random.below(3) {
                0 => random.below(len),
                1 => random.below(64),
                _ => len.saturating_sub(1 + random.below(4096)),
            }
        });
        let image = split
            .symbols(&file)
            .and_then(|symbols| split.read(symbols.as_ref()));
        match image {
            Ok(image) => {
                read += 1;
                for function in image.functions() {
                    let cfg = Cfg::of(&image, function.id);
                    assert!(cfg.refusal.is_some() || !cfg.blocks.is_empty());
                }
            }
            Err(error) => {
                refused += 1;
                let error = error.to_string();
                assert!(error.contains("its debug file the.debug"), "{error}");
            }
        }
    }
    println!("{read} read, {refused} refused");
    assert!(read > 10 && refused > 10, "{read} read, {refused} refused");
}
