//! Sessions beside other users of the kernel's text: docs/coexistence.md says what holds.

mod bpf;
mod ends;
mod probes;

use std::sync::Arc;

use gilk_engine::Session;
use gilk_engine::session::Workload;
use ilk_driver::lab::{Options, prepare};

use crate::chosen::Chosen;
use crate::guest::Guest;
use crate::support::{Shared, Turn, options, placement, shared, shared_of};

/// A session with a counter at every hook of a function, while a script runs.
fn counted(turn: &Turn<'_>, function: &str, script: &str, duration: f64) -> Session {
    let image = &turn.shared.image;
    let function = image.function_named(function).unwrap();
    let session = quiet(script, duration);
    let mut chosen = Chosen::of(image, &[function]);
    let layout = turn.connect().info().layout.clone();
    chosen.plan(image, session, &layout).0
}

/// A session without placements, while a script runs.
fn quiet(script: &str, duration: f64) -> Session {
    Session {
        name: "beside others".into(),
        duration,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            start: 1.0,
        }),
        ..Session::empty()
    }
}

/// A lab of its own, with all modules for tests in `/lab`, and `rivals`: one snapshot serves all of these labs.
pub(super) fn lab_with_modules() -> Arc<Shared> {
    let options = Options {
        rivals: true,
        ..options()
    };
    let prepared = prepare(&options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let guest = Guest::new(&prepared);
    shared_of(&prepared.with(|options| options.files.extend(guest.files())))
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn what_is_spliced_can_be_seen() {
    let shared = shared();
    let turn = shared.turn();
    let script = "splices=/sys/kernel/debug/ilk/splices; sleep 1; echo list $(wc -l < $splices); \
                  grep -c ' vfs_read+' $splices | sed 's/^/named /'; \
                  sed 's/^/taint /' /proc/sys/kernel/tainted; \
                  dmesg | grep 'ilk: ' | tail -n 1 | sed 's/^/log /'";
    let session = counted(&turn, "vfs_read", script, 60.0);
    let outcome = turn.run(&session);
    let said = |word: &str| {
        let mut lines = outcome
            .said
            .iter()
            .filter_map(|line| line.strip_prefix(word));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {word:?} in {:?}", outcome.said))
    };
    let parts = outcome.plan.sites.len() + outcome.plan.bounces.len();
    assert_eq!(said("list ").parse(), Ok(parts));
    assert!(said("named ").parse::<usize>().unwrap() > outcome.plan.sites.len() / 2);
    let taint: u32 = said("taint ").parse().unwrap();
    assert_eq!(taint >> 15 & 1, 1, "TAINT_LIVEPATCH of {taint:#x}");
    assert!(
        said("log ").contains("instruments this kernel"),
        "{:?}",
        outcome.said
    );

    let script = "dmesg | grep 'ilk: ' | tail -n 2 | head -n 1 | sed 's/^/log /'";
    let mut after = quiet(script, 60.0);
    after.placements = vec![placement("vfs_read", 0, "counter", (0.0, 60.0))];
    let said = turn.run(&after).said;
    let removed =
        |line: &String| line.starts_with("log ") && line.contains("the last splice is removed");
    assert!(said.iter().any(removed), "{said:?}");
    turn.assert_untouched();
}

/// Directories that the script makes while the other users come and go.
const MADE: u64 = 60;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn counts_are_exact_while_tracers_probes_modules_and_processors_come_and_go() {
    let shared = lab_with_modules();
    let turn = shared.turn();
    let script = format!(
        "cd /sys/kernel/debug/tracing; cpu=/sys/devices/system/cpu/cpu1/online; \
         mkdir /tmp/beside; i=0; while [ $i -lt {MADE} ]; do mkdir /tmp/beside/$i || echo failed mkdir; \
         case $((i % 10)) in \
         0) echo 'vfs_*' > set_ftrace_filter && echo function > current_tracer || echo failed tracer;; \
         1) echo nop > current_tracer && echo > set_ftrace_filter || echo failed tracer;; \
         2) echo 'p:gilk/entry vfs_mkdir' > kprobe_events && echo 1 > events/gilk/enable || echo failed kprobe;; \
         3) echo probed $(awk '{{ print $2 }}' kprobe_profile); \
            echo 0 > events/gilk/enable && echo > kprobe_events || echo failed kprobe;; \
         4) echo 1 > events/syscalls/enable || echo failed events;; \
         5) echo 0 > events/syscalls/enable || echo failed events;; \
         6) insmod /lab/passer.ko || echo failed insmod;; \
         7) rmmod passer || echo failed rmmod;; \
         8) echo 0 > $cpu || echo failed offline;; \
         9) echo 1 > $cpu || echo failed online;; \
         esac; i=$((i + 1)); done 2>&1; echo made"
    );
    let session = counted(&turn, "vfs_mkdir", &script, 300.0);
    let entry = session.placements.iter().position(|one| one.block == 0);
    let outcome = turn.run(&session);
    let said = &outcome.said;
    assert!(said.iter().any(|line| line == "made"), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("failed")), "{said:?}");
    // One directory between the kprobe's start and its reading.
    let probed = said.iter().filter(|line| **line == "probed 1").count() as u64;
    assert_eq!(probed, MADE / 10, "{said:?}");
    assert_eq!(outcome.total(entry.unwrap()), MADE + 1);
    turn.assert_untouched();
}
