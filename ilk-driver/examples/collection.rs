//! Measures the delivery, losses and costs of each collection strategy in one run: the table of
//! `docs/collection.md`.
//!
//! Boots the lab on one emulated processor whose time stamp counter counts instructions, and makes
//! Strobe call one system call two million times. The instructions of a call beyond those without
//! an instrument are all that the instrument, the agent and the connection to the client cost on
//! the only processor.
//!
//! `cargo run --release -p ilk-driver --example collection`

use std::path::Path;

use anyhow::{Context as _, bail};
use gilk_engine::collection::{Collection, Interval, Strategy};
use gilk_engine::session::{Placement, Session, Workload};
use gilk_engine::{HookType, Image};
use gilk_instruments::Library;
use ilk_driver::client::{Connection, Event, StopFlag, Summary};
use ilk_driver::lab::{Accelerator, Lab, Options, prepare};

/// The function that serves Strobe's calls.
const FUNCTION: &str = "__x64_sys_getppid";
const CALLS: u64 = 1000;
const BURSTS: u64 = 2000;
const DURATION: f64 = 5.0;

fn cases() -> Vec<(&'static str, &'static [&'static str], Collection)> {
    let samples = |samples| Collection {
        samples,
        ..Collection::default()
    };
    let totals = |every, jitter| Collection {
        totals: Interval { every, jitter },
        ..Collection::default()
    };
    let periodic = |every, jitter| samples(Strategy::Periodic { every, jitter });
    let windows = Strategy::Windows {
        every: 0.05,
        jitter: 0.02,
        length: 0.005,
    };
    vec![
        ("no instrument", &[], Collection::default()),
        ("counter, read every 100 ms", &["counter"], totals(0.1, 0.0)),
        (
            "counter, read every 10 ± 5 ms",
            &["counter"],
            totals(0.01, 0.005),
        ),
        ("Stream", &["timestamp"], samples(Strategy::Stream)),
        ("Periodic, every 10 ms", &["timestamp"], periodic(0.01, 0.0)),
        (
            "Periodic, every 100 ± 50 ms",
            &["timestamp"],
            periodic(0.1, 0.05),
        ),
        (
            "Windows, 5 ms every 50 ± 20 ms",
            &["timestamp"],
            samples(windows),
        ),
        ("Oldest", &["timestamp"], samples(Strategy::Oldest)),
        ("Newest", &["timestamp"], samples(Strategy::Newest)),
    ]
}

fn main() -> anyhow::Result<()> {
    let options = Options {
        accelerator: Some(Accelerator::CountInstructions),
        ..Options::default()
    };
    let prepared = prepare(&options, &mut |_| ())?;
    let lab = Lab::boot(&prepared, &mut |_| ())?;
    let mut connection = Connection::connect(lab.socket())?;
    let image =
        Image::from_live(&connection.live_parts(&mut |_, _| ())?)?.on(&connection.info().layout);
    let directory = tempfile::tempdir()?;
    let recording = directory.path().join("collection.arrow");
    println!(
        "{} calls of {FUNCTION} on Linux {}",
        BURSTS * CALLS,
        prepared.release()
    );
    println!(
        "| collection | samples | lost: ring full | off | overwritten | instructions a call | above none |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut bare = None;
    for (name, instruments, collection) in cases() {
        let (summary, call) = measure(&mut connection, &image, instruments, collection, &recording)
            .with_context(|| format!("measuring {name}"))?;
        let above = call - *bare.get_or_insert(call);
        let lost = summary.lost_by_cause();
        println!(
            "| {name} | {} | {} | {} | {} | {call:.1} | {above:.1} |",
            summary.taken - lost.gone(),
            lost.full,
            lost.disabled,
            lost.overwritten
        );
    }
    Ok(())
}

/// Returns the summary of a session, and the instructions of one call including everything that ran
/// concurrently.
fn measure(
    connection: &mut Connection,
    image: &Image,
    instruments: &[&str],
    collection: Collection,
    recording: &Path,
) -> anyhow::Result<(Summary, f64)> {
    let placement = |instrument: &&str| Placement {
        function: FUNCTION.into(),
        block: 0,
        hook: HookType::Pre,
        instrument: (*instrument).into(),
        launch: 0.0,
        splash: DURATION,
    };
    let session = Session {
        name: "collection".into(),
        duration: DURATION,
        workload: Some(Workload {
            program: "/bin/strobe".into(),
            arguments: vec![BURSTS.to_string(), CALLS.to_string()],
            start: 1.0,
        }),
        placements: instruments.iter().map(placement).collect(),
        collection,
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
        Err(violations) => bail!("the plan failed its verification: {violations:?}"),
    };
    let (events, heard) = crossbeam_channel::unbounded();
    let summary = connection.run(&verified, &session, recording, &events, &StopFlag::new())?;
    drop(events);
    if summary.missing > 0 {
        bail!("{} samples did not arrive", summary.missing);
    }
    let lines: Vec<String> = heard
        .iter()
        .filter_map(|event| match event {
            Event::Workload(line) => Some(line),
            _ => None,
        })
        .collect();
    let second = |what: &str| {
        let line = lines.iter().find_map(|line| line.strip_prefix(what))?;
        line.split(' ').next()?.parse::<f64>().ok()
    };
    let (Some(begun), Some(ended)) = (second("started at "), second("ended at ")) else {
        bail!("Strobe did not end, but: {}", lines.join("; "));
    };
    let ticks = (ended - begun) * summary.clock.hz as f64;
    Ok((summary, ticks / (BURSTS * CALLS) as f64))
}
