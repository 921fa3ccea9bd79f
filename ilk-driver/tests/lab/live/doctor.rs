//! `ilk doctor` on a machine on which the module and the agent work: what it says must be what is seen there.

use gilk_engine::session::{Session, Workload};
use ilk_driver::agent::abi::ABI_VERSION;

use crate::support::shared;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_machine_that_serves_sessions_has_only_the_faults_that_the_lab_has() {
    let shared = shared();
    let turn = shared.turn();
    let outcome = turn.run(&Session {
        name: "doctor".into(),
        duration: 60.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "ilk doctor; echo status $?".into()],
            start: 0.5,
        }),
        ..Session::empty()
    });
    let said = &outcome.said;
    let line = |mark: &str, subject: &str| {
        let begin = format!("{mark:<8}{subject:<14}");
        let mut lines = said.iter().filter_map(|line| line.strip_prefix(&begin));
        lines
            .next()
            .unwrap_or_else(|| panic!("no {begin:?} in {said:#?}"))
    };
    for subject in [
        "processor",
        "kernel",
        "lockdown",
        "signatures",
        "symbols",
        "addresses",
        "types",
        "live patches",
    ] {
        line("ok", subject);
    }
    let release = &outcome.plan.release;
    assert_eq!(line("ok", "kernel"), format!("Linux {release}"));
    assert_eq!(
        line("ok", "module"),
        format!("loaded, interface {ABI_VERSION}")
    );
    // The lab's root has no headers, and its agent serves a port.
    line("warning", "headers");
    assert_eq!(line("FAULT", "agent"), "no agent listens at /run/ilk.sock");
    let faults = said.iter().filter(|line| line.starts_with("FAULT")).count();
    assert_eq!(faults, 1, "{said:#?}");
    assert!(said.iter().any(|line| line == "status 1"), "{said:#?}");
}
