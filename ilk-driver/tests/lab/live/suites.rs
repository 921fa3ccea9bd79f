//! Test suites that others have written, with a session and without: the verdicts are the same.
//!
//! Long runs have them. [docs/coexistence.md](../../../../docs/coexistence.md) says what they found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gilk_engine::code::Function;
use gilk_engine::session::Workload;
use gilk_engine::{HookType, Image, Session};
use ilk_driver::lab::{Options, Prepared, prepare};
use tempfile::TempDir;

use super::everywhere::{DIRECTORIES, NET, functions, large};
use crate::chosen::Chosen;
use crate::support::{Outcome, Turn, run_to_its_end, shared_of};
use crate::userland::{PROGRAMS, Userland, found, unpacked};

/// Begins the lines that a script prints for this test.
const VERDICT: &str = "verdict ";
/// A suite with fewer verdicts has not run.
const FEWEST: usize = 80;
/// Classes of stressors that pass through the instrumented directories.
const CLASSES: &str = "scheduler memory filesystem network interrupt pipe";
/// Operations after which a stressor ends, if it does not by its time: what passes through more code is the number of
/// stressors, not of their operations.
const OPERATIONS: u32 = 20;
/// Stressors that are left out, each with its reason.
const LEFT_OUT: &[(&str, &str)] = &[
    ("oom-pipe", "takes all memory of the lab"),
    ("bigheap", "takes all memory of the lab"),
    ("brk", "takes all memory of the lab"),
    ("stack", "takes all memory of the lab"),
    ("resources", "takes all memory of the lab"),
];

/// A session without placements, which runs a script.
fn running(script: &str) -> Session {
    Session {
        name: "a suite".into(),
        duration: 7200.0,
        workload: Some(Workload {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), format!("{}{script}", unpacked())],
            start: 0.0,
        }),
        ..Session::empty()
    }
}

