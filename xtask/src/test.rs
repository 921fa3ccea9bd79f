//! `cargo xtask test`: everything that must hold. One build, then jobs that keep every core busy.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::apt::{self, Permitted};
use crate::fail::{Fail, Result};
use crate::jobs::{Adder, Graph, Job, Outcome, Timed, slowest};
use crate::kernels::{self, Kernel, Newest};
use crate::log::Log;
use crate::packages::Purpose;
use crate::suite::{self, Binary, Times};
use crate::{bare, documentation, evaluate, package, python, root, tool};

/// Tests on a live kernel are in a module of this name.
const LIVE: &str = "live";
/// The test that hooks functions of all directories: on the later kernel, and in long runs on both.
const SPREAD: &str = "live::everywhere::flow_is_conserved_in_functions_of_all_directories_at_once";
/// Tests that run on both kernels.
const EVERYWHERE: &str = "live::everywhere::";
/// Tests that run on the image of the later kernel too: proofs. A long run has all of them.
const LATER_IMAGE: [&str; 1] = ["verified::"];
/// Tests that run on the newest kernel too, and those of a long run.
const NEWEST: [&str; 1] = ["live::pulsar::the_demonstration"];
const NEWEST_LONG: [&str; 4] = [
    "live::pulsar::",
    "live::conservation::",
    "live::restoration::",
    "live::faults::",
];
/// Tests that compare moments with the kernel's own probes: beside other work the emulated machine stalls between them.
const MOMENTS: &str = "live::truth::";
/// Tests of long runs only: they take many minutes, or the test that operates a window by mouse and keys has their steps.
const LONG_ONLY: [&str; 11] = [
    "accessing_generated::accesses_of_java",
    "accessing_generated::accesses_of_node",
    "live::bochs::",
    "live::both::",
    "live::everywhere::flow_is_conserved_in_a_whole_directory_at_once",
    "live::everywhere::letters::",
    "live::mitigations::",
    "live::own_programs::",
    "live::suites::",
    "live::forks_of_a_workload",
    "suites::",
];
/// Part of the names of tests that need what no machine of CI's has: their documentation says what.
const BY_HAND: &str = "by_hand::";
/// Expected seconds of a job; test programs that take longer are divided.
const PIECE: f32 = 40.0;
/// Time after which a test is taken to hang: four times the longest's, for slow machines.
const LIMIT: Duration = Duration::from_secs(10 * 60);
/// The same for a long run's soaks.
const LONG_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// Slowest tests in the final table.
const SLOWEST: usize = 20;
/// The test that operates a window by mouse and keys: it has its job to itself.
const JOURNEY: &str = "screen";

/// Extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Tests that need no kernel, no display and no other program, and take a second at most.
    Quick,
    /// Everything but soaks.
    Full,
    /// Soaks, all experiments and bare machines too.
    Long,
}

/// Variables of a long run: tests read them and do more.
const LONG: [(&str, &str); 21] = [
    ("GILK_EXECUTED", "3000000"),
    ("GILK_KPROBED", "copy_process"),
    ("GILK_DIRECTORIES", "2"),
    ("GILK_ROLLBACK_MOST", "1000"),
    ("GILK_SOAK_CYCLES", "2000"),
    ("GILK_FUZZ_CALLS", "200000"),
    ("GILK_NONSENSE", "400"),
    ("GILK_EVERY", "11"),
    ("GILK_STEP", "3"),
    ("GILK_STEPS", "50000"),
    ("GILK_PART", "1"),
    ("GILK_LONGEST_FOLLOWED", "1000000000"),
    ("GILK_PROGRAMS", "7"),
    ("GILK_CLIENTS", "40"),
    ("GILK_ROUNDS", "4"),
    ("GILK_FUNCTIONS", "1000"),
    ("GILK_ATTACHED", "10000"),
    ("GILK_CONFINED", "20"),
    ("GILK_DAMAGED", "3000"),
    ("GILK_WHOLE", "1"),
    ("PROPTEST_CASES", "2048"),
];

/// Seed of random tests: a tree that passes once passes again. Long runs draw another, and print it.
const SEED: u64 = 2000;

