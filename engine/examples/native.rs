//! Measures what a hit costs on this machine's processor, in nanoseconds, and writes tables.
//!
//! `cargo run -p gilk-engine --example native -- [--quick] [--only TEXT] [--out FOLDER] [--against FILE]`,
//! or `--model [--out FOLDER]` to fit the times of estimates, to check them, and to write them as the engine's source.

#![allow(
    clippy::print_stdout,
    reason = "the program's output are tables and progress"
)]

#[path = "../tests/timing/mod.rs"]
mod timing;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use timing::cases::{all, stacks};
use timing::measure::{Clock, measure};
use timing::model::{ROWS, model};
use timing::results::{Machine, Results};
use timing::target::Target;
use timing::unwinder::Unwinder;

/// Pairs of runs of each case.
const ROUNDS: usize = 600;
const QUICK_ROUNDS: usize = 60;

/// Random sites to fit the times of estimates on, and to check them.
const SITES: usize = 800;

fn main() -> Result<(), Box<dyn Error>> {
    let mut rounds = ROUNDS;
    let mut only = String::new();
    let mut out: Option<PathBuf> = None;
    let mut earlier: Option<Results> = None;
    let mut models = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--model" => models = true,
            "--quick" => rounds = QUICK_ROUNDS,
            "--only" => only = value()?,
            "--out" => out = Some(value()?.into()),
            "--against" => {
                let path = value()?;
                let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
                let results = ron::from_str(&text);
                earlier = Some(results.map_err(|error| format!("{path}: {error}"))?);
            }
            other => return Err(format!("{other} is no argument of the native bench").into()),
        }
    }
    let clock = Clock::new();
    let mut target = Target::new();
    if models {
        return write_model(&mut target, clock, out);
    }
    target.unwinder = Unwinder::of_environment();
    let stacks = target.unwinder.as_ref().map(stacks);
    if stacks.is_none() {
        println!("Stacks are left out: GILK_VMLINUZ names no kernel.");
    }
    let cases = all().into_iter().chain(stacks.into_iter().flatten());
    let cases = cases.filter(|case| case.name.contains(&only));
    let rows = cases.map(|case| {
        let row = measure(&mut target, clock, &case, rounds);
        println!("{:>8.2} ns  {}", row.median_ns(), row.name);
        row
    });
    let results = Results {
        rows: rows.collect(),
        machine: Machine::this(clock.per_ns),
        rounds,
    };
    let text = results.markdown(earlier.as_ref());
    println!("\n{text}");
    if let Some(folder) = out {
        fs::create_dir_all(&folder)?;
        let saved = ron::ser::to_string_pretty(&results, ron::ser::PrettyConfig::default())?;
        fs::write(folder.join("native.ron"), saved)?;
        fs::write(folder.join("native.md"), text)?;
        println!("{}", folder.join("native.ron").display());
    }
    let slower = earlier.map_or(0, |earlier| results.regressions(&earlier).len());
    if slower > 0 {
        return Err(format!("{slower} rows take longer than before").into());
    }
    Ok(())
}

/// Fits the times of estimates, and measures the others.
fn write_model(
    target: &mut Target,
    clock: Clock,
    out: Option<PathBuf>,
) -> Result<(), Box<dyn Error>> {
    let model = model(target, clock, SITES);
    println!("{}", model.report);
    let cases = all();
    let mut rows = Vec::new();
    for name in ROWS {
        let case = cases.iter().find(|case| case.name == name);
        let case = case.ok_or_else(|| format!("the bench has no row \"{name}\""))?;
        let row = measure(target, clock, case, ROUNDS);
        println!("{:>8.2} ns  {}", row.median_ns(), row.name);
        rows.push(row);
    }
    let Ok(rows) = rows.try_into() else {
        return Err("internal error: another number of rows".into());
    };
    let source = model.source(&rows, &Machine::this(clock.per_ns));
    println!("\n{source}");
    if let Some(folder) = out {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("fitted.rs"), source)?;
    }
    Ok(())
}
