//! GILK's report, 4.2: the cost that instruments on every block of fork's worker add to each fork.

use std::path::Path;

use anyhow::ensure;
use gilk_engine::cfg::{BlockEnd, Cfg};
use gilk_engine::placement::options;
use gilk_engine::session::{Placement, Session};
use gilk_engine::{HookType, Image};
use gilk_samples::recording::Recording;

use crate::How;
use crate::guest::{Guest, placement, words};
use crate::table::Tables;

/// The function whose calls are timed: the report's sys_fork.
const TIMED: &str = "kernel_clone";
/// Its worker: the report's do_fork.
const WORKER: &str = "copy_process";
/// Runs of Pulsar in each phase, as in the report.
const RUNS: usize = 6;

/// Fills a column of the table.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let release = guest.release.clone();
    let control = timed(&guest.image)?;
    let runs = if how.quick { 1 } else { RUNS };
    let least = phase(
        guest,
        &control,
        runs,
        &how.file(&format!("overhead-{release}.arrow")),
    )?;
    tables.add(
        "",
        "control: instructions of a fork, least",
        &release,
        least,
    );
    for instrument in ["counter", "timestamp"] {
        let worker = worker(&guest.image, instrument)?;
        let blocks = worker.len() as f64;
        let mut all = control.clone();
        all.extend(worker);
        let file = how.file(&format!("overhead-{release}-{instrument}.arrow"));
        let active = phase(guest, &all, runs, &file)?;
        let added = active - least;
        let mut note = |what: &str, figure: f64| {
            tables.add(
                "",
                &format!("{instrument} on every block: {what}"),
                &release,
                figure,
            );
        };
        note("instruments", blocks);
        note("instructions of a fork, least", active);
        note("added for each instrument", added / blocks);
        note(
            "added for each instrument, %",
            100.0 * added / least / blocks,
        );
    }
    Ok(())
}

/// Starts a timer at the function's entry, and stops it wherever it returns.
fn timed(image: &Image) -> anyhow::Result<Vec<Placement>> {
    let cfg = Cfg::of(image, image.function_named(TIMED)?.id);
    let mut all = vec![placement(
        TIMED.to_owned(),
        0,
        HookType::Pre,
        "elapsed-start",
    )];
    for (option, block) in options(image, &cfg).iter().zip(&cfg.blocks) {
        if block.end == BlockEnd::Return && option.post.is_ok() {
            all.push(placement(
                TIMED.to_owned(),
                block.index.0,
                HookType::Post,
                "elapsed-stop",
            ));
        }
    }
    ensure!(all.len() > 1, "{TIMED} has no hookable return");
    Ok(all)
}

/// Returns an instrument on every hookable block of the worker.
fn worker(image: &Image, instrument: &'static str) -> anyhow::Result<Vec<Placement>> {
    let cfg = Cfg::of(image, image.function_named(WORKER)?.id);
    let hooked = options(image, &cfg)
        .into_iter()
        .filter(|option| option.pre.is_ok());
    let all = hooked
        .map(|option| placement(WORKER.to_owned(), option.block.0, HookType::Pre, instrument));
    Ok(all.collect())
}

/// Returns the least cost of a fork in all runs.
fn phase(
    guest: &mut Guest,
    placements: &[Placement],
    runs: usize,
    path: &Path,
) -> anyhow::Result<f64> {
    let session = Session {
        name: "overhead".into(),
        placements: placements.to_vec(),
        ..Session::empty()
    };
    let script = format!("for run in $(seq {runs}); do pulsar 10; done | sed 's/^/sh: /'");
    let answer = guest.run_program("/bin/sh", &words(&["-c", &script]), session, path)?;
    let stops = answer
        .plan
        .instruments
        .iter()
        .filter(|one| one.definition.name == "elapsed-stop");
    let stops: Vec<u64> = stops.map(|one| one.id.pack()).collect();
    let (mut least, mut forks) = (u64::MAX, 0_u32);
    for sample in Recording::open(path)?.merged() {
        let (_, sample) = sample?;
        if stops.contains(&sample.id) {
            least = least.min(sample.value);
            forks += 1;
        }
    }
    ensure!(forks >= 160 * runs as u32, "{forks} forks were timed");
    Ok(least as f64)
}
