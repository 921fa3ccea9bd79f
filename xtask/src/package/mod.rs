//! `cargo xtask package`: Debian packages of the terminal program with the agent, the window, and the module.

mod deb;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fail::{Fail, Result};
use crate::packages::Purpose;
use crate::stages::Stages;
use crate::{apt, root, tool};
use deb::{Architecture, Control, Deb};

/// Version of all packages, the workspace's.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Folder of this crate with units, scripts and the icon.
const PARTS: &str = "xtask/package";
/// Shells with the files of their completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/ilk"),
    ("zsh", "usr/share/zsh/vendor-completions/_ilk"),
    ("fish", "usr/share/fish/vendor_completions.d/ilk.fish"),
];
/// Packages with programs and libraries of `ilk lab`.
const LAB: &str = "qemu-system-x86, busybox-static, gcc, make, libelf1 | libelf1t64, xz-utils, apt";

/// Makes the packages. With `suites`, installs, uses and removes them in a root of each.
pub(crate) fn package(yes: bool, suites: &[String]) -> Result<()> {
    for suite in suites {
        root::is_supported(suite)?;
    }
    let mut stages = Stages::new(if suites.is_empty() { 4 } else { 4 + 1 });
    stages.stage("system packages", || {
        apt::provide(Purpose::Package, yes, false)
    })?;
    stages.stage("building for release (cargo shows how far it is)", build)?;
    stages.stage("the workloads", || {
        tool::run(released("ilk").args(["lab", "--prepare"]))
    })?;
    let packages = stages.stage("packages", make)?;
    if !suites.is_empty() {
        stages.stage("clean roots", || {
            suites
                .iter()
                .try_for_each(|suite| trial::run(suite, &packages))
        })?;
    }
    stages.finish();
    println!();
    for package in &packages {
        println!("{}", package.display());
    }
    Ok(())
}

fn build() -> Result<()> {
    tool::run(&mut tool::cargo(&[
        "build",
        "--release",
        "--workspace",
        "--bin",
        "ilk",
        "--bin",
        "gilk",
    ]))
}

/// Path of a program built for release.
fn product(name: &str) -> PathBuf {
    tool::target().join("release").join(name)
}

fn released(name: &str) -> Command {
    let mut program = Command::new(product(name));
    program.current_dir(tool::root());
    program
}

/// Assembles the packages, and returns their files.
fn make() -> Result<Vec<PathBuf>> {
    let home = tool::results()?.join("package");
    if home.exists() {
        fs::remove_dir_all(&home)
            .map_err(|error| Fail::new(format!("cannot empty {}: {error}", home.display())))?;
    }
    [ilk(&home)?, gilk(&home)?, module(&home)?]
        .iter()
        .map(Deb::build)
        .collect()
}

/// The terminal program, the agent and its units, and the parts of the lab.
fn ilk(home: &Path) -> Result<Deb> {
    let mut package = Deb::new(
        home,
        Control {
            name: "ilk",
            version: VERSION,
            architecture: Architecture::Amd64,
            depends: vec!["passwd".into(), "kmod".into()],
            recommends: format!("ilk-dkms (= {VERSION}), {LAB}"),
            summary: "instruments a running Linux kernel by basic block",
            description: "ilk places instruments before and after basic blocks of a running kernel, with\n\
                 patches that are proven before they are written, and collects their samples.\n\
                 It has the terminal program, the privileged agent with its units for\n\
                 systemd, and the lab: a stock kernel in QEMU for trying it out.",
        },
    )?;
    package.program(&product("ilk"), "usr/bin/ilk")?;
    let cache = tool::cache();
    for name in names(&tool::root().join("ilk-driver/workload"), ".c")? {
        let built = cache.join("workload").join(&name);
        package.static_program(&built, &format!("usr/lib/gilk/workload/{name}"))?;
    }
    sources(&mut package, "usr/lib/gilk/kmod")?;
    package.copy(
        &tool::root().join("ilk-driver/sessions/pulsar.ron"),
        "usr/share/gilk/sessions/pulsar.ron",
    )?;
    for file in ["ilk.socket", "ilk.service"] {
        package.copy(&part(file), &format!("usr/lib/systemd/system/{file}"))?;
    }
    for (shell, path) in SHELLS {
        let script = printed(released("ilk").args(["completions", shell]))?;
        package.write(path, &script)?;
    }
    for file in printed(released("ilk").args(["man", "--list"]))?.lines() {
        let (name, section) = file.rsplit_once('.').unwrap_or((file, "1"));
        let page = match name.strip_prefix("ilk-") {
            Some(page) => printed(released("ilk").args(["man", page]))?,
            None => printed(released("ilk").arg("man"))?,
        };
        package.manual(name, section, &page)?;
    }
    for script in ["postinst", "prerm", "postrm"] {
        package.script(script, &fs_text(&part(&format!("ilk.{script}")))?)?;
    }
    package.legal(&["LICENSE-MIT", "LICENSE-APACHE"])?;
    Ok(package)
}

