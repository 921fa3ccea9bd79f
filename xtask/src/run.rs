//! `cargo xtask run`.

use std::fs;
use std::path::PathBuf;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, tool};

/// Session of the demonstration.
const DEMONSTRATION: &str = "ilk-driver/sessions/pulsar.ron";
/// Recording of the demonstration.
const RECORDING: &str = "target/gilk/pulsar.arrow";
/// Picture of the recording.
const TIMELINE: &str = "target/gilk/pulsar.png";

/// Options of the command.
pub(crate) struct Options {
    /// Installs packages without confirmation.
    pub(crate) yes: bool,
    /// Runs the demonstration instead of the window.
    pub(crate) headless: bool,
    /// Kernel image to use instead of Debian's.
    pub(crate) kernel: Option<String>,
    /// Kernel headers that belong to the image.
    pub(crate) headers: Option<String>,
    /// Series of Debian's kernels; by default its release's.
    pub(crate) series: Option<String>,
    /// Flavour of Debian's kernel; by default `cloud`.
    pub(crate) flavour: Option<String>,
}

impl Options {
    /// Returns the variables by which programs find a kernel that is not Debian's.
    fn own_kernel(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let named = [
            ("--kernel", "GILK_KERNEL", &self.kernel),
            ("--headers", "GILK_HEADERS", &self.headers),
        ];
        let mut variables = Vec::new();
        for (option, variable, path) in named {
            if let Some(path) = path {
                // Programs are started in another directory.
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

    /// Returns the variables that select one of Debian's kernels.
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

/// Sets up this machine, prepares the lab and starts the window, or the demonstration.
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
            "building ilk and the window (cargo shows how far it is)",
            &["ilk", "gilk"],
        )
    } else {
        (
            Purpose::Headless,
            "building ilk (cargo shows how far it is)",
            &["ilk"],
        )
    };
    let aim = if window {
        "opens the window on it"
    } else {
        "runs the demonstration in it"
    };
    println!(
        "Builds gilk, boots a stock Linux in QEMU and {aim}. The first time takes some minutes."
    );
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

/// Runs the demonstration session in the lab, and writes its recording and picture.
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
        "--force",
    ]);
    tool::run(ilk.envs(kernel.iter().cloned()))
}

fn has_display() -> bool {
    ["WAYLAND_DISPLAY", "DISPLAY"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}
