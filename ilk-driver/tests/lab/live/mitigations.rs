//! Sessions on kernels with mitigations that the lab's own processor does not need: returns through a safe thunk (AMD),
//! and calls that the kernel counts to fill the return-stack buffer in time (Intel).
//!
//! They boot without a snapshot, since they have arguments of QEMU's of their own: `cargo xtask test --long` runs them.

use gilk_engine::Session;
use gilk_engine::session::Workload;
use ilk_driver::lab::{Accelerator, Options, prepare};

use super::conservation::every_block_of_copy_process;
use crate::support::{options, placement, pulsar, shared_of};

/// A processor that QEMU emulates, and what its kernel does for it.
struct Processor {
    /// Its name for QEMU, without what the lab leaves out of its own.
    model: &'static str,
    /// Words of the kernel's command line.
    append: &'static [&'static str],
    /// A file of `/sys/devices/system/cpu/vulnerabilities`, and words in it.
    vulnerability: &'static str,
    mitigation: &'static str,
}

const SAFE_RETURNS: Processor = Processor {
    model: "EPYC-Milan,-cx16,-erms",
    append: &[],
    vulnerability: "spec_rstack_overflow",
    mitigation: "Safe RET",
};

const COUNTED_CALLS: Processor = Processor {
    // With `-cx16` this kernel ends in its allocator before it starts a process: counting changes the flags in which
    // the emulation of cmpxchg16b (`this_cpu_cmpxchg16b_emu`) returns its result.
    model: "Skylake-Client-v1,-erms",
    append: &["retbleed=stuff", "spectre_v2=retpoline"],
    vulnerability: "retbleed",
    mitigation: "Mitigation: Stuffing",
};

#[test]
#[ignore = "boots the lab; cargo xtask test --long runs it"]
fn every_fork_and_block_is_counted_where_returns_are_safe() {
    counts_on(&SAFE_RETURNS);
}

#[test]
#[ignore = "boots the lab; cargo xtask test --long runs it"]
fn every_fork_and_block_is_counted_where_the_kernel_counts_calls() {
    counts_on(&COUNTED_CALLS);
}

fn counts_on(processor: &Processor) {
    let given = options();
    let options = Options {
        // 6.1 counts no calls.
        series: given.suite.is_none().then(|| "6.12".into()),
        // KVM has the host's processor.
        accelerator: Some(Accelerator::Emulate),
        arguments: vec!["-cpu".into(), processor.model.into()],
        append: processor
            .append
            .iter()
            .copied()
            .map(str::to_owned)
            .collect(),
        ..given
    };
    let prepared = prepare(&options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
    let shared = shared_of(&prepared);
    let turn = shared.turn();
    let read = turn.run(&Session {
        name: "mitigations".into(),
        workload: Some(Workload {
            program: "/bin/cat".into(),
            arguments: vec![format!(
                "/sys/devices/system/cpu/vulnerabilities/{}",
                processor.vulnerability
            )],
            start: 0.0,
        }),
        ..Session::empty()
    });
    println!("{}: {:?}", processor.model, read.said);
    assert!(
        read.said
            .iter()
            .any(|line| line.contains(processor.mitigation)),
        "{} is not mitigated by {:?}: {:?}",
        processor.vulnerability,
        processor.mitigation,
        read.said
    );
    let forks = placement("__x64_sys_clone", 0, "timestamp", (0.0, 8.0));
    let outcome = turn.run(&pulsar(8.0, 500, vec![forks]));
    assert_eq!(outcome.times(0).len(), 160, "{:?}", outcome.said);
    turn.assert_untouched();
    every_block_of_copy_process(&turn);
}
