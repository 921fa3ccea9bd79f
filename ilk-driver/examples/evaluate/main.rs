//! The experiments of the papers, run again: does GILK tell the truth, and at what price.
//!
//! `evaluate [--quick] [--runs N] [--on KERNEL] [--add] [--out DIR] [PART…]`: all parts where none is named. Each is
//! done on Debian's own kernel and on the later one, or with `--on` on one of them (`debian`, `6.12`); `--quick` does
//! less of each, on the first alone. With `--out` each part's figures, pictures and recordings go there, and
//! the text of all whose figures are there; with `--add` these runs join those. What the text claims is checked: a claim that does not
//! hold is an error. `cargo xtask evaluate` runs this, and `cargo xtask test` runs it quickly.
//!
//! Where instructions are counted, it is by an emulator whose time stamp counter counts them (QEMU's `-icount
//! shift=0`, no address randomization, one CPU): the figures are nearly the same every time. An int3 and an
//! `rdtsc` count as one, so they are a count and no time.

mod asked;
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
mod parts;
mod table;
mod trace;
mod web;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use figures::Figures;
use guest::Guest;
use ilk_driver::lab::Accelerator;
use parts::{Claim, PARTS, Part};
use table::Tables;

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

fn main() -> anyhow::Result<()> {
    let asked = asked::asked(std::env::args().skip(1))?;
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
        let figures = Figures::read(&place.join(figures_of(part)))?;
        if figures.is_empty() {
            missing.push(part.name);
            continue;
        }
        text += &format!("\n{}", told(part, &figures));
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

The experiments of the papers, run again on stock Debian kernels in the lab: an emulated machine (QEMU 7.2, TCG, on a host of two cores). Where a table \
has instructions, the machine counts them (`-icount shift=0`, one processor), and the figures are nearly the same in every run; \
where several runs differ, it has the least and the most. `cargo xtask evaluate` makes all of this again (with `--add` its runs join those whose figures are in `evaluation/`), its \
recordings are in `target/gilk/evaluation`.
";
