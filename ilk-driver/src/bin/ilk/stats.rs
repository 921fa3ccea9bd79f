//! `ilk stats`: statistics of a recording's instruments.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use gilk_samples::chart::{scale, totals};
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::output::Contents;
use gilk_samples::profile::{Distribution, LevelProfile, Profile, Profiles, profiles};
use gilk_samples::record::{ALL_CPUS, known_cpu};
use gilk_samples::recording::{Loss, Recording, RowKind};
use gilk_samples::texts::Texts;
use gilk_samples::totals::Totals;
use gilk_samples::{graph, histogram::Histogram};
use ilk_driver::interrupt;
use ilk_driver::note;

use crate::output::Force;
use crate::progress::Progress;
use crate::span::Span;
use crate::{pager, picture};

/// Print statistics of each instrument of a recording: counts, rates, percentiles, times between
/// samples.
#[derive(Args)]
pub(crate) struct Stats {
    /// The recording to analyse.
    recording: PathBuf,
    /// Only this span, in seconds from the start: 1.5..2.
    #[arg(long, value_name = "FROM..TO")]
    span: Option<Span>,
    /// Only instruments whose label contains this.
    #[arg(long, value_name = "TEXT")]
    instrument: Option<String>,
    /// Print everything: every percentile, the most frequent values, CPUs, a histogram.
    #[arg(long)]
    long: bool,
    /// Print instruments without hits, too.
    #[arg(long)]
    all: bool,
    /// Print JSON; times are in TSC ticks.
    #[arg(long, conflicts_with = "long")]
    json: bool,
    /// Print the graph of this function in DOT, with the hits and times of its blocks.
    #[arg(long, value_name = "FUNCTION", conflicts_with_all = ["long", "json"])]
    graph: Option<String>,
    /// Write that graph to this file: PNG, or SVG by the extension.
    #[arg(long, value_name = "FILE", requires = "graph")]
    picture: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Number of most frequent values shown.
const TOP: usize = 8;

impl Stats {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        if let Some(picture) = &self.picture {
            let mut goals = self.force.goals().reads(&self.recording);
            goals.goal(picture, Contents::Other)?;
        }
        let recording = Recording::open(&self.recording)?;
        if let Some(why) = recording.recovered() {
            note!("{}: {why}", self.recording.display());
        }
        let metadata = recording.metadata();
        let whole = recording.whole()?;
        let span = self
            .span
            .map_or(whole, |span| span.ticks(&metadata.clock, whole));
        let mut profiles = read(&recording, span)?;
        for damage in &profiles.damaged {
            note!("{damage}");
        }
        if let Some(wanted) = &self.instrument {
            profiles
                .instruments
                .retain(|profile| profile.label.contains(wanted));
            profiles.levels.retain(|level| level.label.contains(wanted));
        }
        let mut lost = recording.losses()?;
        lost.retain(|loss| (span.0..span.1).contains(&loss.tsc) || self.span.is_none());
        let lost = Loss::summed(&lost);
        // Totals cover the whole run, and no part of it.
        let mut run = recording.totals().clone();
        if self.span.is_some() {
            run = Totals::default();
        }
        if let Some(wanted) = &self.instrument {
            run.retain(|instrument| instrument.contains(wanted));
        }
        if let Some(name) = &self.graph {
            let function = metadata
                .functions
                .iter()
                .find(|function| function.name == *name);
            let function = function.with_context(|| {
                format!("The recording has no function {name}; `ilk show` lists its functions.")
            })?;
            return match &self.picture {
                Some(picture) => {
                    let svg = graph::svg(metadata, function, &profiles.instruments);
                    picture::write(picture, svg)
                }
                None => pager::print(&graph::dot(metadata, function, &profiles.instruments)),
            };
        }
        if self.json {
            let about = serde_json::json!({
                "clock": metadata.clock,
                "span": profiles.span,
                "instruments": profiles.instruments,
                "processes": processes(&profiles.instruments).iter().map(|one| serde_json::json!({
                    "process": one.name,
                    "hits": one.hits,
                    "instruments": one.instruments,
                })).collect::<Vec<_>>(),
                "levels": profiles.levels,
                "totals": run,
                "lost": lost.iter().map(loss_json).collect::<Vec<_>>(),
            });
            return pager::print(&format!("{about:#}\n"));
        }
        profiles
            .instruments
            .sort_by_key(|of| std::cmp::Reverse(of.hits));
        let shown: Vec<&Profile> = profiles
            .instruments
            .iter()
            .filter(|of| self.all || of.hits > 0)
            .collect();
        let idle = match profiles.instruments.len() - shown.len() {
            0 => String::new(),
            idle => format!("{}\n", scale::idle(idle)),
        };
        let text = if profiles.instruments.is_empty() {
            String::new()
        } else if self.long {
            let each = shown.into_iter().map(|profile| long(profile, metadata));
            each.collect::<Vec<_>>().join("\n")
        } else {
            table(&profiles, &shown, metadata)
        };
        pager::print(&format!(
            "{text}{idle}{}{}{}{}",
            by_process(&processes(&profiles.instruments)),
            levels(&profiles.levels, &metadata.clock, lost.is_empty()),
            totals::text(&run, metadata, self.all),
            Loss::by_cpu(&lost, metadata)
        ))
    }
}

