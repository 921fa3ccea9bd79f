//! `cargo xtask bare`: both commands of the README in a Debian root that has nothing but Rust and its linker.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::Result;
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, root, tool};

/// Packages beside debootstrap's minimum: Rust's linker, and downloads.
const PACKAGES: &str = "gcc,libc6-dev,ca-certificates,git";
/// Path of the tree in the root.
const TREE: &str = "gilk";

/// Makes a root of one release and runs both commands in it.
pub(crate) fn bare(suite: &str, yes: bool) -> Result<()> {
    root::is_supported(suite)?;
    let home = tool::root().join("target/gilk/bare").join(suite);
    let folder = home.join("root");
    let mut stages = Stages::new(5);
    stages.stage("system packages", || apt::provide(Purpose::Bare, yes, true))?;
    stages.stage("a minimal root", || root::install(suite, &folder, PACKAGES))?;
    stages.stage("the tree", || copy(&folder))?;
    stages.stage("cargo xtask test", || {
        inside(&folder, "cargo xtask test --yes")
    })?;
    stages.stage("cargo xtask run", || {
        inside(&folder, "cargo xtask run --yes --headless")
    })?;
    stages.finish();
    Ok(())
}

/// Copies the tracked files of this tree, as a new checkout.
fn copy(root: &Path) -> Result<()> {
    let tree = root.join(TREE);
    let mut git = Command::new("git");
    git.args(["clone", "--quiet", "--no-hardlinks"])
        .arg(tool::root())
        .arg(&tree);
    tool::run(&mut git)
}

/// Runs a command in the tree of the root, with this machine's toolchain and registry mounted there.
fn inside(folder: &Path, command: &str) -> Result<()> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let named = |name: &str, folder: &str| {
        std::env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from)
    };
    let shared = [
        ("/opt/cargo", named("CARGO_HOME", ".cargo")),
        ("/opt/rustup", named("RUSTUP_HOME", ".rustup")),
    ];
    let variables = [
        ("CARGO_HOME", "/opt/cargo"),
        ("RUSTUP_HOME", "/opt/rustup"),
        ("CI", "true"),
    ];
    root::run(
        folder,
        &shared,
        &variables,
        &format!("cd /{TREE} && exec {command}"),
    )
}
