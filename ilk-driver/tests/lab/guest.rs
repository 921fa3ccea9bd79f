//! Builds and runs assay, the test program that talks to the module directly.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ilk_driver::lab::{Lab, Prepared};
use tempfile::TempDir;

/// The kernel's reports of bugs in it; they also end the lab.
const BAD: [&str; 8] = [
    "BUG:",
    "WARNING:",
    "Oops",
    "Kernel panic",
    "general protection",
    " stall",
    "hung task",
    "Call Trace",
];

/// Assay and its modules, built for a lab's kernel.
pub(crate) struct Guest {
    prepared: Prepared,
    home: TempDir,
}

impl Guest {
    pub(crate) fn new(prepared: &Prepared) -> Self {
        let home = tempfile::tempdir().unwrap();
        let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest");
        let sources = fs::read_dir(&guest)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"));
        let gcc = Command::new("gcc")
            .args([
                "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-pthread", "-I",
            ])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("kmod"))
            .arg("-o")
            .arg(home.path().join("assay"))
            .args(sources)
            .status();
        assert!(gcc.expect("gcc builds the workloads too").success());
        let modules = home.path().join("modules");
        fs::create_dir(&modules).unwrap();
        for entry in fs::read_dir(guest.join("modules")).unwrap() {
            let source = entry.unwrap().path();
            fs::copy(&source, modules.join(source.file_name().unwrap())).unwrap();
        }
        let make = Command::new("make")
            .env_remove("MAKEFLAGS")
            .env_remove("MAKELEVEL")
            .arg("-C")
            .arg(prepared.headers())
            .arg(format!("M={}", modules.display()))
            .args(["CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"])
            .stdout(Stdio::null())
            .status();
        assert!(make.expect("make builds the module too").success());
        fs::copy(guest.join("unhush.sh"), home.path().join("unhush")).unwrap();
        Self {
            prepared: prepared.clone(),
            home,
        }
    }

    /// Returns a built module of its own.
    pub(crate) fn module(&self, name: &str) -> PathBuf {
        self.home.path().join("modules").join(format!("{name}.ko"))
    }

    /// Returns a module by its file's name, or the script `unhush`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        if name.ends_with(".ko") {
            self.home.path().join("modules").join(name)
        } else {
            self.home.path().join(name)
        }
    }

    /// Runs a script in a lab of its own and returns its console output, which must contain no
    /// kernel bug.
    pub(crate) fn run(
        &self,
        script: &str,
        limit: Duration,
        change: impl FnOnce(&mut ilk_driver::lab::Options),
    ) -> String {
        let console = self.console(script, limit, change);
        // Reports of a slow host during boot are ignored.
        let since = console
            .split_once("gilk-lab: ready")
            .map_or("", |(_, said)| said);
        for bad in BAD {
            assert!(!since.contains(bad), "the kernel reports a bug:\n{console}");
        }
        assert!(
            console.contains("gilk-lab: /lab/run ended"),
            "the lab ended before its script:\n{console}"
        );
        console
    }

    fn console(
        &self,
        script: &str,
        limit: Duration,
        change: impl FnOnce(&mut ilk_driver::lab::Options),
    ) -> String {
        let run = self.home.path().join("run");
        fs::write(
            &run,
            format!("#!/bin/sh\necho 1 > /proc/sys/kernel/panic_on_warn\n{script}\n"),
        )
        .unwrap();
        let mut files: Vec<(String, PathBuf)> = ["assay", "unhush", "run"]
            .map(|name| (format!("lab/{name}"), self.home.path().join(name)))
            .into();
        files.extend(
            ["hush", "passer", "meddler"].map(|name| (format!("lab/{name}.ko"), self.module(name))),
        );
        let prepared = self.prepared.clone().with(|options| {
            options.files = files;
            change(options);
        });
        let lab = Lab::boot(&prepared, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"));
        let begin = Instant::now();
        while lab.end().is_none() {
            assert!(
                begin.elapsed() < limit,
                "the script has not ended after {} s:\n{}",
                limit.as_secs(),
                lab.console().unwrap()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        lab.console().unwrap()
    }
}

/// Prints assay's output and fails unless assay passed.
pub(crate) fn assert_passed(console: &str) {
    let said: Vec<&str> = console
        .lines()
        .filter(|line| line.starts_with("assay: "))
        .collect();
    println!("{}", said.join("\n"));
    let passed = said.iter().filter(|line| **line == "assay: passed").count();
    assert!(
        passed > 0 && !console.contains("assay: FAILED"),
        "{console}"
    );
}
