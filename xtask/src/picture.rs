//! `cargo xtask picture`: the README's picture of the window, made by the window itself.

use std::fs;
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, run, tool};

/// Where the README looks for it.
const PICTURE: &str = "docs/window.png";
/// Points of the window, and of the display that nobody sees.
const SIZE: &str = "1600x1000";

/// Runs the demonstration and has the window, on a display of its own, draw itself with the recording.
pub(crate) fn picture(yes: bool) -> Result<()> {
    let mut stages = Stages::new(5);
    stages.stage("system packages", || {
        apt::provide(Purpose::Tests, yes, false)
    })?;
    stages.stage("building ilk and the window", || {
        tool::build(&["ilk", "gilk"])
    })?;
    stages.stage("the lab's kernel, module and agent", || {
        tool::run(tool::program("ilk").args(["lab", "--prepare"]))
    })?;
    stages.stage("the demonstration session", || run::demonstrate(&[]))?;
    stages.stage("the picture", || {
        let place = tool::root().join("docs");
        fs::create_dir_all(&place)
            .map_err(|error| Fail::new(format!("cannot create {}: {error}", place.display())))?;
        let mut xvfb = Command::new("xvfb-run");
        xvfb.args(["-a", "-s", &format!("-screen 0 {SIZE}x24")])
            .arg(tool::target().join("debug/gilk"));
        xvfb.args([
            "--lab",
            "--session",
            run::DEMONSTRATION,
            "--recording",
            run::RECORDING,
        ]);
        xvfb.args([
            "--function",
            "copy_process",
            "--block",
            "0",
            "--theme",
            "dark",
            "--size",
            SIZE,
            "--screenshot",
            PICTURE,
        ]);
        // Alike on every machine: drawn by Mesa's software renderer.
        xvfb.env("LIBGL_ALWAYS_SOFTWARE", "1")
            .env_remove("WAYLAND_DISPLAY")
            .current_dir(tool::root());
        tool::run(&mut xvfb)
    })?;
    stages.finish();
    println!("\nThe picture is {PICTURE}.");
    Ok(())
}
