//! Counts in an instrumented process until the end, and the report of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use gilk_samples::chart::scale;
use gilk_samples::chart::totals::text;
use gilk_samples::collector::Collector;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::process_end::READS_ENDED;
use gilk_samples::recording::Writer;
use gilk_samples::totals::Totals;
use ilk_driver::client::{CpuLosses, TargetInfo, append_metadata, samples};
use ilk_driver::process::{FollowedEnd, FollowedProcess, LoadedPart, Recorder, clock, program_of};

use crate::process::Measurement;
use crate::process_lines::LinePrinter;
use crate::process_results::{ProcessPlan, Results};
use crate::supervisor;

/// The counts of a process, and the course of them.
pub(crate) struct Counted {
    /// The words of the plan, by identifier.
    words: BTreeMap<u64, u64>,
    described: Metadata,
    /// Results in objects that were loaded later, with the metadata of each.
    later: Vec<(Results, Metadata)>,
    /// Stacks that were numbered.
    stacks: KeptStacks,
    /// Samples that were taken, and those that were lost, if an instrument samples.
    samples: Option<(u64, u64)>,
    /// Names of objects that were loaded later.
    pub(crate) loaded: BTreeSet<String>,
    /// It has executed another program.
    pub(crate) executed: bool,
    /// Lines about its objects and its end.
    notes: String,
    /// The longest time for which its threads were stopped, if it was spliced.
    stopped: Option<Duration>,
}

impl Counted {
    /// The counts of instruments in the code cache.
    pub(crate) fn in_cache(
        words: BTreeMap<u64, u64>,
        described: Metadata,
        (samples, stacks): (Option<(u64, u64)>, KeptStacks),
        later: Vec<(Results, Metadata)>,
        notes: String,
    ) -> Self {
        Self {
            words,
            described,
            later,
            stacks,
            samples,
            loaded: BTreeSet::new(),
            executed: false,
            notes,
            stopped: None,
        }
    }

    /// Returns whether two processes have counted in the same places, so that their counts can be added.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        fn places(counted: &Counted) -> impl Iterator<Item = (u64, &String)> {
            let instruments = counted.described.instruments.iter();
            instruments.map(|one| (one.id, &one.label))
        }
        places(self).eq(places(other))
    }
}

/// The results in objects that were loaded later.
pub(crate) struct LaterResults {
    /// Results of each object, with its metadata.
    pub(crate) results: Vec<(Results, Metadata)>,
    /// Lines about the loads, and about what is left out of each plan.
    loads: String,
    /// Paths of the objects.
    objects: Vec<String>,
}

impl LaterResults {
    /// Adds the counts of objects to a recording, its totals and its metadata; those without hits, too, if `all`.
    pub(crate) fn of(
        parts: &[LoadedPart<ProcessPlan>],
        (info, clock): (&TargetInfo, Clock),
        (recorder, recorded, mut described): (&mut Recorder, &mut Totals, Metadata),
        all: bool,
    ) -> anyhow::Result<Self> {
        let mut later = Vec::new();
        let mut loads = String::new();
        for part in parts {
            let hits = part.hits();
            let results = part.kept.results((&hits, part.loads.as_slice()), all);
            let following = results.following.iter();
            let following = following.map(|(id, hits)| (part.recorded(*id), *hits));
            recorder.counts(&following.collect::<Vec<_>>());
            let further = part.kept.described(info, clock)?;
            let placements = append_metadata(&mut described, &further, part.first_major)?;
            recorded.append(results.recorded.clone(), placements);
            later.push((results, further));
            let object = part.object.as_str();
            match part.loads.len() {
                1 => writeln!(loads, "{object} was loaded once.")?,
                times => writeln!(loads, "{object} was loaded {times} times.")?,
            }
            write!(loads, "{}", part.kept.planned.left_out)?;
        }
        if !parts.is_empty() {
            recorder.describe(described);
        }
        Ok(Self {
            results: later,
            loads,
            objects: parts.iter().map(|part| part.object.clone()).collect(),
        })
    }

    /// Returns the names of the objects, with those that were left alone.
    pub(crate) fn loaded(&self, left_alone: &BTreeSet<String>) -> BTreeSet<String> {
        let paths = self.objects.iter().chain(left_alone);
        // A reason is after the path.
        let names = paths.filter_map(|path| path.split(": ").next()?.rsplit('/').next());
        names.map(str::to_owned).collect()
    }

