//! `cargo xtask test`: everything that must hold, cheapest first, stopping at the first failure.

use std::path::PathBuf;

use crate::fail::Result;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, python, tool};

/// Tests on a live kernel are named `live::…` and have a stage of their own.
const LIVE: &str = "live::";

/// Runs every stage.
pub(crate) fn test(yes: bool) -> Result<()> {
    let mut stages = Stages::new(11);
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
    stages.stage("the lab's kernel, module and agent", prepare_lab)?;
    let image = stages.stage("an image of the live kernel", save_image)?;
    let python = stages.stage("pyarrow and polars", python::provide)?;
    stages.stage("tests", || {
        let mut cargo = tool::cargo(&[
            "test",
            "--workspace",
            "--",
            "--include-ignored",
            "--skip",
            LIVE,
        ]);
        cargo.env("GILK_IMAGE", &image).env("GILK_PYTHON", &python);
        // The window's tests draw with a software renderer, so that pictures are alike everywhere.
        cargo
            .env("LIBGL_ALWAYS_SOFTWARE", "1")
            .env("WGPU_BACKEND", "vulkan");
        tool::run(&mut cargo)
    })?;
    stages.stage("tests on a live kernel", || {
        let mut cargo = tool::cargo(&[
            "test",
            "--workspace",
            "--test",
            "lab",
            "--",
            "--include-ignored",
            "--nocapture",
        ]);
        cargo.env("GILK_IMAGE", &image).env("GILK_PYTHON", &python);
        tool::run(&mut cargo)
    })?;
    stages.finish();
    Ok(())
}

/// Gets and builds what the lab is made of.
pub(crate) fn prepare_lab() -> Result<()> {
    tool::run(tool::program("ilk").args(["lab", "--prepare"]))
}

/// Boots the lab once and keeps what the engine wants to know of its kernel, for tests on files.
pub(crate) fn save_image() -> Result<PathBuf> {
    let image = tool::results()?.join("image.bin");
    tool::run(
        tool::program("ilk")
            .args(["dump", "--lab", "-o"])
            .arg(&image),
    )?;
    Ok(image)
}
