//! Small kernels: a few functions, with the tables that an image needs.

#![allow(
    clippy::unwrap_used,
    reason = "a test's helpers fail the test by panicking"
)]

use std::collections::BTreeMap;

use gilk_engine::Addr;
use gilk_engine::kernel::LiveParts;

/// Address of the read-only data.
const DATA: u64 = 0xffff_ffff_8200_0000;

/// A function.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) name: String,
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Facts about the code that a kernel's tables contain.
#[derive(Default)]
pub(crate) struct Tables {
    /// Static keys: code and target.
    pub(crate) keys: Vec<(u64, u64)>,
    /// Static calls.
    pub(crate) calls: Vec<u64>,
    /// Instructions that may fault, and their fixups.
    pub(crate) exceptions: Vec<(u64, u64)>,
    /// Addresses stored in read-only data: control may arrive there from anywhere.
    pub(crate) pointers: Vec<u64>,
}

/// Returns the address of the first function and the exclusive end of the text.
pub(crate) fn bounds(functions: &[Code]) -> (u64, u64) {
    let start = functions.iter().map(|code| code.at).min().unwrap();
    let ends = functions
        .iter()
        .map(|code| code.at + code.bytes.len() as u64);
    (start, ends.max().unwrap().next_multiple_of(16))
}

/// Lays the kernel out as a running one would be read.
pub(crate) fn parts(functions: &[Code], tables: &Tables) -> LiveParts {
    let (start, end) = bounds(functions);
    let mut text = vec![0xcc; usize::try_from(end - start).unwrap()];
    let mut symbols = BTreeMap::from([
        ((start, "_text"), 'T'),
        ((start, "_stext"), 'T'),
        ((end, "_etext"), 'T'),
    ]);
    for code in functions {
        let at = usize::try_from(code.at - start).unwrap();
        text.get_mut(at..at + code.bytes.len())
            .unwrap()
            .copy_from_slice(&code.bytes);
        symbols.insert((code.at, &code.name), 'T');
    }
    let mut data = Vec::new();
    let here = |data: &[u8]| DATA + data.len() as u64;
    let distance = |from: u64, to: u64| {
        i32::try_from(to.wrapping_sub(from).cast_signed())
            .unwrap()
            .to_le_bytes()
    };
    symbols.insert((DATA, "__start_rodata"), 'D');
    data.extend(
        tables
            .pointers
            .iter()
            .flat_map(|pointer| pointer.to_le_bytes()),
    );
    let mut bound = |data: &[u8], name| symbols.insert((here(data), name), 'D');
    bound(&data, "__start___jump_table");
    for &(code, target) in &tables.keys {
        let at = here(&data);
        data.extend(distance(at, code));
        data.extend(distance(at + 4, target));
        data.extend(0x1000u64.to_le_bytes());
    }
    bound(&data, "__stop___jump_table");
    bound(&data, "__start_static_call_sites");
    for &code in &tables.calls {
        let at = here(&data);
        data.extend(distance(at, code));
        data.extend(0x1000i32.to_le_bytes());
    }
    bound(&data, "__stop_static_call_sites");
    bound(&data, "__start___ex_table");
    for &(code, fixup) in &tables.exceptions {
        let at = here(&data);
        data.extend(distance(at, code));
        data.extend(distance(at + 4, fixup));
        // EX_TYPE_DEFAULT.
        data.extend([1, 0, 0, 0]);
    }
    bound(&data, "__stop___ex_table");
    bound(&data, "__start___bug_table");
    bound(&data, "__stop___bug_table");
    data.extend([0; 16]);
    bound(&data, "__end_rodata");
    LiveParts {
        release: "6.1.0-filetest".to_owned(),
        kallsyms: symbols
            .iter()
            .map(|((at, name), kind)| format!("{at:016x} {kind} {name}\n"))
            .collect(),
        // An empty list would mean that it could not be read.
        blacklist: "0xffffffff80000000-0xffffffff80000010\tforbidden\n".to_owned(),
        memory: vec![(Addr(start), text), (Addr(DATA), data)],
    }
}
