//! The instruments that count paths, as sources in the language and placements of them.

use std::collections::BTreeMap;

use gilk_instruments::program::Summary;
use gilk_samples::HookType;

use super::graph::{hook, refusal};
use super::{Numbered, Path, Paths, Profile};
use crate::cfg::{BlockIndex, Cfg, EdgeKind};
use crate::session::Placement;
use crate::{Error, Refusal, Result, Session};

/// The action at one instrumented edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EdgeAction {
    /// The hook's word.
    hook: &'static str,
    block: BlockIndex,
    does: Does,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// A path begins with this number.
    Begin(u64),
    /// The number grows.
    Add(u64),
    /// A path ends; the increment of its number.
    End(u64),
    /// A path ends, and the loop's next iteration begins one.
    Turn(u64, u64),
}

/// Most paths that each have a bucket of their own.
const BUCKETS: u64 = 256;

/// The actions of all instrumented edges.
pub(super) fn marks(
    cfg: &Cfg,
    numbered: &Numbered,
) -> std::result::Result<Vec<EdgeAction>, Refusal> {
    let begins: BTreeMap<Option<BlockIndex>, u64> = numbered
        .increments()
        .filter(|(arc, _)| arc.from.is_none() && !arc.is_real)
        .map(|(arc, increment)| (arc.to, increment))
        .collect();
    let mut marks = Vec::new();
    for (arc, increment) in numbered.increments() {
        let mark = match (arc.from, arc.to, arc.loops) {
            (Some(from), None, Some((_, to))) => {
                let next = begins.get(&Some(to)).copied();
                debug_assert!(
                    next.is_some(),
                    "no path begins at {to:?}, where a loop does"
                );
                let next = next.unwrap_or(0);
                edge(cfg, from, to, Does::Turn(increment, next))?
            }
            (Some(from), None, None) => EdgeAction {
                hook: "post",
                block: from,
                does: Does::End(increment),
            },
            (Some(_), Some(_), _) if increment == 0 => continue,
            (Some(from), Some(to), _) => edge(cfg, from, to, Does::Add(increment))?,
            (None, Some(to), _) if arc.is_real => EdgeAction {
                hook: "entry",
                block: to,
                does: Does::Begin(increment),
            },
            (None, ..) => continue,
        };
        marks.push(mark);
    }
    Ok(marks)
}

/// Places an action on an edge: at the end of its source or the start of its target where these have no other
/// edge, else on the edge of a conditional branch.
fn edge(
    cfg: &Cfg,
    from: BlockIndex,
    to: BlockIndex,
    does: Does,
) -> std::result::Result<EdgeAction, Refusal> {
    if let Some((block, hook)) = hook(cfg, from, to) {
        return Ok(EdgeAction { hook, block, does });
    }
    let edge = cfg.successors(from).find(|edge| edge.to == to);
    let kind = edge.map(|edge| edge.kind);
    let hook = match kind {
        Some(EdgeKind::Taken) => "taken",
        Some(EdgeKind::Fallthrough) => "untaken",
        _ => return Err(refusal(cfg, from, "no hook is on an edge of a block")),
    };
    let block = from;
    Ok(EdgeAction { hook, block, does })
}

/// Start of the names of all instruments that count paths.
const PREFIX: &str = "path-";
/// Start of the summaries of all instruments that count paths; the function follows.
const SUMMARY: &str = "Counts paths of ";

/// Returns a word that names a function in variables and instruments.
fn word(function: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    function.chars().map(plain).collect()
}

/// Returns the start of the names of a function's instruments; a number follows.
fn prefix(function: &str) -> String {
    let word = word(function).to_lowercase().replace('_', "-");
    format!("{PREFIX}{}-", word.trim_matches('-'))
}

/// Returns whether an instrument, by its name, counts paths of a function ([`Paths::add_to`]).
#[must_use]
pub fn counts_paths_of(instrument: &str, function: &str) -> bool {
    // Nearly all names are others.
    if !instrument.starts_with(PREFIX) {
        return false;
    }
    let number = instrument.strip_prefix(&prefix(function));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Returns the function whose paths an instrument counts, by its name and summary; `None` for all other
/// instruments.
#[must_use]
pub fn counted_function<'a>(instrument: &str, summary: &'a str) -> Option<&'a str> {
    let function = summary.strip_prefix(SUMMARY)?.strip_suffix('.')?;
    counts_paths_of(instrument, function).then_some(function)
}

impl Paths {
    fn word(&self) -> String {
        word(&self.function)
    }

    fn name(&self, number: usize) -> String {
        format!("{}{number}", prefix(&self.function))
    }

