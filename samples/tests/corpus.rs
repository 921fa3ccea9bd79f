//! Regression corpus of the fuzz targets: every file is tried as the fuzzers try it.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests, their helpers included, fail by panicking"
)]

#[path = "support/fuzzed.rs"]
mod fuzzed;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use gilk_samples::metadata::{Clock, Delivers, InstrumentInfo, Metadata};
use gilk_samples::recording::{Compression, Loss, LossCause, Mark, MarkKind, Writer, sidecar_path};
use gilk_samples::{Batch, Meaning, Sample};
use support::peak;

fn folder(of: &str) -> PathBuf {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    corpus.join(of)
}

/// Tries every file of a folder, and returns their number.
fn replay(of: &str, tried: fn(&[u8])) -> usize {
    let files = fs::read_dir(folder(of)).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in &paths {
        println!("{}", path.display());
        tried(&fs::read(path).unwrap());
    }
    paths.len()
}

#[test]
fn fuzzed_properties_hold_for_the_corpus() {
    let before = peak();
    assert!(replay("recording", fuzzed::recording) >= 8);
    assert!(replay("import", fuzzed::imported) >= 4);
    let grown = peak() - before;
    assert!(grown < 48 * 1024, "files of some KB took {grown} KiB");
}

mod by_hand {
    use super::*;

    /// Writes small recordings of every kind, the initial corpus of the fuzzers.
    #[test]
    #[ignore = "writes the corpus that fuzzing begins with, where GILK_SEEDS says"]
    fn seeds() {
        let to = PathBuf::from(std::env::var_os("GILK_SEEDS").expect("GILK_SEEDS names a folder"));
        fs::create_dir_all(&to).unwrap();
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("r.arrow");
        for (number, (compression, finish)) in [
            (Compression::Zstd, true),
            (Compression::None, true),
            (Compression::Zstd, false),
            (Compression::None, false),
        ]
        .into_iter()
        .enumerate()
        {
            written(&path, compression, finish);
            let (recording, sidecar) = (
                fs::read(&path).unwrap(),
                fs::read(sidecar_path(&path)).unwrap(),
            );
            for (kind, sidecar) in [("alone", Vec::new()), ("sidecar", sidecar)] {
                let length = u16::try_from(sidecar.len()).unwrap();
                let bytes = [&length.to_le_bytes(), sidecar.as_slice(), &recording].concat();
                fs::write(to.join(format!("{number}-{kind}")), bytes).unwrap();
            }
        }
    }

    fn written(path: &Path, compression: Compression, finish: bool) {
        let metadata = Metadata {
            clock: Clock {
                hz: 1_000_000,
                start: 7,
                start_unix_ns: 1_000_000,
            },
            cpus: 2,
            instruments: vec![InstrumentInfo {
                id: 1,
                label: "t".to_owned(),
                instrument: "t".to_owned(),
                meaning: Meaning::Event,
                unit: "ticks".to_owned(),
                launch: 0.0,
                splash: 1.0,
                placed: None,
                delivers: Delivers::Samples,
            }],
            ..Metadata::default()
        };
        let mut writer = Writer::create(path, &metadata).unwrap();
        writer.set_compression(compression);
        for cpu in 0..2 {
            let samples = (0..8).map(|n| Sample {
                id: 1 + n % 2,
                value: n * n,
                tsc: 10 + n,
            });
            let samples = samples.collect();
            writer.write(&Batch { cpu, samples }).unwrap();
            writer.flush().unwrap();
        }
        let loss = Loss {
            cpu: 0,
            tsc: 12,
            cause: LossCause::RingFull,
            count: 3,
        };
        writer.losses(&[loss]).unwrap();
        let mark = Mark {
            kind: MarkKind::Launch,
            tsc: 10,
            id: 1,
            value: 10,
        };
        writer.mark(mark).unwrap();
        if finish {
            writer.finish().unwrap();
        } else {
            writer.flush().unwrap();
        }
    }
}
