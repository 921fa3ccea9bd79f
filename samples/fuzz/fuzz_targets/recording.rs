//! Whatever the bytes: a recording opens or is refused, what opens can be read, and nothing panics.
//!
//! The first byte says how much of the rest is the sidecar, in 256ths.

#![no_main]

use std::fs;

use gilk_samples::index::Index;
use gilk_samples::recording::{Recording, recover, sidecar_path};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((share, rest)) = bytes.split_first() else { return };
    let (sidecar, recording) = rest.split_at(rest.len() * usize::from(*share) / 256);
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("r.arrow");
    fs::write(&path, recording).expect("a file");
    if !sidecar.is_empty() {
        fs::write(sidecar_path(&path), sidecar).expect("a file");
    }
    if let Ok(opened) = Recording::open(&path) {
        let read: u64 = opened.batches().flatten().map(|batch| batch.samples.len() as u64).sum();
        assert_eq!(opened.merged().filter(Result::is_ok).count() as u64, read);
        let (index, _) = Index::of(&opened, |_| {});
        assert_eq!(index.samples(), read);
        let _ = (opened.losses(), opened.marks());
    }
    if recover(&path).is_ok() {
        assert_eq!(Recording::open(&path).expect("recovered").recovered(), None);
    }
});