    /// Returns the lines about the objects, with those that were left alone.
    pub(crate) fn notes(&self, left_alone: &BTreeSet<String>) -> Result<String, std::fmt::Error> {
        let mut notes = self.loads.clone();
        for note in left_alone {
            writeln!(notes, "Not instrumented: {note}")?;
        }
        Ok(notes)
    }
}

impl Measurement {
    /// Counts until the end; records totals meanwhile.
    pub(crate) fn count(
        &self,
        process: FollowedProcess<'_, ProcessPlan>,
        plan: &ProcessPlan,
        info: &TargetInfo,
        (output, is_over): (Option<&Path>, &dyn Fn() -> bool),
    ) -> anyhow::Result<Counted> {
        let clock = Clock::from(clock());
        let described = plan.described(info, clock)?;
        let writer = output.map(|output| Writer::create(output, &described));
        let collector = writer.transpose()?.map(Collector::start).transpose()?;
        let printed = match output {
            Some(_) => None,
            None => LinePrinter::begin(&described, process.is_followed()),
        };
        let (listener, printer) = printed.unzip();
        let mut recorder = Recorder::new(collector, listener);
        let length = Duration::from_secs_f64(plan.planned.session.duration);
        let start = plan.planned.plan.plan();
        let pid = process.pid();
        let end = recorder.follow(process, start, length, is_over)?;
        let FollowedEnd {
            removed,
            parts,
            notes: not_instrumented,
            children,
        } = end;
        let words: BTreeMap<u64, u64> = removed.counts.iter().copied().collect();
        let results = plan.results((&words, std::slice::from_ref(&words)), self.all);
        recorder.counts(&results.following);
        let mut recorded = results.recorded;
        let later = LaterResults::of(
            &parts,
            (info, clock),
            (&mut recorder, &mut recorded, described.clone()),
            self.all,
        )?;
        let mut notes = plan.planned.left_out.clone() + &later.notes(&not_instrumented)?;
        let losses = recorder.losses();
        let stacks = recorder.kept_stacks().clone();
        let taken: u64 = losses.iter().map(|cpu| cpu.taken).sum();
        let lost: u64 = losses.iter().map(CpuLosses::lost).sum();
        recorder.finish(recorded)?;
        drop(recorder);
        if let Some(printer) = printer {
            printer.end();
        }
        let plans = std::iter::once(start).chain(parts.iter().map(|part| part.plan.plan()));
        let mut instruments = plans.flat_map(|plan| &plan.instruments);
        // One that has ended has no program.
        let executed = removed.ended && program_of(pid).is_ok();
        if executed {
            writeln!(notes, "The process has executed another program.")?;
        } else if removed.ended {
            writeln!(notes, "The process has ended.")?;
        } else {
            for sentence in &plan.staying {
                writeln!(notes, "{sentence}")?;
            }
        }
        if removed.reads_ended {
            writeln!(notes, "{READS_ENDED}")?;
        }
        write!(notes, "{}", supervisor::text(&removed.cleaned))?;
        if let Some(children) = &children {
            write!(notes, "{children}")?;
        }
        Ok(Counted {
            words,
            described,
            loaded: later.loaded(&not_instrumented),
            later: later.results,
            stacks,
            samples: instruments.any(samples).then_some((taken, lost)),
            executed,
            notes,
            stopped: Some(removed.cleaned.stopped),
        })
    }
}

