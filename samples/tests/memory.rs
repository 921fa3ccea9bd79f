//! Memory that a file can make the reader allocate. The test measures its own process, so it is
//! alone in it.

#![cfg(feature = "recording")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests, their helpers included, fail by panicking"
)]

mod support;

use std::fs;

use gilk_samples::metadata::Metadata;
use gilk_samples::recording::{Compression, MAX_ROWS, Recording, Writer, sidecar_path};
use gilk_samples::{Batch, Sample};
use support::peak;

/// The worst case for a reader: batches of maximum length with identical rows, each of another CPU,
/// so that all of them are in memory when they are merged.
#[test]
fn memory_is_bounded_by_the_size_of_the_file() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("bomb.arrow");
    let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
    writer.set_compression(Compression::Zstd);
    let alike = vec![
        Sample {
            id: 1,
            value: 1,
            tsc: 1
        };
        MAX_ROWS
    ];
    let cpus = 60;
    for cpu in 0..cpus {
        let samples = alike.clone();
        writer.write(&Batch { cpu, samples }).unwrap();
    }
    let bytes = writer.finish().unwrap().bytes;
    let _ = fs::remove_file(sidecar_path(&path));
    let before = peak();
    let recording = Recording::open(&path).unwrap();
    let samples = recording.merged().map(Result::unwrap).count();
    assert_eq!(samples, usize::from(cpus) * MAX_ROWS);
    let grown = (peak() - before) * 1024;
    let allowed = bytes * 3072 + (16 << 20);
    assert!(grown <= allowed, "{bytes} bytes took {grown} of memory");
}

/// A malicious sidecar: its checksums are right, its numbers of rows are not.
#[test]
fn a_sidecar_cannot_claim_memory() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("small.arrow");
    let mut writer = Writer::create(&path, &Metadata::default()).unwrap();
    let samples = vec![Sample::default(); 3];
    writer.write(&Batch { cpu: 0, samples }).unwrap();
    writer.finish().unwrap();
    let mut sidecar = fs::read(sidecar_path(&path)).unwrap();
    let (head, entry) = sidecar.split_at_mut(16);
    assert_eq!((head.len(), entry.len()), (16, 48));
    entry[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    let checksum = crc32fast::hash(&entry[..44]);
    entry[44..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(sidecar_path(&path), &sidecar).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(
        recording.samples(),
        u64::from(u32::MAX),
        "it is believed until it is read"
    );
    let error = recording.batches().next().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("another number of rows"),
        "{error}"
    );
}
