//! System packages: the programs and libraries that this project starts and loads, and which of them are missing.
//!
//! This is the one list. A test searches the tree for programs that are started and stand in no entry.

use std::process::Command;

use crate::debugging::SOURCE;
use crate::tool;

/// A package of Debian's, its programs that are started, and its use.
struct Package {
    name: &'static str,
    /// Empty for a library: only the package manager knows whether it is installed.
    programs: &'static [&'static str],
    reason: &'static str,
}

const fn package(
    name: &'static str,
    programs: &'static [&'static str],
    reason: &'static str,
) -> Package {
    Package {
        name,
        programs,
        reason,
    }
}

const fn library(name: &'static str, reason: &'static str) -> Package {
    package(name, &[], reason)
}

/// Needed by every command, Rust's own linking included.
const BASE: &[Package] = &[
    package(
        "gcc",
        &["gcc", "cc", "gcov-dump"],
        "compiles the module and the workload, and counts blocks itself",
    ),
    library("libc6-dev", "links the workload statically"),
    package(
        "coreutils",
        &["cat", "mkfifo", "sleep", "timeout", "true"],
        "makes pipes for tests, and is a program that a test instruments",
    ),
    package("dash", &["sh"], "runs the lab's scripts"),
    package("git", &["git"], "lists the files of the tree"),
];

/// Needed by the lab. Building a module against unpacked headers takes a compiler, make, and the
/// library that the kernel's objtool is linked to; not flex, bison or bc.
const LAB: &[Package] = &[
    package("make", &["make"], "builds the module"),
    package(
        "binutils",
        &["ld", "strip", "objcopy", "objdump", "ar"],
        "takes the symbols off the agent and of a test's program, and is compared with the decoder",
    ),
    package("xz-utils", &["xz"], "unpacks the drivers of newer kernels"),
    package("qemu-system-x86", &["qemu-system-x86_64"], "runs the lab"),
    library("busybox-static", "is the lab's user space"),
    library("libelf1", "is used by the kernel's objtool"),
];

/// Loaded by the window at run time.
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

/// Needed by tests only.
const TESTS: &[Package] = &[
    package(
        "xvfb",
        &["Xvfb", "xvfb-run"],
        "is a display for the window's tests",
    ),
    package("xauth", &["xauth"], "is a display for the window's tests"),
    package("procps", &["kill"], "kills programs for tests"),
    package("python3", &["python3"], "reads recordings and exports"),
    library(
        "python3-venv",
        "keeps the readers of recordings inside this project",
    ),
    package("babeltrace2", &["babeltrace2"], "reads exported traces"),
    package(
        "xdotool",
        &["xdotool"],
        "moves the pointer in the window's tests",
    ),
];

/// Needed by the tests that need neither kernel nor display.
const QUICK: &[Package] = &[
    package(
        "g++",
        &["g++", "c++"],
        "compiles programs with landing pads for tests",
    ),
    package(
        "valgrind",
        &["valgrind"],
        "sees the accesses of a program, which are compared with those that are recorded",
    ),
    package(
        "musl-tools",
        &["musl-gcc"],
        "compiles programs with another C library for tests",
    ),
    package(
        "luajit",
        &["luajit"],
        "compiles code while it executes it, for tests",
    ),
    package(
        "dwz",
        &["dwz"],
        "makes supplementary files of debug information for tests",
    ),
];

/// Other tools that execute programs, with which `cargo xtask evaluate user --peers` compares.
const PEERS: &[Package] = &[
    package("valgrind", &["valgrind"], "executes programs too"),
    package("qemu-user", &["qemu-x86_64"], "executes programs too"),
];