/// Hits of a process among several, or of the kernel beside it.
struct ProcessHits<'m> {
    name: &'m str,
    hits: u64,
    /// Instruments with hits.
    instruments: u64,
}

/// Returns the hits of each process of a recording of several, whose labels begin with its name; none of other recordings.
fn processes(measured: &[Profile]) -> Vec<ProcessHits<'_>> {
    let mut processes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for profile in measured {
        let Some(name) = process_of(&profile.label) else {
            continue;
        };
        let (hits, instruments) = processes.entry(name).or_default();
        *hits += profile.hits;
        *instruments += u64::from(profile.hits > 0);
    }
    if processes.len() < 2 {
        return Vec::new();
    }
    let processes = processes.into_iter();
    let mut processes: Vec<ProcessHits<'_>> = processes
        .map(|(name, (hits, instruments))| ProcessHits {
            name,
            hits,
            instruments,
        })
        .collect();
    processes.sort_by_key(|one| std::cmp::Reverse(one.hits));
    processes
}

/// Returns the process that a label of a recording of several names: `process 7 sh` of *process 7 sh: counter pre main*.
fn process_of(label: &str) -> Option<&str> {
    let (name, _) = label.split_once(": ")?;
    let number = |name: &str| {
        name.strip_prefix("process ")?
            .split(' ')
            .next()?
            .parse::<u32>()
            .ok()
    };
    (name == "kernel" || number(name).is_some()).then_some(name)
}