    /// Source of the instrument for a mark.
    fn source(&self, name: &str, mark: &EdgeAction) -> String {
        let at = format!("@path_{}", self.word());
        // Numbers are modulo 2^64, and those below zero are written so.
        let plus = |number: u64| match number.cast_signed() {
            0 => at.clone(),
            below if below < 0 => format!("{at} - {}", below.unsigned_abs()),
            above => format!("{at} + {above}"),
        };
        let plain = |number: u64| match number.cast_signed() {
            below if below < 0 => format!("-{}", below.unsigned_abs()),
            above => above.to_string(),
        };
        let counted = |number: u64| match self.count() {
            count if count <= BUCKETS => {
                format!("@paths = lhist({}, 0, {count}, 1)", plus(number))
            }
            _ => format!("@paths = values({}, 512)", plus(number)),
        };
        let begin = format!(
            "instrument {name} \"{SUMMARY}{}.\" count;\n\nshared thread {at};\n",
            self.function
        );
        let hook = mark.hook;
        match mark.does {
            // The number of an outer call is restored at the return.
            Does::Begin(number) => format!(
                "{begin}call @outer;\n\nentry {{\n    @outer = {at};\n    {at} = {};\n}}\nreturn {{ {at} = @outer }}\n",
                plain(number)
            ),
            Does::Add(number) => {
                format!("{begin}\n{hook} {{ {at} = {} }}\n", plus(number))
            }
            Does::End(number) => format!("{begin}\n{hook} {{ {} }}\n", counted(number)),
            Does::Turn(number, next) => format!(
                "{begin}\n{hook} {{\n    {};\n    {at} = {};\n}}\n",
                counted(number),
                plain(next)
            ),
        }
    }
}

/// Adds sources and placements.
pub(super) fn add(paths: &Paths, session: &mut Session, times: (f64, f64)) -> Result<()> {
    // The function's own comes last: at an exit the number is counted before that of the outer call is back.
    let begins = |mark: &&EdgeAction| matches!(mark.does, Does::Begin(_));
    let (last, first): (Vec<&EdgeAction>, Vec<&EdgeAction>) = paths.marks.iter().partition(begins);
    for (number, mark) in first.into_iter().chain(last).enumerate() {
        let name = paths.name(number);
        let source = paths.source(&name, mark);
        if session.sources.insert(name.clone(), source).is_some() {
            return Err(Error::Session {
                reason: format!("The session has an instrument {name} already; take it out."),
            });
        }
        session.placements.push(Placement {
            function: paths.function.as_str().into(),
            block: mark.block.0,
            hook: HookType::Pre,
            instrument: name.into(),
            launch: times.0,
            splash: times.1,
        });
    }
    Ok(())
}

/// Counted executions by the number of the path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Executions of each path that was taken.
    pub paths: BTreeMap<u64, u64>,
    /// Executions that were counted without their number.
    pub others: u64,
}

impl PathCounts {
    /// Adds up the aggregates of the instruments that count a function's paths.
    #[must_use]
    pub fn of<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> Self {
        let mut all = Self::default();
        for summary in summaries {
            match summary {
                Summary::Buckets(buckets) => {
                    for bucket in buckets {
                        let is_number = bucket.to == bucket.from;
                        all.add(bucket.from.filter(|_| is_number), bucket.count);
                    }
                }
                Summary::Values(values, rest) => {
                    all.others += rest;
                    for (number, count) in values {
                        all.add(Some(*number), *count);
                    }
                }
                _ => {}
            }
        }
        all
    }

    fn add(&mut self, number: Option<i128>, count: u64) {
        match number.and_then(|number| u64::try_from(number).ok()) {
            Some(_) if count == 0 => {}
            Some(number) => *self.paths.entry(number).or_default() += count,
            None => self.others += count,
        }
    }

    /// Returns the number of counted executions.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.paths.values().sum::<u64>() + self.others
    }
}

/// Adds up the aggregates of the instruments of a function's paths.
pub(super) fn read<'a>(
    paths: &Paths,
    summaries: impl IntoIterator<Item = (&'a str, &'a Summary)>,
) -> Profile {
    let own = summaries
        .into_iter()
        .filter(|(name, _)| counts_paths_of(name, &paths.function));
    let counts = PathCounts::of(own.map(|(_, summary)| summary));
    let mut all = Vec::new();
    let mut others = counts.others;
    for (number, count) in counts.paths {
        match paths.path(number) {
            Some(path) => all.push(Path { count, ..path }),
            None => others += count,
        }
    }
    all.sort_by_key(|path| (std::cmp::Reverse(path.count), path.number));
    Profile { paths: all, others }
}
