//! Stacks of the kernel as values and keys, held against those that the kernel itself unwinds at the same events.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::session::Workload;
use gilk_engine::{Image, Session};
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::totals::{KeyPart, TotalValue};
use ilk_driver::client::frame;

use crate::support::{Outcome, answer, exported, placement, printed, shared};

/// Returns the name of an address in hexadecimal digits.
fn name(image: &Image, address: &str) -> String {
    frame(Some(image), u64::from_str_radix(address, 16).unwrap())
}

/// Counts the calls of a function by stack.
const SOURCE: &str =
    "instrument stacks \"Counts hits by stack.\" unit \"hits\";\nhit { @by[kstack] = count() }";

/// Returns the stacks of a placement with their counts. The connection has no image, so frames are addresses.
fn counted(outcome: &Outcome, image: &Image, placement: usize) -> BTreeMap<Vec<String>, u64> {
    let stacks = &outcome.summary.stacks;
    let mut aggregates = outcome.summary.aggregates.iter();
    let total = aggregates
        .find(|total| total.placement == placement)
        .unwrap();
    let TotalValue::Map(rows, _) = &total.value else {
        panic!("{:?}", total.value)
    };
    let stack = |number: i128| {
        let frames = stacks.get(number);
        let frames = frames
            .unwrap_or_else(|| panic!("{number}: {stacks:?}"))
            .iter();
        let addresses = frames.map(|frame| frame.strip_prefix("0x").expect("an address"));
        addresses.map(|address| name(image, address)).collect()
    };
    let rows = rows
        .iter()
        .map(|row| match (row.key.as_slice(), &row.value) {
            ([KeyPart::Number(number)], TotalValue::Number(count)) => {
                (stack(*number), u64::try_from(*count).unwrap())
            }
            other => panic!("{other:?}"),
        });
    rows.collect()
}

/// Has the kernel write its own stack at each of these events for seven seconds of forks, and prints each different one.
fn kernels_own(events: &[&str]) -> String {
    let each = |command: &str| -> String {
        let one = |event: &&str| format!("echo '{command}' > events/{event}/trigger; ");
        events.iter().map(one).collect()
    };
    format!(
        "( mount -t tracefs none /sys/kernel/tracing 2> /dev/null; cd /sys/kernel/tracing; \
         echo 8192 > buffer_size_kb; echo 1 > options/sym-addr; echo > trace; {} \
         while :; do /bin/pulsar 100 2 > /dev/null; done & sleep 7; kill $!; {} \
         awk '/<stack trace>/ {{ if (s) print s; s = \"stack\" }} \
         / => / {{ gsub(/[<>]/, \"\"); s = s \" \" $NF }} END {{ print s }}' trace | sort | uniq; \
         echo 0 > options/sym-addr; echo > trace; echo 1408 > buffer_size_kb ) 2>&1",
        each("stacktrace"),
        each("!stacktrace")
    )
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn stacks_are_those_that_the_kernel_unwinds() {
    let shared = shared();
    let turn = shared.turn();
    let image = &shared.image;
    // In a system call, and in an interrupt.
    let events = ["sched/sched_process_fork", "timer/hrtimer_expire_entry"];
    let functions = [
        "__traceiter_sched_process_fork",
        "__traceiter_hrtimer_expire_entry",
    ];
    // The kernel begins before the instruments, and ends after them.
    let placements = functions.map(|function| placement(function, 0, "stacks", (4.0, 5.5)));
    let session = Session {
        name: "stacks".into(),
        duration: 60.0,
        tracepoints: true,
        placements: placements.into(),
        sources: [("stacks".to_owned(), SOURCE.to_owned())].into(),
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), kernels_own(&events)],
            start: 0.3,
        }),
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let said = outcome.said.iter();
    let theirs: BTreeSet<Vec<String>> = said
        .filter_map(|line| line.strip_prefix("stack "))
        .map(|line| {
            line.split(' ')
                .map(|address| name(image, address))
                .collect()
        })
        .collect();
    assert!(theirs.len() > 2, "{:?}", outcome.said);
    let mut missing = Vec::new();
    for (number, function) in functions.iter().enumerate() {
        let own = counted(&outcome, image, number);
        assert!(!own.is_empty(), "no stacks of {function}");
        for (stack, count) in &own {
            assert!(stack[0].starts_with(function), "{stack:?}");
            let callers = &stack[1..];
            if !theirs.iter().any(|one| one.ends_with(callers)) {
                missing.push((*count, stack.clone()));
            }
        }
    }
    let of_fork = counted(&outcome, image, 0);
    for end in [
        "kernel_clone",
        "__do_sys_clone",
        "do_syscall_64",
        "entry_SYSCALL_64",
    ] {
        let has = |stack: &Vec<String>| stack.iter().any(|frame| frame.starts_with(end));
        assert!(of_fork.keys().any(has), "no {end} in {of_fork:?}");
    }
    let in_interrupt = |stack: &Vec<String>| {
        stack
            .iter()
            .any(|frame| frame.starts_with("asm_sysvec_apic_timer"))
    };
    assert!(
        counted(&outcome, image, 1).keys().any(in_interrupt),
        "{:?}",
        counted(&outcome, image, 1)
    );
    assert!(
        missing.is_empty(),
        "not among the kernel's: {missing:#?}\n{theirs:#?}"
    );
    assert_eq!(outcome.summary.stacks.lost, 0);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_script_prints_stacks_and_files_have_them() {
    let shared = shared();
    let turn = shared.turn();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("run.arrow");
    let script = "entry:__do_sys_clone { @by[kstack] = count(); @few[kstack(2), comm] = count() }";
    let to = recording.to_str().unwrap();
    let output = answer(&turn, &["-e", script, "-c", "/bin/pulsar 100 5", "-o", to]);
    let (out, err) = printed(&output);
    assert!(output.status.success(), "{out}{err}");
    let frames = ["__do_sys_clone", "do_syscall_64+", "entry_SYSCALL_64"];
    let mut lines = out.lines().map(str::trim);
    for frame in frames {
        assert!(
            lines.any(|line| line.starts_with(frame)),
            "no {frame} in turn: {out}{err}"
        );
    }
    assert!(out.contains("stack of 2 frames, pulsar"), "{out}");

    // Of two aggregates each is a root.
    let folded = folder.path().join("run.folded");
    let text = exported(&recording, &["--to", "folded"], &folded);
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for line in text.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let root = stack.split(' ').next().unwrap();
        *sums.entry(root.to_owned()).or_default() += count.parse::<u64>().unwrap();
        assert!(stack.ends_with("__do_sys_clone"), "{line}");
    }
    assert_eq!(
        sums,
        [("@by".to_owned(), 160), ("@few".to_owned(), 160)].into(),
        "{text}"
    );
    assert_ne!(
        KeptStacks::default(),
        gilk_samples::recording::Recording::open(&recording)
            .unwrap()
            .totals()
            .stacks
    );
    turn.assert_untouched();
}
