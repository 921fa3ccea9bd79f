//! `cargo xtask evaluate`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, tool};

/// Where recordings and all else go.
pub(crate) const PLACE: &str = "target/gilk/evaluation";
/// The same, of a quick look.
const QUICK_PLACE: &str = "target/gilk/evaluation-quick";
/// Where the text and its pictures go.
const DOCS: &str = "docs";

/// The experiments that measure what hits cost.
pub(crate) const COSTS: [&str; 4] = ["hits", "grain", "inlining", "many"];

/// Runs the papers' experiments, or those that are named, and writes what came of them into the text; of the others
/// it says what it said. A quick look leaves the text as it is.
pub(crate) fn evaluate(yes: bool, words: &[String]) -> Result<()> {
    if words.iter().any(|word| word == "--quick") {
        return experiments(QUICK_PLACE, words);
    }
    kept()?;
    let mut stages = Stages::new(3);
    stages.stage("system packages", || {
        apt::provide(Purpose::Headless, yes, false)
    })?;
    stages.stage("the experiments", || experiments(PLACE, words))?;
    stages.stage("the text and its pictures", shown)?;
    stages.finish();
    println!("\nWhat came of it is {DOCS}/evaluation.md; recordings are in {PLACE}.");
    Ok(())
}

/// Less of everything, to see that every experiment works and that what is claimed of its figures holds.
pub(crate) fn quickly() -> Result<()> {
    // Of the whole workspace, as the tests are, so that it is built already.
    let example = ["build", "--quiet", "--workspace", "--example", "evaluate"];
    tool::run(&mut tool::cargo(&example))?;
    let mut program = tool::program("examples/evaluate");
    tool::run(program.args(["--out", QUICK_PLACE, "--quick"]))
}

fn experiments(place: &str, words: &[String]) -> Result<()> {
    // How fast the host's side is built to be makes no difference to what the guest executes.
    let mut cargo = tool::cargo(&["run", "--quiet", "--package", "ilk-driver"]);
    cargo.args(["--example", "evaluate", "--", "--out", place]);
    tool::run(cargo.args(words))
}

/// Brings figures and pictures of earlier runs to where those of these go, if none are there.
fn kept() -> Result<()> {
    let (from, to) = (
        tool::root().join(DOCS).join("evaluation"),
        tool::root().join(PLACE),
    );
    copied(&from, &to, |name| {
        Some(to.join(name)).filter(|target| !target.exists())
    })
}

/// Brings the text, its figures and its pictures to where they are shown.
fn shown() -> Result<()> {
    let docs = tool::root().join(DOCS);
    let beside = docs.join("evaluation");
    copied(&tool::root().join(PLACE), &beside, |name| match name {
        "evaluation.md" => Some(docs.join(name)),
        shown
            if [".png", ".svg", ".ron", ".figures.json"]
                .iter()
                .any(|ending| shown.ends_with(ending)) =>
        {
            Some(beside.join(name))
        }
        _ => None,
    })
}

/// Makes a folder, and copies the files of another to where each of that name belongs, if anywhere.
fn copied(from: &Path, to: &Path, target: impl Fn(&str) -> Option<PathBuf>) -> Result<()> {
    let failed = |path: &Path, error: std::io::Error| {
        Fail::new(format!(
            "cannot copy {} to {}: {error}",
            path.display(),
            to.display()
        ))
    };
    fs::create_dir_all(to).map_err(|error| failed(from, error))?;
    let files = fs::read_dir(from).map_err(|error| failed(from, error))?;
    for file in files.flatten().map(|entry| entry.path()) {
        let name = file.file_name().and_then(|name| name.to_str());
        if let Some(target) = name.and_then(&target) {
            fs::copy(&file, target).map_err(|error| failed(&file, error))?;
        }
    }
    Ok(())
}
