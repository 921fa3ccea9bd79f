//! Truncated and damaged files, and files with the sidecar of another recording.

use super::*;
use crate::chart::scale;

/// Returns a recording of six batches whose writer was killed: nothing after them was written.
fn torn(dir: &TempDir) -> PathBuf {
    let (path, mut writer) = create(dir);
    for n in 0..6 {
        writer
            .write(&batch(n % 2, u64::from(n) * 500, 500))
            .unwrap();
        writer.flush().unwrap();
    }
    std::mem::forget(writer);
    path
}

#[test]
fn a_torn_file_opens_with_every_whole_batch() {
    let dir = TempDir::new().unwrap();
    let path = torn(&dir);
    let whole = contents(&path);
    let recording = Recording::open(&path).unwrap();
    assert_eq!(whole.len(), 3000);
    assert_eq!(
        recording.recovered(),
        Some("The recording was not finished. Found: 3,000 samples in 6 whole batches.")
    );
    let ends: Vec<u64> = recording.blocks().iter().map(Block::end).collect();
    let bytes = fs::read(&path).unwrap();
    let head_end = recording.head_end as usize;
    for (round, cut) in (head_end..bytes.len())
        .step_by(97)
        .chain([ends[2] as usize])
        .enumerate()
    {
        let keep_sidecar = round % 2 == 0;
        let torn = dir.path().join("torn.arrow");
        fs::write(&torn, &bytes[..cut]).unwrap();
        let _ = fs::remove_file(sidecar_path(&torn));
        if keep_sidecar {
            fs::copy(sidecar_path(&path), sidecar_path(&torn)).unwrap();
        }
        let batches = ends.iter().filter(|&&end| end <= cut as u64).count();
        let opened = Recording::open(&torn).unwrap();
        assert_eq!(opened.blocks().len(), batches, "cut at {cut}");
        assert_eq!(contents(&torn), whole[..batches * 500]);
        let sentence = opened.recovered().unwrap();
        if keep_sidecar {
            let gone = format!(
                "Missing: {} that came after it",
                scale::counted(3000 - batches as u64 * 500, "sample")
            );
            assert!(sentence.contains(&gone), "{sentence}");
        }
        let recovery = recover(&torn).unwrap();
        assert_eq!(
            (recovery.batches, recovery.samples),
            (batches as u64, batches as u64 * 500)
        );
        let again = Recording::open(&torn).unwrap();
        assert_eq!(again.recovered(), None);
        assert_eq!(contents(&torn), whole[..batches * 500]);
        assert!(recover(&torn).unwrap().was_whole);
    }
}

#[test]
fn bytes_that_never_reached_the_disk_are_detected() {
    // After a power loss the file has its length, but its last batch is zeroes.
    let dir = TempDir::new().unwrap();
    let path = torn(&dir);
    let mut bytes = fs::read(&path).unwrap();
    let last = *Recording::open(&path).unwrap().blocks().last().unwrap();
    bytes[last.offset as usize + 400..].fill(0);
    fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    assert_eq!(recording.samples(), 2500);
    assert!(recording.recovered().unwrap().contains("not finished"));
}

#[test]
fn a_damaged_batch_loses_only_its_own_samples() {
    for keep_sidecar in [true, false] {
        let dir = TempDir::new().unwrap();
        let (path, mut writer) = create(&dir);
        for n in 0..6u64 {
            writer.write(&batch(0, n * 500, 500)).unwrap();
            writer.flush().unwrap();
        }
        writer.finish().unwrap();
        let block = Recording::open(&path).unwrap().blocks()[2];
        let mut bytes = fs::read(&path).unwrap();
        bytes[block.offset as usize + 5] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        if !keep_sidecar {
            fs::remove_file(sidecar_path(&path)).unwrap();
        }
        let recording = Recording::open(&path).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = recording.batches().partition(Result::is_ok);
        assert_eq!(good.len(), 5);
        if keep_sidecar {
            // Opening did not read the batch: its own checksum reveals the damage.
            assert!(
                matches!(&bad[..], [Err(Error::DamagedBatch { offset, .. })] if *offset == block.offset)
            );
            let merged = recording.merged().filter(Result::is_ok).count();
            assert_eq!(merged, 2500);
        } else {
            assert!(
                recording
                    .recovered()
                    .unwrap()
                    .contains(&format!("The batch at byte {}", block.offset))
            );
        }
        let recovery = recover(&path).unwrap();
        assert_eq!(
            (recovery.batches, recovery.samples, recovery.was_whole),
            (5, 2500, false)
        );
        assert_eq!(contents(&path).len(), 2500);
    }
}

#[test]
fn a_sidecar_of_another_recording_is_ignored() {
    let dir = TempDir::new().unwrap();
    let path = torn(&dir);
    let other = dir.path().join("other.arrow");
    let mut meta = metadata();
    meta.clock.start += 1;
    let mut writer = Writer::create(&other, &meta).unwrap();
    writer.write(&batch(0, 0, 100)).unwrap();
    writer.finish().unwrap();
    fs::copy(sidecar_path(&other), sidecar_path(&path)).unwrap();
    assert_eq!(contents(&path).len(), 3000);
}
