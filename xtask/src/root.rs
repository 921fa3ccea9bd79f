//! Minimal Debian roots, made by debootstrap, and commands in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::tool;

/// Releases of Debian that are supported, by their archive's names: 12 and 13.
pub(crate) const SUITES: [&str; 2] = ["bookworm", "trixie"];
/// Mirror, where this machine's own sources name none.
const MIRROR: &str = "http://deb.debian.org/debian";

/// Refuses a release that is not supported.
pub(crate) fn is_supported(suite: &str) -> Result<()> {
    if SUITES.contains(&suite) {
        return Ok(());
    }
    Err(Fail::new(format!(
        "there is no suite \"{suite}\" here; the suites are {}",
        SUITES.join(", ")
    )))
}

/// Installs a new root with these packages beside debootstrap's minimum, removing the old one.
pub(crate) fn install(suite: &str, root: &Path, packages: &str) -> Result<()> {
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
    // In a namespace of its own: debootstrap may leave `/proc` mounted in the root.
    let mut debootstrap = Command::new("unshare");
    debootstrap
        .args(["--mount", "debootstrap", "--variant=minbase"])
        .args([&format!("--include={packages}"), suite])
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

/// Runs a command of the shell in a root. `shared` folders of this machine are mounted at their first names there.
pub(crate) fn run(
    root: &Path,
    shared: &[(&str, PathBuf)],
    variables: &[(&str, &str)],
    command: &str,
) -> Result<()> {
    // A mount point, as every machine's root is: else a command in it could make no namespace of mounts.
    let mut script = format!("set -eu\nmount --bind '{0}' '{0}'\n", root.display());
    for (inside, outside) in shared {
        script += &format!(
            "mkdir -p '{0}{inside}'\nmount --bind '{1}' '{0}{inside}'\n",
            root.display(),
            outside.display()
        );
    }
    for kernel in ["proc", "sys", "dev"] {
        script += &format!("mount --rbind /{kernel} '{}/{kernel}'\n", root.display());
    }
    script += &format!("exec chroot '{}' /bin/sh -c \"$1\"\n", root.display());
    // The mounts are those of a namespace that ends with the command.
    let mut unshare = Command::new("unshare");
    unshare.args([
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        &script,
        "sh",
        command,
    ]);
    let kept = |name: &&str| name.to_lowercase().ends_with("_proxy");
    let proxies: Vec<(String, String)> = std::env::vars()
        .filter(|(name, _)| kept(&name.as_str()))
        .collect();
    unshare
        .env_clear()
        .envs(proxies)
        .env(
            "PATH",
            "/opt/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        .envs(variables.iter().copied());
    tool::run(&mut unshare)
}

fn failed(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Fail {
    let path = path.display().to_string();
    move |error| Fail::new(format!("cannot {verb} {path}: {error}"))
}
