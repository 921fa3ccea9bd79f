//! What programs read of the kernel's memory, beside what is known of it.

use std::collections::BTreeSet;

use gilk_engine::session::Session;

use crate::support::{Outcome, placement, pulsar, shared};

/// What serves glibc's `fork`.
const FORK: &str = "__x64_sys_clone";

/// What the kernel keeps of the running thread is what it says of it.
const SAME: &str = "instrument same \"Whether types lead to what the kernel says.\";\n\
    entry / comm == \"pulsar\" / {\n\
      sample(curtask->tgid == pid && curtask->pid == tid && curtask->comm == \"pulsar\"\n\
        && curtask->group_leader->tgid == pid)\n\
    }";

fn sources(all: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    all.iter().map(owned).collect()
}

/// The values that a placement's instruments sampled, in order of time.
fn values(outcome: &Outcome, placement: usize) -> Vec<u64> {
    let instruments = outcome.plan.instruments.iter();
    let own: BTreeSet<u64> = instruments
        .filter(|one| one.placement == placement)
        .map(|one| one.id.pack())
        .collect();
    let all = outcome.samples.iter().map(|(_, sample)| sample);
    all.filter(|sample| own.contains(&sample.id))
        .map(|sample| sample.value)
        .collect()
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn the_kernels_types_lead_to_what_the_kernel_says() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        sources: sources(&[("same", SAME)]),
        ..pulsar(8.0, 500, vec![placement(FORK, 0, "same", (0.0, 8.0))])
    };
    let outcome = turn.run(&session);
    assert_eq!(values(&outcome, 0), [1; 160], "{:?}", outcome.said);
    assert_eq!(outcome.summary.failed_reads[0].count, 0);
    turn.assert_untouched();
}
