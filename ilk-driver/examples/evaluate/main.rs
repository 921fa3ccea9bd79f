//! The experiments of the papers, run again: does GILK tell the truth, and at what price.
//!
//! `evaluate [--quick] [--runs N] [--on KERNEL] [--add] [--out DIR] [PART…]`: all parts where none is named. Each is
//! done on Debian's own kernel and on the later one, or with `--on` on one of them (`debian`, `6.12`); `--quick` does
//! less of each, on the first alone. With `--out` each part's table, figures and recordings go there; with `--add`
//! these runs join those whose figures are there already. What the text claims is checked: a claim that does not
//! hold is an error. `cargo xtask evaluate` runs this, and `cargo xtask test` runs it quickly.
//!
//! Where instructions are counted, it is by an emulator whose time stamp counter counts them (QEMU's `-icount
//! shift=0`, no address randomization, one CPU): the figures are nearly the same every time. An int3 and an
//! `rdtsc` count as one, so they are a count and no time.

mod bars;
mod correlation;
mod coverage;
mod figures;
mod grain;
mod guest;
mod hits;
mod hunt;
mod inlining;
mod many;
mod overhead;
mod table;
mod trace;
mod web;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use figures::Figures;
use guest::Guest;
use ilk_driver::lab::Accelerator;
use table::Tables;

/// The kernels measured on: Debian's own, and the later series of the same archive.
const SERIES: [Option<&str>; 2] = [None, Some("6.12")];
/// What [`SERIES`] are called on the command line.
const KERNELS: [&str; 2] = ["debian", "6.12"];

/// An experiment.
struct Part {
    name: &'static str,
    title: &'static str,
    /// What was done and how to read the table.
    about: &'static str,
    /// What the machine is run by.
    accelerator: Accelerator,
    measure: fn(&mut Guest, &mut Tables, &How) -> anyhow::Result<()>,
    /// What must be true of its figures, on every kernel and in every run.
    claims: &'static [Claim],
}

/// Something that is said of figures.
struct Claim {
    /// What is in the title of the tables.
    table: &'static str,
    /// The row or the column.
    of: &'static str,
    holds: fn(f64) -> bool,
    says: &'static str,
}

/// How experiments are done.
struct How {
    /// Less of everything: what shows that an experiment still works, and that its claims hold.
    quick: bool,
    /// Where recordings and pictures go.
    out: PathBuf,
}

impl How {
    fn file(&self, name: &str) -> PathBuf {
        self.out.join(name)
    }
}

