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

impl Paths {
    /// A word that names the function in variables and instruments.
    fn word(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        self.function.chars().map(plain).collect()
    }

    fn name(&self, number: usize) -> String {
        let word = self.word().to_lowercase().replace('_', "-");
        format!("path-{}-{number}", word.trim_matches('-'))
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
            "instrument {name} \"Counts paths of {}.\" unit \"paths\" count;\n\nshared thread {at};\n",
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

/// Adds up the aggregates of the instruments of a function's paths.
pub(super) fn read<'a>(
    paths: &Paths,
    summaries: impl IntoIterator<Item = (&'a str, &'a Summary)>,
) -> Profile {
    let begin = paths.name(0);
    let begin = begin.trim_end_matches('0');
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut others = 0;
    let own = |name: &str| {
        let number = name.strip_prefix(begin);
        number.is_some_and(|number| number.parse::<usize>().is_ok())
    };
    for (_, summary) in summaries.into_iter().filter(|(name, _)| own(name)) {
        match summary {
            Summary::Buckets(buckets) => {
                for bucket in buckets {
                    match bucket.from.map(u64::try_from) {
                        Some(Ok(number)) if bucket.to == bucket.from => {
                            *counts.entry(number).or_default() += bucket.count;
                        }
                        _ => others += bucket.count,
                    }
                }
            }
            Summary::Values(values, rest) => {
                others += rest;
                for (number, count) in values {
                    match u64::try_from(*number) {
                        Ok(number) => *counts.entry(number).or_default() += count,
                        Err(_) => others += count,
                    }
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    for (number, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        match paths.path(number) {
            Some(path) => all.push(Path { count, ..path }),
            None => others += count,
        }
    }
    all.sort_by_key(|path| (std::cmp::Reverse(path.count), path.number));
    Profile { paths: all, others }
}