/// The window.
fn gilk(home: &Path) -> Result<Deb> {
    let mut depends = vec![format!("ilk (= {VERSION})")];
    depends.extend(crate::packages::of_the_window().map(|name| format!("{name} | {name}t64")));
    let mut package = Deb::new(
        home,
        Control {
            name: "gilk",
            version: VERSION,
            architecture: Architecture::Amd64,
            depends,
            recommends: "xdg-desktop-portal".to_owned(),
            summary: "window that instruments a running Linux kernel by basic block",
            description: "gilk shows the functions of a kernel and their control-flow graphs, places\n\
                 instruments at basic blocks, runs sessions, and shows the samples on a timeline.",
        },
    )?;
    package.program(&product("gilk"), "usr/bin/gilk")?;
    package.copy(&part("gilk.desktop"), "usr/share/applications/gilk.desktop")?;
    package.copy(
        &part("gilk.svg"),
        "usr/share/icons/hicolor/scalable/apps/gilk.svg",
    )?;
    let help = printed(released("gilk").arg("--help"))?;
    let text = help.replace('\\', "\\\\").replace('\n', "\n\\&");
    let page = format!(
        ".TH gilk 1 \"\" \"gilk {VERSION}\"\n.SH NAME\ngilk \\- window that instruments a running Linux kernel\n\
         .SH DESCRIPTION\n.nf\n\\&{text}\n.fi\n.SH SEE ALSO\nilk(1)\n"
    );
    package.manual("gilk", "1", &page)?;
    package.legal(&["LICENSE-MIT", "LICENSE-APACHE"])?;
    Ok(package)
}

/// The module's sources, which dkms builds for each kernel.
fn module(home: &Path) -> Result<Deb> {
    let mut package = Deb::new(
        home,
        Control {
            name: "ilk-dkms",
            version: VERSION,
            architecture: Architecture::All,
            depends: vec!["dkms".into()],
            recommends: "linux-headers-amd64 | linux-headers".to_owned(),
            summary: "kernel module of ilk, as source for dkms",
            description: "ilk.ko writes and removes the patches of ilk, and keeps the rings of samples.\n\
                 dkms builds it for every installed kernel, and signs it where a key is enrolled.",
        },
    )?;
    let folder = format!("usr/src/ilk-{VERSION}");
    sources(&mut package, &folder)?;
    package.copy(&kmod().join("dkms.conf"), &format!("{folder}/dkms.conf"))?;
    for script in ["postinst", "prerm"] {
        let text = fs_text(&part(&format!("ilk-dkms.{script}")))?;
        package.script(script, &text.replace("@VERSION@", VERSION))?;
    }
    package.legal(&[
        "ilk-driver/kmod/LICENSE-GPL-2.0",
        "LICENSE-MIT",
        "LICENSE-APACHE",
    ])?;
    Ok(package)
}

fn kmod() -> PathBuf {
    tool::root().join("ilk-driver/kmod")
}

/// Copies what builds the module.
fn sources(package: &mut Deb, folder: &str) -> Result<()> {
    let listed = printed(
        Command::new("git")
            .args(["ls-files", "."])
            .current_dir(kmod()),
    )?;
    let is_source = |name: &&str| {
        ["Makefile", "Kbuild"].contains(name)
            || [".c", ".h", ".S"].iter().any(|end| name.ends_with(end))
    };
    for name in listed.lines().filter(is_source) {
        package.copy(&kmod().join(name), &format!("{folder}/{name}"))?;
    }
    Ok(())
}

fn part(name: &str) -> PathBuf {
    tool::root().join(PARTS).join(name)
}

fn fs_text(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Fail::new(format!("cannot read {}: {error}", path.display())))
}

/// Returns the names of a folder's files with an ending, without it.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder)
        .map_err(|error| Fail::new(format!("cannot list {}: {error}", folder.display())))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(name.strip_suffix(ending)?.to_owned())
        })
        .collect();
    names.sort();
    Ok(names)
}

fn printed(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    tool::output(command).ok_or_else(|| Fail::new(format!("this failed: {shown}")))
}
