use gilk_engine::Addr;

use super::*;

/// A block of one repeated store of 8 bytes, one store relative to a register, and one that is not recorded.
fn block() -> RecordedBlock {
    let access = |instruction, place| RecordedAccess {
        instruction,
        reads: false,
        writes: true,
        size: 8,
        place,
    };
    RecordedBlock {
        number: 7,
        from: Addr(0x10_0000),
        end: Addr(0x10_0080),
        pointer: 1,
        slots: 3,
        exits: Vec::new(),
        instructions: vec![Addr(0x1000), Addr(0x1003), Addr(0x1007)],
        accesses: vec![
            access(
                0,
                AccessPlace::Repeated {
                    first: 0,
                    after: 1,
                    register: 7,
                    copied: Addr(0x10_0010),
                },
            ),
            access(
                1,
                AccessPlace::Sum {
                    base: Some(2),
                    index: None,
                    displacement: -8,
                    thread: false,
                },
            ),
            access(2, AccessPlace::Unknown),
        ],
    }
}

/// The bytes of a file with one group of the block, which has these slots.
fn file(slots: [u64; 3]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = AccessWriter::new(&mut bytes).unwrap();
    writer.process(1, 41, "storing").unwrap();
    writer.block(&block()).unwrap();
    let [first, after, base] = slots;
    let words = [7, first, after, base].map(u64::to_le_bytes).concat();
    writer.groups(42, 0, &words).unwrap();
    writer.name(7, "stores").unwrap();
    writer.end(&AccessTotals::default()).unwrap();
    bytes
}

fn read_bytes(bytes: &[u8]) -> Result<(AccessFile, Vec<u64>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accesses");
    std::fs::write(&path, bytes).unwrap();
    let mut all = Vec::new();
    let found = read(&path, &mut |access, _| all.push(access.at))?;
    Ok((found, all))
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let (found, all) = read_bytes(&file([0x5000, 0x5018, 0x9000])).unwrap();
    assert_eq!(all, [0x5000, 0x5008, 0x5010, 0x8ff8]);
    let [execution] = &found.executions[..] else {
        panic!("{found:?}");
    };
    assert_eq!((execution.pid, &*execution.program), (41, "storing"));
    assert_eq!((execution.accesses, execution.unrecorded), (4, 1));
    assert_eq!(execution.names[&7], "stores");
    // Backward, as with the direction flag.
    let (_, all) = read_bytes(&file([0x5018, 0x5008, 0x9000])).unwrap();
    assert_eq!(all, [0x5018, 0x5010, 0x8ff8]);
}

#[test]
fn sums_of_registers_are_added_up_to_where_a_block_was_left() {
    let access = |instruction, base, index, displacement| RecordedAccess {
        instruction,
        reads: true,
        writes: false,
        size: 4,
        place: AccessPlace::Sum {
            base,
            index,
            displacement,
            thread: false,
        },
    };
    let block = RecordedBlock {
        slots: 2,
        accesses: vec![
            access(0, Some(0), Some((1, 8)), -4),
            access(1, None, Some((0, 2)), 1),
            access(2, Some(0), None, 0),
        ],
        ..block()
    };
    let mut bytes = Vec::new();
    let mut writer = AccessWriter::new(&mut bytes).unwrap();
    writer.process(1, 41, "storing").unwrap();
    writer.block(&block).unwrap();
    for executed in [3_u64, 0, 1, 2] {
        let note = if executed == 3 { 0 } else { executed + 1 };
        let words = [7 | note << 32, 0x1000, 0x20].map(u64::to_le_bytes);
        writer.groups(42, 0, &words.concat()).unwrap();
    }
    writer.end(&AccessTotals::default()).unwrap();
    let (_, all) = read_bytes(&bytes).unwrap();
    let [sum, scaled] = [0x1000 + 8 * 0x20 - 4, 0x2001];
    assert_eq!(all, [sum, scaled, 0x1000, sum, sum, scaled]);
}