/// Results that jobs hand to later jobs.
#[derive(Clone, Default)]
struct Artifacts {
    kernel: Arc<OnceLock<Kernel>>,
    later: Arc<OnceLock<Kernel>>,
    newest: Arc<OnceLock<Newest>>,
    python: Arc<OnceLock<PathBuf>>,
}

/// Requirements of a group of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// None.
    Plain,
    /// An image of a kernel, and Python.
    Image,
    /// An image of the later kernel.
    LaterImage,
    /// The lab.
    Live,
    /// The lab, and no other job meanwhile.
    LiveAlone,
    /// The lab with the later kernel.
    LaterLive,
    /// The lab with the newest kernel.
    NewestLive,
}

/// Runs every job.
pub(crate) fn test(yes: bool, extent: Extent) -> Result<()> {
    let is_quick = extent == Extent::Quick;
    let purpose = match extent {
        Extent::Quick => Purpose::Quick,
        Extent::Full => Purpose::Tests,
        Extent::Long => Purpose::Long,
    };
    println!("System packages:");
    let mut packages = apt::permitted(purpose, yes, is_quick)?;
    if !packages.leaves_builds_alone() {
        packages.install(&mut tool::run)?;
        packages = Permitted::default();
    }
    let logs = tool::results()?.join("test");
    // Logs of jobs that an earlier run had, and this one has not, would be taken for its own.
    if logs.exists() {
        fs::remove_dir_all(&logs)
            .map_err(|error| Fail::new(format!("cannot remove {}: {error}", logs.display())))?;
    }
    fs::create_dir_all(&logs)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", logs.display())))?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    println!(
        "Jobs on {cores} cores; their output is in {}:",
        logs.display()
    );
    // Tests in the lab wait for its kernel half of their time: two for each core, and one place for other tests.
    let in_lab = 2 * cores;
    let (tests, outcome) = Graph::new(&logs, in_lab + 1, jobs(extent, in_lab, packages)).run();
    Times::read().keep(&tests);
    slowest(&tests, SLOWEST);
    outcome?;
    if extent == Extent::Long {
        for suite in root::SUITES {
            bare::bare(suite, yes)?;
        }
        package::package(yes, &root::SUITES.map(str::to_owned))?;
    }
    Ok(())
}

/// The jobs that exist from the start. The build adds those of the test programs.
fn jobs(extent: Extent, in_lab: usize, packages: Permitted) -> Vec<Job> {
    let artifacts = Artifacts::default();
    let build = {
        let artifacts = artifacts.clone();
        move |log: &Log, adder: &Adder| {
            let mut unlisted = Ok(());
            let binaries = suite::build(log, |binary| {
                if unlisted.is_ok() && is_early(binary) {
                    let of_binary = std::slice::from_ref(binary);
                    unlisted = divided(of_binary, When::Early, extent, in_lab, &artifacts)
                        .map(|jobs| adder.add(jobs));
                }
            })?;
            unlisted?;
            let jobs = divided(&binaries, When::Late, extent, in_lab, &artifacts)?;
            Ok(Outcome {
                jobs,
                ..Outcome::default()
            })
        }
    };
    let mut jobs = vec![
        Job::step("packages", move |log| {
            packages.install(&mut |command| log.run(command))
        })
        .cores(0)
        .rank(1e10),
        // It leaves places for tests that can start before everything is built.
        Job::adding("build and lints", build)
            .cores(2)
            .rank(9e9)
            .on_terminal(),
        Job::step("format", |log| {
            log.run(&mut tool::cargo(&["fmt", "--all", "--check"]))
        })
        .cores(0),
        Job::step("language", |log| {
            log.run(Command::new(tool::target().join("debug/xtask")).arg("language"))
        })
        .after(&["build and lints"])
        .rank(1.0),
        Job::step("circles of files", |log| {
            log.run(Command::new(tool::target().join("debug/xtask")).arg("circles"))
        })
        .after(&["build and lints"])
        .rank(1.0),
        Job::step("documentation and its examples", documentation::check)
            .after(&["build and lints"])
            .rank(60.0),
        Job::step("benchmarks", suite::build_benchmarks)
            .after(&["documentation and its examples"])
            .rank(10.0),
    ];
    if extent == Extent::Quick {
        return jobs;
    }
    let Artifacts {
        kernel,
        later,
        newest,
        python,
    } = artifacts;
    let saved = move |log: &Log| kernels::saved(log).map(|value| drop(kernel.set(value)));
    let saved_later = move |log: &Log| {
        kernels::saved_later(log).map(|value| drop(value.map(|value| later.set(value))))
    };
    let prepared_newest = move |log: &Log| {
        kernels::prepared_newest(log).map(|value| drop(value.map(|value| newest.set(value))))
    };
    let provided = move |log: &Log| python::provide(log).map(|value| drop(python.set(value)));
    jobs.extend([
        Job::step("python", provided).after(&["packages"]).cores(0),
        Job::step("lab", kernels::prepare_lab)
            .after(&["build and lints", "packages"])
            .rank(9e8),
        Job::step("kernel", saved).after(&["lab"]).rank(9e7),
        Job::step("later kernel", saved_later)
            .after(&["kernel"])
            .rank(9e6),
        Job::step("newest kernel", prepared_newest)
            .after(&["lab"])
            .rank(9e5),
    ]);
    if extent == Extent::Long {
        jobs.push(
            Job::step("experiments", evaluate::quickly)
                .after(&["kernel"])
                .rank(90.0),
        );
    }
    jobs
}