const PARTS: [Part; 9] = [
    Part {
        name: "correlation",
        title: "Correlation: Pulsar's 160 forks, timed by GILK and by the kernel's own tracers at once",
        about: "GILK's report, 4.1, where another tool timed the same events in another run. Here the function \
                tracer, a kprobe event and GILK time each entry of `__x64_sys_clone` in the same run, all by the \
                time stamp counter. The first sample behind each of the kernel's events is that of no other event. GILK's hook is \
                behind theirs, so its time is later by what they take; the largest are interrupts in between. An \
                emulated machine on a busy host. The picture is the report's figure 4.4: forks come in five \
                groups of 32 while Pulsar works (the shell's own are among the first), it sleeps, and collects.",
        accelerator: Accelerator::Emulate,
        measure: correlation::measure,
        claims: &[Claim {
            table: "",
            of: "function tracer: events, each with a sample of its own",
            holds: |events| events == 160.0,
            says: "each fork that the tracer saw has a sample of its own",
        }],
    },
    Part {
        name: "overhead",
        title: "Overhead: guest instructions of a fork, with instruments on every block of copy_process",
        about: "GILK's report, 4.2: the least that a fork took in six runs of Pulsar, with and without an \
                instrument on every block of the worker that can be hooked. The report measured 295.8 cycles, 0.76 %, \
                for each instrument. Instructions are no cycles; the percentage is what compares.",
        accelerator: Accelerator::CountInstructions,
        measure: overhead::measure,
        claims: &[
            Claim {
                table: "",
                of: "counter on every block: added for each instrument, %",
                holds: |percent| percent < 0.76,
                says: "a counter costs less than the report's instruments",
            },
            Claim {
                table: "",
                of: "timestamp on every block: added for each instrument, %",
                holds: |percent| percent < 0.76,
                says: "a sample costs less than the report's instruments",
            },
        ],
    },
    Part {
        name: "hits",
        title: "Probe cost: guest instructions for each hit, above the bare call of __x64_sys_getpid",
        about: "Djprobe's tables 1 and 2: one probe by every mechanism that the kernel has, and by ilk. \
                [cost.md](cost.md) has the same with what stands behind each line.",
        accelerator: Accelerator::CountInstructions,
        measure: hits::measure,
        claims: &[
            Claim {
                table: "",
                of: "ilk: counter",
                holds: |instructions| instructions <= 3.0,
                says: "a counter is three instructions",
            },
            Claim {
                table: "",
                of: "ilk: sample with time",
                holds: |instructions| instructions <= 24.0,
                says: "a sample with its time is 24 instructions at most",
            },
        ],
    },
    Part {
        name: "grain",
        title: "Fine grain: system calls watched at three grains",
        about: "JIFL's 6.1, figures 8 to 10: guest instructions added to each call of lmbench's table (the least of \
                ten bursts of fifty, of forks of five) by ilk, by ilk when it saves all registers and flags whether they are live or \
                not, and by kprobes with a handler that counts, at the same places: none optimised (an int3, or a call \
                at the tracer's sites), and with the jumps that the kernel can make of some. Functions are those that the kernel's tracer sees in the call, children's \
                included. A kprobe cannot take a sample in so few instructions: where ilk samples, kprobes count. \
                Where what ilk adds is not ten times what two bare calls differ by, no ratio is told.",
        accelerator: Accelerator::CountInstructions,
        measure: grain::measure,
        claims: &[
            Claim {
                table: "every block counted",
                of: "times ilk's",
                holds: |times| times >= 100.0,
                says: "kprobes on every block add a hundred times what ilk's counters add, or more",
            },
            Claim {
                table: "",
                of: "times ilk's, optimised",
                holds: |times| times > 1.0,
                says: "kprobes add more than ilk does, optimised or not",
            },
        ],
    },
    Part {
        name: "inlining",
        title: "In the patch or called: what inlining and liveness are worth",
        about: "JIFL's 6.1, where each optimization was taken away: guest instructions added to a call by a counter \
                on every block, as one instruction of the patch, and as a function of an object file \
                (`count-natively` of `instruments/native/example.c`) that each patch calls; with what is live saved, and \
                with all that is changed.",
        accelerator: Accelerator::CountInstructions,
        measure: inlining::measure,
        claims: &[Claim {
            table: "",
            of: "called, times in the patch",
            holds: |times| times > 1.0,
            says: "a counter in the patch costs less than one that is called",
        }],
    },
    Part {
        name: "web",
        title: "A real load: a web server under requests",
        about: "JIFL's 6.2: busybox's httpd asked 200 times for a page of 2,000 bytes over the loopback device, \
                each time on a new connection, server and generator on one processor. Instructions a request, all \
                of user and kernel. Functions and blocks are those that the function tracer saw in such requests.",
        accelerator: Accelerator::CountInstructions,
        measure: web::measure,
        claims: &[Claim {
            table: "",
            of: "every block counted: throughput, % of that with nothing",
            holds: |percent| percent > 40.0,
            says: "a server whose every block is counted does two fifths of its work, or more",
        }],
    },
    Part {
        name: "hunt",
        title: "A hunt: where a web server's instructions go",
        about: "KernInst's section 4, told in [tour.md](tour.md): which system calls each request makes, what they and \
                what lies beside them take, the blocks of the one that is found, and the same once the cause is \
                mended. Busybox's httpd, 200 requests, as above. Each step is a session (hunt-*.ron, here), to be \
                opened in the window or run by `ilk run`. Times are from entry to exit, waiting included: accept waits for \
                the client, poll is the agent's own.",
        accelerator: Accelerator::CountInstructions,
        measure: hunt::measure,
        claims: &[Claim {
            table: "",
            of: "throughput, mended, % of before",
            holds: |percent| percent > 102.0,
            says: "the server does more once less is mapped around a fault",
        }],
    },
    Part {
        name: "coverage",
        title: "Coverage: what of three kernels can be hooked, and how",
        about: "Every block that anything leads to, by the cheapest method that reaches its start, its end, or any of \
                its instructions, each looked at as if it were alone; or by the rule that refuses it. \
                [coverage.md](coverage.md) has the same with all at once, and says what the methods are.",
        accelerator: Accelerator::Emulate,
        measure: coverage::measure,
        claims: &[
            Claim {
                table: "",
                of: "pre-hooks: or by a trap only, %",
                holds: |percent| percent < 0.1,
                says: "of a thousand blocks all but one at most can be hooked without a trap",
            },
            Claim {
                table: "",
                of: "post-hooks: or by a trap only, %",
                holds: |percent| percent < 0.2,
                says: "of a thousand ends of blocks all but two at most can be hooked without a trap",
            },
        ],
    },
    Part {
        name: "many",
        title: "Ten thousand functions' inner blocks at once",
        about: "Seconds of an emulated machine to install and to remove counters, and kprobes, at the same places.",
        accelerator: Accelerator::Emulate,
        measure: many::measure,
        claims: &[Claim {
            table: "",
            of: "ilk: splices",
            holds: |splices| splices > 0.0,
            says: "there are splices",
        }],
    },
];

/// What was asked for.
struct Asked {
    runs: usize,
    quick: bool,
    add: bool,
    series: Vec<Option<&'static str>>,
    out: Option<PathBuf>,
    parts: Vec<&'static Part>,
}

