//! Every block of a program whose compiler counts its blocks too: the counts agree, counter by counter, and so does the
//! flow through each function.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use gilk_engine::cfg::{BlockIndex, Cfg};
use gilk_engine::code::{Function, FunctionId};
use gilk_engine::plan::plan_possible;
use gilk_engine::verify::verify;
use gilk_engine::{HookType, Image};
use gilk_instruments::Library;
use iced_x86::{Mnemonic, OpKind, Register};
use ilk_driver::process::Attached;
use object::{Object, ObjectSymbol};

use super::circulation::{Counts, unexplained};
use super::{clean, compiled_from, every_block, subject};

/// The compiler's counters: a word of eight bytes at each of these addresses.
fn compilers_counters(program: &[u8]) -> Vec<u64> {
    let file = object::File::parse(program).unwrap();
    let arrays = file.symbols().filter(|symbol| {
        let name = symbol.name().unwrap_or_default();
        name.starts_with("__gcov0.")
    });
    let words =
        arrays.flat_map(|array| (array.address()..array.address() + array.size()).step_by(8));
    words.collect()
}

/// The counters that a block increments.
fn incremented<'a>(
    graph: &'a Cfg,
    block: BlockIndex,
    values: &'a BTreeMap<u64, u64>,
) -> impl Iterator<Item = u64> + 'a {
    let instructions = graph[block].instructions.iter();
    instructions.filter_map(|instruction| {
        let adds = matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Inc);
        let to_memory = instruction.op0_kind() == OpKind::Memory
            && matches!(instruction.memory_base(), Register::RIP | Register::None)
            && instruction.memory_index() == Register::None;
        let at = instruction.memory_displacement64();
        (adds && to_memory && values.contains_key(&at)).then_some(at)
    })
}

#[test]
fn blocks_are_hit_as_often_as_the_compiler_counts() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-no-pie", "--coverage", "-fprofile-update=atomic"];
    let program = compiled_from(folder.path(), include_str!("covered.c"), &options);
    let mut child = Command::new(&program)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        line
    };
    assert_eq!(line(), "ready\n");
    let memory = std::fs::File::open(format!("/proc/{}/mem", child.id())).unwrap();
    let addresses = compilers_counters(&std::fs::read(&program).unwrap());
    let read = || -> BTreeMap<u64, u64> {
        let word = |&at: &u64| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, at).unwrap();
            (at, u64::from_le_bytes(bytes))
        };
        addresses.iter().map(word).collect()
    };
    let (subject, reserved) = subject(child.id(), "main", 4096);
    let image = subject.image().clone();
    let names: Vec<&str> = image
        .functions()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    let session = every_block(&image, &names);
    let library = Library::builtin().unwrap();
    let watch = &mut |_| std::ops::ControlFlow::Continue(());
    let possible = plan_possible(&image, &session, &library, &reserved.layout, watch).unwrap();
    let plan = verify(&image, possible.plan).unwrap();
    let attached = Attached::attach(&subject, reserved, &plan).unwrap();
    let before = read();
    for _ in 0..2 {
        writeln!(input, "work").unwrap();
        let (_, signals) = line()
            .trim_end()
            .split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert!(signals.parse::<u32>().unwrap() % 50 == 0);
    }
    let removed = attached.remove().unwrap();
    clean(&removed);
    let after = read();
    drop(input);
    assert!(child.wait().unwrap().success());
    let hits: BTreeMap<u64, u64> = removed.counts.into_iter().collect();
    // Counts of each function's blocks.
    let mut counts: BTreeMap<FunctionId, Counts> = BTreeMap::new();
    for instrument in &plan.plan().instruments {
        let name = &plan.plan().function(instrument.id.major).unwrap().name;
        let function = image.function_named(name).unwrap().id;
        let count = hits[&instrument.id.pack()];
        counts
            .entry(function)
            .or_default()
            .insert((instrument.id.block, HookType::Pre), count);
    }
    let graphs: Vec<Cfg> = image
        .functions()
        .iter()
        .map(|one| Cfg::of(&image, one.id))
        .collect();
    agree(&graphs, &counts, (&before, &after));
    conserve(&image, &graphs, &counts);
}

/// Each counter of the compiler was incremented as often as the blocks were hit that increment it.
fn agree(
    graphs: &[Cfg],
    counts: &BTreeMap<FunctionId, Counts>,
    (before, after): (&BTreeMap<u64, u64>, &BTreeMap<u64, u64>),
) {
    // Hits by counter; `None` if a block that increments it was refused.
    let mut expected: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    for graph in graphs {
        for block in &graph.blocks {
            let counted = counts.get(&graph.function);
            let hits = counted.and_then(|counts| counts.get(&(block.index.0, HookType::Pre)));
            for at in incremented(graph, block.index, after) {
                let sum = expected.entry(at).or_insert(Some(0));
                *sum = sum.zip(hits).map(|(sum, hits)| sum + hits);
            }
        }
    }
    let (mut compared, mut executed) = (0, 0);
    for (at, hits) in &expected {
        let increments = after[at] - before[at];
        if let Some(hits) = hits {
            assert_eq!(*hits, increments, "the counter at {at:#x}");
            compared += 1;
            executed += u32::from(increments > 0);
        }
    }
    println!(
        "{compared} of {} counters compared, {executed} of them incremented",
        expected.len()
    );
    assert_eq!(compared, expected.len());
    assert!(executed >= 20);
}

/// The counts of each function are those of paths through it. A `longjmp` leaves functions in the middle of a block.
fn conserve(image: &Image, graphs: &[Cfg], counts: &BTreeMap<FunctionId, Counts>) {
    let jumps = |function: &Function| matches!(function.name.as_str(), "leave" | "jumps" | "main");
    for graph in graphs {
        let Some(counts) = counts.get(&graph.function) else {
            continue;
        };
        if !jumps(&image[graph.function]) {
            let wrong = unexplained(graph, counts);
            assert!(wrong.is_empty(), "{}: {wrong:?} of {counts:?}", graph.name);
        }
    }
}