/// Crates whose tests compute and wait for nothing: they fill what the build leaves of the cores.
const EARLY: [&str; 3] = ["samples", "instruments", "engine"];

/// Returns whether a program's tests that need nothing may run during the build.
fn is_early(binary: &Binary) -> bool {
    EARLY.iter().any(|home| binary.home.ends_with(home))
}

/// The tests that become jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Those that may run during the build.
    Early,
    /// All others.
    Late,
}

/// Tests of one program.
struct Part {
    binary: Binary,
    tests: Vec<String>,
    seconds: f32,
}

/// Divides the tests of programs into jobs.
fn divided(
    binaries: &[Binary],
    when: When,
    extent: Extent,
    in_lab: usize,
    artifacts: &Artifacts,
) -> Result<Vec<Job>> {
    let times = Times::read();
    let mut groups: BTreeMap<(Place, PathBuf), Vec<Part>> = BTreeMap::new();
    for binary in binaries {
        for (place, tests) in placed(binary, extent)? {
            let is_now = (place == Place::Plain && is_early(binary)) == (when == When::Early);
            if !is_now {
                continue;
            }
            let prefix = place.prefix();
            let title = format!("{prefix}{}", binary.title());
            let estimate = |name: &str| place.estimate(name);
            let parts = if place.is_live() {
                in_lab
            } else {
                (times.sum(&title, &tests, estimate) / PIECE).ceil() as usize
            };
            let is_whole =
                tests.len() == 1 || [Place::LiveAlone, Place::NewestLive].contains(&place);
            let parts = if is_whole { 1 } else { parts };
            for (tests, seconds) in times.divide(&title, tests, parts, estimate) {
                let part = Part {
                    binary: binary.clone(),
                    tests,
                    seconds,
                };
                groups
                    .entry((place, binary.home.clone()))
                    .or_default()
                    .push(part);
            }
        }
    }
    let mut jobs = Vec::new();
    for ((place, home), parts) in groups {
        let home = match (when, binaries) {
            (When::Early, [binary]) => binary.title(),
            _ => home
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };
        for (number, parts) in place.packed(parts).into_iter().enumerate() {
            let name = format!("tests: {home}{} {}", place.suffix(), number + 1);
            jobs.push(job(name, place, parts, extent, artifacts.clone()));
        }
    }
    Ok(jobs)
}

