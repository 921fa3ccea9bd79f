//! `cargo xtask picture`: pictures of the window for the README and the tour, drawn by the window.

use std::fs;
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, evaluate, kernels, tool};

/// Folder of the README's pictures: `window.png`, `window-light.png`, `window-contrast.png`.
const PICTURES: &str = "docs";
/// Steps of the hunt, and the function and the block that each picture shows; the last two show the loop.
const TOUR: [(&str, &str, &str); 4] = [
    ("1-calls", "__x64_sys_accept", "0"),
    ("2-times", "handle_mm_fault", "0"),
    ("3-blocks", "filemap_map_pages", "62"),
    ("4-mended", "filemap_map_pages", "62"),
];
/// Size of the window and of its virtual display, in points.
const SIZE: &str = "1600x1000";

/// Returns the test that operates a real window on a virtual display, from an empty desk to exported samples, and
/// has it save pictures of itself.
pub(crate) fn journey() -> Command {
    // The whole workspace is named, so that features are those of the tests' build.
    tool::cargo(&[
        "test",
        "--workspace",
        "--test",
        "screen",
        "--",
        "--ignored",
        "--nocapture",
    ])
}

/// Makes all pictures: of the journey from an empty desk to exported samples, and of the steps of the hunt.
pub(crate) fn picture(yes: bool) -> Result<()> {
    let mut stages = Stages::new(6);
    stages.stage("system packages", || {
        apt::provide(Purpose::Tests, yes, false)
    })?;
    stages.stage("building ilk and the window", || {
        tool::build(&["ilk", "gilk"])
    })?;
    stages.stage("the lab's kernel, module and agent", || {
        kernels::prepare_lab(&Log::terminal())
    })?;
    stages.stage("the pictures of a journey through the window", || {
        tool::run(journey().env("GILK_PICTURES", tool::root().join(PICTURES)))
    })?;
    let kernel = stages.stage(
        "the live kernel, saved",
        || kernels::saved(&Log::terminal()),
    )?;
    let note = stages.stage("the pictures of docs/tour.md", || tour(&kernel))?;
    stages.finish();
    println!("\nThe pictures of the window are in {PICTURES}. {note}");
    Ok(())
}

/// Draws the steps of the hunt, and returns a sentence about the pictures.
fn tour(kernel: &kernels::Kernel) -> Result<String> {
    let dump = kernel.dump.to_string_lossy();
    let release = format!("-{}", kernel.release());
    for (step, function, block) in TOUR {
        let name = format!("hunt-{step}{release}");
        let recording = format!("{}/{name}.arrow", evaluate::PLACE);
        if !tool::root().join(&recording).is_file() {
            return Ok(format!(
                "Those of the tour stay as they are: there is no {recording}, which `cargo xtask evaluate hunt` makes."
            ));
        }
        let session = format!("{}/{name}.ron", evaluate::PLACE);
        let shown = [
            "--image",
            &dump,
            "--session",
            &session,
            "--recording",
            &recording,
            "--function",
            function,
            "--block",
            block,
        ];
        draw(&shown, &format!("docs/tour/{step}.png"))?;
    }
    Ok("Those of the tour are in docs/tour.".to_owned())
}

/// Starts the window on a virtual display and has it save a picture.
fn draw(shown: &[&str], picture: &str) -> Result<()> {
    let picture = tool::root().join(picture);
    let place = picture.parent().unwrap_or(&picture);
    fs::create_dir_all(place)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", place.display())))?;
    let mut xvfb = Command::new("xvfb-run");
    xvfb.args(["-a", "-s", &format!("-screen 0 {SIZE}x24")])
        .arg(tool::target().join("debug/gilk"))
        .args(shown)
        .args(["--theme", "dark", "--size", SIZE, "--screenshot"])
        .arg(&picture);
    // Mesa's software renderer draws the same picture on every machine.
    xvfb.env("LIBGL_ALWAYS_SOFTWARE", "1")
        .env_remove("WAYLAND_DISPLAY")
        .current_dir(tool::root());
    tool::run(&mut xvfb)
}
