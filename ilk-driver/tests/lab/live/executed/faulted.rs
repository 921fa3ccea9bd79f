//! What a processor really executes from an instruction of a patch that faults to the place where it goes on:
//! there, reads are refused.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::session::{Session, Workload};
use gilk_engine::{Addr, Span};
use gilk_instruments::Library;

use super::traced::Traced;
use crate::support::placement;

/// Called for each byte that is copied.
const READ: &str = "vfs_read";
const COPY: &str = "dd if=/dev/zero of=/dev/null bs=1 count=100000000 2>/dev/null";

/// Reads that fault: where no address is one, and where nothing is mapped. What is no address of the kernel's is
/// not read at all.
const BAD: &str = "instrument bad \"Reads what cannot be read.\"; global @none;\n\
    entry / comm == \"dd\" / {\n\
      sample(*(u64 *)(0xdead000000000000 + @none));\n\
      sample(*(u8 *)(0xfffff00000000123 + @none));\n\
      @none = 0\n\
    }";

/// Faults of an instruction that are looked at, at least.
const READS: usize = 30;
/// Windows in which they are looked for.
const WINDOWS: usize = 60;

/// What was executed for the faults of one instruction.
#[derive(Debug, Default)]
struct Handling {
    /// How many there were.
    count: usize,
    /// In how many of them each function was.
    functions: BTreeMap<String, usize>,
}

/// The functions in which instructions were executed between two of the arena, by the place of the first,
/// if the processor came by the entry of an exception.
fn faults(traced: &Traced, arena: Span, pcs: &[Addr]) -> BTreeMap<Addr, Handling> {
    let mut all: BTreeMap<Addr, Handling> = BTreeMap::new();
    let mut at = 0;
    while let Some(left) = pcs[at..].windows(2).position(|pair| {
        arena.contains(pair[0]) && name(traced, pair[1]).is_some_and(|name| is_entry(&name))
    }) {
        let begin = at + left;
        let Some(length) = pcs[begin + 1..].iter().position(|pc| arena.contains(*pc)) else {
            break;
        };
        at = begin + 1 + length;
        let within: BTreeSet<String> = pcs[begin + 1..at]
            .iter()
            .filter_map(|pc| name(traced, *pc))
            .collect();
        let handling = all.entry(pcs[begin]).or_default();
        handling.count += 1;
        for function in within {
            *handling.functions.entry(function).or_default() += 1;
        }
    }
    all
}

/// Where the processor goes at a fault of memory or of protection.
fn is_entry(name: &str) -> bool {
    ["asm_exc_page_fault", "asm_exc_general_protection"].contains(&name)
}

fn name(traced: &Traced, pc: Addr) -> Option<String> {
    let (name, _) = traced.shared.image.symbol_at(pc)?;
    Some(name.to_owned())
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn where_a_fault_is_handled_reads_are_refused() {
    // With one processor, nothing of another is between its instructions.
    let traced = Traced::boot(|options| options.cpus = 1);
    let session = |function: &str| Session {
        name: "faults".into(),
        duration: 3600.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), COPY.into()],
            start: 0.0,
        }),
        placements: vec![placement(function, 0, "bad", (0.0, 3600.0))],
        sources: [("bad".to_owned(), BAD.to_owned())].into(),
        ..Session::empty()
    };
    let layout = traced.connect().info().layout.clone();
    traced.begin(session(READ));
    let mut windows = traced.windows();
    // The splice comes in and the workload begins in the first ones.
    let found = (0..WINDOWS).map(|_| faults(&traced, layout.arena, &windows.next()));
    let faults = { found }
        .find(|faults| faults.values().any(|handling| handling.count > READS))
        .expect("the workload reads where nothing can be read");
    assert_eq!(faults.len(), 2, "two instructions fault: {faults:?}");
    let library = Library::builtin().unwrap();
    let mut handlers = BTreeSet::new();
    for Handling { count, functions } in faults.values() {
        // Interrupts come into some; what handles the fault is in all.
        let always = functions.iter().filter(|(_, times)| **times * 2 > *count);
        handlers.extend(always.map(|(name, _)| name.clone()));
    }
    println!("{handlers:?}");
    assert!(handlers.contains("search_exception_tables"));
    for function in handlers {
        let plan =
            gilk_engine::plan::plan(&traced.shared.image, &session(&function), &library, &layout);
        let refused = plan.err().map(|error| error.to_string());
        assert!(
            refused.is_some(),
            "a fault is handled in {function}, and reads are allowed there"
        );
    }
}
