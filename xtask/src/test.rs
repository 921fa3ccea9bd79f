//! `cargo xtask test`: everything that must hold, cheapest first, stopping at the first failure.

use crate::fail::Result;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, evaluate, kernels, picture, python, tool};

/// Tests on a live kernel are named `live::…` and have a stage of their own.
const LIVE: &str = "live::";
/// Those of them that hook ever more functions, up to whole directories of the kernel.
const EVERYWHERE: &str = "live::everywhere::";
/// In the names of tests that want what no machine of CI's has: their documentation says what.
const BY_HAND: &str = "by_hand::";

/// Runs every stage.
pub(crate) fn test(yes: bool) -> Result<()> {
    let mut stages = Stages::new(16);
    stages.stage("system packages", || {
        apt::provide(Purpose::Tests, yes, false)
    })?;
    stages.stage("format", || {
        tool::run(&mut tool::cargo(&["fmt", "--all", "--check"]))
    })?;
    stages.stage("lints", || {
        tool::run(&mut tool::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    stages.stage("lints of the agent alone", || {
        tool::run(&mut tool::cargo(&[
            "clippy",
            "--package",
            "ilk-driver",
            "--no-default-features",
            "--bin",
            "ilk",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    stages.stage("documentation", || {
        let mut cargo = tool::cargo(&[
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]);
        tool::run(cargo.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    stages.stage("building the tests", || {
        tool::run(&mut tool::cargo(&["test", "--workspace", "--no-run"]))
    })?;
    stages.stage("the lab's kernel, module and agent", kernels::prepare_lab)?;
    let kernel = stages.stage("the live kernel, saved", kernels::saved)?;
    let python = stages.stage("programs that read recordings", python::provide)?;
    stages.stage("tests", || {
        let mut cargo = tool::cargo(&[
            "test",
            "--workspace",
            "--no-fail-fast",
            "--",
            "--include-ignored",
            "--skip",
            LIVE,
            "--skip",
            BY_HAND,
        ]);
        kernel.name_to(&mut cargo).env("GILK_PYTHON", &python);
        tool::run(&mut cargo)
    })?;
    let later = stages.stage("a later kernel, saved", kernels::saved_later)?;
    stages.stage("the engine's tests on the later kernel", || {
        let Some(later) = &later else { return Ok(()) };
        let mut cargo = tool::cargo(&["test", "--package", "gilk-engine", "--", "--ignored"]);
        tool::run(later.name_to(&mut cargo))
    })?;
    stages.stage("tests on a live kernel", || {
        let mut cargo = tool::cargo(&[
            "test",
            "--workspace",
            "--test",
            "lab",
            "--test",
            "machines",
            "--test",
            "remote",
            "--",
            "--include-ignored",
            "--nocapture",
        ]);
        kernel.name_to(&mut cargo).env("GILK_PYTHON", &python);
        tool::run(&mut cargo)
    })?;
    stages.stage("the window on a live kernel, by mouse and keys", || {
        tool::run(&mut picture::journey())
    })?;
    stages.stage("everything at once on the later kernel, live", || {
        if later.is_none() {
            return Ok(());
        }
        // Of the whole workspace, so that it is built with the same features and is the same program.
        let mut cargo = tool::cargo(&[
            "test",
            "--workspace",
            "--test",
            "lab",
            "--",
            "--ignored",
            "--nocapture",
            EVERYWHERE,
        ]);
        tool::run(cargo.env("GILK_SERIES", kernels::LATER))
    })?;
    stages.stage("the papers' experiments, quickly", evaluate::quickly)?;
    stages.finish();
    Ok(())
}
