//! `cargo xtask evaluate`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, tool};

/// Folder of recordings and figures.
pub(crate) const PLACE: &str = "target/gilk/evaluation";
/// The same for short runs.
const QUICK_PLACE: &str = "target/gilk/evaluation-quick";
/// Folder of the text and its pictures.
const DOCS: &str = "docs";

/// Experiments that measure the cost of hits.
pub(crate) const COSTS: [&str; 4] = ["hits", "grain", "inlining", "many"];

/// Runs the papers' experiments, or the named ones, and writes their results into the text; sections of the others
/// stay. A short run leaves the text as it is.
pub(crate) fn evaluate(yes: bool, words: &[String]) -> Result<()> {
    if let Some((_, words)) = words.split_first().filter(|(first, _)| *first == "user") {
        return user(yes, words);
    }
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
    println!("\nThe results are in {DOCS}/evaluation.md, the recordings in {PLACE}.");
    Ok(())
}

/// Measures programs of this machine with every block counted, and prints their ratios to the native time.
fn user(yes: bool, words: &[String]) -> Result<()> {
    let mut stages = Stages::new(3);
    let purpose = match words.iter().any(|word| word == "--peers") {
        true => Purpose::Peers,
        false => Purpose::Headless,
    };
    stages.stage("system packages", || apt::provide(purpose, yes, false))?;
    let release = ["--quiet", "--release", "--package", "ilk-driver"];
    stages.stage("building ilk", || {
        let mut cargo = tool::cargo(&["build"]);
        tool::run(cargo.args(release).args(["--bin", "ilk"]))
    })?;
    stages.stage("programs with every block counted", || {
        let mut cargo = tool::cargo(&["run"]);
        cargo.args(release).args(["--example", "user", "--"]);
        tool::run(cargo.args(words))
    })?;
    stages.finish();
    Ok(())
}

/// Runs short forms of the experiments, which check the claims about their figures.
pub(crate) fn quickly(log: &Log) -> Result<()> {
    let mut program = tool::program("examples/evaluate");
    log.run(program.args(["--out", QUICK_PLACE, "--quick"]))
}

fn experiments(place: &str, words: &[String]) -> Result<()> {
    // The guest executes the same instructions however the host's side is compiled.
    let mut cargo = tool::cargo(&["run", "--quiet", "--package", "ilk-driver"]);
    cargo.args(["--example", "evaluate", "--", "--out", place]);
    tool::run(cargo.args(words))
}

/// Results of `cargo xtask bench native`, which no experiment writes.
const NATIVE: &str = "native.ron";

/// Copies figures and pictures of earlier runs into the folder of results, if they are missing there, and the native
/// bench's results.
fn kept() -> Result<()> {
    let (from, to) = (
        tool::root().join(DOCS).join("evaluation"),
        tool::root().join(PLACE),
    );
    copied(&from, &to, |name| {
        Some(to.join(name)).filter(|target| name == NATIVE || !target.exists())
    })
}

/// Copies the text, its figures and its pictures into the documentation.
fn shown() -> Result<()> {
    let docs = tool::root().join(DOCS);
    let pictures = docs.join("evaluation");
    copied(&tool::root().join(PLACE), &pictures, |name| match name {
        "evaluation.md" => Some(docs.join(name)),
        shown
            if [".png", ".svg", ".ron", ".figures.json"]
                .iter()
                .any(|ending| shown.ends_with(ending)) =>
        {
            Some(pictures.join(name))
        }
        _ => None,
    })
}

/// Creates a folder, and copies the files of another to the paths that `target` returns for their names.
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
