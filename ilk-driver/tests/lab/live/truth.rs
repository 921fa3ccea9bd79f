//! The library's instruments, compared with independent facts: a program that prints what it did
//! (`workload/witness.c`), and the kernel's own probes on the same functions in the same run.
//!
//! One session contains all of them, each on a function that the program calls. The reference has a
//! table of what each is compared with, and a test compares that table with this file.

mod branches;
mod events;
mod rows;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gilk_engine::cfg::{Block, BlockEnd, Cfg};
use gilk_engine::placement::at_hook;
use gilk_engine::rule::Rule;
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{HookType, Image};
use gilk_instruments::Library;
use gilk_instruments::program::Summary as Total;
use iced_x86::Mnemonic;

use crate::chosen::Chosen;
use crate::support::{Outcome, Shared, Turn, placement, shared};
use events::{Event, Events};
use rows::ROWS;

/// Functions with the kernel's own probes, and the values that these read at the entry.
const PROBED: [(&str, &str); 10] = [
    ("__x64_sys_umask", "word=+0(%di):x64"),
    ("__x64_sys_getpriority", ""),
    (
        "vfs_copy_file_range",
        "a0=%di a1=%si a2=%dx a3=%cx a4=%r8 a5=%r9",
    ),
    ("__x64_sys_copy_file_range", ""),
    ("ksys_fadvise64_64", "a1=%si a2=%dx"),
    ("__x64_sys_nanosleep", ""),
    ("__ep_eventpoll_poll", ""),
    ("rwsem_down_write_slowpath", ""),
    ("native_queued_spin_lock_slowpath", ""),
    ("fault_in_readable", ""),
];
/// A function that copying, reading and writing call: only the program's copies are considered.
const VERIFY: &str = "rw_verify_area";
const DURATION: f64 = 14.0;

/// The hooks of an instrument in its function.
#[derive(Clone, Copy, PartialEq)]
enum At {
    /// Before the first block, or at the function.
    Entry,
    /// After every block that returns.
    Returns,
    /// Before every block.
    Blocks,
    /// At every block that ends with a conditional branch.
    Branches,
    /// At every block that ends a loop around a `cmpxchg` and branches back after a failure.
    Retries,
}

/// The facts that an instrument of the library is compared with.
struct Row {
    instrument: &'static str,
    function: &'static str,
    at: At,
    truth: fn(&Run, &Case),
}

/// An instrument of the run.
struct Case {
    instrument: &'static str,
    function: &'static str,
    /// Indices of its placements, in order.
    placements: Vec<usize>,
}

/// The results of a run.
struct Run {
    outcome: Outcome,
    events: Events,
    /// The program's output: numbers by subject.
    witness: BTreeMap<String, Vec<Vec<u64>>>,
    cases: Vec<Case>,
    shared: Arc<Shared>,
}

impl Run {
    fn hz(&self) -> f64 {
        self.outcome.summary.clock.hz as f64
    }

    /// Returns the program's output about a subject.
    fn said(&self, what: &str) -> &[Vec<u64>] {
        self.witness
            .get(what)
            .unwrap_or_else(|| panic!("it printed nothing about {what}: {:?}", self.outcome.said))
    }

    /// Returns time, value and block of all samples of a case, in order of time.
    fn samples(&self, case: &Case) -> Vec<(u64, u64, u32)> {
        let instruments = self.outcome.plan.instruments.iter();
        let own: BTreeMap<u64, u32> = instruments
            .filter(|one| case.placements.contains(&one.placement))
            .map(|one| (one.id.pack(), one.id.block))
            .collect();
        let all = self.outcome.samples.iter();
        all.filter_map(|(_, sample)| Some((sample.tsc, sample.value, *own.get(&sample.id)?)))
            .collect()
    }

    fn values(&self, case: &Case) -> Vec<u64> {
        let samples = self.samples(case);
        samples.into_iter().map(|(_, value, _)| value).collect()
    }

    /// Returns an aggregate of a case.
    fn total(&self, case: &Case, name: &str) -> &Total {
        let mut all = self.outcome.summary.aggregates.iter();
        let found = all.find(|one| case.placements.contains(&one.placement) && one.name == name);
        &found.unwrap_or_else(|| panic!("there is no @{name}")).value
    }

