//! `cargo xtask picture`: the README's pictures of the window and the tour's, made by the window itself.

use std::fs;
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, evaluate, kernels, tool};

/// Where the README looks for those of the window: `window.png`, `window-light.png`, `window-contrast.png`.
const PICTURES: &str = "docs";
/// The steps of the hunt that are shown, and the function and block looked at: at the end where the loop
/// is.
const TOUR: [(&str, &str, &str); 4] = [
    ("1-calls", "__x64_sys_accept", "0"),
    ("2-times", "handle_mm_fault", "0"),
    ("3-blocks", "filemap_map_pages", "62"),
    ("4-mended", "filemap_map_pages", "62"),
];
/// Points of the window, and of the display that nobody sees.
const SIZE: &str = "1600x1000";

/// The test that goes from an empty desk to exported samples in a real window on a display of its own,
/// and has it save pictures of itself on the way.
pub(crate) fn journey() -> Command {
    // Of the whole workspace, so that nothing is built again with other features.
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

/// Has the window draw itself: on a journey from an empty desk to exported samples, and with the steps of
/// the hunt.
pub(crate) fn picture(yes: bool) -> Result<()> {
    let mut stages = Stages::new(6);
    stages.stage("system packages", || {
        apt::provide(Purpose::Tests, yes, false)
    })?;
    stages.stage("building ilk and the window", || {
        tool::build(&["ilk", "gilk"])
    })?;
    stages.stage("the lab's kernel, module and agent", || {
        tool::run(tool::program("ilk").args(["lab", "--prepare"]))
    })?;
    stages.stage("the pictures of a journey through the window", || {
        tool::run(journey().env("GILK_PICTURES", tool::root().join(PICTURES)))
    })?;
    let kernel = stages.stage("the live kernel, saved", kernels::saved)?;
    let told = stages.stage("the pictures of docs/tour.md", || tour(&kernel))?;
    stages.finish();
    println!("\nThe pictures of the window are in {PICTURES}. {told}");
    Ok(())
}

/// The steps of the hunt, as the window shows them; and what to say of it.
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

/// Has the window, on a display of its own, draw itself with what it is to show.
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
    // Alike on every machine: drawn by Mesa's software renderer.
    xvfb.env("LIBGL_ALWAYS_SOFTWARE", "1")
        .env_remove("WAYLAND_DISPLAY")
        .current_dir(tool::root());
    tool::run(&mut xvfb)
}