/// A program's tests by the place where they run.
fn placed(binary: &Binary, extent: Extent) -> Result<Vec<(Place, Vec<String>)>> {
    let [mut plain, mut ignored] = binary.tests()?;
    for tests in [&mut plain, &mut ignored] {
        tests.retain(|name| !name.contains(BY_HAND));
        tests.retain(|name| {
            extent == Extent::Long || !LONG_ONLY.iter().any(|prefix| name.starts_with(prefix))
        });
    }
    if extent == Extent::Quick {
        plain.retain(|name| !Times::is_long(&format!("{}::{name}", binary.title())));
    }
    let mut placed = vec![(Place::Plain, plain)];
    if extent != Extent::Quick {
        let is_live = |name: &String| name.split("::").any(|part| part == LIVE);
        let (live, image): (Vec<_>, Vec<_>) = ignored.into_iter().partition(is_live);
        let is_engine = binary.home.ends_with("engine");
        let is_long = extent == Extent::Long;
        let of_later = |name: &&String| {
            is_engine && (is_long || LATER_IMAGE.iter().any(|prefix| name.starts_with(prefix)))
        };
        placed.push((
            Place::LaterImage,
            image.iter().filter(of_later).cloned().collect(),
        ));
        placed.push((Place::Image, image));
        let is_later = |name: &&String| name.starts_with(EVERYWHERE);
        placed.push((
            Place::LaterLive,
            live.iter().filter(is_later).cloned().collect(),
        ));
        let is_newest = |name: &&String| {
            let mut prefixes = match extent {
                Extent::Long => NEWEST_LONG.iter(),
                Extent::Quick | Extent::Full => NEWEST.iter(),
            };
            prefixes.any(|prefix| name.starts_with(prefix))
        };
        placed.push((
            Place::NewestLive,
            live.iter().filter(is_newest).cloned().collect(),
        ));
        let of_host = live.into_iter().filter(|name| is_long || name != SPREAD);
        let (alone, live) = of_host.partition(|name| name.starts_with(MOMENTS));
        placed.push((Place::LiveAlone, alone));
        placed.push((Place::Live, live));
    }
    placed.retain(|(_, tests)| !tests.is_empty());
    Ok(placed)
}

impl Place {
    fn is_live(self) -> bool {
        matches!(
            self,
            Self::Live | Self::LiveAlone | Self::LaterLive | Self::NewestLive
        )
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::LaterImage | Self::LaterLive => "6.12 ",
            Self::NewestLive => "newest ",
            Self::Plain | Self::Image | Self::Live | Self::LiveAlone => "",
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Image => " on an image",
            Self::LaterImage => " on an image of 6.12",
            Self::Live => " on a live kernel",
            Self::LiveAlone => " alone on a live kernel",
            Self::LaterLive => " on a live 6.12",
            Self::NewestLive => " on the newest kernel, live",
        }
    }

    fn after(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["packages"],
            Self::Image => &["kernel", "python"],
            Self::LaterImage => &["later kernel"],
            Self::Live | Self::LiveAlone => &["kernel", "python"],
            Self::LaterLive => &["later kernel"],
            Self::NewestLive => &["newest kernel"],
        }
    }

    /// Seconds of a test that this machine has not run yet.
    fn estimate(self, name: &str) -> f32 {
        match self {
            Self::Plain => 0.3,
            Self::Image | Self::LaterImage => 5.0,
            Self::Live | Self::LaterLive if name.starts_with(EVERYWHERE) => 60.0,
            Self::LiveAlone => 25.0,
            Self::Live | Self::LaterLive if name.contains("hostile") => 25.0,
            Self::Live | Self::LaterLive => 10.0,
            Self::NewestLive => 20.0,
        }
    }

    /// Parts of test programs, as many in a job as take [`PIECE`] seconds. A program in the lab has a job to itself:
    /// its tests share a boot.
    fn packed(self, mut parts: Vec<Part>) -> Vec<Vec<Part>> {
        parts.sort_by(|first, second| second.seconds.total_cmp(&first.seconds));
        let mut jobs: Vec<(Vec<Part>, f32)> = Vec::new();
        for part in parts {
            let fits =
                |(_, sum): &&mut (Vec<Part>, f32)| !self.is_live() && sum + part.seconds <= PIECE;
            if let Some((job, sum)) = jobs.iter_mut().find(fits) {
                *sum += part.seconds;
                job.push(part);
            } else {
                jobs.push((vec![part], 0.0));
                if let Some((job, sum)) = jobs.last_mut() {
                    *sum = job.iter().map(|part| part.seconds).sum();
                }
            }
        }
        jobs.into_iter().map(|(job, _)| job).collect()
    }
}