    /// Returns a number of one placement.
    fn number_of(&self, placement: usize, name: &str) -> u64 {
        let mut all = self.outcome.summary.aggregates.iter();
        let found = all.find(|one| (one.placement, &*one.name) == (placement, name));
        match found.map(|one| &one.value) {
            Some(Total::Number(number)) => u64::try_from(*number).unwrap(),
            other => panic!("@{name} is {other:?}"),
        }
    }

    fn number(&self, case: &Case, name: &str) -> i128 {
        match self.total(case, name) {
            Total::Number(number) => *number,
            other => panic!("@{name} is {other:?}"),
        }
    }

    /// Returns another case of the run.
    fn other(&self, instrument: &str, function: &str) -> &Case {
        let mut cases = self.cases.iter();
        cases
            .find(|case| (case.instrument, case.function) == (instrument, function))
            .expect("the rows have it")
    }

    /// Returns the kernel's own events at a function's entries.
    fn entries(&self, case: &Case) -> &[Event] {
        self.events.entries(case.function)
    }
}

/// Returns whether a kernel has a function. Only a real-time kernel may lack one: its locks are other functions.
fn has(image: &Image, function: &str) -> bool {
    let is_known = |name: &str| image.function_named(name).is_ok();
    is_known(&symbol(image, function)) || !is_known("rwbase_write_lock")
}

/// Returns the rows that hold for a kernel.
fn rows(image: &Image) -> impl Iterator<Item = &'static Row> {
    // With KASAN a call stands between the `cmpxchg` of a loop and its branch back.
    let has_retries = image.function_named("kasan_check_range").is_err();
    // Lockdep allocates memory, which may wait for locks and other threads: the handling of a trap reaches
    // `__schedule` and what waits for a lock, and no hook is permitted there.
    let has_lockdep = image.function_named("__lock_acquire").is_ok();
    let is_possible = move |row: &&Row| match (row.instrument, row.at) {
        ("processor-time" | "threads-waiting", _) => !has_lockdep,
        (_, At::Retries) => has_retries,
        _ => !has_lockdep || !is_forbidden(image, row.function),
    };
    ROWS.iter()
        .filter(move |row| has(image, row.function))
        .filter(is_possible)
}

/// Returns whether no hook is permitted in a function.
fn is_forbidden(image: &Image, function: &str) -> bool {
    let found = image.function_named(&symbol(image, function)).unwrap();
    let refusal = Cfg::of(image, found.id).refusal;
    refusal.is_some_and(|refusal| refusal.rule == Rule::Blacklisted)
}

/// Returns the symbol of a function; the compiler appends a suffix to some names.
fn symbol(image: &Image, name: &str) -> String {
    let known = image
        .function_named(name)
        .map(|found| found.name.to_string());
    known.unwrap_or_else(|_| format!("{name}.isra.0"))
}

/// Returns the blocks that return.
fn returns(image: &Image, function: &str) -> Vec<u32> {
    let id = image.function_named(function).unwrap().id;
    let blocks = Cfg::of(image, id).blocks;
    let mut all: Vec<u32> = Vec::new();
    all.extend(
        blocks
            .iter()
            .filter(|block| block.end == BlockEnd::Return)
            .map(|block| block.index.0),
    );
    assert!(!all.is_empty(), "{function} has no return of its own");
    all
}

/// Returns the blocks whose branches have hooks on both edges.
fn branches(image: &Image, row: &Row) -> Vec<u32> {
    let cfg = Cfg::of(image, image.function_named(row.function).unwrap().id);
    let hooked = |block: &&Block| {
        let both = [HookType::Taken, HookType::Untaken];
        both.iter()
            .all(|hook| at_hook(image, &cfg, block.index, *hook).is_ok())
    };
    let retries = |block: &&Block| {
        let mut all = block.instructions.iter();
        let last = block.instructions.last().unwrap();
        let back = last.near_branch_target() <= block.span.start.0;
        back && all.any(|one| one.mnemonic() == Mnemonic::Cmpxchg && one.has_lock_prefix())
    };
    let blocks = cfg.blocks.iter().filter(hooked);
    let blocks = blocks.filter(|block| row.at == At::Branches || retries(block));
    let found: Vec<u32> = blocks.map(|block| block.index.0).collect();
    assert!(!found.is_empty(), "{} has no such branch", row.function);
    found
}