/// Needed by long runs.
const LONG: &[Package] = &[
    package("stress-ng", &["stress-ng"], "is a test suite of the kernel"),
    package("tar", &["tar"], "packs programs for the lab"),
    library("linux-source", "has the kernel's own tests"),
    library("libpython3.*-testsuite", "is the test suite of a program"),
    package("nodejs", &["node"], "compiles code while it executes it"),
    package(
        "default-jdk-headless",
        &["java"],
        "compiles code while it executes it",
    ),
    library("glibc-source", "has the C library's own tests"),
    package("tcl", &["tclsh"], "joins the source files of sqlite3"),
    library("tcl-dev", "links the program of sqlite3's own tests"),
    package("kmod", &["modprobe"], "loads modules in those tests"),
    package("bochs", &["bochs"], "emulates indirect branch tracking"),
    library("bochsbios", "starts Bochs"),
    library("vgabios", "starts Bochs"),
    package(
        "grub-common",
        &["grub-mkrescue"],
        "makes a disc that Bochs boots",
    ),
    library("grub-pc-bin", "boots from that disc"),
    library("mtools", "makes that disc"),
    library("xorriso", "makes that disc"),
];

/// Needed by `cargo xtask kernels --debug`, beside the tests': they build a kernel.
const DEBUGGING: &[Package] = &[
    library(SOURCE, "is the source of the kernel for debugging"),
    package("tar", &["tar"], "unpacks that source"),
    package("bc", &["bc"], "builds that kernel"),
    package("bison", &["bison"], "builds that kernel"),
    package("flex", &["flex"], "builds that kernel"),
    library("libelf-dev", "builds that kernel's objtool"),
    package("dwarves", &["pahole"], "writes that kernel's types"),
    package("kmod", &["depmod"], "installs that kernel's modules"),
];

/// Needed by `cargo xtask package`, beside the lab's and the window's.
const PACKAGING: &[Package] = &[
    package("binutils", &["strip"], "removes symbols from programs"),
    package(
        "dpkg-dev",
        &["dpkg-shlibdeps"],
        "finds the libraries of programs",
    ),
    package("dpkg", &["dpkg-deb"], "writes packages"),
    package("gzip", &["gzip"], "compresses manual pages"),
];

/// Needed by `cargo xtask bare`.
const BARE: &[Package] = &[package(
    "debootstrap",
    &["debootstrap"],
    "makes a minimal Debian root",
)];

/// Programs that are started only where they are present, or only after a check that names them.
#[cfg(test)]
const OPTIONAL: &[(&str, &str)] = &[
    (
        "apt-cache",
        "Debian's package manager finds the lab's kernel",
    ),
    (
        "apt-get",
        "Debian's package manager downloads the lab's kernel",
    ),
    (
        "dpkg-query",
        "Debian's package manager lists installed packages",
    ),
    ("sudo", "runs apt-get for users"),
    ("ssh", "connects to a machine that a user has named"),
    ("rustc", "is Rust"),
    ("unshare", "is in an essential package of Debian's"),
    ("/bin/true", "is a program that a test sees refused"),
    (
        "no-such-tool-of-the-lab",
        "is a program that a test does not find",
    ),
];

/// Use of this machine, which decides on the packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The lab and the terminal.
    Headless,
    /// The window too.
    Window,
    /// Every test.
    Tests,
    /// Those of long runs too.
    Long,
    /// Tests on a kernel that is built for debugging.
    Debugging,
    /// The tests that need neither kernel nor display.
    Quick,
    /// Programs of this machine, and other tools that execute them.
    Peers,
    /// A root of another Debian.
    Bare,
    /// Packages of Debian, and their trial in roots.
    Package,
}

impl Purpose {
    fn packages(self) -> impl Iterator<Item = &'static Package> {
        let groups: &[&[Package]] = match self {
            Self::Quick => &[BASE, QUICK],
            Self::Peers => &[BASE, PEERS],
            Self::Bare => &[BASE, BARE],
            Self::Package => &[BASE, LAB, WINDOW, PACKAGING, BARE],
            Self::Headless => &[BASE, LAB],
            Self::Window => &[BASE, LAB, WINDOW],
            Self::Tests => &[BASE, LAB, WINDOW, QUICK, TESTS],
            Self::Long => &[BASE, LAB, WINDOW, QUICK, TESTS, LONG],
            Self::Debugging => &[BASE, LAB, WINDOW, QUICK, TESTS, DEBUGGING],
        };
        groups.iter().copied().flatten()
    }
}

/// Returns whether a package has, or comes with, what compiles and links the project.
pub(crate) fn compiles(name: &str) -> bool {
    name == "g++" || BASE.iter().any(|package| package.name == name)
}

