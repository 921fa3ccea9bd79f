//! Accesses of programs that compile code while it is executed: generated code, and what compiles it, in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::accessing_attached::{Recorded, read};

/// Numbers of a table, to each of which its index is added in each round.
const NUMBERS: u64 = 1000;
/// Rounds of each line.
const ROUNDS: [u64; 3] = [7, 1200, 300];

const LUA: &str = r#"
local ffi = require("ffi")
local numbers = ffi.new("int32_t[?]", 1000)
local function work()
    for i = 0, 999 do numbers[i] = numbers[i] + i end
end
io.write("ready\n")
io.flush()
for line in io.lines() do
    for round = 1, tonumber(line) do work() end
    io.write(tostring(numbers[999]), "\n")
    io.flush()
end
"#;

const JAVASCRIPT: &str = r#"
const fs = require("fs");
const numbers = new Int32Array(1000);
const work = () => { for (let i = 0; i < 1000; i++) numbers[i] += i; };
const line = Buffer.alloc(64);
fs.writeSync(1, "ready\n");
for (let length; (length = fs.readSync(0, line)) > 0; ) {
    const rounds = parseInt(line.toString("latin1", 0, length));
    for (let round = 0; round < rounds; round++) work();
    fs.writeSync(1, numbers[999] + "\n");
}
"#;

const JAVA: &str = r#"
class Working {
    static final int[] numbers = new int[1000];
    static void work() { for (int i = 0; i < 1000; i++) numbers[i] += i; }
    public static void main(String[] words) throws Exception {
        var lines = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        System.out.println("ready");
        for (String line; (line = lines.readLine()) != null; ) {
            for (int rounds = Integer.parseInt(line); rounds > 0; rounds--) work();
            System.out.println(numbers[999]);
        }
    }
}
"#;

/// The spans of mappings with a name, and of all others.
fn mapped(pid: u32) -> [Vec<Range<u64>>; 2] {
    let mut spans = [Vec::new(), Vec::new()];
    for line in super::maps(pid).lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let is_generated = fields.get(5).is_none_or(|name| name.starts_with('['));
        spans[usize::from(is_generated)].push(start..end);
    }
    spans
}

/// Records the accesses of a program, whose output is right. All are made by code that was mapped at some moment, but for
/// little that may have been removed before the next one; those of its table are as many for each number as there are
/// rounds, and generated code has made some of them.
fn record(folder: &Path, command: &mut Command) {
    let file = folder.join("accesses");
    let (mut recorded, line) = Recorded::begin(folder, command, &file);
    assert_eq!(line, "ready\n");
    let mut sum = 0;
    let mut moments = vec![mapped(recorded.child.0.id())];
    for rounds in ROUNDS {
        sum += rounds;
        let answer = recorded.answer(&rounds.to_string());
        assert_eq!(answer, format!("{}\n", sum * (NUMBERS - 1)));
        moments.push(mapped(recorded.child.0.id()));
    }
    let [files, generated] = [0, 1].map(|kind| {
        moments
            .iter()
            .flat_map(|one| one[kind].clone())
            .collect::<Vec<_>>()
    });
    recorded.let_go();
    let said = recorded.recorded();
    assert!(!said.contains("was let go"), "{said}");
    // It continues.
    let answer = recorded.answer("5");
    assert_eq!(answer, format!("{}\n", (sum + 5) * (NUMBERS - 1)));

    let mut instructions = BTreeSet::new();
    let mut writes = BTreeMap::<u64, Vec<u64>>::new();
    let found = read(&file, |access| {
        instructions.insert(access.instruction);
        if access.writes && access.size == 4 {
            writes
                .entry(access.at)
                .or_default()
                .push(access.instruction);
        }
    });
    let of = |spans: &[Range<u64>], at: u64| spans.iter().any(|span| span.contains(&at));
    let unknown: Vec<_> = instructions
        .iter()
        .filter(|at| !of(&files, **at) && !of(&generated, **at))
        .collect();
    assert!(
        unknown.len() * 1000 <= instructions.len(),
        "{unknown:x?} of {}; {generated:x?}",
        instructions.len()
    );
    let is_whole = |at: u64| {
        let mut all = (0..NUMBERS).map(|number| writes.get(&(at + 4 * number)));
        all.all(|one| one.is_some_and(|by| by.len() as u64 == sum))
    };
    let tables: Vec<u64> = writes.keys().copied().filter(|at| is_whole(*at)).collect();
    let [table] = tables[..] else {
        let counts = writes.values().map(Vec::len).filter(|count| *count > 100);
        let mut all = BTreeMap::<usize, u64>::new();
        counts.for_each(|count| *all.entry(count).or_default() += 1);
        panic!("{tables:x?} {all:?} {said}");
    };
    let by: BTreeSet<u64> = (0..NUMBERS)
        .flat_map(|number| writes[&(table + 4 * number)].iter().copied())
        .collect();
    assert!(by.iter().any(|at| of(&generated, *at)), "{by:x?}");
    assert!(by.len() > 1, "{by:x?}");
    assert!(found.accesses > 2 * NUMBERS * sum, "{}", found.accesses);
}

fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn accesses_of_luajit_are_those_of_its_generated_code_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "working.lua", LUA);
    record(folder.path(), Command::new("luajit").arg(path));
}

#[test]
#[ignore = "takes half a minute, and the package nodejs; cargo xtask test --long"]
fn accesses_of_node_are_those_of_its_generated_code_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "working.js", JAVASCRIPT);
    record(folder.path(), Command::new("node").arg(path));
}

#[test]
#[ignore = "takes half a minute, and the package default-jdk-headless; cargo xtask test --long"]
fn accesses_of_java_are_those_of_its_generated_code_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = script(folder.path(), "Working.java", JAVA);
    let mut command = Command::new("java");
    // Vectors would have several numbers in one access.
    let options = ["-XX:-UseSuperWord", "-XX:+UseSerialGC"];
    record(folder.path(), command.args(options).arg(path));
}
