//! Which system packages which command needs, and which of them are missing.

use std::process::Command;

use crate::tool;

/// How one tells that a package's contents are there.
enum Sign {
    /// A program that it brings.
    Program(&'static str),
    /// Nothing but the package manager knows.
    Installed,
}

/// A package of Debian's, and what it is for.
struct Package {
    name: &'static str,
    sign: Sign,
    reason: &'static str,
}

const fn program(name: &'static str, program: &'static str, reason: &'static str) -> Package {
    Package {
        name,
        sign: Sign::Program(program),
        reason,
    }
}

const fn library(name: &'static str, reason: &'static str) -> Package {
    Package {
        name,
        sign: Sign::Installed,
        reason,
    }
}

/// What the lab needs. Building a module against unpacked headers takes a compiler, make, and the
/// library that the kernel's objtool is linked to; not flex, bison or bc.
const LAB: &[Package] = &[
    program("gcc", "gcc", "compiles the module and the workload"),
    program("make", "make", "builds the module"),
    program("xz-utils", "xz", "unpacks the drivers of newer kernels"),
    program("qemu-system-x86", "qemu-system-x86_64", "runs the lab"),
    library("libc6-dev", "links the workload statically"),
    library("busybox-static", "is the lab's user space"),
    library("libelf1", "is used by the kernel's objtool"),
];

/// What the window opens at run time.
const WINDOW: &[Package] = &[
    library("libgl1", "draws the window"),
    library("libegl1", "draws the window"),
    library("libgl1-mesa-dri", "draws the window"),
    library("libx11-6", "opens the window"),
    library("libx11-xcb1", "opens the window"),
    library("libxcursor1", "opens the window"),
    library("libxi6", "opens the window"),
    library("libxrandr2", "opens the window"),
    library("libxkbcommon0", "reads the keyboard"),
    library("libxkbcommon-x11-0", "reads the keyboard"),
];

/// What tests need beside that.
const TESTS: &[Package] = &[
    program("binutils", "objdump", "is what the decoder is held against"),
    program("xvfb", "Xvfb", "is a display for the window's tests"),
    program("xauth", "xauth", "is a display for the window's tests"),
    program("python3", "python3", "reads recordings and exports"),
    library(
        "python3-venv",
        "keeps what reads recordings to this project",
    ),
    program("babeltrace2", "babeltrace2", "reads exported traces"),
    program(
        "xdotool",
        "xdotool",
        "moves the pointer in the window's tests",
    ),
];

/// What is to be done on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The lab and the terminal.
    Headless,
    /// The window too.
    Window,
    /// Every test.
    Tests,
}

impl Purpose {
    fn packages(self) -> impl Iterator<Item = &'static Package> {
        let groups: &[&[Package]] = match self {
            Self::Headless => &[LAB],
            Self::Window => &[LAB, WINDOW],
            Self::Tests => &[LAB, WINDOW, TESTS],
        };
        groups.iter().copied().flatten()
    }
}

/// A package that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Its name in Debian.
    pub(crate) package: &'static str,
    /// What it is for.
    pub(crate) reason: &'static str,
}

/// Gives what is missing for a purpose. Without Debian's package manager only programs can be looked for.
pub(crate) fn missing(purpose: Purpose) -> Vec<Missing> {
    let installed = installed(
        &purpose
            .packages()
            .map(|package| package.name)
            .collect::<Vec<_>>(),
    );
    let is_missing = |package: &&Package| match (&package.sign, &installed) {
        (Sign::Program(program), _) => !tool::exists(program),
        (Sign::Installed, Some(installed)) => {
            !installed.iter().any(|name| is_called(name, package.name))
        }
        (Sign::Installed, None) => false,
    };
    purpose
        .packages()
        .filter(is_missing)
        .map(|package| Missing {
            package: package.name,
            reason: package.reason,
        })
        .collect()
}

/// Debian 13 added `t64` to the names of libraries whose time type grew.
fn is_called(installed: &str, name: &str) -> bool {
    installed == name || installed.strip_suffix("t64") == Some(name)
}

/// Those of these packages that are installed; `None` where there is no dpkg.
fn installed(names: &[&str]) -> Option<Vec<String>> {
    if !tool::exists("dpkg-query") {
        return None;
    }
    let mut patterns: Vec<String> = names.iter().map(ToString::to_string).collect();
    patterns.extend(names.iter().map(|name| format!("{name}t64")));
    // It fails when one of them is unknown, and lists the others all the same.
    let answer = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status} ${Package}\n"])
        .args(patterns)
        .output()
        .ok()?;
    Some(list(&String::from_utf8_lossy(&answer.stdout)))
}

fn list(answer: &str) -> Vec<String> {
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("installed "))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wholly_installed_counts() {
        assert_eq!(
            list("installed make\nnot-installed gcc\nconfig-files xvfb\n"),
            ["make"]
        );
        assert!(
            is_called("libelf1t64", "libelf1")
                && is_called("libelf1", "libelf1")
                && !is_called("libelf", "libelf1")
        );
    }

    #[test]
    fn a_package_is_named_once_for_each_purpose() {
        for purpose in [Purpose::Headless, Purpose::Window, Purpose::Tests] {
            let mut names: Vec<_> = purpose.packages().map(|package| package.name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
