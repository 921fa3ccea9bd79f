//! gzip and sqlite3, built so that the compiler counts their blocks too: after a run that ends by itself, `gcov-dump`'s
//! counts agree with those of splices, of sparing splices and of the code cache, counter by counter.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_samples::recording::Recording;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

use super::super::{cache_recording, compile};
use super::{make, source};

/// The compiler's options: its counters are incremented where it placed them, none is kept in a register.
const OPTIONS: [&str; 5] = [
    "-O2",
    "-w",
    "-no-pie",
    "--coverage",
    "-fprofile-update=atomic",
];
/// Bytes of a counter.
const COUNTER: u64 = 8;
/// Rows of a table, sums of them, strings, an index, a sort and a failed statement.
const STATEMENTS: &str = "
    create table t(a integer primary key, b text, c real);
    with recursive n(i) as (values(1) union all select i + 1 from n where i < 20000)
        insert into t select i, printf('%d-%s', i * 7919 % 1000, hex(i)), i / 3.0 from n;
    create index u on t(b);
    select count(*), sum(a), total(c) from t where b like '1%';
    select b, count(*) from t group by substr(b, 1, 2) order by 2 desc, 1 limit 5;
    update t set c = c + a where a % 3 = 0;
    delete from t where b glob '*9';
    select x.a from t x join t y on x.a = y.a + 1 where y.b < x.b order by x.c limit 5;
    insert into t values(1, 'twice', 0);
    select json_extract('{\"a\": [1, 2, {\"b\": 5}]}', '$.a[2].b'), date('2020-02-29', '+1 year');
    pragma integrity_check;
";

fn gzip(folder: &Path) -> PathBuf {
    let source = source("gzip", folder);
    let flags = OPTIONS.join(" ");
    compile(
        Command::new("sh")
            .current_dir(&source)
            .args(["./configure", "-q"])
            .arg(format!("CFLAGS={flags}"))
            .arg(format!("LDFLAGS={flags}")),
    );
    make(&source, &["version.h"]);
    make(&source, &["-C", "lib"]);
    make(&source, &["gzip"]);
    source.join("gzip")
}

fn sqlite(folder: &Path) -> PathBuf {
    let source = source("sqlite3", folder);
    compile(Command::new("sh").current_dir(&source).args([
        "./configure",
        "-q",
        "--disable-tcl",
        "--disable-readline",
    ]));
    make(&source, &["sqlite3.c", "shell.c"]);
    let cc = || {
        let mut cc = Command::new("cc");
        cc.current_dir(&source).args(OPTIONS);
        cc
    };
    for file in ["shell.c", "sqlite3.c"] {
        compile(cc().args(["-I.", "-c", file]));
    }
    compile(
        cc().args(["-o", "counted", "shell.o", "sqlite3.o"])
            .args(["-lm", "-lpthread"]),
    );
    source.join("counted")
}

/// A counter of the compiler's: its source file's name without its end, its function, and its number there.
type Counter = (String, String, u64);

/// Arrays of counters by address, with their ends.
fn arrays(program: &[u8]) -> BTreeMap<u64, (u64, String, String)> {
    let file = object::File::parse(program).unwrap();
    let mut source = String::new();
    let mut arrays = BTreeMap::new();
    for symbol in file.symbols() {
        let name = symbol.name().unwrap();
        if symbol.kind() == SymbolKind::File {
            source = name
                .rsplit_once('.')
                .map_or(name, |(stem, _)| stem)
                .to_owned();
        } else if let Some(function) = name.strip_prefix("__gcov0.") {
            let end = symbol.address() + symbol.size();
            let array = (end, source.clone(), function.to_owned());
            arrays.insert(symbol.address(), array);
        }
    }
    arrays
}

/// Addresses of the instructions that increment each counter, as `objdump` disassembles the program.
fn increments(program: &Path) -> BTreeMap<Counter, Vec<u64>> {
    let arrays = arrays(&std::fs::read(program).unwrap());
    let mut objdump = Command::new("objdump");
    let text = objdump.args(["-d", "--no-show-raw-insn"]).arg(program);
    let text = String::from_utf8(text.output().unwrap().stdout).unwrap();
    let hexadecimal = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    let mut all: BTreeMap<Counter, Vec<u64>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("<__gcov0.")) {
        let (at, instruction) = line.trim().split_once(":\t").unwrap();
        let adds = ["lock addq $0x1,", "lock incq "];
        assert!(
            adds.iter().any(|add| instruction.starts_with(add)),
            "{line}"
        );
        let (_, operand) = instruction.split_once("# ").unwrap();
        let counter = hexadecimal(operand.split(' ').next().unwrap());
        let (begin, (end, source, function)) = arrays.range(..=counter).next_back().unwrap();
        assert!(counter < *end, "{line}");
        let number = (counter - begin) / COUNTER;
        let counter = (source.clone(), function.clone(), number);
        all.entry(counter).or_default().push(hexadecimal(at));
    }
    all
}

/// The files of an extension below a folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found
}

fn dumped(file: &Path, options: &[&str]) -> String {
    let mut dump = Command::new("gcov-dump");
    let output = dump.args(options).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", file.display());
    String::from_utf8(output.stdout).unwrap()
}

/// The identity of a function in a line of a dump.
fn identity(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(":FUNCTION ident=")?;
    rest.split(',').next()
}

