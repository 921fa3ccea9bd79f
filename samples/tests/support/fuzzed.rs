//! Properties that hold for any bytes: `fuzz` tests them with random bytes, and `tests/corpus.rs`
//! with earlier findings.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use gilk_samples::import::{Aligned, import};
use gilk_samples::index::Index;
use gilk_samples::recording::{Recording, recover, sidecar_path};

/// Opens a recording or fails with an error, and reads what opens. The first two bytes give the
/// length of the sidecar in the rest.
pub(crate) fn recording(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else {
        return;
    };
    let length = usize::from(u16::from_le_bytes(*length));
    let (sidecar, recording) = rest.split_at(length.min(rest.len()));
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("r.arrow");
    fs::write(&path, recording).expect("a file");
    if !sidecar.is_empty() {
        fs::write(sidecar_path(&path), sidecar).expect("a file");
    }
    if let Ok(opened) = Recording::open(&path) {
        let batches = opened.batches().flatten();
        let read: u64 = batches.map(|batch| batch.samples.len() as u64).sum();
        assert_eq!(opened.merged().filter(Result::is_ok).count() as u64, read);
        let (index, _) = Index::of(&opened, |_| ControlFlow::Continue(()));
        assert_eq!(index.samples(), read);
        let _ = (opened.losses(), opened.marks(), opened.totals());
    }
    if recover(&path).is_ok() {
        assert_eq!(Recording::open(&path).expect("recovered").recovered(), None);
    }
}

/// Imports a text or fails with an error, and opens the result.
pub(crate) fn imported(bytes: &[u8]) {
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("r.arrow");
    if let Ok(done) = import(|| Ok(bytes), Path::new("text"), Aligned::Alone, &path) {
        let opened = Recording::open(&path).expect("a recording");
        assert_eq!(opened.samples(), done.summary.samples);
    }
}