/// Verdicts that a script has printed, each as `verdict NAME VALUE`.
fn verdicts(outcome: &Outcome) -> BTreeMap<String, String> {
    let lines = outcome
        .said
        .iter()
        .filter_map(|line| line.strip_prefix(VERDICT));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The hooks before all blocks of some functions.
fn blocks(image: &Image, functions: &[&Function]) -> Chosen {
    let mut chosen = Chosen::of(image, functions);
    chosen.wanted.retain(|wanted| wanted.hook == HookType::Pre);
    chosen
}

/// Runs a script without and with counters before every block of some functions, and compares its verdicts.
fn agrees(turn: &Turn<'_>, functions: &[&Function], script: &str) {
    let without = verdicts(&turn.run(&running(script)));
    assert!(
        without.len() >= FEWEST,
        "{} verdicts: {without:?}",
        without.len()
    );
    let mut chosen = blocks(&turn.shared.image, functions);
    let layout = turn.connect().info().layout.clone();
    let (session, plan) = chosen.plan(&turn.shared.image, running(script), &layout);
    let outcome = turn.run(&session);
    let hits: u64 = outcome
        .summary
        .instruments
        .iter()
        .filter_map(|one| one.total)
        .sum();
    let hit = outcome
        .summary
        .instruments
        .iter()
        .filter(|one| one.total > Some(0));
    println!(
        "{} verdicts; {} hooks of {} functions in {} splices, {} of them hit {hits} times",
        without.len(),
        chosen.wanted.len(),
        chosen.graphs.len(),
        plan.sites.len(),
        hit.count(),
    );
    let mut values: BTreeMap<&str, usize> = BTreeMap::new();
    for value in without.values() {
        *values.entry(value).or_default() += 1;
    }
    println!("  without: {values:?}");
    let with = verdicts(&outcome);
    let differing: Vec<_> = without
        .iter()
        .filter(|(name, value)| with.get(*name) != Some(value))
        .map(|(name, value)| (name, value, with.get(name)))
        .collect();
    assert!(
        differing.is_empty(),
        "(what, without, with a session): {differing:#?}"
    );
    assert!(hits > 0, "nothing was counted");
    turn.assert_same_text();
}

#[test]
#[ignore = "boots the lab and runs an hour; cargo xtask test --long runs it"]
fn stress_ng_verifies_the_same_with_every_block_counted() {
    let home = tempfile::tempdir().unwrap();
    let userland = Userland::of(&["stress-ng"]);
    let shared = shared_of(&lab(&userland, home.path()));
    let directories = DIRECTORIES.iter().chain([&NET]);
    let all: Vec<&Function> = directories
        .flat_map(|directory| functions(&shared.image, directory))
        .collect();
    let left_out: Vec<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let script = format!(
        "cd /tmp; for class in {CLASSES}; do stress-ng --class $class? 2>/dev/null | sed 's/.*stressors: //'; done \
         | tr ' ' '\\n' | sort -u > /tmp/all
         for name in $(cat /tmp/all); do
             case ' {} ' in *\" $name \"*) continue;; esac
             begun=$(date +%s)
             timeout -s KILL 120 stress-ng --$name 1 --$name-ops {OPERATIONS} -t 2 --verify --no-rand-seed \
                 > /tmp/said 2>&1
             echo {VERDICT}$name $?
             echo took $(($(date +%s) - begun)) $name
         done",
        left_out.join(" ")
    );
    agrees(&shared.turn(), &all, &script);
}

/// Files of the kernel's source, of the series that a lab has.
struct Source {
    tree: TempDir,
    name: String,
}

impl Source {
    /// Unpacks some folders of the package `linux-source`.
    fn of(prepared: &Prepared, folders: &[&str]) -> Self {
        let release = prepared.release();
        let mut numbers = release.split('.');
        let (major, minor) = (numbers.next().unwrap(), numbers.next().unwrap());
        let name = format!("linux-source-{major}.{minor}");
        let archive = PathBuf::from(format!("/usr/src/{name}.tar.xz"));
        assert!(
            archive.is_file(),
            "{} is not there: install the package {name}",
            archive.display()
        );
        let tree = tempfile::tempdir().unwrap();
        let status = Command::new("tar")
            .arg("-xJf")
            .arg(&archive)
            .arg("-C")
            .arg(tree.path())
            .args(folders.iter().map(|folder| format!("{name}/{folder}")))
            .status();
        assert!(
            status.unwrap().success(),
            "{} is unpacked",
            archive.display()
        );
        Self { tree, name }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.tree.path().join(&self.name).join(path)
    }
}

/// A lab with a userland, for a suite that wants much memory.
fn lab(userland: &Userland, home: &Path) -> Prepared {
    let options = Options {
        memory_mib: 4096,
        files: vec![userland.pack(home)],
        ..large()
    };
    prepare(&options, &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// The kernel whose tests are run, without the files that they need.
fn plain() -> Prepared {
    prepare(&Options::default(), &mut |_| ()).unwrap_or_else(|error| panic!("{error}"))
}

/// The directories whose code the tests of tracing and patching pass through, and what those probe.
fn traced(image: &Image) -> Vec<&Function> {
    let directories = DIRECTORIES
        .iter()
        .filter(|directory| directory.name != "mm");
    let mut all: Vec<&Function> = directories
        .flat_map(|directory| functions(image, directory))
        .collect();
    all.extend(
        ["kernel_clone", "copy_process", "do_exit"].map(|name| image.function_named(name).unwrap()),
    );
    all
}

#[test]
#[ignore = "boots the lab and runs an hour; cargo xtask test --long runs it"]
fn the_kernels_tests_of_ftrace_and_kprobes_say_the_same() {
    let home = tempfile::tempdir().unwrap();
    let source = Source::of(&plain(), &["tools/testing/selftests/ftrace"]);
    let userland = Userland::of(&["bash", "chrt", "grep", "mktemp", "sed", "stat", "taskset"]);
    userland.add(
        "/suite/ftrace",
        &source.path("tools/testing/selftests/ftrace"),
    );
    let shared = shared_of(&lab(&userland, home.path()));
    let script = format!(
        "cd /suite/ftrace; chmod +x ftracetest; bash ./ftracetest -l /tmp/logs > /tmp/said 2>&1
         sed -n 's/^\\[[0-9]*\\] \\(.*\\)\t\\[\\(.*\\)\\]$/{VERDICT}\\1 \\2/p' /tmp/said; rm -rf /tmp/logs"
    );
    agrees(&shared.turn(), &traced(&shared.image), &script);
}

/// The programs that the scripts of the live patches' tests start.
const PATCHING: &[&str] = &[
    "awk", "bash", "comm", "depmod", "diff", "dmesg", "grep", "insmod", "mktemp", "modinfo",
    "modprobe", "rmmod", "sed", "seq", "stat", "sysctl",
];

/// One that they start by this path, with options that busybox's has not.
const STAT: &str = "/bin/stat";

/// A test that switches the function tracer off, which the kernel refuses while splices stand on its sites, as it does
/// while a live patch is loaded: the test is skipped.
const SWITCHES_TRACING_OFF: &str = "test-ftrace.sh";
const TRACING_STAYS: &str = "SKIP: failed to set kernel.ftrace_enabled = 0";

/// Builds the modules of the live patches' tests, and adds them with their scripts.
fn add_live_patches(userland: &Userland, prepared: &Prepared) -> Vec<String> {
    let source = Source::of(
        prepared,
        &["tools/testing/selftests/livepatch", "lib/livepatch"],
    );
    // From 6.9 the modules are beside the scripts.
    let beside = source.path("tools/testing/selftests/livepatch/test_modules");
    let modules = Some(beside)
        .filter(|path| path.is_dir())
        .unwrap_or_else(|| source.path("lib/livepatch"));
    let made = prepared.build_modules(&modules, &["CONFIG_TEST_LIVEPATCH=m"]);
    made.unwrap_or_else(|error| panic!("{error}"));
    let folder = format!("/lib/modules/{}", prepared.release());
    for entry in fs::read_dir(&modules).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "ko") {
            let name = path.file_name().unwrap().to_str().unwrap();
            userland.add(&format!("{folder}/{name}"), &path);
        }
    }
    let scripts = source.path("tools/testing/selftests/livepatch");
    userland.add("/suite/livepatch", &scripts);
    let names = fs::read_dir(&scripts).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("test-")).collect();
    names.sort();
    names
}