/// Returns the rows' placements, and the indices of each row's.
fn placements(image: &Image) -> (Vec<Placement>, Vec<Case>) {
    let mut all = Vec::new();
    let mut cases = Vec::new();
    for row in rows(image) {
        let function = symbol(image, row.function);
        let at = |block, hook| Placement {
            hook,
            ..placement(&function, block, row.instrument, (0.0, DURATION))
        };
        let new: Vec<Placement> = match row.at {
            At::Entry => vec![at(0, HookType::Pre)],
            At::Returns => { returns(image, row.function).into_iter() }
                .map(|block| at(block, HookType::Post))
                .collect(),
            At::Blocks => {
                let function = image.function_named(row.function).unwrap();
                let wanted = Chosen::of(image, &[function]).wanted;
                let before = wanted.iter().filter(|one| one.hook == HookType::Pre);
                before.map(|one| at(one.block.0, HookType::Pre)).collect()
            }
            At::Branches | At::Retries => { branches(image, row).into_iter() }
                .map(|block| at(block, HookType::Pre))
                .collect(),
        };
        cases.push(Case {
            instrument: row.instrument,
            function: row.function,
            placements: (all.len()..all.len() + new.len()).collect(),
        });
        all.extend(new);
    }
    (all, cases)
}

fn run(shared: &Arc<Shared>, turn: &Turn<'_>) -> Run {
    let (placements, cases) = placements(&shared.image);
    let session = Session {
        name: "truth".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), events::script(&shared.image)],
            start: 0.5,
        }),
        placements,
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    assert_eq!((outcome.summary.lost(), outcome.summary.missing), (0, 0));
    let lines = outcome.said.iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.strip_prefix("sh: ")).collect();
    let mut witness: BTreeMap<String, Vec<Vec<u64>>> = BTreeMap::new();
    for line in &lines {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        if let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) {
            witness.entry(what.to_owned()).or_default().push(numbers);
        }
    }
    assert!(witness.contains_key("ended"), "{:?}", outcome.said);
    Run {
        events: Events::read(lines),
        outcome,
        witness,
        cases,
        shared: Arc::clone(shared),
    }
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn each_instrument_of_the_library_agrees_with_independent_facts() {
    let shared = shared();
    let turn = shared.turn();
    let first = run(&shared, &turn);
    let mut wrong = not_true(&first);
    let lost = first.outcome.summary.no_room.iter();
    let lost: u64 = lost.map(|one| one.count).sum();
    if !wrong.is_empty() {
        // Two threads may collide in the table of variables, which the run reports; and the
        // emulated processor may be preempted between the kernel's probe and ours. Neither happens
        // twice.
        println!("differences in the first run, {lost} values without storage: {wrong:#?}");
        wrong = not_true(&run(&shared, &turn));
    }
    assert!(wrong.is_empty(), "not true: {wrong:#?}");
    turn.assert_untouched();
}

/// Returns the rows that do not hold; each has printed its difference.
fn not_true(run: &Run) -> Vec<String> {
    let fails = |(row, case): &(&'static Row, &Case)| {
        let held = std::panic::AssertUnwindSafe(|| (row.truth)(run, case));
        std::panic::catch_unwind(held).is_err()
    };
    let rows = rows(&run.shared.image).zip(&run.cases).filter(fails);
    rows.map(|(row, _)| format!("{} at {}", row.instrument, row.function))
        .collect()
}

/// Checks that the reference names for each instrument the facts that it is compared with, or its
/// prerequisite.
#[test]
fn the_reference_names_the_facts_of_each_instrument() {
    let text = include_str!("../../../../instruments/README.md");
    let (_, table) = text
        .split_once("## The test of truth")
        .expect("the reference has the chapter");
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`').to_owned();
        Some((name, cells.next()?.trim_end_matches(" |").to_owned()))
    });
    let documented: BTreeMap<String, String> = rows.collect();
    let held: BTreeSet<&str> = ROWS.iter().map(|row| row.instrument).collect();
    for definition in Library::builtin().unwrap().iter() {
        let said = documented
            .get(&definition.name)
            .unwrap_or_else(|| panic!("the table has no row of {}", definition.name));
        assert_eq!(
            held.contains(&*definition.name),
            !said.starts_with("Not yet"),
            "{}: {said}",
            definition.name
        );
    }
}
