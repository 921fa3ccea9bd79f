//! `user [--runs N] [--quick] [--peers] [--recorder CLIENT] [PROGRAM...]`: processor time of programs with every block
//! counted or every access recorded, over their native time.
//!
//! Five programs, four of which this machine has, do their work natively, by splices (`ilk process --blocks`), in the code
//! cache (`ilk clone`), and with `--peers` by other tools that are found: in turns, in one run. A way that attaches does
//! so while the program waits for its input, and its time is from there to the end of the process; a way that starts the
//! program has the time of its start, too. It is the smallest of all runs, user and system, that of `ilk` and of other
//! tools included. `--recorder` names a client of DynamoRIO that records accesses in memory, such as its sample
//! memtrace_x86 without its writes. All outputs must be equal, and each way must have done what it is for.
//! `cargo xtask evaluate user` runs this.

mod spent;
mod ways;
mod works;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use self::spent::{Bench, Spent};
use self::ways::{Begin, Purpose, Way};
use self::works::{WORKS, Work};

/// Rounds of a program's work.
const ROUNDS: u32 = 6;

fn main() -> anyhow::Result<()> {
    let (mut runs, mut rounds, mut with_peers, mut names) = (2, ROUNDS, false, Vec::new());
    let mut recorder = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--runs" => {
                let number = arguments.next().context("--runs needs a number")?;
                runs = number.parse().context("--runs needs a number")?;
                ensure!(runs > 0, "--runs needs a number from 1 on");
            }
            "--quick" => (runs, rounds) = (1, 1),
            "--peers" => with_peers = true,
            "--recorder" => recorder = Some(arguments.next().context("--recorder needs a file")?),
            name => {
                let known = WORKS.iter().any(|work| work.name == name);
                ensure!(known, "there is no work for {name}");
                names.push(name.to_owned());
            }
        }
    }
    let folder = tempfile::tempdir()?;
    let mut ways = vec![ways::native()];
    ways.extend(ways::own(&ilk()?, folder.path()));
    if with_peers {
        let script = folder.path().join("stalker.py");
        fs::write(&script, include_str!("stalker.py"))?;
        let (peers, missing) = ways::peers(&script, recorder.as_deref().map(Path::new));
        ways.extend(peers);
        for name in missing {
            eprintln!("{name} is not measured: it is not found.");
        }
    }
    println!("{}, load {}", processor()?, load()?);
    let bench = Bench { folder, rounds };
    let mut results = Vec::new();
    for work in &WORKS {
        if names.is_empty() || names.iter().any(|name| name == work.name) {
            results.push((work, bench.all(work, &ways, runs)?));
        }
    }
    for purpose in [Purpose::Bare, Purpose::Counted, Purpose::Accesses] {
        println!("\n{}", table(purpose, &ways, &results));
    }
    println!("load {}", load()?);
    Ok(())
}

/// Returns the path of `ilk`, which is built beside this program.
fn ilk() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).context("an example's folder")?;
    let ilk = folder.join("ilk");
    let missing = || format!("{} is missing: build ilk before", ilk.display());
    ensure!(ilk.is_file(), missing());
    Ok(ilk)
}

/// The ratios to the native time of the ways with a purpose, and their geometric means.
fn table(purpose: Purpose, ways: &[Way], results: &[(&Work, Vec<Spent>)]) -> String {
    let title = match purpose {
        Purpose::Bare => "nothing counted",
        Purpose::Counted => "every block counted",
        Purpose::Accesses => "every access recorded",
    };
    let chosen = ways.iter().enumerate().skip(1);
    let chosen: Vec<(usize, &Way)> = chosen.filter(|(_, way)| way.purpose == purpose).collect();
    let mut text = format!("| {title} | native, s |");
    let mut rule = String::from("|---|---|");
    for (_, way) in &chosen {
        let _infallible = write!(text, " {} |", way.name);
        rule += "---|";
    }
    let _infallible = writeln!(text, "\n{rule}");
    let mut logarithms = vec![0.0; chosen.len()];
    for (work, spent) in results {
        let native = spent.first().copied().unwrap_or_default();
        let _infallible = write!(text, "| {} | {:.2} |", work.name, native.process);
        for ((number, way), sum) in chosen.iter().zip(&mut logarithms) {
            let spent = spent.get(*number).copied().unwrap_or_default();
            let native = match way.begin {
                Begin::Started => native.process + native.start,
                Begin::Native | Begin::Attached(_) => native.process,
            };
            let ratio = (spent.process + spent.tool) / native;
            *sum += ratio.ln();
            let _infallible = write!(text, " {ratio:.2} |");
        }
        text.push('\n');
    }
    text += "| geometric mean | |";
    for sum in logarithms {
        #[expect(clippy::cast_precision_loss, reason = "five programs")]
        let mean = (sum / results.len() as f64).exp();
        let _infallible = write!(text, " {mean:.2} |");
    }
    text.push('\n');
    text
}

fn processor() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/cpuinfo")?;
    let values = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.split_once(": "));
        values
            .map(|(_, value)| value.to_owned())
            .collect::<Vec<_>>()
    };
    let [names, families, models] = ["model name", "cpu family", "model\t"].map(values);
    let first = |values: &[String]| values.first().cloned().unwrap_or_default();
    Ok(format!(
        "{} CPUs, {} (family {}, model {})",
        names.len(),
        first(&names),
        first(&families),
        first(&models)
    ))
}

fn load() -> anyhow::Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let words: Vec<&str> = text.split(' ').take(3).collect();
    Ok(words.join(", "))
}
