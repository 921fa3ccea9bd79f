//! Reads of kernel memory by programs, compared with known values; and reads of invalid addresses.

use std::collections::BTreeSet;

use gilk_engine::Addr;
use gilk_engine::session::{Session, Workload};
use ilk_driver::client::Counted;

use crate::support::{Outcome, placement, pulsar, shared};

/// A function that `witness` calls for two files, a number of times that it prints.
const COPY: &str = "vfs_copy_file_range";
/// The function that serves glibc's `fork`.
const FORK: &str = "__x64_sys_clone";
const DURATION: f64 = 10.0;

/// Reads the names of files, the first eight bytes and the rest, through four structures.
const NAMES: &str = "instrument names \"The names of both files.\";\n\
    entry / comm == \"witness\" / {\n\
      sample(*(u64 *)file_in->f_path.dentry->d_name.name);\n\
      sample(*(u64 *)(file_in->f_path.dentry->d_name.name + 8) & 0xffffffffff);\n\
      sample(*(u64 *)(file_out->f_path.dentry->d_name.name + 8) & 0xffffff);\n\
      sample(file_in->f_path.dentry->d_name.len)\n\
    }";

/// Reads that fail for different reasons: a non-canonical address, an unmapped kernel address, the
/// vsyscall page, a null pointer on the path, and a process's memory. A failed read yields 0.
const BAD: &str = "instrument bad \"Reads what cannot be read.\"; global @none;\n\
    entry / comm == \"witness\" / {\n\
      sample(*(u64 *)(0xdead000000000000 + @none) + 1);\n\
      sample(*(u8 *)(0xfffff00000000123 + @none) + 2);\n\
      sample(*(u32 *)(0xffffffffff600000 + @none) + 3);\n\
      sample(*(u64 *)*(u64 *)(8 + @none) + 4);\n\
      sample(*(u16 *)(0x400000 + @none) + 5);\n\
      @none = 0\n\
    }";

/// Serves reads and writes of other processes' memory; its seventh argument selects which.
const REMOTE: &str = "process_vm_rw";
/// Reads above the return address, which is on top of the stack at the entry.
const STACKED: &str = "instrument stacked \"An argument on the stack, and its caller.\";\n\
    entry / comm == \"witness\" / { sample(vm_write); sample(*(u64 *)reg(\"sp\")) }";

/// Compares fields of the running task with the kernel's own values.
const SAME: &str = "instrument same \"Compares typed paths with the kernel's values.\";\n\
    entry / comm == \"pulsar\" / {\n\
      sample(curtask->tgid == pid && curtask->pid == tid && curtask->comm == \"pulsar\"\n\
        && curtask->group_leader->tgid == pid)\n\
    }";

fn sources(all: &[(&str, &str)]) -> std::collections::BTreeMap<String, String> {
    let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
    all.iter().map(owned).collect()
}

/// Returns the values sampled by a placement's instruments, in order of time.
fn values(outcome: &Outcome, placement: usize) -> Vec<u64> {
    let instruments = outcome.plan.instruments.iter();
    let own: BTreeSet<u64> = instruments
        .filter(|one| one.placement == placement)
        .map(|one| one.id.pack())
        .collect();
    let all = outcome.samples.iter().map(|(_, sample)| sample);
    all.filter(|sample| own.contains(&sample.id))
        .map(|sample| sample.value)
        .collect()
}

fn word(text: &str) -> u64 {
    let bytes = text.bytes().rev();
    bytes.fold(0, |word, byte| word << 8 | u64::from(byte))
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn file_names_are_read_through_types_and_bad_addresses_yield_0() {
    let shared = shared();
    let turn = shared.turn();
    let at = |name| placement(COPY, 0, name, (0.0, DURATION));
    let session = Session {
        name: "memory".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/witness".into(),
            arguments: Vec::new(),
            start: 0.5,
        }),
        placements: vec![at("names"), at("bad"), at("memory")],
        sources: sources(&[("names", NAMES), ("bad", BAD)]),
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let copies = outcome
        .said
        .iter()
        .filter(|line| line.contains("copy "))
        .count();
    assert!(copies > 5, "{:?}", outcome.said);
    let known = [word("witness-"), word("from\0"), word("to\0"), 12];
    assert_eq!(values(&outcome, 0), known.repeat(copies));
    assert_eq!(values(&outcome, 1), [1, 2, 3, 4, 5].repeat(copies));
    let failed = |placement, instrument: &str, count| Counted {
        placement,
        instrument: instrument.into(),
        count,
    };
    // The second of two chained reads fails because the first does.
    let bad = 6 * copies as u64;
    assert_eq!(
        outcome.summary.failed_reads,
        [
            failed(0, "names", 0),
            failed(1, "bad", bad),
            failed(2, "memory", 0)
        ]
    );
    assert_eq!((outcome.summary.lost(), outcome.summary.missing), (0, 0));
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn stack_arguments_are_those_that_the_caller_passed() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        name: "stacked".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/witness".into(),
            arguments: Vec::new(),
            start: 0.5,
        }),
        placements: vec![placement(REMOTE, 0, "stacked", (0.0, DURATION))],
        sources: sources(&[("stacked", STACKED)]),
        ..Session::empty()
    };
    let outcome = turn.run(&session);
    let remote = |line: &String| line.split("remote ").nth(1).map(|said| said.trim().parse());
    let said: Vec<u64> = outcome
        .said
        .iter()
        .filter_map(remote)
        .map(Result::unwrap)
        .collect();
    assert!(said.len() > 10 && said.contains(&1), "{:?}", outcome.said);
    let found = values(&outcome, 0);
    let pairs = found.chunks(2).map(|pair| pair[0]);
    assert_eq!(pairs.collect::<Vec<u64>>(), said);
    // The return addresses are the callers', one for reads and one for writes.
    for pair in found.chunks(2) {
        let caller = shared.image.function_at(Addr(pair[1])).unwrap();
        let named = ["process_vm_readv", "process_vm_writev"][pair[0] as usize];
        assert!(caller.name.contains(named), "{} {pair:?}", caller.name);
    }
    assert_eq!(outcome.summary.failed_reads[0].count, 0);
    turn.assert_untouched();
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn typed_paths_yield_the_kernels_own_values() {
    let shared = shared();
    let turn = shared.turn();
    let session = Session {
        sources: sources(&[("same", SAME)]),
        ..pulsar(8.0, 500, vec![placement(FORK, 0, "same", (0.0, 8.0))])
    };
    let outcome = turn.run(&session);
    assert_eq!(values(&outcome, 0), [1; 160], "{:?}", outcome.said);
    assert_eq!(outcome.summary.failed_reads[0].count, 0);
    turn.assert_untouched();
}
