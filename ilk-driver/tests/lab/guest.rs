//! Builds and runs assay, the test program that talks to the module directly.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ilk_driver::lab::{Lab, Prepared};

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
    built: PathBuf,
}

impl Guest {
    pub(crate) fn new(prepared: &Prepared) -> Self {
        Self {
            prepared: prepared.clone(),
            built: built(prepared),
        }
    }

    /// Returns a built module of its own.
    fn module(&self, name: &str) -> PathBuf {
        self.built.join("modules").join(format!("{name}.ko"))
    }

    /// Returns all modules and the script `unhush`, each with its path in the lab.
    pub(crate) fn files(&self) -> Vec<(String, PathBuf)> {
        let modules = [
            "hush", "drowse", "passer", "meddler", "sleeper", "doubter", "warner",
        ]
        .map(|name| (format!("lab/{name}.ko"), self.module(name)));
        let unhush = ("lab/unhush".to_owned(), self.built.join("unhush"));
        modules.into_iter().chain([unhush]).collect()
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
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join("run");
        fs::write(
            &run,
            format!("#!/bin/sh\necho 1 > /proc/sys/kernel/panic_on_warn\n{script}\n"),
        )
        .unwrap();
        let mut files: Vec<(String, PathBuf)> = ["assay", "unhush"]
            .map(|name| (format!("lab/{name}"), self.built.join(name)))
            .into();
        files.push(("lab/run".into(), run));
        files.extend(
            ["hush", "passer", "meddler", "listener"]
                .map(|name| (format!("lab/{name}.ko"), self.module(name))),
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

/// Builds assay and its modules once for each kernel and state of their sources: a test that only boots them does not
/// wait for a compiler.
fn built(prepared: &Prepared) -> PathBuf {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest");
    let interface = Path::new(env!("CARGO_MANIFEST_DIR")).join("kmod");
    let sources = files(&guest);
    let modules = files(&guest.join("modules"));
    let mut hasher = DefaultHasher::new();
    prepared.headers().hash(&mut hasher);
    for file in sources.iter().chain(&modules).chain(&files(&interface)) {
        file.hash(&mut hasher);
        fs::read(file).unwrap().hash(&mut hasher);
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = home.join(format!("guest-{:016x}", hasher.finish()));
    if built.is_dir() {
        return built;
    }
    // Built beside its place and renamed when it is whole: other tests may be building it too.
    let building = tempfile::tempdir_in(home).unwrap();
    let gcc = Command::new("gcc")
        .args([
            "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-pthread", "-I",
        ])
        .arg(interface)
        .arg("-o")
        .arg(building.path().join("assay"))
        .args(sources.iter().filter(|path| has_extension(path, "c")))
        .status();
    assert!(gcc.expect("gcc builds the workloads too").success());
    let copies = building.path().join("modules");
    fs::create_dir(&copies).unwrap();
    for source in &modules {
        fs::copy(source, copies.join(source.file_name().unwrap())).unwrap();
    }
    let made = prepared.build_modules(&copies, &[]);
    made.unwrap_or_else(|error| panic!("{error}"));
    fs::copy(guest.join("unhush.sh"), building.path().join("unhush")).unwrap();
    if fs::rename(building.path(), &built).is_ok() {
        let _ = building.keep();
    } else {
        assert!(built.is_dir(), "{} cannot be made", built.display());
    }
    built
}

/// The files in a folder, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort_unstable();
    files
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
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
