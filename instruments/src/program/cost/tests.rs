//! Estimates against what the emulator counts: the figures of `cargo xtask evaluate hits`.

use std::collections::BTreeMap;

use crate::trial;

/// Counted instructions of a hit, by case and kernel.
const FIGURES: &str = include_str!("../../../../docs/evaluation/hits.figures.json");
/// Jumps to a patch and back, which no probe has in its estimate.
const JUMPS: u32 = 2;

/// A case of the figures: its name, its source, and the frames beyond the first of the stack that it reads there.
const CASES: [(&str, &str, u32); 3] = [
    (
        "ilk: count by process",
        include_str!("../../../../ilk-driver/examples/evaluate/sources/count-by-process.ilk"),
        0,
    ),
    (
        // The system call's function, do_syscall_64 and the entry, at which a third step ends.
        "ilk: count by stack",
        include_str!("../../../../ilk-driver/examples/evaluate/sources/count-by-stack.ilk"),
        3,
    ),
    (
        "ilk: read of the process",
        include_str!("../../../../ilk-driver/examples/evaluate/sources/process-sum.ilk"),
        0,
    ),
];

/// Returns the figures by case, one for each kernel.
fn figures() -> BTreeMap<String, Vec<u32>> {
    let whole: serde_json::Value = serde_json::from_str(FIGURES).unwrap();
    let rows = whole["tables"][0][1]["rows"].as_array().unwrap();
    let row = |row: &serde_json::Value| {
        let cells = row["cells"].as_array().unwrap().iter();
        let cells = cells.flat_map(|runs| runs.as_array().unwrap());
        let counted = cells.map(|figure| figure.as_f64().unwrap() as u32);
        (row["name"].as_str().unwrap().to_owned(), counted.collect())
    };
    rows.iter().map(row).collect()
}

#[test]
fn estimates_are_bounds_of_what_is_counted_and_near_to_it() {
    let figures = figures();
    let mut report = String::new();
    let mut wrong = Vec::new();
    for (name, source, frames) in CASES {
        // The types of the little kernel lack the structure; a load of a field costs what this does.
        let source = source.replace("((struct pt_regs *)arg0)->sp", "*(u64 *)((u64)arg0 + 0x98)");
        let program = trial::check(&source, "vfs_read").unwrap();
        let cost = program.cost(&program.probes[0]);
        assert!(cost.frames >= frames, "{name}: {cost}");
        let estimate = cost.instructions + frames * super::FRAME;
        let counted = figures.get(name).unwrap_or_else(|| panic!("{name}"));
        assert!(!counted.is_empty(), "{name}");
        for &counted in counted {
            let executed = counted - JUMPS;
            report += &format!("{name}: {executed} executed, {estimate} estimated\n");
            if executed > estimate || estimate > executed + executed / 3 {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}\n{report}");
}
