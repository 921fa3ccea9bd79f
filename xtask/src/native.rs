//! `cargo xtask bench native`.

mod bpf;

use std::fs;

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::{kernels, tool};

/// The text with the tables.
const TEXT: &str = "docs/cost.md";
/// The results that the text's tables are of, to compare with.
const KEPT: &str = "docs/evaluation/native.ron";
/// Lines of the text before its tables and after them.
const MARKS: [&str; 2] = [
    "<!-- tables of `cargo xtask bench native` -->\n",
    "<!-- end of the tables -->\n",
];

/// The times that the estimates of the engine have.
const TIMES: &str = "engine/src/nanoseconds/fitted.rs";

/// The same around the table of BPF programs.
const BPF_MARKS: [&str; 2] = [
    "<!-- BPF programs by `cargo xtask bench native` -->\n",
    "<!-- end of BPF programs -->\n",
];

/// Runs the bench, and writes its tables into the text if all of it ran at full length, with that of BPF programs if this
/// kernel runs them for this user; with `--model --keep`, writes
/// the times of estimates that it fits into the engine.
pub(crate) fn native(words: &[String]) -> Result<()> {
    let results = tool::results()?;
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    if has("--keep") && !has("--model") {
        return Err(Fail::new("--keep keeps the times of --model"));
    }
    let mut cargo = tool::cargo(&["run", "--quiet", "--package", "gilk-engine"]);
    cargo
        .args(["--example", "native", "--", "--out"])
        .arg(&results);
    if !has("--model") {
        // Rows of stacks use its tables.
        cargo.env("GILK_VMLINUZ", kernels::boot_file(&Log::terminal())?);
    }
    tool::run(cargo.args(words.iter().filter(|word| *word != "--keep")))?;
    if has("--model") {
        if has("--keep") {
            let to = tool::root().join(TIMES);
            let copied = fs::copy(results.join("fitted.rs"), to);
            copied.map_err(|error| Fail::new(format!("{TIMES}: {error}")))?;
            println!("They are in {TIMES}, and in programs that are built from now on.");
        }
        return Ok(());
    }
    if words
        .iter()
        .any(|word| word == "--quick" || word == "--only")
    {
        return Ok(());
    }
    let failed = |path: &str| {
        let path = path.to_owned();
        move |error: std::io::Error| Fail::new(format!("{path}: {error}"))
    };
    let tables = fs::read_to_string(results.join("native.md")).map_err(failed("native.md"))?;
    let path = tool::root().join(TEXT);
    let mut text = fs::read_to_string(&path).map_err(failed(TEXT))?;
    let mut replace = |marks: [&str; 2], tables: &str| {
        text = replaced(&text, marks, tables)
            .ok_or_else(|| Fail::new(format!("{TEXT} lacks the lines {marks:?}")))?;
        Ok::<_, Fail>(())
    };
    replace(MARKS, &tables)?;
    let machine = tables.split("; ").take(2).collect::<Vec<_>>().join("; ");
    match bpf::table(&results, &machine)? {
        Ok(table) => replace(BPF_MARKS, &table)?,
        Err(reason) => println!("The table of BPF programs stays as it is: {reason}."),
    }
    fs::write(&path, text).map_err(failed(TEXT))?;
    fs::copy(results.join("native.ron"), tool::root().join(KEPT)).map_err(failed(KEPT))?;
    println!("\nThe tables are in {TEXT}.");
    Ok(())
}

/// Replaces what is between the marks; `None` if a mark is missing.
fn replaced(text: &str, [begin, end]: [&str; 2], tables: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{tables}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_replace_earlier_ones_and_nothing_else() {
        let [begin, end] = MARKS;
        let text = format!("before\n{begin}\nold\n\n{end}after\n");
        let new = replaced(&text, MARKS, "new\n").unwrap();
        assert_eq!(new, format!("before\n{begin}\nnew\n\n{end}after\n"));
        assert_eq!(replaced(&new, MARKS, "new\n").as_ref(), Some(&new));
        assert_eq!(replaced("before\n", MARKS, "new\n"), None);
    }
}
