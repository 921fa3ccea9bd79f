//! Instruments of a script, and the executions of every block, in one execution in the code cache.

use std::collections::BTreeMap;
use std::path::Path;

use gilk_engine::InstrumentId;
use gilk_samples::process_end::EndWay;
use gilk_samples::recording::Recording;

use super::cache_instruments::{in_cache, total};
use super::cloned::compiled_from;

/// Threads, and the calls of `counted` by each.
const THREADS: u64 = 4;
const CALLS: u64 = 30_000;
const PROGRAM: &str = r#"
#include <pthread.h>
static __thread volatile unsigned sum;
__attribute__((noipa)) unsigned counted(unsigned x)
{
	if (x % 3 == 1)
		sum += x;
	return x / 2;
}
static void *work(void *unused)
{
	for (unsigned x = 0; x < 30000; x++)
		counted(x);
	return unused;
}
int main(void)
{
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(threads + i, 0, work, 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], 0);
	return 0;
}
"#;

/// Samples of an instrument, in the order of time.
fn samples(recording: &Recording, label: &str) -> Vec<u64> {
    let mut instruments = recording.metadata().instruments.iter();
    let found = instruments.find(|one| one.label == label);
    let id = found.unwrap_or_else(|| panic!("no {label}")).id;
    let all = recording.merged().map(|sample| sample.unwrap().1);
    all.filter(|sample| sample.id == id)
        .map(|sample| sample.value)
        .collect()
}

/// The executions of the blocks of a function, by offset.
fn blocks(recording: &Recording, function: &str) -> BTreeMap<u32, u64> {
    let metadata = recording.metadata();
    let label = format!("counter pre {function} block 0");
    let mut counters = metadata.instruments.iter();
    let counter = counters.find(|one| one.label.trim_start_matches("blocks: ") == label);
    let counter = counter.filter(|one| one.placed.is_none()).unwrap();
    let major = InstrumentId::unpack(counter.id).unwrap().major;
    let mut functions = metadata.functions.iter();
    let info = functions.find(|one| one.major == major).unwrap();
    assert_eq!(info.name, function);
    let mut last = BTreeMap::new();
    for sample in recording.merged().map(|sample| sample.unwrap().1) {
        let id = InstrumentId::unpack(sample.id).unwrap();
        if id.major == major {
            last.insert(info.blocks[id.block as usize].0, sample.value);
        }
    }
    last
}

fn record(options: &[&str], file: &Path, program: &Path) -> String {
    let output = ["--force", "-o", file.to_str().unwrap()];
    let cached = in_cache(&[options, &output].concat(), program, &[]);
    let said = String::from_utf8(cached.stderr).unwrap();
    assert!(cached.status.success(), "{said}");
    said
}

#[test]
fn instruments_and_the_executions_of_blocks_are_in_one_recording() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &["-pthread"]);
    let [alone, both] = ["alone.arrow", "both.arrow"].map(|name| folder.path().join(name));
    record(&["--count"], &alone, &program);
    let script = "entry:counted { @calls = count(); sample(arg0) } \
                  return:counted / retval > 14000 / { @large = count() }";
    let said = record(&["--count", "-e", script], &both, &program);
    assert_eq!(total(&said, "@calls"), THREADS * CALLS, "{said}");
    // Of 30,000 values, half are less than 15,000, and two have the same half.
    assert_eq!(total(&said, "@large"), THREADS * 2 * 999, "{said}");
    assert!(said.contains("The executions of "), "{said}");

    let [alone, both] = [alone, both].map(|file| Recording::open(file).unwrap());
    // The blocks are executed as often as without instruments.
    let counted = blocks(&both, "counted");
    assert_eq!(counted, blocks(&alone, "counted"));
    assert_eq!(counted[&0], THREADS * CALLS);
    assert!(counted.values().any(|count| *count == THREADS * CALLS / 3));
    // All samples of the script are there, under the labels that they have without blocks.
    let mut instruments = both.metadata().instruments.iter();
    let sampler = instruments.find(|one| one.placed.is_some() && one.delivers.is_samples());
    let label = sampler.unwrap().label.clone();
    assert!(label.ends_with("pre counted block 0"), "{label}");
    let values = samples(&both, &label);
    let losses = both.losses().unwrap();
    let lost: u64 = losses.iter().map(|loss| loss.count).sum();
    assert_eq!(values.len() as u64 + lost, THREADS * CALLS);
    assert!(values.iter().all(|value| *value < CALLS));
    // Those of a CPU are in order of time, and the numbers of the cache are kept.
    let mut last = BTreeMap::new();
    for batch in both.batches().map(Result::unwrap) {
        for sample in &batch.samples {
            let before = last.insert(batch.cpu, sample.tsc);
            assert!(before.is_none_or(|before| before <= sample.tsc));
        }
    }
    assert!(both.totals().cache.is_some_and(|one| one.blocks > 0));
    let ends = &both.totals().ends;
    let ways: Vec<_> = ends.iter().map(|end| &end.way).collect();
    assert_eq!(ways, [&EndWay::Ended(0)]);
    // Nothing else is left.
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    let files: Vec<_> = files.map(|file| file.file_name()).collect();
    assert!(
        files
            .iter()
            .all(|name| !name.to_string_lossy().contains("blocks")),
        "{files:?}"
    );
}

/// A file where the counts would be written meanwhile is not overwritten.
#[test]
fn a_file_beside_the_recording_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &["-pthread"]);
    let blocks = folder.path().join("both.arrow.blocks");
    std::fs::write(&blocks, "mine").unwrap();
    let output = folder.path().join("both.arrow");
    let options = ["--count", "-e", "entry:counted { @calls = count() }", "-o"];
    let options = [&options[..], &[output.to_str().unwrap()]].concat();
    let refused = in_cache(&options, &program, &[]);
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("both.arrow.blocks"), "{said}");
    assert_eq!(std::fs::read(&blocks).unwrap(), b"mine");
    assert!(!output.exists());
}
