//! What one hit of an instrument costs, in guest instructions above the bare call.
//!
//! Boots the lab on an emulated processor whose time stamp counter counts instructions, and has
//! Strobe call one system call over and over, with and without an instrument at its entry. The
//! figures are the same every time. `cargo xtask bench lab` runs this.

use std::path::Path;

use anyhow::{Context as _, bail};
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{HookType, Image};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Event, StopFlag};
use ilk_driver::lab::{Accelerator, Lab, Options, prepare};

/// The function that serves what Strobe calls.
const FUNCTION: &str = "__x64_sys_getppid";
/// Calls in a burst; a ring that is not drained holds them all.
const CALLS: u64 = 1000;
const BURSTS: u64 = 20;

/// What is measured: a name, and the instruments at the entry.
const CASES: [(&str, &[&str]); 6] = [
    ("nothing", &[]),
    ("counter", &["counter"]),
    ("timestamp", &["timestamp"]),
    ("argument 0", &["argument-0"]),
    ("counter and timestamp", &["counter", "timestamp"]),
    ("two timestamps", &["timestamp", "timestamp"]),
];

fn main() -> anyhow::Result<()> {
    let options = Options {
        accelerator: Some(Accelerator::CountInstructions),
        ..Options::default()
    };
    let prepared = prepare(&options, &mut |_| ())?;
    let lab = Lab::boot(&prepared, &mut |_| ())?;
    let mut connection = Connection::connect(lab.socket())?;
    let image = Image::from_live(&connection.live_parts(&mut |_, _| ())?)?;
    let directory = tempfile::tempdir()?;
    let recording = directory.path().join("cost.arrow");
    println!(
        "Guest instructions for each call of {FUNCTION} on Linux {}:",
        prepared.release()
    );
    println!(
        "  {:<24} {:>9}  {:>12}",
        "instruments", "a call", "above bare"
    );
    let mut bare = None;
    for (name, instruments) in CASES {
        let ticks = measure(&mut connection, &image, instruments, &recording)
            .with_context(|| format!("measuring {name}"))?;
        let call = ticks as f64 / CALLS as f64;
        let above = call - *bare.get_or_insert(call);
        println!("  {name:<24} {call:>9.2}  {above:>12.2}");
    }
    Ok(())
}

/// Ticks that the cheapest burst took.
fn measure(
    connection: &mut Connection,
    image: &Image,
    instruments: &[&str],
    recording: &Path,
) -> anyhow::Result<u64> {
    let placement = |instrument: &&str| Placement {
        function: FUNCTION.into(),
        block: 0,
        hook: HookType::Pre,
        instrument: (*instrument).into(),
        launch: 0.0,
        splash: 3.0,
        timer: 0,
    };
    let arguments = vec![BURSTS.to_string(), CALLS.to_string()];
    let session = Session {
        name: "cost of a hit".into(),
        duration: 3.0,
        workload: Some(Workload {
            program: "/bin/strobe".into(),
            arguments,
            start: 1.0,
        }),
        placements: instruments.iter().map(placement).collect(),
        ..Session::empty()
    };
    let plan = gilk_engine::plan::plan(
        image,
        &session,
        &Library::builtin()?,
        &connection.info().layout,
    )?;
    let verified = match gilk_engine::verify::verify(image, plan) {
        Ok(verified) => verified,
        Err(violations) => bail!("the plan did not pass: {violations:?}"),
    };
    let (events, heard) = crossbeam_channel::unbounded();
    let summary = connection.run(&verified, &session, recording, &events, &StopFlag::new())?;
    drop(events);
    if summary.missing > 0 || summary.lost() != (0, 0) {
        bail!("samples were lost, so not every hit cost what a hit costs: {summary:?}");
    }
    let said = heard.iter().filter_map(|event| {
        if let Event::Workload(line) = event {
            Some(line)
        } else {
            None
        }
    });
    let lines: Vec<String> = said.collect();
    let ticks = lines.iter().find_map(|line| {
        line.split("calls took ")
            .nth(1)?
            .split(' ')
            .next()?
            .parse()
            .ok()
    });
    ticks.with_context(|| format!("Strobe did not tell its ticks, but: {}", lines.join("; ")))
}
