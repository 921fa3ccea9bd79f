//! `cargo xtask run`.

use std::fs;
use std::path::PathBuf;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, tool};

/// The session that the demonstration runs.
const DEMONSTRATION: &str = "ilk-driver/sessions/pulsar.ron";
/// What it leaves.
const RECORDING: &str = "target/gilk/pulsar.arrow";
const TIMELINE: &str = "target/gilk/pulsar.png";

/// What was asked for.
pub(crate) struct Options {
    /// Install without asking.
    pub(crate) yes: bool,
    /// No window.
    pub(crate) headless: bool,
    /// A kernel image instead of Debian's.
    pub(crate) kernel: Option<String>,
    /// Its headers.
    pub(crate) headers: Option<String>,
    /// Another series of Debian's kernels than its release's own.
    pub(crate) series: Option<String>,
    /// Another flavour of Debian's kernel than cloud.
    pub(crate) flavour: Option<String>,
}

impl Options {
    /// A kernel of one's own, as our programs are told of it.
    fn own_kernel(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let named = [
            ("--kernel", "GILK_KERNEL", &self.kernel),
            ("--headers", "GILK_HEADERS", &self.headers),
        ];
        let mut variables = Vec::new();
        for (option, variable, path) in named {
            if let Some(path) = path {
                // A program may be started in another directory than ours.
                let whole = fs::canonicalize(path).map_err(|error| {
                    Fail::new(format!(
                        "{option} names {path}, which cannot be used: {error}"
                    ))
                })?;
                variables.push((variable, whole));
            }
        }
        if variables.len() == 1 {
            return Err(Fail::new(
                "--kernel and --headers belong together: a kernel's modules are built against its own headers",
            ));
        }
        Ok(variables)
    }

    /// Which of Debian's kernels is meant, as our programs are told of it.
    fn stock_kernel(&self) -> Vec<(&'static str, PathBuf)> {
        [
            ("GILK_SERIES", &self.series),
            ("GILK_FLAVOUR", &self.flavour),
        ]
        .into_iter()
        .filter_map(|(variable, value)| Some((variable, value.as_ref()?.into())))
        .collect()
    }
}

/// Sets up, prepares the lab and starts the window, or the demonstration.
pub(crate) fn run(options: &Options) -> Result<()> {
    let own_kernel = options.own_kernel()?;
    let mut kernel = options.stock_kernel();
    if !kernel.is_empty() && !own_kernel.is_empty() {
        return Err(Fail::new(
            "--kernel names a kernel of yours, and --series and --flavour one of Debian's; give one or the other",
        ));
    }
    kernel.extend(own_kernel.iter().cloned());
    let window = !options.headless && has_display();
    if !window && !options.headless {
        println!(
            "There is no display here (neither WAYLAND_DISPLAY nor DISPLAY is set): running the demonstration in the terminal."
        );
    }
    let (purpose, building, programs): (_, _, &[&str]) = if window {
        (
            Purpose::Window,
            "building ilk and the window",
            &["ilk", "gilk"],
        )
    } else {
        (Purpose::Headless, "building ilk", &["ilk"])
    };
    let mut stages = Stages::new(4);
    stages.stage("system packages", || {
        apt::provide(purpose, options.yes, !own_kernel.is_empty())
    })?;
    stages.stage(building, || tool::build(programs))?;
    stages.stage("the lab's kernel, module and agent", || {
        tool::run(
            tool::program("ilk")
                .args(["lab", "--prepare"])
                .envs(kernel.clone()),
        )
    })?;
    if window {
        return stages.stage("the window", || {
            tool::run(
                tool::program("gilk")
                    .args(["--lab", "--session", DEMONSTRATION])
                    .envs(kernel.clone()),
            )
        });
    }
    stages.stage("the demonstration session", || demonstrate(&kernel))?;
    stages.finish();
    println!("\nThe recording is {RECORDING}, the picture of its timeline {TIMELINE}.");
    Ok(())
}

/// Runs the demonstration session in a lab of its own and leaves its recording and picture.
fn demonstrate(kernel: &[(&'static str, PathBuf)]) -> Result<()> {
    tool::results()?;
    let mut ilk = tool::program("ilk");
    ilk.args([
        "run",
        DEMONSTRATION,
        "--lab",
        "-o",
        RECORDING,
        "--png",
        TIMELINE,
    ]);
    tool::run(ilk.envs(kernel.iter().cloned()))
}

fn has_display() -> bool {
    ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}