/// Returns the report of processes that have counted in the same places, by the plan of one of them: the sums of their
/// counts, and the notes about each.
pub(crate) fn report(
    plan: &ProcessPlan,
    processes: &[(u32, &Counted)],
    all: bool,
) -> Result<String, std::fmt::Error> {
    let counted: Vec<&Counted> = processes.iter().map(|(_, counted)| *counted).collect();
    let words: Vec<BTreeMap<u64, u64>> = counted.iter().map(|one| one.words.clone()).collect();
    let instruments = plan.planned.plan.plan().instruments.iter();
    let counters = instruments.filter(|planned| planned.counter.is_some());
    let hits = counters.map(|planned| {
        let id = planned.id.pack();
        (id, words.iter().filter_map(|words| words.get(&id)).sum())
    });
    let hits: BTreeMap<u64, u64> = hits.collect();
    let results = plan.results((&hits, &words), all);
    let later = || counted.iter().flat_map(|one| &one.later);
    let mut further: HashMap<&str, u64> = HashMap::new();
    for (hits, label) in later().flat_map(|(later, _)| &later.lines) {
        *further.entry(label).or_default() += hits;
    }
    let lines = results.lines.iter();
    // A library that was mapped at the start, too, has the same counters.
    let mut lines: Vec<(u64, &str)> = lines
        .map(|(hits, label)| {
            let more = further.remove(label.as_str()).unwrap_or_default();
            (hits + more, label.as_str())
        })
        .collect();
    lines.extend(further.into_iter().map(|(label, hits)| (hits, label)));
    lines.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(other.1)));
    let mut report = String::new();
    for (hits, label) in &lines {
        writeln!(report, "{:>16}  {label}", scale::grouped(*hits))?;
    }
    let sampled = counted.iter().filter_map(|one| one.samples);
    let sampled = sampled.reduce(|one, other| (one.0 + other.0, one.1 + other.1));
    if let Some((taken, lost)) = sampled {
        let (taken, lost) = (scale::counted(taken, "sample"), scale::grouped(lost));
        writeln!(report, "{taken}, {lost} lost.")?;
    }
    let described = counted.first().map(|one| &one.described);
    let mut stacks = KeptStacks::default();
    for one in &counted {
        stacks.add(one.stacks.clone());
    }
    let limits = std::mem::take(&mut stacks.limits);
    let mut totals = String::new();
    for (shown, described) in described
        .map(|described| (&results.shown, described))
        .into_iter()
        .chain(later().map(|(later, described)| (&later.shown, described)))
    {
        let shown = Totals {
            stacks: stacks.clone(),
            ..shown.clone()
        };
        totals += &text(&shown, described, all);
        // What is said of all stacks is said once.
        stacks = stacks.without_incidents();
    }
    let is_empty = lines.is_empty() && totals.is_empty();
    if is_empty && sampled.is_none_or(|sampled| sampled == (0, 0)) && plan.measures() {
        writeln!(report, "No place was hit.")?;
    }
    report += &totals;
    for limit in &limits {
        writeln!(report, "{limit}")?;
    }
    let about = processes.iter();
    let about: Vec<_> = about.map(|(pid, one)| (*pid, one.notes.as_str())).collect();
    report += &notes(&about);
    let Some(stopped) = counted.iter().filter_map(|one| one.stopped).max() else {
        return Ok(report);
    };
    let stopped = scale::duration(stopped.as_secs_f64());
    let possessive = match counted.as_slice() {
        [_] => "Its",
        _ => "Their",
    };
    writeln!(
        report,
        "{possessive} threads were stopped for {stopped} at most."
    )?;
    Ok(report)
}

/// Returns the lines about executions of processes, each once; one that is not about all names its processes first.
fn notes(of: &[(u32, &str)]) -> String {
    let mut lines: Vec<(&str, BTreeSet<usize>)> = Vec::new();
    for (execution, (_, notes)) in of.iter().enumerate() {
        for line in notes.lines() {
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, owners)) => {
                    owners.insert(execution);
                }
                None => lines.push((line, [execution].into())),
            }
        }
    }
    let lines = lines.into_iter().map(|(line, owners)| {
        if owners.len() == of.len() {
            return format!("{line}\n");
        }
        let owners = owners.iter().filter_map(|&execution| of.get(execution));
        let owners: BTreeSet<u32> = owners.map(|(pid, _)| *pid).collect();
        let numbers: Vec<String> = owners.iter().map(u32::to_string).collect();
        let noun = if owners.len() == 1 {
            "Process"
        } else {
            "Processes"
        };
        format!("{noun} {}: {line}\n", numbers.join(", "))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_all_processes_is_shown_once_and_others_name_theirs() {
        let of = [(7, "a\nb\n"), (8, "a\n"), (9, "a\nb\nc\n"), (9, "a\n")];
        let expected = "a\nProcesses 7, 9: b\nProcess 9: c\n";
        assert_eq!(notes(&of), expected);
        assert_eq!(notes(&[(7, "a\nb\nb\n")]), "a\nb\n");
    }
}
