//! Whatever the text: it is imported or refused, what is imported opens, and nothing panics.

#![no_main]

use std::path::Path;

use gilk_samples::import::{Aligned, import};
use gilk_samples::recording::Recording;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let dir = tempfile::TempDir::new().expect("a directory");
    let path = dir.path().join("r.arrow");
    if let Ok(done) = import(|| Ok(bytes), Path::new("text"), Aligned::Alone, &path) {
        let opened = Recording::open(&path).expect("a recording");
        assert_eq!(opened.samples(), done.summary.samples);
    }
});