/// Returns the names of the packages that the window loads at run time.
pub(crate) fn of_the_window() -> impl Iterator<Item = &'static str> {
    WINDOW.iter().map(|package| package.name)
}

/// A package that is not installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Its name in Debian.
    pub(crate) package: &'static str,
    /// Its use.
    pub(crate) reason: &'static str,
}

/// Returns the missing packages of a purpose. Without Debian's package manager only programs are looked for.
pub(crate) fn missing(purpose: Purpose) -> Vec<Missing> {
    let installed = installed(
        &purpose
            .packages()
            .map(|package| package.name)
            .collect::<Vec<_>>(),
    );
    let is_missing = |package: &&Package| match &installed {
        _ if !package.programs.is_empty() => {
            !package.programs.iter().all(|program| tool::exists(program))
        }
        Some(installed) => !installed.iter().any(|name| is_called(name, package.name)),
        None => false,
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

/// Debian 13 added `t64` to the names of libraries whose time type grew. Some have the version of a language within:
/// `libpython3.*-testsuite`, which apt-get reads as an expression, and dpkg-query as a pattern.
fn is_called(installed: &str, name: &str) -> bool {
    let has_parts = name.split_once(".*").is_some_and(|(first, last)| {
        let rest = installed.strip_prefix(first);
        rest.is_some_and(|rest| rest.ends_with(last))
    });
    has_parts || installed == name || installed.strip_suffix("t64") == Some(name)
}

/// Returns the installed ones of some packages; `None` where there is no dpkg.
fn installed(names: &[&str]) -> Option<Vec<String>> {
    if !tool::exists("dpkg-query") {
        return None;
    }
    let mut patterns: Vec<String> = names.iter().map(ToString::to_string).collect();
    patterns.extend(names.iter().map(|name| format!("{name}t64")));
    // It fails if one of them is unknown, and still lists the others.
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
    fn a_package_that_is_not_fully_installed_does_not_count() {
        assert_eq!(
            list("installed make\nnot-installed gcc\nconfig-files xvfb\n"),
            ["make"]
        );
        assert!(
            is_called("libelf1t64", "libelf1")
                && is_called("libelf1", "libelf1")
                && !is_called("libelf", "libelf1")
        );
        let suite = "libpython3.*-testsuite";
        assert!(
            is_called("libpython3.11-testsuite", suite)
                && !is_called("libpython3.11-minimal", suite)
                && !is_called("libpython2.7-testsuite", suite)
        );
    }

    #[test]
    fn a_package_is_named_once_for_each_purpose() {
        for purpose in [
            Purpose::Quick,
            Purpose::Bare,
            Purpose::Peers,
            Purpose::Headless,
            Purpose::Window,
            Purpose::Tests,
            Purpose::Long,
            Purpose::Debugging,
        ] {
            let mut names: Vec<_> = purpose.packages().map(|package| package.name).collect();
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }

    /// Returns the names of programs that a source file starts.
    fn started(text: &str) -> Vec<&str> {
        let calls = text.split("Command::new(\"").skip(1);
        calls
            .filter_map(|call| call.split_once('"'))
            .map(|(name, _)| name)
            .collect()
    }

    #[test]
    fn every_started_program_is_on_the_list() {
        let mut folders = vec![tool::root()];
        let mut unlisted = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
                if path.is_dir() && name != "target" && !name.starts_with('.') {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let is_listed = |program: &&str| {
                        let all = [
                            Purpose::Long,
                            Purpose::Debugging,
                            Purpose::Package,
                            Purpose::Peers,
                        ];
                        let mut packages = all.into_iter().flat_map(Purpose::packages);
                        packages.any(|package| package.programs.contains(program))
                            || OPTIONAL.iter().any(|(name, _)| name == program)
                            || program.contains(['{', '\\'])
                    };
                    let names = started(&text).into_iter().filter(|name| !is_listed(name));
                    unlisted.extend(names.map(|name| format!("{name} in {}", path.display())));
                }
            }
        }
        assert!(
            unlisted.is_empty(),
            "add these to packages.rs: {unlisted:#?}"
        );
    }
}
