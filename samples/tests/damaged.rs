//! A corpus of damaged recordings: truncated, bits flipped, bytes overwritten, lengths increased.
//! None may panic or make the reader allocate much memory, and every sample read must have been
//! written.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{
    Compression, Loss, LossCause, Recording, Writer, recover, sidecar_path,
};
use gilk_samples::{Batch, Error, Sample};
use support::peak;

/// A small generator with a fixed seed, so that every run sees the same corpus.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn original(path: &Path, compression: Compression, finish: bool) -> HashSet<Sample> {
    let metadata = Metadata {
        session: "(instruments: [])".repeat(20),
        kernel: "6.1.0".to_owned(),
        ..Metadata::default()
    };
    let mut writer = Writer::create(path, &metadata).unwrap();
    writer.set_compression(compression);
    let mut all = HashSet::new();
    for n in 0..5u64 {
        let samples: Vec<Sample> = (0..400)
            .map(|k| Sample {
                id: k % 3,
                value: k * k,
                tsc: n * 10_000 + k * 11,
            })
            .collect();
        all.extend(samples.iter().copied());
        writer
            .write(&Batch {
                cpu: (n % 2) as u16,
                samples,
            })
            .unwrap();
        writer
            .losses(&[Loss {
                cpu: 0,
                tsc: n,
                cause: LossCause::RingFull,
                count: 1,
            }])
            .unwrap();
        writer.flush().unwrap();
    }
    if finish {
        drop(writer.finish().unwrap());
    } else {
        drop(writer);
    }
    all
}

/// Reads the whole recording. Every sample read must have been written, unless the file has no
/// checksums any more.
fn read(path: &Path, truth: Option<&HashSet<Sample>>) {
    let recording = match Recording::open(path) {
        Ok(recording) => recording,
        Err(error @ (Error::NotARecording { .. } | Error::Io { .. })) => {
            assert!(
                error.to_string().contains(&path.display().to_string()),
                "{error}"
            );
            return;
        }
        Err(other) => panic!("{other}"),
    };
    let mut samples = 0;
    for batch in recording.batches().filter_map(Result::ok) {
        samples += batch.samples.len() as u64;
        assert!(
            truth.is_none_or(|truth| batch.samples.iter().all(|sample| truth.contains(sample)))
        );
    }
    assert!(samples <= recording.samples());
    assert_eq!(
        recording.merged().filter(Result::is_ok).count() as u64,
        samples
    );
    let _ = (recording.losses(), recording.marks(), recording.span());
}

/// `GILK_DAMAGED` files of each kind, or 240.
#[test]
fn a_damaged_file_is_refused_or_opens_partially() {
    let rounds = std::env::var("GILK_DAMAGED").map_or(240, |rounds| rounds.parse().unwrap());
    let dir = tempfile::TempDir::new().unwrap();
    let (source, victim) = (
        dir.path().join("source.arrow"),
        dir.path().join("victim.arrow"),
    );
    let mut random = Random(0x1234_5678_9abc_def1);
    let before = peak();
    for (compression, finish) in [
        (Compression::Zstd, true),
        (Compression::None, true),
        (Compression::Zstd, false),
        (Compression::None, false),
    ] {
        let truth = original(&source, compression, finish);
        let bytes = fs::read(&source).unwrap();
        let index = fs::read(sidecar_path(&source)).unwrap();
        let head = Recording::open(&source).unwrap().blocks()[0].offset as usize;
        for round in 0..rounds {
            let (whole, whole_index) = (&bytes, &index);
            let (mut bytes, mut index) = (bytes.clone(), index.clone());
            let at = random.below(bytes.len());
            match round % 6 {
                0 => bytes.truncate(at),
                1 => bytes[at] ^= 1 << random.below(8),
                2 => (0..20).for_each(|_| {
                    let at = random.below(bytes.len());
                    bytes[at] = random.next() as u8;
                }),
                // Lengths, offsets and counts: eight bytes become huge, negative or zero.
                3 => {
                    let word =
                        [u64::MAX, 1 << 62, 1 << 40, 1 << 31, 0][random.below(5)].to_le_bytes();
                    let at = at & !7;
                    bytes
                        .iter_mut()
                        .skip(at)
                        .zip(word)
                        .for_each(|(byte, new)| *byte = new);
                }
                // Part of the file is copied over another part.
                4 => {
                    let (from, len) = (random.below(bytes.len()), random.below(3000));
                    let piece: Vec<u8> = bytes.iter().skip(from).take(len).copied().collect();
                    bytes
                        .iter_mut()
                        .skip(at)
                        .zip(piece)
                        .for_each(|(byte, new)| *byte = new);
                }
                _ => {
                    let at = random.below(index.len());
                    index[at] ^= 1 << random.below(8);
                    bytes.truncate(random.below(bytes.len()));
                }
            }
            fs::write(&victim, &bytes).unwrap();
            let with_sidecar = random.next().is_multiple_of(2);
            if with_sidecar {
                fs::write(sidecar_path(&victim), &index).unwrap();
            } else {
                let _ = fs::remove_file(sidecar_path(&victim));
            }
            // Without its sidecar a recording has no checksums: a flipped bit in a value is not
            // detectable. And a sidecar belongs only to the head whose checksum it contains.
            let checked =
                with_sidecar && index == *whole_index && bytes.get(..head) == whole.get(..head);
            read(&victim, checked.then_some(&truth));
            if recover(&victim).is_ok() {
                let recovered = Recording::open(&victim).unwrap();
                assert_eq!(recovered.recovered(), None);
                assert!(recovered.batches().all(|batch| batch.is_ok()));
            }
        }
    }
    let grown = peak() - before;
    assert!(grown < 48 * 1024, "reading files of 50 KB took {grown} KiB");
}