/// The counters that are not zero, and their values after the only run of a program, in the files that it has written.
fn compilers(folder: &Path) -> BTreeMap<Counter, u64> {
    let mut all = BTreeMap::new();
    for file in files(folder, "gcda") {
        let object = file.file_stem().unwrap().to_str().unwrap();
        // An object file of a library that Automake builds is named after both.
        let source = object
            .rsplit_once("_a-")
            .map_or(object, |(_, source)| source);
        let graph = dumped(&file.with_extension("gcno"), &[]);
        let names: HashMap<&str, &str> = graph
            .lines()
            .filter_map(|line| {
                let name = line.split_once('`')?.1.split_once('\'')?.0;
                Some((identity(line)?, name))
            })
            .collect();
        let mut function = "";
        for line in dumped(&file, &["-l"]).lines() {
            let (_, line) = line.split_once("gcda:").unwrap();
            if let Some(found) = identity(line) {
                function = names[found];
            } else if let Some((first, values)) = line.split_once(": ")
                && let Ok(first) = first.trim().parse::<u64>()
            {
                let values = values
                    .split_whitespace()
                    .map(|value| value.parse::<u64>().unwrap());
                let values = (first..).zip(values).filter(|(_, value)| *value > 0);
                all.extend(values.map(|(number, value)| {
                    ((source.to_owned(), function.to_owned(), number), value)
                }));
            }
        }
    }
    all
}

/// The counts of blocks in a recording, by address, with the blocks' ends.
fn blocks(recording: &Path) -> BTreeMap<u64, (u64, u64)> {
    let recording = Recording::open(recording).unwrap();
    assert!(recording.recovered().is_none());
    let functions = recording.metadata().functions.iter();
    let functions: HashMap<&str, _> = functions.map(|one| (one.name.as_str(), one)).collect();
    let counts = cache_recording::recorded(&recording).into_iter();
    let counts = counts.map(|((function, start), count)| {
        let function = functions[function.as_str()];
        let mut blocks = function.blocks.iter();
        let block = blocks.find(|block| u64::from(block.0) == start).unwrap();
        let end = function.address + u64::from(block.1);
        (function.address + start, (end, count))
    });
    counts.collect()
}

/// A way to count every block, without the program.
struct Way<'a> {
    name: &'a str,
    options: &'a [&'a str],
    /// Blocks that were not executed are in the recording too.
    has_all: bool,
}

const WAYS: [Way<'_>; 3] = [
    Way {
        name: "splices",
        options: &["process", "--blocks", "*"],
        has_all: true,
    },
    Way {
        name: "sparing splices",
        options: &["process", "--blocks", "--sparing", "*"],
        has_all: true,
    },
    Way {
        name: "cache",
        options: &["clone", "--count"],
        has_all: false,
    },
];

/// Compares the compiler's counts of a program with those of each way, in the same execution.
fn agree(program: &Path, arguments: &[&str], input: &Path, least: usize) {
    let folder = program.parent().unwrap();
    let increments = increments(program);
    let input = || File::open(input).unwrap();
    let mut native = Command::new(program);
    let native = native.current_dir(folder).args(arguments).stdin(input());
    let native = native.output().unwrap();
    for way in &WAYS {
        let name = way.name;
        for old in files(folder, "gcda") {
            std::fs::remove_file(old).unwrap();
        }
        let recording = folder.join(format!("{name}.arrow"));
        let output = Command::new(env!("CARGO_BIN_EXE_ilk"))
            .env("XDG_CACHE_HOME", folder)
            .current_dir(folder)
            .args(way.options)
            .arg("-o")
            .arg(&recording)
            .arg("--")
            .arg(program)
            .args(arguments)
            .stdin(input())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            native.status.code(),
            "{name}: {errors}"
        );
        // Counts follow what the program prints.
        assert!(output.stdout.starts_with(&native.stdout), "{name}");
        assert!(!errors.contains("let go"), "{errors}");
        let expected = compilers(folder);
        let blocks = blocks(&recording);
        let hits = |at: &u64| {
            let counted = blocks.range(..=at).next_back();
            let counted = counted.filter(|(_, (end, _))| at < end);
            let counted = counted.map(|(_, (_, count))| *count);
            counted.or((!way.has_all).then_some(0))
        };
        let (mut compared, mut executed, mut left_out) = (0, 0, 0);
        for (counter, at) in &increments {
            let expected = expected.get(counter).copied().unwrap_or_default();
            match at.iter().map(hits).sum::<Option<u64>>() {
                Some(counted) => {
                    assert_eq!(counted, expected, "{name}: {counter:?} at {at:x?}");
                    compared += 1;
                    executed += usize::from(expected > 0);
                }
                None => left_out += 1,
            }
        }
        println!(
            "{}, {name}: {compared} counters agree, {executed} of them not 0; {left_out} are in blocks without a count",
            program.display()
        );
        assert!(executed >= least, "{executed}");
        assert!(left_out * 100 < compared, "{left_out} of {compared}");
        // None is anywhere else.
        let unknown: Vec<_> = expected
            .keys()
            .filter(|one| !increments.contains_key(*one))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
#[ignore = "downloads the source of gzip; cargo xtask test --long"]
fn gzips_blocks_are_hit_as_often_as_its_compiler_counts() {
    let folder = tempfile::tempdir().unwrap();
    let program = gzip(folder.path());
    let input = std::fs::read(env!("CARGO_BIN_EXE_ilk")).unwrap();
    let file = folder.path().join("input");
    std::fs::write(&file, &input[..input.len().min(4 << 20)]).unwrap();
    agree(&program, &["-9", "-c"], &file, 150);
}

#[test]
#[ignore = "downloads the source of sqlite3, and takes minutes; cargo xtask test --long"]
fn sqlites_blocks_are_hit_as_often_as_its_compiler_counts() {
    let folder = tempfile::tempdir().unwrap();
    let program = sqlite(folder.path());
    let statements = folder.path().join("statements");
    std::fs::write(&statements, STATEMENTS).unwrap();
    agree(&program, &["-batch", ":memory:"], &statements, 3000);
}
