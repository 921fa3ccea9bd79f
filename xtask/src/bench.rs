//! `cargo xtask bench`.

use crate::fail::Result;
use crate::log::Log;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, kernels, python, tool};

/// Runs the benchmarks on images of live kernels.
pub(crate) fn bench(yes: bool) -> Result<()> {
    let mut stages = Stages::new(10);
    stages.stage("system packages", || {
        apt::provide(Purpose::Headless, yes, false)
    })?;
    stages.stage("building ilk", || tool::build(&["ilk"]))?;
    stages.stage("the lab's kernel, module and agent", || {
        kernels::prepare_lab(&Log::terminal())
    })?;
    let kernel = stages.stage(
        "the live kernel, saved",
        || kernels::saved(&Log::terminal()),
    )?;
    let later = stages.stage("a later kernel, saved", || {
        kernels::saved_later(&Log::terminal())
    })?;
    stages.stage("whole kernels", || {
        for kernel in [&kernel].into_iter().chain(&later) {
            let mut cargo =
                tool::cargo(&["run", "--quiet", "--release", "--package", "ilk-driver"]);
            cargo.args(["--example", "whole-kernel", "--"]);
            tool::run(cargo.arg(&kernel.dump))?;
        }
        Ok(())
    })?;
    let python = stages.stage("programs that read recordings", || {
        python::provide(&Log::terminal())
    })?;
    stages.stage("samples, as ratios", || {
        let mut cargo = tool::cargo(&["run", "--quiet", "--release", "--package", "gilk-samples"]);
        cargo.args(["--example", "ratios"]);
        tool::run(cargo.env("GILK_PYTHON", &python))
    })?;
    stages.stage("the window's frames", || {
        let mut cargo = tool::cargo(&["run", "--quiet", "--release", "--package", "gilk-gui"]);
        cargo.args(["--example", "frames", "--"]);
        tool::run(cargo.arg(&kernel.dump))
    })?;
    stages.stage("benchmarks", || {
        let mut cargo = tool::cargo(&[
            "bench",
            "--workspace",
            "--exclude",
            "gilk-gui",
            "--exclude",
            "xtask",
        ]);
        tool::run(cargo.envs(kernel.variables()))
    })?;
    stages.finish();
    Ok(())
}
