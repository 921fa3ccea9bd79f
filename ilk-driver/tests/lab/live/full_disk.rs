//! A full disk ends the recording and the session without harm to the target.

use std::process::Command;

use gilk_engine::collection::Strategy;
use gilk_samples::recording::Recording;

use super::losses::{counted_and_sampled, session};
use crate::support::{saved, shared};

/// Limit on the recording in blocks of 512 bytes: a fraction of the session's samples.
const BLOCKS: u32 = 256;

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn a_full_disk_ends_the_recording_and_not_the_target() {
    let shared = shared();
    let turn = shared.turn();
    let directory = tempfile::tempdir().unwrap();
    let session = saved(
        &session(Strategy::Stream, counted_and_sampled()),
        directory.path(),
    );
    let recording = directory.path().join("recording.arrow");
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -f {BLOCKS}; exec \"$@\""), "sh"])
        .arg(env!("CARGO_BIN_EXE_ilk"))
        .args(["run", "--socket"])
        .arg(shared.lab.socket())
        .arg("-o")
        .arg(&recording)
        .arg(&session)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for wanted in [
        "The recording could not be written, so all instruments were removed",
        "Free some space",
    ] {
        assert!(said.contains(wanted), "{wanted} is not in {said}");
    }
    turn.assert_untouched();
    let opened = Recording::open(&recording).unwrap();
    assert!(opened.samples() > 0 && opened.recovered().is_some());
    assert!(opened.batches().all(|batch| batch.is_ok()));
    assert!(std::fs::metadata(&recording).unwrap().len() <= u64::from(BLOCKS) * 512);
}