#[test]
#[ignore = "boots the lab and runs an hour; cargo xtask test --long runs it"]
fn the_kernels_tests_of_live_patches_pass_though_each_interrupts_a_session() {
    let home = tempfile::tempdir().unwrap();
    let kernel = plain();
    let userland = Userland::of(PATCHING);
    userland.add(STAT, &found("stat"));
    let tests = add_live_patches(&userland, &kernel);
    assert!(tests.len() >= 5, "{tests:?}");
    let shared = shared_of(&lab(&userland, home.path()));
    let turn = shared.turn();
    // A group of its own outlives the session. The shell prefers busybox's depmod, whose lists modprobe cannot read.
    let begun = |name: &str, pause: u32| {
        format!(
            "{PROGRAMS}/depmod 2> /dev/null; rm -f /tmp/verdict; cd /suite/livepatch; setsid sh -c \
             'sleep {pause}; bash ./{name} > /tmp/said 2>&1; echo {VERDICT}{name} $? > /tmp/verdict' \
             < /dev/null > /dev/null 2>&1 &"
        )
    };
    let wait = "while ! [ -e /tmp/verdict ]; do sleep 0.2; done; cat /tmp/said /tmp/verdict";
    let mut chosen = blocks(&shared.image, &traced(&shared.image));
    let layout = turn.connect().info().layout.clone();
    let mut interrupted = 0;
    for name in &tests {
        let without = turn.run(&running(&format!("{} {wait}", begun(name, 0))));
        let (session, _) = chosen.plan(
            &shared.image,
            running(&format!("{} {wait}", begun(name, 2))),
            &layout,
        );
        let recording = home.path().join(format!("{name}.arrow"));
        let (_, outcome) = run_to_its_end(&mut turn.connect(), &shared.image, &session, &recording);
        let (summary, _) = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        for gap in &summary.gaps {
            println!("{name}: {gap}");
        }
        // A test that loads no live patch interrupts no session.
        interrupted += usize::from(!summary.gaps.is_empty());
        let with = turn.run(&running(wait));
        let (alone, beside) = (verdicts(&without), verdicts(&with));
        println!("{name}: {alone:?} alone, {beside:?} beside a session");
        assert_eq!(
            alone.get(name).map(String::as_str),
            Some("0"),
            "{name}: {:#?}",
            without.said
        );
        if name == SWITCHES_TRACING_OFF {
            let refused = with.said.iter().any(|line| line.contains(TRACING_STAYS));
            assert!(refused, "{name}: {:#?}", with.said);
        } else {
            assert_eq!(beside, alone, "{name}: {:#?}", with.said);
        }
    }
    assert!(
        interrupted >= 4,
        "{interrupted} of {tests:?} loaded a live patch"
    );
    turn.assert_same_text();
}
