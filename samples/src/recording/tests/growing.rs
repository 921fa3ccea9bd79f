//! Recordings that are read while they are written.

use super::*;

/// Everything that was appended, in one piece.
fn read(growing: &mut GrowingRecording) -> (Vec<(u16, Sample)>, Vec<Loss>) {
    let Appended { batches, losses } = growing.read_on().unwrap();
    let samples = batches.iter().flat_map(|batch| {
        let of = batch.cpu;
        batch.samples.iter().map(move |sample| (of, *sample))
    });
    (samples.collect(), losses)
}

fn alike(batch: &Batch) -> Vec<(u16, Sample)> {
    let of = batch.cpu;
    batch.samples.iter().map(|sample| (of, *sample)).collect()
}

#[test]
fn a_recording_is_read_as_it_grows_each_row_once() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    let mut growing = GrowingRecording::open(&path).unwrap();
    assert_eq!(growing.metadata(), &metadata());
    assert_eq!(read(&mut growing), (Vec::new(), Vec::new()));
    let loss = Loss {
        cpu: 1,
        tsc: 5,
        cause: LossCause::RingFull,
        count: 9,
    };
    for number in 0..4 {
        let mut written = batch(1, 50 * number, 50);
        let word = written.samples.last().unwrap().as_word();
        let samples = alike(&written);
        written.samples.push(word);
        writer.write(&written).unwrap();
        writer.losses(&[loss]).unwrap();
        writer.flush().unwrap();
        let (found, losses) = read(&mut growing);
        assert_eq!(found, [samples, vec![(1, word)]].concat());
        assert_eq!(losses, [loss]);
        assert_eq!(read(&mut growing), (Vec::new(), Vec::new()));
    }
    writer.write(&batch(0, 1000, 10)).unwrap();
    writer.finish().unwrap();
    assert_eq!(read(&mut growing), (alike(&batch(0, 1000, 10)), Vec::new()));
    assert_eq!(read(&mut growing), (Vec::new(), Vec::new()));
}

#[test]
fn a_batch_that_is_not_whole_yet_is_read_later() {
    let dir = TempDir::new().unwrap();
    let (path, mut writer) = create(&dir);
    writer.write(&batch(0, 0, 100)).unwrap();
    writer.flush().unwrap();
    let first = writer.summary().bytes;
    writer.write(&batch(0, 100, 100)).unwrap();
    writer.flush().unwrap();
    drop(writer);
    let whole = fs::read(&path).unwrap();
    let growing_path = dir.path().join("growing.arrow");
    let first = usize::try_from(first).unwrap();
    fs::write(&growing_path, whole.get(..first).unwrap()).unwrap();
    let mut growing = GrowingRecording::open(&growing_path).unwrap();
    assert_eq!(read(&mut growing).0, alike(&batch(0, 0, 100)));
    let mut file = fs::File::options();
    let mut file = file.append(true).open(&growing_path).unwrap();
    let rest = whole.get(first..).unwrap();
    let middle = rest.len() / 2;
    for (part, expected) in [
        (rest.get(..7).unwrap(), Vec::new()),
        (rest.get(7..middle).unwrap(), Vec::new()),
        (rest.get(middle..).unwrap(), alike(&batch(0, 100, 100))),
    ] {
        std::io::Write::write_all(&mut file, part).unwrap();
        assert_eq!(read(&mut growing).0, expected);
    }
}
