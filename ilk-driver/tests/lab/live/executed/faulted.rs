//! The instructions that a processor executes from a fault in a patch to its fixup: loads are
//! refused there.

use std::collections::{BTreeMap, BTreeSet};

use gilk_engine::session::{Session, Workload};
use gilk_engine::{Addr, Span};
use gilk_instruments::Library;

use super::traced::Traced;
use crate::support::placement;

/// A function called for each byte that is copied.
const READ: &str = "vfs_read";
const COPY: &str = "dd if=/dev/zero of=/dev/null bs=1 count=100000000 2>/dev/null";

/// Reads that fault: at a non-canonical and at an unmapped address, and at one of the process. Without `uptr` an address
/// outside the kernel's half is not read at all.
const BAD: &str = "instrument bad \"Reads invalid addresses.\"; global @none;\n\
    entry / comm == \"dd\" / {\n\
      sample(*(u64 *)(0xdead000000000000 + @none));\n\
      sample(*(u8 *)(0xfffff00000000123 + @none));\n\
      sample(*(u16 *)uptr(0x123 + @none));\n\
      @none = 0\n\
    }";

/// Minimum number of faults per instruction.
const READS: usize = 30;
/// Number of windows in which they are searched.
const WINDOWS: usize = 60;

/// The handling of the faults of one instruction.
#[derive(Debug, Default)]
struct Handling {
    /// Number of faults.
    count: usize,
    /// Number of faults in which each function executed.
    functions: BTreeMap<String, usize>,
}

/// Bytes of the module around the code that reads processes.
const READER: u64 = 1 << 14;

/// Adds the functions that executed between two instructions of the arena or of the module's readers, by the address
/// of the first, if an exception's entry executed in between.
fn add_faults(all: &mut BTreeMap<Addr, Handling>, traced: &Traced, own: &[Span], pcs: &[Addr]) {
    let is_own = |pc: &Addr| own.iter().any(|span| span.contains(*pc));
    let mut at = 0;
    while let Some(left) = pcs[at..].windows(2).position(|pair| {
        is_own(&pair[0]) && name(traced, pair[1]).is_some_and(|name| is_entry(&name))
    }) {
        let begin = at + left;
        let Some(length) = pcs[begin + 1..].iter().position(is_own) else {
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
}

/// Returns whether a function is the entry of a page fault or a protection fault.
fn is_entry(name: &str) -> bool {
    ["asm_exc_page_fault", "asm_exc_general_protection"].contains(&name)
}

fn name(traced: &Traced, pc: Addr) -> Option<String> {
    let (name, _) = traced.shared.image.symbol_at(pc)?;
    Some(name.to_owned())
}

#[test]
#[ignore = "boots the lab; cargo xtask test runs it"]
fn handlers_of_a_patchs_faults_refuse_reads() {
    // With one CPU, no other CPU's instructions are in between.
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
    // The splice is installed and the workload begins in the first windows.
    let users = layout.users.expect("the module reads processes");
    let reader = Span::new(Addr(users.0 - READER), 2 * READER);
    let own = [layout.arena, reader];
    let mut faults = BTreeMap::new();
    let is_enough = (0..WINDOWS).any(|_| {
        add_faults(&mut faults, &traced, &own, &windows.next());
        faults.values().any(|handling| handling.count > READS)
    });
    assert!(
        is_enough,
        "the workload reads where nothing can be read: {faults:?}"
    );
    assert_eq!(faults.len(), 3, "three instructions fault: {faults:?}");
    let library = Library::builtin().unwrap();
    let mut handlers = BTreeSet::new();
    for Handling { count, functions } in faults.values() {
        // Interrupts occur in some; the fault's handler is in all.
        let always = functions.iter().filter(|(_, times)| **times * 2 > *count);
        handlers.extend(always.map(|(name, _)| name.clone()));
    }
    println!("{handlers:?}");
    for function in ["search_exception_tables", "do_user_addr_fault"] {
        assert!(handlers.contains(function), "no {function}");
    }
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
