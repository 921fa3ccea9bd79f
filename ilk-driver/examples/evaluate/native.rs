//! Native times next to instructions of the guest: rows of `cargo xtask bench native`, from its file in the folder of
//! results.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use crate::table::Tables;

/// The file of the bench's results.
const FILE: &str = "native.ron";

/// Results, as far as they are read.
#[derive(Deserialize)]
struct Results {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    group: String,
    name: String,
    bare_call_ns: f64,
    hits_per_call: f64,
    /// The second is the median.
    quartiles_ns: [f64; 3],
}

const LEAF: &str = "An instrument in a leaf, eight calls deep";
const RIVALS: &str = "Without a patch, eight calls deep";
const TEN: &str = "Every block of ten, by how its counter is reached";

/// Rows of the experiment `hits`, with those of the bench.
const HITS: [(&str, &str, &str); 7] = [
    ("ilk: counter", LEAF, "counter"),
    ("ilk: sample with time", LEAF, "sample with time"),
    (
        "ilk: sample with time and argument",
        LEAF,
        "sample with argument",
    ),
    ("ilk: counter and sample", LEAF, "counter and sample"),
    ("ilk: two samples", LEAF, "two samples"),
    (
        "a call that saves what a callee may change, and counts",
        RIVALS,
        "counter that is called and saves what a callee may change",
    ),
    (
        "an int3 with a signal that counts",
        RIVALS,
        "int3 and SIGTRAP",
    ),
];

/// Columns of the experiment `inlining`, as the bench's rows.
const INLINING: [&str; 4] = [
    "in the patch, what is live saved",
    "in the patch, all saved",
    "called, what is live saved",
    "called, all saved",
];

/// Adds the native figures of an experiment to its tables, if the bench's results are in the folder.
pub(crate) fn add(part: &str, tables: &mut Tables, place: &Path) -> anyhow::Result<()> {
    let file = place.join(FILE);
    if !file.exists() {
        return Ok(());
    }
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let results: Results = ron::from_str(&text).with_context(|| file.display().to_string())?;
    let row = |group: &str, name: &str| {
        let mut rows = results.rows.iter();
        let found = rows.find(|row| row.group == group && row.name == name);
        found.with_context(|| {
            format!(
                "{} has no row {name:?}; repeat `cargo xtask bench native`",
                file.display()
            )
        })
    };
    match part {
        "hits" => {
            for (title, group, name) in HITS {
                let [_, median, _] = row(group, name)?.quartiles_ns;
                tables.add("", title, "natively, ns", median);
            }
        }
        "inlining" => {
            let title = "Natively, ns added to a call of a function of ten blocks";
            for name in INLINING {
                let row = row(TEN, name)?;
                let [_, median, _] = row.quartiles_ns;
                if name == INLINING[0] {
                    tables.add(title, "ten blocks", "bare call", row.bare_call_ns);
                }
                tables.add(title, "ten blocks", name, median * row.hits_per_call);
            }
        }
        _ => {}
    }
    Ok(())
}
