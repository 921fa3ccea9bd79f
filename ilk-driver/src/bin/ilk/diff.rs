//! `ilk diff`: two recordings, or two spans of one, side by side.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use gilk_samples::chart::scale;
use gilk_samples::compare::{Change, Compared, Comparison, Side, compare};
use gilk_samples::recording::Recording;

use crate::pager;
use crate::span::Span;
use ilk_driver::note;

/// Compare two recordings, instrument by instrument: before and after a change.
///
/// Each side is divided into forty intervals of time, and a statistical test determines whether
/// they differ, corrected for correlation between neighbouring intervals and for multiple
/// comparisons. Differences between any two runs show here too: compare two recordings of the same
/// system first.
#[derive(Args)]
pub(crate) struct Diff {
    /// The first recording.
    before: PathBuf,
    /// The second recording. Default: the first one, of which two spans are compared.
    #[arg(required_unless_present_all = ["span", "after_span"])]
    after: Option<PathBuf>,
    /// Only this span of the first recording, in seconds from its start: 0..5.
    #[arg(long, value_name = "FROM..TO")]
    span: Option<Span>,
    /// Only this span of the second recording.
    #[arg(long, value_name = "FROM..TO")]
    after_span: Option<Span>,
    /// Also print instruments without a difference, and the names of all that only one of the recordings has.
    #[arg(long)]
    all: bool,
    /// Print JSON: rates per second, values as recorded, times in nanoseconds.
    #[arg(long)]
    json: bool,
}

/// Names of instruments that only one recording has, in a line.
const NAMED: usize = 8;

impl Diff {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let before = open(&self.before)?;
        let after = self.after.as_deref().map(open).transpose()?;
        let after = after.as_ref().unwrap_or(&before);
        let compared = compare(side(&before, self.span), side(after, self.after_span));
        for damage in &compared.damaged {
            note!("{damage}");
        }
        if self.json {
            let about = serde_json::json!({
                "instruments": compared.instruments,
                "only_before": compared.only_a,
                "only_after": compared.only_b,
                "tests": compared.tests,
            });
            return pager::print(&format!("{about:#}\n"));
        }
        pager::print(&text(&compared, self.all))
    }
}

fn open(path: &Path) -> anyhow::Result<Recording> {
    let recording = Recording::open(path)?;
    if let Some(why) = recording.recovered() {
        note!("{}: {why}", path.display());
    }
    Ok(recording)
}

fn side(recording: &Recording, span: Option<Span>) -> Side<'_> {
    let clock = &recording.metadata().clock;
    let last = recording.span().map_or(clock.start, |(_, last)| last);
    let whole = (clock.start, last.saturating_add(1));
    Side {
        recording,
        span: span.map(|span| span.ticks(clock, whole)),
    }
}

fn text(compared: &Compared, all: bool) -> String {
    let differs = |change: &Option<Change>| change.as_ref().is_some_and(Change::differs);
    let (mut out, mut same, mut unknown) = (String::new(), 0, 0);
    for of in &compared.instruments {
        match (&of.rate, &of.value) {
            (None, None) => unknown += 1,
            (rate, value) if !differs(rate) && !differs(value) => same += 1,
            _ => {}
        }
        if all || differs(&of.rate) || differs(&of.value) {
            out.push_str(&lines(of));
        }
    }
    // Writing to a String cannot fail.
    let _infallible = writeln!(
        out,
        "{} on both sides, {}: {} with a difference, {same} without, {unknown} with too few samples.",
        scale::counted(compared.instruments.len() as u64, "instrument"),
        scale::counted(compared.tests as u64, "comparison"),
        compared.instruments.len() - same - unknown,
    );
    for (labels, which) in [(&compared.only_a, "first"), (&compared.only_b, "second")] {
        if !labels.is_empty() {
            let shown = if all { labels.len() } else { NAMED };
            let others = labels.len().saturating_sub(shown);
            let others = match others {
                0 => String::new(),
                others => format!("; and {}", scale::counted(others as u64, "other")),
            };
            let named: Vec<&str> = labels.iter().take(shown).map(String::as_str).collect();
            let _infallible = writeln!(out, "Only in the {which}: {}{others}.", named.join("; "));
        }
    }
    out
}

/// Returns the lines of one instrument.
fn lines(of: &Comparison) -> String {
    let mut out = format!("{}\n", of.label);
    let value = |number: f64| {
        if of.times {
            scale::duration(number / 1e9)
        } else {
            scale::short(number)
        }
    };
    if let Some(rate) = &of.rate {
        line(&mut out, "rate", rate, &scale::rate);
    }
    if let Some(change) = &of.value {
        line(&mut out, "value", change, &value);
        let _infallible = writeln!(
            out,
            "         all values: median {} → {}, 99 % {} → {}{}",
            value(of.a.median as f64),
            value(of.b.median as f64),
            value(of.a.p99 as f64),
            value(of.b.p99 as f64),
            of.superiority.map(effect).unwrap_or_default()
        );
    }
    if of.rate.is_none() && of.value.is_none() {
        let _infallible = writeln!(
            out,
            "  {} and {}: too few intervals have samples",
            scale::grouped(of.a.count),
            scale::counted(of.b.count, "sample")
        );
    }
    out
}

fn line(out: &mut String, what: &str, change: &Change, words: &dyn Fn(f64) -> String) {
    let percent = |number: f64| format!("{:+.1} %", number / change.before * 100.0);
    let by = if change.before == 0.0 {
        words(change.by)
    } else {
        let (low, high) = change.between;
        format!(
            "{} (95 %: {} to {})",
            percent(change.by),
            percent(low),
            percent(high)
        )
    };
    let verdict = if change.differs() {
        "differs"
    } else {
        "no difference"
    };
    let p_value = match change.chance {
        p if p < 1e-4 => "below 0.0001".to_owned(),
        p => format!("{p:.4}"),
    };
    let _infallible = writeln!(
        out,
        "  {what:<6} {} → {}, {by}; {verdict}, p {p_value}",
        words(change.before),
        words(change.after)
    );
}

/// Describes the size of an effect in the terms of Vargha and Delaney.
fn effect(superiority: f64) -> String {
    let size = match (superiority - 0.5).abs() {
        d if d < 0.06 => "negligible",
        d if d < 0.14 => "small",
        d if d < 0.21 => "medium",
        _ => "large",
    };
    format!(
        "; a second value exceeds a first one {:.0} of 100 times ({size})",
        superiority * 100.0
    )
}
