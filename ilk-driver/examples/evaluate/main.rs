//! The experiments of the papers, run again: does GILK tell the truth, and at what price.
//!
//! `evaluate [--runs N] [--out DIR] [PART…]`: all parts where none is named. Each is done on Debian's own
//! kernel and on the later one. With `--out` each part's table, figures and recordings go there. `cargo xtask
//! evaluate` runs this.
//!
//! Where instructions are counted, it is by an emulator whose time stamp counter counts them (QEMU's `-icount
//! shift=0`, no address randomization, one CPU): the figures are nearly the same every time. An int3 and an
//! `rdtsc` count as one, so they are a count and no time.

mod blocks;
mod correlation;
mod guest;
mod hits;
mod many;
mod overhead;
mod table;
mod trace;
mod web;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use table::Table;

/// The kernels measured on: Debian's own, and the later series of the same archive.
const SERIES: [Option<&str>; 2] = [None, Some("6.12")];

/// An experiment.
struct Part {
    name: &'static str,
    title: &'static str,
    /// What was done and how to read the table.
    about: &'static str,
    measure: fn(Option<&str>, &mut Table, &Path) -> anyhow::Result<()>,
}

const PARTS: [Part; 6] = [
    Part {
        name: "correlation",
        title: "Correlation: Pulsar's 160 forks, timed by GILK and by the kernel's own tracers at once",
        about: "GILK's report, 4.1, where another tool timed the same events in another run. Here the function \
                tracer, a kprobe event and GILK time each entry of `__x64_sys_clone` in the same run, all by the \
                time stamp counter. The first sample behind each of the kernel's events is that of no other event. GILK's hook is \
                behind theirs, so its time is later by what they take; the largest are interrupts in between. An \
                emulated machine on a busy host. The picture is the report's figure 4.4: forks come in five \
                groups of 32 while Pulsar works (the shell's own are among the first), it sleeps, and collects.",
        measure: correlation::measure,
    },
    Part {
        name: "overhead",
        title: "Overhead: guest instructions of a fork, with instruments on every block of copy_process",
        about: "GILK's report, 4.2: the least that a fork took in six runs of Pulsar, with and without an \
                instrument on every block of the worker that can be hooked. The report measured 295.8 cycles, 0.76 %, \
                for each instrument. Instructions are no cycles; the percentage is what compares.",
        measure: overhead::measure,
    },
    Part {
        name: "hits",
        title: "Probe cost: guest instructions for each hit, above the bare call of __x64_sys_getpid",
        about: "Djprobe's tables 1 and 2: one probe by every mechanism that the kernel has, and by ilk. \
                [cost.md](cost.md) has the same with what stands behind each line.",
        measure: hits::measure,
    },
    Part {
        name: "blocks",
        title: "Fine grain: every block of every function that one system call runs through, counted",
        about: "JIFL's 6.1: guest instructions added to each call of lmbench's table, by ilk with each function in \
                place or in the style that is cheaper, and by kprobes on the same blocks.",
        measure: blocks::measure,
    },
    Part {
        name: "web",
        title: "A real load: a web server under requests",
        about: "JIFL's 6.2: busybox's httpd asked 200 times for a page of 2,000 bytes over the loopback device, \
                each time on a new connection, server and generator on one processor. Instructions a request, all \
                of user and kernel. Functions and blocks are those that the function tracer saw in such requests.",
        measure: web::measure,
    },
    Part {
        name: "many",
        title: "Ten thousand functions' inner blocks at once",
        about: "Seconds of an emulated machine to install and to remove counters, and kprobes, at the same places.",
        measure: many::measure,
    },
];

fn main() -> anyhow::Result<()> {
    let mut runs = 1;
    let mut out = None;
    let mut named = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--runs" => {
                let number = words.next().and_then(|number| number.parse().ok());
                runs = number.context("--runs wants a number")?;
            }
            "--out" => {
                let directory = words.next().context("--out wants a directory")?;
                out = Some(PathBuf::from(directory));
            }
            part if PARTS.iter().any(|known| known.name == part) => named.push(word),
            _ => {
                let known = PARTS.map(|part| part.name).join(", ");
                anyhow::bail!("{word:?} is none of --runs, --out, {known}")
            }
        }
    }
    let scratch = tempfile::tempdir()?;
    let place = out.as_deref().unwrap_or(scratch.path());
    std::fs::create_dir_all(place)?;
    for part in &PARTS {
        if !named.is_empty() && !named.iter().any(|name| name == part.name) {
            continue;
        }
        let mut table = Table::default();
        for series in SERIES {
            for run in 0..runs {
                let kernel = series.unwrap_or("Debian's own kernel");
                eprintln!("{}: run {} of {runs} on {kernel}", part.name, run + 1);
                (part.measure)(series, &mut table, place)?;
            }
        }
        let command = format!("cargo xtask evaluate {}", part.name);
        let text = format!(
            "## {}\n\n{} Made by `{command}`, runs: {runs}.\n\n{table}",
            part.title, part.about
        );
        println!("{text}");
        write(&place.join(format!("{}.md", part.name)), &text)?;
    }
    gathered(place)
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// All parts that have been done, now or before, as one text.
fn gathered(place: &Path) -> anyhow::Result<()> {
    let mut text = String::from(HEAD);
    let mut missing = Vec::new();
    for part in &PARTS {
        let Ok(done) = std::fs::read_to_string(place.join(format!("{}.md", part.name))) else {
            missing.push(part.name);
            continue;
        };
        text += &format!("\n{done}");
        let files = std::fs::read_dir(place)?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut pictures: Vec<String> = files
            .filter(|name| part.name == "correlation" && name.ends_with(".png"))
            .collect();
        pictures.sort();
        for picture in pictures {
            text += &format!("\n![{picture}](evaluation/{picture})\n");
        }
    }
    if !missing.is_empty() {
        text += &format!("\nNot run here: {}.\n", missing.join(", "));
    }
    write(&place.join("evaluation.md"), &text)
}

const HEAD: &str = "\
# Does it tell the truth, and at what price

The experiments of the papers, run again on stock Debian kernels in the lab: an emulated machine (QEMU, TCG). Where a table \
has instructions, the machine counts them (`-icount shift=0`, one processor), and the figures are nearly the same in every run; \
where several runs differ, it has the least and the most. `cargo xtask evaluate` makes all of this again, its recordings are in \
`target/gilk/evaluation`. How much of three kernels can be hooked is in [coverage.md](coverage.md).
";