fn asked(mut words: impl Iterator<Item = String>) -> anyhow::Result<Asked> {
    let mut asked = Asked {
        runs: 1,
        quick: false,
        add: false,
        series: SERIES.to_vec(),
        out: None,
        parts: Vec::new(),
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => asked.quick = true,
            "--add" => asked.add = true,
            "--runs" => {
                let number = words.next().and_then(|number| number.parse().ok());
                asked.runs = number.context("--runs wants a number")?;
            }
            "--on" => {
                let name = words.next().unwrap_or_default();
                let at = KERNELS.iter().position(|kernel| *kernel == name);
                let series = at.and_then(|at| SERIES.get(at));
                let series =
                    series.with_context(|| format!("--on wants one of {}", KERNELS.join(", ")))?;
                asked.series = vec![*series];
            }
            "--out" => {
                let directory = words.next().context("--out wants a directory")?;
                asked.out = Some(PathBuf::from(directory));
            }
            name => match PARTS.iter().find(|part| part.name == name) {
                Some(part) => asked.parts.push(part),
                None => {
                    let known = PARTS.iter().map(|part| part.name);
                    let known = known.collect::<Vec<_>>().join(", ");
                    anyhow::bail!(
                        "{word:?} is none of --quick, --runs, --on, --add, --out, {known}"
                    )
                }
            },
        }
    }
    if asked.parts.is_empty() {
        asked.parts = PARTS.iter().collect();
    }
    if asked.quick {
        asked.series.truncate(1);
    }
    Ok(asked)
}

fn main() -> anyhow::Result<()> {
    let asked = asked(std::env::args().skip(1))?;
    let scratch = tempfile::tempdir()?;
    let how = How {
        quick: asked.quick,
        out: asked.out.unwrap_or_else(|| scratch.path().to_owned()),
    };
    std::fs::create_dir_all(&how.out)?;
    let parts = asked.parts;
    let before = |part: &&Part| match asked.add {
        true => Figures::read(&how.file(&figures_of(part))),
        false => Ok(Figures::default()),
    };
    let mut figures: Vec<Figures> = parts.iter().map(before).collect::<anyhow::Result<_>>()?;
    for run in 1..=asked.runs {
        for &series in &asked.series {
            for accelerator in [Accelerator::Emulate, Accelerator::CountInstructions] {
                let mut guest = None;
                for (part, figures) in parts.iter().zip(&mut figures) {
                    if part.accelerator != accelerator {
                        continue;
                    }
                    let kernel = series.unwrap_or("Debian's own kernel");
                    eprintln!("{}: run {run} of {} on {kernel}", part.name, asked.runs);
                    let guest = match &mut guest {
                        Some(guest) => guest,
                        none => none.insert(Guest::boot(series, accelerator)?),
                    };
                    (part.measure)(guest, &mut figures.tables, &how).with_context(|| part.name)?;
                    figures.ran_on(&guest.release);
                    // What comes of one is kept whatever becomes of the others.
                    figures.write(&how.file(&figures_of(part)))?;
                    write(
                        &how.file(&format!("{}.md", part.name)),
                        &told(part, figures),
                    )?;
                }
            }
        }
    }
    for (part, figures) in parts.iter().zip(&figures) {
        println!("{}", told(part, figures));
    }
    gathered(&how.out)?;
    let broken: Vec<String> = parts
        .iter()
        .zip(&figures)
        .flat_map(|(part, figures)| broken(part, &figures.tables))
        .collect();
    anyhow::ensure!(broken.is_empty(), "{}", broken.join("\n"));
    Ok(())
}

/// Where a part's figures are kept.
fn figures_of(part: &Part) -> String {
    format!("{}.figures.json", part.name)
}

/// A part of the text.
fn told(part: &Part, figures: &Figures) -> String {
    let command = format!("cargo xtask evaluate {}", part.name);
    let Part { title, about, .. } = part;
    format!(
        "## {title}\n\n{about} Made by `{command}`, runs: {}.\n\n{}",
        figures.runs(),
        figures.tables
    )
}

/// What is said of figures and not true, or of figures that are not there.
fn broken(part: &Part, tables: &Tables) -> Vec<String> {
    let check = |claim: &Claim| {
        let figures = tables.figures(claim.table, claim.of);
        let wrong = figures.iter().find(|figure| !(claim.holds)(**figure));
        match wrong {
            None if figures.is_empty() => {
                Some(format!("{}: no figure for {:?}", part.name, claim.of))
            }
            None => None,
            Some(wrong) => Some(format!(
                "{}: {}, but {:?} is {wrong}",
                part.name, claim.says, claim.of
            )),
        }
    };
    part.claims.iter().filter_map(check).collect()
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
            .filter(|name| {
                let rest = name.strip_prefix(part.name);
                rest.is_some_and(|rest| rest.starts_with('-')) && name.ends_with(".png")
            })
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
where several runs differ, it has the least and the most. `cargo xtask evaluate` makes all of this again (with `--add` its runs join those whose figures are in `evaluation/`), its \
recordings are in `target/gilk/evaluation`.
";
