//! The native bench's code counts right: a short run of each of its cases. No time is judged here.

#[path = "timing/mod.rs"]
mod timing;

use std::sync::Mutex;

use gilk_engine::nanoseconds::{CLOSE_JUMP, MOVED, TRACER, TRAP};
use timing::cases::{all, stacks};
use timing::measure::{Clock, measure};
use timing::model::{ROWS, engines, model, source};
use timing::results::{Machine, Results, Row};
use timing::target::Target;
use timing::unwinder::Unwinder;

/// The memory is at fixed addresses of the process.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_case_counts_the_hits_of_the_model_and_changes_no_result() {
    let _alone = ALONE.lock();
    let mut target = Target::new();
    let mut moved = 0;
    for case in all() {
        let ready = case.load(&mut target);
        case.check(&mut target, &ready);
        let displaced = case.name.starts_with("a call displaced");
        assert_eq!(ready.moved_calls > 0, displaced, "{}", case.name);
        moved += ready.moved_calls;
    }
    assert!(moved >= 4);
    let cases = all();
    let case = cases.iter().find(|case| case.name == "in a loop");
    let measured = measure(&mut target, Clock::new(), case.unwrap(), 4);
    assert_eq!(measured.hits_per_call, 16.0);
    assert!(measured.bare_call_ns > 0.0 && measured.quartiles_ns.is_sorted());
    let model = model(&mut target, Clock::new(), 16);
    let text = &model.report;
    assert!(
        text.starts_with("6 random sites to fit on, 10 others"),
        "{text}"
    );
    assert!(text.contains("| all | 10 |"), "{text}");
    for name in ROWS {
        assert_eq!(
            cases.iter().filter(|case| case.name == name).count(),
            1,
            "{name}"
        );
    }
    let rows = [9.0, 3.0, 70.0, 30.0, 20.0, 100.0, 2500.0].map(|ns| row("some", ns));
    let written = model.source(&rows, &Machine::this(2.3));
    for line in [
        "CLOSE_JUMP: f64 = 1.5;",
        "MOVED: f64 = 40.0;",
        "TRACER: f64 = 11.0;",
        "TRAP: f64 = 500.0;",
    ] {
        assert!(written.contains(line), "{written}");
    }
}

/// Checks stacks that the module's own unwinder reads in this process: the counts by their numbers, and the frames that it keeps.
#[test]
#[ignore = "needs GILK_VMLINUZ, a kernel with its headers; cargo xtask test has one"]
fn the_modules_unwinder_reads_stacks_of_the_kernel() {
    let _alone = ALONE.lock();
    let mut target = Target::new();
    target.unwinder = Unwinder::of_environment();
    let cases = stacks(target.unwinder.as_ref().expect("GILK_VMLINUZ"));
    assert!(cases.len() > 5);
    for case in &cases {
        let ready = case.load(&mut target);
        case.check(&mut target, &ready);
    }
}

/// Another file than the bench writes would lose its changes with the next measurement.
#[test]
fn the_engines_times_are_a_file_that_the_bench_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/nanoseconds/fitted.rs");
    let file = std::fs::read_to_string(path).unwrap();
    let machine = Machine::this(2.3);
    let others = [CLOSE_JUMP, MOVED, TRACER, TRAP];
    let written = source(&engines(), others, &machine);
    // The third line names the machine.
    let times = |text: &str| {
        let lines = text.lines().enumerate();
        let lines = lines.filter(|(number, _)| *number != 2);
        lines.map(|(_, line)| line.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(times(&file), times(&written));
    assert!(written.contains(&machine.text()), "{written}");
}

fn row(name: &str, ns: f64) -> Row {
    Row {
        group: "Some".to_owned(),
        name: name.to_owned(),
        hits_per_call: 1.0,
        bare_call_ns: 10.0,
        least_ns: ns,
        quartiles_ns: [ns - 0.1, ns, ns + 0.1],
        instructions: Some(3),
        moved_calls: 0,
    }
}

#[test]
fn what_takes_longer_than_before_is_marked() {
    let results = |rows: Vec<Row>| Results {
        machine: Machine::this(2.3),
        rounds: 10,
        rows,
    };
    let earlier = results(vec![row("a", 1.0), row("b", 80.0), row("c", 10.0)]);
    let now = results(vec![
        row("a", 1.5),
        row("b", 80.0),
        row("c", 12.0),
        row("d", 99.0),
    ]);
    let slower = now.regressions(&earlier);
    let slower: Vec<&str> = slower.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(slower, ["c"]);
    let text = now.markdown(Some(&earlier));
    assert_eq!(text.matches("slower now").count(), 1, "{text}");
    assert!(text.contains("**10.00, slower now**"), "{text}");
    let mut elsewhere = earlier.clone();
    elsewhere.machine.processor = "another".to_owned();
    assert!(now.regressions(&elsewhere).is_empty());
    let text = now.markdown(Some(&elsewhere));
    assert!(text.contains("on another processor"), "{text}");
    assert!(!text.contains("slower now"), "{text}");
    let saved = ron::to_string(&now).unwrap();
    assert_eq!(ron::from_str::<Results>(&saved).unwrap(), now);
}