#[test]
fn executions_have_blocks_and_ends_of_their_own() {
    let mut bytes = Vec::new();
    let mut writer = AccessWriter::new(&mut bytes).unwrap();
    let words = |base: u64| [7, 0x5000, 0x5000, base].map(u64::to_le_bytes).concat();
    writer.process(1, 41, "sh").unwrap();
    writer.block(&block()).unwrap();
    writer.process(2, 42, "ls").unwrap();
    let mut other = block();
    other.instructions[1] = Addr(0x9999);
    writer.block(&other).unwrap();
    writer.execution(1).unwrap();
    writer.groups(41, 0, &words(0x100)).unwrap();
    writer.execution(2).unwrap();
    writer.groups(42, 0, &words(0x200)).unwrap();
    writer.name(7, "other").unwrap();
    writer.end(&AccessTotals::default()).unwrap();
    writer.execution(1).unwrap();
    writer.groups(41, 0, &words(0x300)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accesses");
    std::fs::write(&path, &bytes).unwrap();
    let mut all = Vec::new();
    let found = read(&path, &mut |access, execution| {
        all.push((execution.pid, access.instruction, access.at));
    });
    let found = found.unwrap().executions;
    assert_eq!(
        all,
        [(41, 0x1003, 0xf8), (42, 0x9999, 0x1f8), (41, 0x1003, 0x2f8)]
    );
    assert_eq!((found[0].accesses, found[0].totals), (2, None));
    assert_eq!(found[1].totals, Some(AccessTotals::default()));
    assert!(found[0].names.is_empty());
    assert_eq!(found[1].names[&7], "other");
    // Of an execution that has not begun.
    bytes.extend(EXECUTION.to_le_bytes());
    bytes.extend(4_u64.to_le_bytes());
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(END.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    let error = read_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("is damaged"), "{error}");
}

#[test]
fn files_of_one_unnamed_process_are_read() {
    let mut bytes = file([0x5000, 0x5008, 0x9000]);
    let process = 4 + 8 + 4 + 4 + "storing".len();
    bytes.drain(MAGIC.len()..MAGIC.len() + process);
    bytes[..MAGIC.len()].copy_from_slice(&UNNAMED);
    let (found, all) = read_bytes(&bytes).unwrap();
    assert_eq!(all, [0x5000, 0x8ff8]);
    assert_eq!(found.executions[0].pid, 0);
    assert!(found.executions[0].totals.is_some());
}

#[test]
fn files_of_another_version_are_refused() {
    let mut bytes = file([0x5000, 0x5018, 0x9000]);
    bytes[MAGIC.len() - 1] = b'1';
    let error = read_bytes(&bytes).unwrap_err().to_string();
    assert!(error.contains("another version"), "{error}");
}

#[test]
fn damaged_files_are_refused_or_read() {
    let whole = file([0x5000, 0x5018, 0x9000]);
    let has_no_end = |found: &AccessFile| {
        let mut all = found.executions.iter();
        all.all(|execution| execution.totals.is_none())
    };
    for length in 0..whole.len() {
        let outcome = read_bytes(&whole[..length]);
        assert_eq!(outcome.is_err(), length < MAGIC.len(), "{length} bytes");
        assert!(outcome.is_err() || has_no_end(&outcome.unwrap().0));
    }
    let mut refused = 0;
    // But for the addresses of the repeated store, between which there would be many.
    let slots = 0x5000_u64.to_le_bytes();
    let slots = whole.windows(8).position(|bytes| bytes == slots).unwrap();
    for at in (0..whole.len()).filter(|at| !(slots..slots + 16).contains(at)) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x80;
        match read_bytes(&damaged) {
            Ok(_) => {}
            Err(error) => {
                assert!(error.to_string().contains("accesses"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "only {refused} were refused");
    for end in [0x5001, 1 << 62, 0x5000 ^ 1 << 63] {
        let error = read_bytes(&file([0x5000, end, 0])).unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
    }
}
