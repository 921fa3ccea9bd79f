//! GILK's report, 4.1: entry events of the fork path, timed by GILK and by another tool at once.

use std::ops::ControlFlow;

use anyhow::{Context as _, ensure};
use gilk_engine::session::Session;
use gilk_samples::chart::{Chart, png, svg};
use gilk_samples::index::Index;
use gilk_samples::recording::Recording;

use crate::How;
use crate::bars::Bars;
use crate::guest::{Guest, session, words};
use crate::table::Tables;
use crate::trace::{FORK, matched, read, script};

/// Pulsar's sleep between two rounds.
const SLEEP_MS: u32 = 500;
/// Number of Pulsar's rounds of forks.
const FORKS: usize = 160;
/// Lower bounds of the distribution's bins, in microseconds.
const EDGES: [f64; 12] = [
    0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 128.0,
];
/// Further instruments for the picture: threads that leave the processor, and those that exit.
const PICTURED: [&str; 3] = [FORK, "schedule", "wait_consider_task"];

/// Fills columns of the table, and draws Pulsar.
pub(crate) fn measure(guest: &mut Guest, tables: &mut Tables, how: &How) -> anyhow::Result<()> {
    let release = guest.release.clone();
    let timed = session([(FORK.to_owned(), 0, "timestamp")]);
    let path = how.file(&format!("correlation-{release}.arrow"));
    let script = words(&["-c", &script(SLEEP_MS)]);
    let answer = guest.run_program("/bin/sh", &script, timed, &path)?;
    let seen = read(answer.lines.iter().map(String::as_str));
    let recording = Recording::open(&path)?;
    let mut times = Vec::new();
    for sample in recording.merged() {
        times.push(sample?.1.tsc);
    }
    let hz = answer.summary.clock.hz as f64;
    let tools = [
        ("function tracer", &seen.function),
        ("kprobe event", &seen.kprobe),
    ];
    let mut counted = vec![vec![0.0; tools.len()]; EDGES.len()];
    for (number, (tool, events)) in tools.into_iter().enumerate() {
        ensure!(
            events.len() == FORKS,
            "the {tool} saw {} forks of {FORKS}",
            events.len()
        );
        let mut apart = matched(events, &times).map_err(anyhow::Error::msg)?;
        apart.sort_unstable();
        for &ticks in &apart {
            let bin = EDGES.partition_point(|&edge| edge <= ticks as f64 / hz * 1e6);
            let bin = counted.get_mut(bin.saturating_sub(1));
            if let Some(count) = bin.and_then(|bin| bin.get_mut(number)) {
                *count += 1.0;
            }
        }
        tables.add(
            "",
            &format!("{tool}: events, each with a sample of its own"),
            &release,
            events.len() as f64,
        );
        for (what, part) in [
            ("least", 0.0),
            ("median", 0.5),
            ("95 % below", 0.95),
            ("most", 1.0),
        ] {
            let at = (part * (apart.len() - 1) as f64).round() as usize;
            let ticks = apart.get(at).copied().context("no events")?;
            tables.add(
                "",
                &format!("{tool}: sample later by, {what}, µs"),
                &release,
                ticks as f64 / hz * 1e6,
            );
        }
    }
    let ends = EDGES.iter().skip(1).map(|edge| format!(" to {edge} µs"));
    let ends = ends.chain([String::from(" µs and more")]);
    let bins = EDGES.iter().zip(ends).zip(counted);
    Bars {
        title: format!("GILK's sample after the kernel's event, Linux {release}"),
        unit: "forks",
        names: tools.map(|(tool, _)| tool).to_vec(),
        groups: bins
            .map(|((edge, end), counts)| (format!("{edge}{end}"), counts))
            .collect(),
        logarithmic: false,
    }
    .draw(&how.file(&format!("correlation-apart-{release}")))?;
    pictured(guest, how)
}

/// Draws Pulsar's working, sleeping and collecting: the report's figure 4.4.
fn pictured(guest: &mut Guest, how: &How) -> anyhow::Result<()> {
    let hooks = PICTURED.map(|function| (function.to_owned(), 0, "timestamp"));
    let path = how.file(&format!("correlation-pulsar-{}.arrow", guest.release));
    let script = words(&["-c", &format!("pulsar {SLEEP_MS} | sed 's/^/sh: /'")]);
    let session = Session {
        name: "Pulsar".into(),
        ..session(hooks)
    };
    guest.run_program("/bin/sh", &script, session, &path)?;
    let recording = Recording::open(&path)?;
    let (index, errors) = Index::of(&recording, |_| ControlFlow::Continue(()));
    ensure!(errors.is_empty(), "{errors:?}");
    let mut chart = Chart::new(recording.metadata(), &index);
    chart.title = format!(
        "Pulsar on Linux {}: working, sleeping, collecting",
        guest.release
    );
    chart.range = recording.span().map(|(first, last)| (first, last + 1));
    let drawn = svg(&chart);
    let file = how.file(&format!("correlation-pulsar-{}", guest.release));
    // Releases contain points, so the extension is appended, not replaced.
    let named = |ending: &str| format!("{}.{ending}", file.display());
    std::fs::write(named("png"), png(&drawn, 1.0)?)?;
    std::fs::write(named("svg"), drawn)?;
    Ok(())
}
