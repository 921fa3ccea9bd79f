//! Translations that are dropped while threads execute: their counts are kept, and other blocks have the counters.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use gilk_engine::InstrumentId;
use gilk_samples::recording::Recording;

use super::cloned::compiled_from;

/// A cache's counters.
const COUNTERS: u64 = 1 << 19;
/// Blocks of a page of the program, each `add eax, 1; jmp` to the next one.
const BLOCKS: u64 = 800;
/// Calls of the page that another thread executes and no thread writes.
const OTHERS: u64 = 100_000;
/// Writes a page, and calls it twice, as often as it is given; another thread calls another page meanwhile.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned (*code)(void);

static unsigned char *page(unsigned long at)
{
	unsigned char *page = mmap((void *)at, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (page != (void *)at)
		exit(2);
	unsigned char *next = page;
	memcpy(next, "\x31\xc0\xeb\x00", 4);
	next += 4;
	for (int block = 0; block < 800; block++, next += 5)
		memcpy(next, "\x83\xc0\x01\xeb\x00", 5);
	memcpy(next, "\x05\x00\x00\x00\x00\xc3", 6);
	return page;
}

static void *others(void *page)
{
	unsigned sum = 0;
	for (int call = 0; call < 100000; call++)
		sum += ((code)page)();
	return (void *)(unsigned long)sum;
}

int main(int count, char **arguments)
{
	unsigned char *written = page(0x10000000), *other = page(0x20000000);
	pthread_t thread;
	void *sum;
	unsigned total = 0;
	pthread_create(&thread, 0, others, other);
	for (int round = 0; round < atoi(arguments[1]); round++) {
		memcpy(written + 4 + 800 * 5 + 1, &round, 4);
		total += ((code)written)();
		total += ((code)written)();
	}
	pthread_join(thread, &sum);
	printf("%u %u\n", total, (unsigned)(unsigned long)sum);
	return 0;
}
"#;

#[test]
fn more_blocks_are_translated_than_there_are_counters_and_each_execution_is_counted() {
    let rounds = COUNTERS / BLOCKS + 5;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let rounds_text = rounds.to_string();
    let native = Command::new(&program).arg(&rounds_text).output().unwrap();
    assert!(native.status.success());
    let file = folder.path().join("counts.arrow");
    let cached = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--count", "--numbers", "-o"])
        .args([&file, Path::new("--"), &program])
        .arg(&rounds_text)
        .output()
        .unwrap();
    let said = String::from_utf8(cached.stderr).unwrap();
    assert!(
        cached.status.success() && !said.contains("let go"),
        "{said}"
    );
    assert_eq!(cached.stdout, native.stdout, "{said}");
    let recording = Recording::open(&file).unwrap();
    let numbers = recording.totals().cache.unwrap();
    assert!(numbers.blocks > COUNTERS, "{said}");
    assert!(numbers.dropped > rounds, "{said}");
    // A recorded count never becomes less, and the last one is that of the end.
    let mut last = BTreeMap::new();
    for batch in recording.batches() {
        for sample in batch.unwrap().samples {
            let before = last.insert(sample.id, sample.value);
            assert!(before <= Some(sample.value), "{}", sample.id);
        }
    }
    let functions = recording.metadata().functions.iter();
    let addresses: BTreeMap<u32, u64> = functions.map(|one| (one.major, one.address)).collect();
    let counts = last.into_iter().map(|(id, count)| {
        let major = InstrumentId::unpack(id).unwrap().major;
        (addresses[&major], count)
    });
    let counts: BTreeMap<u64, u64> = counts.collect();
    for (page, calls) in [(0x1000_0000, 2 * rounds), (0x2000_0000, OTHERS)] {
        let starts = (0..BLOCKS).map(|block| page + 4 + 5 * block);
        for start in std::iter::once(page).chain(starts) {
            assert_eq!(counts.get(&start), Some(&calls), "{start:#x}");
        }
    }
}

/// A process that is begun executes the code after its system call, which is dropped before it does.
#[test]
fn a_process_that_is_begun_while_its_code_is_dropped_continues_there() {
    const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned char *page;
static volatile int done;

static void *writes(void *none)
{
	for (unsigned n = 0; !done && n < 4000; n++) {
		*(volatile unsigned *)(page + 1) = n;
		usleep(30);
	}
	return none;
}

int main(void)
{
	page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	/* mov ecx, n; mov eax, fork; syscall; ret */
	memcpy(page, "\xb9\0\0\0\0\xb8\x39\0\0\0\x0f\x05\xc3", 13);
	pthread_t thread;
	pthread_create(&thread, 0, writes, 0);
	int wrong = 0;
	for (int n = 0; n < 1000; n++) {
		int child = ((int (*)(void))page)(), status;
		if (child == 0)
			_exit(7);
		if (child < 0 || waitpid(child, &status, 0) != child)
			return 3;
		wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 7;
	}
	done = 1;
	pthread_join(thread, 0);
	return wrong != 0;
}
"#;
    let folder = tempfile::tempdir().unwrap();
    let program = compiled_from(folder.path(), PROGRAM, &[]);
    let cached = Command::new(env!("CARGO_BIN_EXE_ilk"))
        .env("XDG_CACHE_HOME", folder.path())
        .args(["clone", "--count", "--"])
        .arg(&program)
        .output()
        .unwrap();
    let said = String::from_utf8(cached.stderr).unwrap();
    assert!(cached.status.success(), "{said}");
    assert!(!said.contains("let go"), "{said}");
}