fn job(name: String, place: Place, parts: Vec<Part>, extent: Extent, artifacts: Artifacts) -> Job {
    let seconds: f32 = parts.iter().map(|part| part.seconds).sum();
    let screen = parts.iter().any(|part| part.binary.name == JOURNEY);
    let run = move |log: &Log| {
        let newest = artifacts
            .newest
            .get()
            .filter(|_| place == Place::NewestLive);
        let kernel = match place {
            Place::LaterImage | Place::LaterLive => artifacts.later.get(),
            Place::Plain | Place::Image | Place::Live | Place::LiveAlone => artifacts.kernel.get(),
            Place::NewestLive => None,
        };
        if kernel.is_none() && newest.is_none() && place.prefix() != "" {
            return Ok(Outcome {
                omitted: Some("this machine's archive has no such kernel".to_owned()),
                ..Outcome::default()
            });
        }
        let mut variables: Vec<(&str, PathBuf)> = Vec::new();
        variables.extend(newest.map(Newest::variable));
        if place != Place::Plain {
            variables.extend(kernel.into_iter().flat_map(Kernel::variables));
            variables.extend(
                artifacts
                    .python
                    .get()
                    .map(|python| ("GILK_PYTHON", python.clone())),
            );
        }
        if place.is_live() {
            variables.push(("GILK_LAB_SNAPSHOT", "1".into()));
            variables.push(("GILK_AGENT", tool::target().join("debug/ilk")));
        }
        if place == Place::LaterLive {
            variables.push(("GILK_SERIES", kernels::LATER.into()));
        }
        let mut seed = SEED;
        let limit = if extent == Extent::Long {
            LONG_LIMIT
        } else {
            LIMIT
        };
        if extent == Extent::Long {
            variables.extend(LONG.map(|(name, value)| (name, value.into())));
            seed = RandomState::new().hash_one(seed);
            log.say(&format!("random tests begin with PROPTEST_RNG_SEED={seed}"));
        }
        variables.push(("PROPTEST_RNG_SEED", seed.to_string().into()));
        let mut tests: Vec<Timed> = Vec::new();
        let mut failures = Vec::new();
        for part in &parts {
            match part
                .binary
                .run(&part.tests, place.prefix(), &variables, limit, log)
            {
                Ok(timed) => tests.extend(timed),
                Err(fail) => failures.push(fail.to_string()),
            }
        }
        if failures.is_empty() {
            Ok(Outcome {
                tests,
                ..Outcome::default()
            })
        } else {
            Err(Fail::new(failures.join("; ")))
        }
    };
    // Whatever can start late should be short, and the lab's jobs are the longest.
    let rank = if place.is_live() {
        1000.0 + seconds
    } else {
        seconds
    };
    let cores = if place == Place::LiveAlone {
        usize::MAX
    } else {
        1
    };
    Job::new(name, run)
        .after(place.after())
        .cores(cores)
        .rank(if screen { rank + 1000.0 } else { rank })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, seconds: f32) -> Part {
        let binary = Binary {
            name: name.to_owned(),
            home: "/x/engine".into(),
            path: "/x".into(),
        };
        Part {
            binary,
            tests: vec!["a".to_owned()],
            seconds,
        }
    }

    #[test]
    fn short_programs_share_a_job_and_live_ones_do_not() {
        let parts = || vec![part("a", 30.0), part("b", 20.0), part("c", 8.0)];
        let names = |place: Place| -> Vec<Vec<String>> {
            let jobs = place.packed(parts());
            jobs.into_iter()
                .map(|job| job.into_iter().map(|part| part.binary.name).collect())
                .collect()
        };
        assert_eq!(names(Place::Plain), [vec!["a", "c"], vec!["b"]]);
        assert_eq!(names(Place::Live), [["a"], ["b"], ["c"]]);
    }
}
