//! `cargo xtask bare`: both commands of the README in a Debian root that has nothing but Rust and its linker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, tool};

/// Releases of Debian that are supported, by their archive's names: 12 and 13.
pub(crate) const SUITES: [&str; 2] = ["bookworm", "trixie"];
/// Packages beside debootstrap's minimum: Rust's linker, and downloads.
const PACKAGES: &str = "gcc,libc6-dev,ca-certificates,git";
/// Mirror, where this machine's own sources name none.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Path of the tree in the root.
const TREE: &str = "gilk";

/// Makes a root of one release and runs both commands in it.
pub(crate) fn bare(suite: &str, yes: bool) -> Result<()> {
    if !SUITES.contains(&suite) {
        return Err(Fail::new(format!(
            "there is no suite \"{suite}\" here; the suites are {}",
            SUITES.join(", ")
        )));
    }
    let home = tool::root().join("target/gilk/bare").join(suite);
    let root = home.join("root");
    let mut stages = Stages::new(5);
    stages.stage("system packages", || apt::provide(Purpose::Bare, yes, true))?;
    stages.stage("a minimal root", || install(suite, &root))?;
    stages.stage("the tree", || copy(&root))?;
    stages.stage("cargo xtask test", || {
        inside(&root, "cargo xtask test --yes")
    })?;
    stages.stage("cargo xtask run", || {
        inside(&root, "cargo xtask run --yes --headless")
    })?;
    stages.finish();
    Ok(())
}

/// Installs a new root, removing the old one.
fn install(suite: &str, root: &Path) -> Result<()> {
    if root.exists() {
        // A mount that a killed run has left would have its files removed too.
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.contains(&*root.to_string_lossy()) {
            return Err(Fail::new(format!(
                "something is mounted below {}; unmount it first",
                root.display()
            )));
        }
        fs::remove_dir_all(root).map_err(failed("remove", root))?;
    }
    fs::create_dir_all(root).map_err(failed("create", root))?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(["--variant=minbase", &format!("--include={PACKAGES}"), suite])
        .arg(root)
        .arg(mirror());
    tool::run(&mut debootstrap)?;
    for file in ["etc/resolv.conf", "etc/hosts"] {
        // A machine without one needs none in the root either.
        let _ = fs::copy(Path::new("/").join(file), root.join(file));
    }
    copied_settings(root)
}

/// The mirror of this machine's own sources.
fn mirror() -> String {
    let folder = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let files = [PathBuf::from("/etc/apt/sources.list")]
        .into_iter()
        .chain(folder);
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    let words: Vec<String> = texts
        .flat_map(|text| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect();
    let mut mirrors = words
        .into_iter()
        .filter(|word| word.starts_with("http") && word.trim_end_matches('/').ends_with("/debian"));
    mirrors.next().unwrap_or_else(|| MIRROR.to_owned())
}

/// Copies apt's settings and the certificates that this machine trusts: its way to mirrors may be a proxy.
fn copied_settings(root: &Path) -> Result<()> {
    for (folder, ending) in [
        ("etc/apt/apt.conf.d", ""),
        ("usr/local/share/ca-certificates", ".crt"),
    ] {
        let target = root.join(folder);
        fs::create_dir_all(&target).map_err(failed("create", &target))?;
        for entry in fs::read_dir(Path::new("/").join(folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name();
            if name.to_string_lossy().ends_with(ending) && entry.path().is_file() {
                fs::copy(entry.path(), target.join(&name))
                    .map_err(failed("copy", &entry.path()))?;
            }
        }
    }
    let certificates = Path::new("etc/ssl/certs/ca-certificates.crt");
    let _ = fs::copy(Path::new("/").join(certificates), root.join(certificates));
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
fn inside(root: &Path, command: &str) -> Result<()> {
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let named = |name: &str, folder: &str| {
        std::env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from)
    };
    let (cargo, rustup) = (
        named("CARGO_HOME", ".cargo"),
        named("RUSTUP_HOME", ".rustup"),
    );
    let shared = [("/opt/cargo", cargo), ("/opt/rustup", rustup)];
    let mut script = String::from("set -eu\n");
    for (inside, outside) in &shared {
        script += &format!(
            "mkdir -p '{0}{inside}'\nmount --bind '{1}' '{0}{inside}'\n",
            root.display(),
            outside.display()
        );
    }
    for kernel in ["proc", "sys", "dev"] {
        script += &format!("mount --rbind /{kernel} '{}/{kernel}'\n", root.display());
    }
    script += &format!(
        "exec chroot '{}' /bin/sh -c 'cd /{TREE} && exec {command}'\n",
        root.display()
    );
    // The mounts are those of a namespace that ends with the command.
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "slave", "sh", "-c", &script]);
    let kept = |name: &&str| name.to_lowercase().ends_with("_proxy");
    let proxies: Vec<(String, String)> = std::env::vars()
        .filter(|(name, _)| kept(&name.as_str()))
        .collect();
    unshare.env_clear().envs(proxies);
    unshare
        .env(
            "PATH",
            "/opt/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        .env("CARGO_HOME", "/opt/cargo")
        .env("RUSTUP_HOME", "/opt/rustup")
        .env("CI", "true");
    tool::run(&mut unshare)
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Fail {
    let path = path.display().to_string();
    move |error| Fail::new(format!("cannot {verb} {path}: {error}"))
}