/// Returns a table with a line per process.
fn by_process(processes: &[ProcessHits<'_>]) -> String {
    if processes.is_empty() {
        return String::new();
    }
    let mut out = format!("{:>16} {:>16}  process\n", "hits", "instruments hit");
    for one in processes {
        let [hits, instruments] = [one.hits, one.instruments].map(scale::grouped);
        // Writing to a String cannot fail.
        let _infallible = writeln!(out, "{hits:>16} {instruments:>16}  {}", one.name);
    }
    out
}

/// Returns the JSON of a CPU's loss.
fn loss_json(loss: &Loss) -> serde_json::Value {
    serde_json::json!({
        "cpu": known_cpu(loss.cpu),
        "kind": RowKind::Loss(loss.cause).number(),
        "cause": loss.cause.words(),
        "count": loss.count,
    })
}

fn read(recording: &Recording, span: (u64, u64)) -> anyhow::Result<Profiles> {
    interrupt::watch();
    let mut progress = Progress::new();
    let of = recording.samples().max(1);
    let measured = profiles(recording, Some(span), TOP, |samples| {
        progress.share(samples as f32 / of as f32, "reading");
        !interrupt::arrived()
    });
    if interrupt::arrived() {
        bail!("Interrupted.");
    }
    Ok(measured)
}

/// Returns a table with a line per instrument.
fn table(measured: &Profiles, shown: &[&Profile], metadata: &Metadata) -> String {
    let head = ["hits", "rate", "min", "median", "99 %", "max", "gap median"];
    let rows: Vec<[String; 7]> = shown.iter().map(|of| row(of, &metadata.clock)).collect();
    let mut widths = head.map(|text| text.chars().count());
    for row in &rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    let line = |cells: &[String], label: &str| {
        let cells = cells
            .iter()
            .zip(widths)
            .map(|(text, width)| format!("{text:>width$}"));
        format!("{}  {label}\n", cells.collect::<Vec<_>>().join("  "))
    };
    let mut out = line(&head.map(str::to_owned), "instrument");
    for (row, profile) in rows.iter().zip(shown) {
        out.push_str(&line(row, &labelled(profile, metadata)));
    }
    let seconds = |tsc| metadata.clock.seconds(tsc);
    // Writing to a String cannot fail.
    let _infallible = writeln!(
        out,
        "{} between {:.3} s and {:.3} s. Values marked ~ are up to 1.6 % too large.",
        scale::counted(
            measured
                .instruments
                .iter()
                .map(|profile| profile.hits)
                .sum::<u64>(),
            "hit"
        ),
        seconds(measured.span.0),
        seconds(measured.span.1)
    );
    out
}

/// Returns the label of an instrument, with the source line of its block if that is known.
fn labelled(profile: &Profile, metadata: &Metadata) -> String {
    match metadata.lines.get(profile.id) {
        Some(line) => format!("{} at {line}", profile.label),
        None => profile.label.clone(),
    }
}

fn row(profile: &Profile, clock: &Clock) -> [String; 7] {
    let words = |value| scale::value(value, &profile.unit, clock);
    let about = |of: &Distribution| if of.exact { "" } else { "~" };
    let gap = profile.gaps.as_ref().map(|gaps| {
        let [_, _, _, median, ..] = gaps.percentiles;
        format!("{}{}", about(gaps), scale::value(median, "ticks", clock))
    });
    let values = profile.values.as_ref().map(|values| {
        let [_, _, _, median, _, _, _, p99, _] = values.percentiles;
        [
            words(values.min),
            format!("{}{}", about(values), words(median)),
            format!("{}{}", about(values), words(p99)),
            words(values.max),
        ]
    });
    let [min, median, p99, max] = values.unwrap_or_default();
    [
        scale::grouped(profile.hits),
        profile.rate.to_string(),
        min,
        median,
        p99,
        max,
        gap.unwrap_or_default(),
    ]
}

/// Returns a line per level: its average over time.
fn levels(levels: &[LevelProfile], clock: &Clock, is_whole: bool) -> String {
    let mut out = String::new();
    for LevelProfile {
        label,
        unit,
        average,
        ..
    } in levels
    {
        let mean = scale::mean(average.mean, unit, clock);
        let bounds =
            [average.least, average.greatest].map(|bound| scale::mean(bound as f64, unit, clock));
        let covered = scale::duration(average.covered as f64 / clock.hz.max(1) as f64);
        // Writing to a String cannot fail.
        let _infallible = writeln!(
            out,
            "{label}: {mean} on average over time, {} to {}, known for {covered}",
            bounds[0], bounds[1]
        );
    }
    if !levels.is_empty() && !is_whole {
        out.push_str("While samples are lost, the previous level is assumed to persist.\n");
    }
    out
}

/// Returns all statistics of one instrument.
fn long(profile: &Profile, metadata: &Metadata) -> String {
    let clock = &metadata.clock;
    let mut out = format!(
        "{}\n  {} in {} in place: {}\n",
        labelled(profile, metadata),
        scale::counted(profile.hits, "hit"),
        scale::duration(profile.seconds),
        profile.rate
    );
    let cpus = profile.cpus.iter().map(|&(cpu, count)| {
        let count = scale::grouped(count);
        if cpu == ALL_CPUS {
            format!("all together {count}")
        } else {
            format!("{cpu}: {count}")
        }
    });
    // Writing to a String cannot fail.
    if !profile.cpus.is_empty() {
        let _infallible = writeln!(out, "  by CPU   {}", cpus.collect::<Vec<_>>().join("  "));
    }
    for (name, of, unit) in [
        ("values ", &profile.values, profile.unit.as_str()),
        ("between", &profile.gaps, "ticks"),
    ] {
        let Some(of) = of else { continue };
        let words = |value| scale::value(value, unit, clock);
        let about = if of.exact { "" } else { "~" };
        let percentiles = gilk_samples::profile::PERCENTS.iter().zip(of.percentiles);
        let percentiles =
            percentiles.map(|(percent, value)| format!("{percent} % {about}{}", words(value)));
        let _infallible = writeln!(
            out,
            "  {name}  min {}  {}  max {}\n           mean {}  deviation {}",
            words(of.min),
            percentiles.collect::<Vec<_>>().join("  "),
            words(of.max),
            scale::mean(of.mean, unit, clock),
            scale::mean(of.deviation, unit, clock),
        );
    }
    if profile.top.is_empty() {
        return out;
    }
    let share = |count: u64| 100.0 * count as f64 / profile.hits.max(1) as f64;
    let name = |value| match metadata.texts.get(profile.id) {
        Some(Texts::Names(names)) => names.of_bits(value),
        _ => None,
    };
    let top = profile.top.iter().map(|&(value, count)| {
        format!(
            "{} × {} ({:.1} %)",
            name(value).unwrap_or_else(|| scale::value(value, &profile.unit, clock)),
            scale::grouped(count),
            share(count)
        )
    });
    let top: Vec<String> = top.collect();
    let error = match profile.top_error {
        0 => String::new(),
        error => format!(" (each up to {} more)", scale::grouped(error)),
    };
    let _infallible = writeln!(out, "  often    {}{error}", top.join(", "));
    out.push_str(&histogram(&profile.histogram, &profile.unit, clock));
    out
}

/// Returns a histogram with a dozen ranges of equal width on a logarithmic scale.
fn histogram(of: &Histogram, unit: &str, clock: &Clock) -> String {
    const LINES: usize = 12;
    const BAR: usize = 40;
    let (Some(first), Some(last)) = (of.buckets().next(), of.buckets().last()) else {
        return String::new();
    };
    let position = |value: u64| (value as f64).ln_1p();
    let (low, high) = (
        position(first.from),
        position(last.to).max(position(first.from) + 1e-9),
    );
    let mut lines = vec![(None::<(u64, u64)>, 0u64); LINES];
    for bucket in of.buckets() {
        let at = ((position(bucket.from) - low) / (high - low) * LINES as f64) as usize;
        if let Some((range, count)) = lines.get_mut(at.min(LINES - 1)) {
            let from = range.map_or(bucket.from, |(from, _)| from);
            *range = Some((from, bucket.to));
            *count += bucket.count;
        }
    }
    let most = lines
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or(1)
        .max(1);
    let mut out = String::new();
    for (range, count) in lines {
        let Some((from, to)) = range else { continue };
        let eighths = (count as f64 / most as f64 * (BAR * 8) as f64).ceil() as usize;
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
        let rest = part.get(eighths % 8).copied().unwrap_or("");
        let words = |value| scale::value(value, unit, clock);
        let range = format!("{} – {}", words(from), words(to));
        let _infallible = writeln!(
            out,
            "  {range:>36} │{}{rest} {}",
            "█".repeat(eighths / 8),
            scale::grouped(count)
        );
    }
    out
}
