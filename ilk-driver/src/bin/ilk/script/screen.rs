//! The terminal's side of a script's run: events become totals, and totals become text.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use gilk_engine::{Addr, Image, VerifiedPlan};
use gilk_samples::Batch;
use gilk_samples::chart::scale::grouped;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::Clock;
use gilk_samples::record::ALL_CPUS;
use gilk_samples::texts::{LineReader, SampleTexts, Texts};
use gilk_samples::totals::{Total, TotalBucket, TotalRow, TotalValue, Totals};
use ilk_driver::client::{Event, StopFlag, Summary, texts};
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::script::{Place, Query, Script, Terminal, TerminalAction, time_of_day};

use crate::answer::{Answer, FRAMES, Printer, Row};
use crate::program;
use crate::progress::Progress;
use ilk_driver::possible::PossiblePlan;

/// Interval at which Ctrl-C is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Rows of `ilk top`.
const TOP: usize = 20;

/// The form of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// Rates, refreshed.
    Rates,
    /// Times in nanoseconds.
    Times,
    /// A line for each call, with its time and place.
    Calls,
}

/// The totals of a question, and their printing.
pub(super) struct Screen<'a> {
    image: &'a Image,
    plan: &'a VerifiedPlan,
    terminal: &'a Terminal,
    form: Form,
    stop: &'a StopFlag,
    pub(super) all: bool,
    /// Places by placement of the plan's session.
    places: Vec<&'a Place>,
    /// Places and aggregates of instruments that only count, by packed identifier.
    counters: BTreeMap<u64, (&'a Place, &'a str)>,
    /// Places of instruments that deliver samples.
    samples: BTreeMap<u64, &'a Place>,
    /// The last totals of counters.
    totals: BTreeMap<u64, u64>,
    aggregates: Vec<Total>,
    stacks: KeptStacks,
    /// Values at the last `clear`, by aggregate and place.
    cleared: BTreeMap<(String, Place), TotalValue>,
    clock: Option<Clock>,
    missed: u64,
    /// Texts of samples, and the names in them.
    texts: SampleTexts,
    lines: LineReader,
    named: Totals,
    /// Start of the program's measurement, and of the last interval of rates.
    begun: Option<Instant>,
    program: Option<(bool, String)>,
    progress: Progress,
}

impl<'a> Screen<'a> {
    pub(super) fn new(
        image: &'a Image,
        (query, planned): (&'a Query, &'a PossiblePlan),
        (script, form): (&'a Script, Form),
        stop: &'a StopFlag,
    ) -> Self {
        let kept = planned.kept.iter();
        let places: Vec<&Place> = kept.filter_map(|&index| query.places.get(index)).collect();
        let mut counters = BTreeMap::new();
        let mut samples = BTreeMap::new();
        for instrument in &planned.plan.plan().instruments {
            let Some(&place) = places.get(instrument.placement) else {
                debug_assert!(false, "an instrument has no place");
                continue;
            };
            match query.counters.get(&instrument.definition.name) {
                Some(name) if instrument.counter.is_some() => {
                    counters.insert(instrument.id.pack(), (place, name.as_str()));
                }
                _ => {
                    samples.insert(instrument.id.pack(), place);
                }
            }
        }
        Self {
            image,
            plan: &planned.plan,
            terminal: script.terminal(),
            form,
            stop,
            all: false,
            places,
            counters,
            samples,
            totals: BTreeMap::new(),
            aggregates: Vec::new(),
            stacks: KeptStacks::default(),
            cleared: BTreeMap::new(),
            clock: None,
            missed: 0,
            texts: texts(planned.plan.plan()),
            lines: LineReader::default(),
            named: Totals::default(),
            begun: None,
            program: None,
            progress: Progress::new(),
        }
    }

    /// Handles events until the run has ended.
    pub(super) fn watch(&mut self, events: &Receiver<Event>) {
        let seconds = self.terminal.intervals.iter();
        let mut due: Vec<(f64, Instant)> = seconds
            .map(|&(seconds, _)| (seconds, Instant::now()))
            .collect();
        let mut rates_due = Instant::now();
        loop {
            if interrupt::arrived() && !self.stop.is_stopped() {
                self.stop.stop();
            }
            match events.recv_timeout(POLL_INTERVAL) {
                Ok(event) => {
                    if self.event(event) {
                        let now = Instant::now();
                        rates_due = now + Duration::from_secs(1);
                        for (seconds, at) in &mut due {
                            *at = now + Duration::from_secs_f64(*seconds);
                        }
                        let terminal = self.terminal;
                        self.act(&terminal.begin);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.begun.is_none() || self.stop.is_stopped() {
                continue;
            }
            let now = Instant::now();
            let terminal = self.terminal;
            for ((seconds, at), (_, actions)) in due.iter_mut().zip(&terminal.intervals) {
                if now >= *at {
                    *at += Duration::from_secs_f64(*seconds);
                    self.act(actions);
                }
            }
            if self.form == Form::Rates && now >= rates_due && std::io::stdout().is_terminal() {
                rates_due += Duration::from_secs(1);
                self.refresh();
            }
        }
    }

    /// Handles an event; returns whether it is the first after which everything is in place.
    fn event(&mut self, event: Event) -> bool {
        match event {
            Event::Started(clock) => self.clock = Some(clock),
            Event::Switched(_) if self.begun.is_none() => {
                self.begun = Some(Instant::now());
                let plan = self.plan.plan();
                let (places, functions) = (self.places.len(), plan.functions.len());
                let noun = |count, noun: &str| match count {
                    1 => format!("1 {noun}"),
                    count => format!("{count} {noun}s"),
                };
                let (places, functions) = (noun(places, "placement"), noun(functions, "function"));
                self.progress
                    .print(&format!("{places} in {functions}. Ctrl-C ends and prints."));
                return true;
            }
            Event::Samples(batch) if batch.cpu == ALL_CPUS => {
                for sample in &batch.samples {
                    self.totals.insert(sample.id, sample.value);
                }
            }
            Event::Samples(batch) => self.print_samples(&batch),
            Event::Missed(samples) => self.missed += samples,
            Event::Aggregates(aggregates) => self.aggregates = aggregates,
            Event::Stacks(stacks) => {
                self.named.stacks.extend(stacks.clone());
                self.stacks.extend(stacks);
            }
            Event::Workload(line) => self.progress.print(&format!("program: {line}")),
            Event::Gap(gap) => self.progress.print(&gap.to_string()),
            Event::WorkloadEnded { success, status } => {
                self.program = Some((success, status));
                self.stop.stop();
            }
            _ => {}
        }
        false
    }

    fn print_samples(&mut self, batch: &Batch) {
        let Some(clock) = self.clock else {
            debug_assert!(false, "samples came before the clock");
            return;
        };
        let mut complete = Vec::new();
        for sample in &batch.samples {
            let Some((sample, words)) = self.lines.next(batch.cpu, sample, &self.texts) else {
                continue;
            };
            for address in self.texts.addresses(&sample, &words) {
                let name = self.image.named(Addr(address));
                self.named.symbols.extend(name.map(|name| (address, name)));
            }
            let text = self.texts.text(&sample, &words, &self.named);
            complete.push((sample, text));
        }
        let mut out = std::io::stdout().lock();
        let printer = self.printer(None);
        for (sample, text) in &complete {
            let Some(place) = self.samples.get(&sample.id) else {
                debug_assert!(false, "a sample is of no instrument");
                continue;
            };
            let is_line = matches!(self.texts.get(sample.id), Some(Texts::Lines(_)));
            if let Some(line) = text
                .as_ref()
                .filter(|_| is_line && self.form != Form::Calls)
            {
                let end = if line.ends_with('\n') { "" } else { "\n" };
                if write!(out, "{line}{end}").is_err() {
                    self.stop.stop();
                    return;
                }
                continue;
            }
            let value = match (text, self.texts.get(sample.id)) {
                (Some(text), Some(Texts::Lines(_) | Texts::Names(_))) => text.clone(),
                _ => printer.value(sample.value.cast_signed().into()),
            };
            let (at, cpu) = (clock.seconds(sample.tsc), batch.cpu);
            let mut frames = String::new();
            // Writing to a String cannot fail.
            let _infallible = self
                .stacks
                .write(&mut frames, [sample.value.into()], FRAMES);
            // A closed pipe ends the run, as Ctrl-C does.
            if write!(
                out,
                "{at:>12.6}  cpu {cpu:<3} {:<32} {value}\n{frames}",
                place.to_string()
            )
            .is_err()
            {
                self.stop.stop();
                return;
            }
        }
    }

    fn printer(&self, per: Option<f64>) -> Printer<'_> {
        Printer {
            image: self.image,
            stacks: &self.stacks,
            all: self.all,
            per,
            unit: if self.form == Form::Times { "ns" } else { "" },
        }
    }

    /// Returns all aggregates by name.
    fn answer(&self) -> Answer {
        let mut answer = Answer::new();
        for (id, (place, name)) in &self.counters {
            // A counter without a total is still zero: only changes are reported.
            let total = self.totals.get(id).copied().unwrap_or(0);
            let row = Row {
                place: (*place).clone(),
                value: TotalValue::Number(total.into()),
                may_be_zero: false,
            };
            answer.entry((*name).to_owned()).or_default().push(row);
        }
        for total in &self.aggregates {
            let Some(&place) = self.places.get(total.placement) else {
                debug_assert!(false, "an aggregate is of no placement");
                continue;
            };
            let row = Row {
                place: place.clone(),
                value: total.value.clone(),
                may_be_zero: total.may_be_zero,
            };
            answer.entry(total.name.clone()).or_default().push(row);
        }
        answer
    }

    /// Returns the aggregates since they were cleared.
    fn since_cleared(&self) -> Answer {
        let mut answer = self.answer();
        for (name, rows) in &mut answer {
            for row in rows {
                if let Some(base) = self.cleared.get(&(name.clone(), row.place.clone())) {
                    row.value = difference(&row.value, base);
                    // Whether values added up to 0 since then, or none came, is not known.
                    if row.may_be_zero && row.value == TotalValue::Number(0) {
                        row.value = TotalValue::Nothing;
                    }
                }
            }
        }
        answer
    }

    /// Prints text at once. A reader that is gone ends the run, as Ctrl-C does.
    fn print(&self, text: std::fmt::Arguments<'_>) {
        let mut out = std::io::stdout().lock();
        if out.write_fmt(text).and_then(|()| out.flush()).is_err() {
            self.stop.stop();
        }
    }

    fn act(&mut self, actions: &[TerminalAction]) {
        for action in actions {
            match action {
                TerminalAction::Text(text) => {
                    let end = if text.ends_with('\n') { "" } else { "\n" };
                    self.print(format_args!("{text}{end}"));
                }
                TerminalAction::Time(format) => {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH);
                    let now = now.map_or(0, |since| since.as_secs());
                    let time = time_of_day(format, now).unwrap_or_default();
                    self.print(format_args!("{time}"));
                }
                TerminalAction::Print(name) => {
                    let answer = self.since_cleared();
                    let rows = answer.get(name).map(Vec::as_slice).unwrap_or_default();
                    let text = self.printer(None).aggregate(name, rows);
                    self.print(format_args!("{text}"));
                }
                TerminalAction::Clear(name) => {
                    for (of, rows) in self.answer() {
                        if of == *name {
                            let rows = rows.into_iter();
                            let rows = rows.map(|row| ((of.clone(), row.place), row.value));
                            self.cleared.extend(rows);
                        }
                    }
                }
                TerminalAction::Exit => self.stop.stop(),
            }
        }
    }

    /// Shows the rates of the last second.
    fn refresh(&mut self) {
        let seconds = self
            .begun
            .map_or(1.0, |begun| begun.elapsed().as_secs_f64());
        let mut answer = self.since_cleared();
        for rows in answer.values_mut() {
            rows.sort_by_key(|row| match row.value {
                TotalValue::Number(number) => std::cmp::Reverse(number),
                _ => std::cmp::Reverse(0),
            });
            rows.truncate(TOP);
        }
        let text = self.printer(Some(seconds)).text(&answer);
        self.begun = Some(Instant::now());
        let clear = TerminalAction::Clear("calls".to_owned());
        self.act(&[clear]);
        self.print(format_args!("\x1b[H\x1b[2J{text}"));
    }

    /// Prints the answer.
    pub(super) fn finish(&mut self, summary: &Summary) -> anyhow::Result<()> {
        self.progress.clear();
        for instrument in &summary.instruments {
            if let Some(total) = instrument.total {
                self.totals.insert(instrument.id, total);
            }
        }
        self.aggregates.clone_from(&summary.aggregates);
        self.stacks.clone_from(&summary.stacks);
        let terminal = self.terminal;
        if terminal.has_end {
            self.act(&terminal.end);
        } else if self.form == Form::Rates {
            let switches = &summary.switches;
            let begun = switches.first().map_or(0.0, |switch| switch.done);
            let ended = switches.last().map_or(0.0, |switch| switch.begun);
            self.cleared.clear();
            let per = (ended > begun).then_some(ended - begun);
            write!(
                std::io::stdout(),
                "{}",
                self.printer(per).text(&self.answer())
            )?;
        } else if terminal.intervals.is_empty() {
            write!(
                std::io::stdout(),
                "{}",
                self.printer(None).text(&self.answer())
            )?;
        }
        Ok(std::io::stdout().flush()?)
    }

    /// Reports losses and the end of the program; returns the exit status.
    pub(super) fn status(
        &self,
        summary: &Summary,
        recording: &Path,
        keeps: bool,
    ) -> anyhow::Result<ExitCode> {
        let lost = summary.lost_by_cause().lost();
        let failed: u64 = summary.failed_reads.iter().map(|one| one.count).sum();
        let full: u64 = summary.no_room.iter().map(|one| one.count).sum();
        for (count, what) in [
            (lost, "hits were lost, because a buffer was full"),
            (
                self.missed,
                "samples were too fast to be printed; keep them with -o",
            ),
            (failed, "reads of memory failed and yielded 0"),
            (
                full,
                "values of variables were lost, because their table was full",
            ),
            (summary.stacks.lost, KeptStacks::LOST),
            (summary.stacks.unnamed(), KeptStacks::UNNAMED),
            (
                summary.missing,
                "samples did not arrive, which is a bug in gilk",
            ),
        ] {
            if count > 0 {
                note!("{} {what}.", grouped(count));
            }
        }
        if keeps {
            note!("The recording is {}.", recording.display());
        }
        match (&self.program, &summary.workload) {
            (Some((true, _)), _) | (None, None) => Ok(ExitCode::SUCCESS),
            (Some((false, status)), _) => {
                note!("The program ended: {status}.");
                Ok(program::exit(status))
            }
            (None, Some(state)) => {
                note!("The program: {state}.");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Returns the part of a running total that was added after `base`.
fn difference(value: &TotalValue, base: &TotalValue) -> TotalValue {
    match (value, base) {
        (TotalValue::Number(now), TotalValue::Number(base)) => TotalValue::Number(now - base),
        (TotalValue::Buckets(now), TotalValue::Buckets(base)) => {
            let buckets = now.iter().zip(base).map(|(now, base)| TotalBucket {
                count: now.count.saturating_sub(base.count),
                ..*now
            });
            TotalValue::Buckets(buckets.collect())
        }
        (TotalValue::Values(now, others), TotalValue::Values(base, base_others)) => {
            let base: BTreeMap<i128, u64> = base.iter().copied().collect();
            let values = now.iter().map(|&(value, count)| {
                let before = base.get(&value).copied().unwrap_or(0);
                (value, count.saturating_sub(before))
            });
            let values = values.filter(|&(_, count)| count > 0).collect();
            TotalValue::Values(values, others.saturating_sub(*base_others))
        }
        (TotalValue::Map(now, others), TotalValue::Map(base, base_others)) => {
            let rows = now.iter().map(|row| {
                let before = base.iter().find(|before| before.key == row.key);
                TotalRow {
                    key: row.key.clone(),
                    value: before.map_or_else(
                        || row.value.clone(),
                        |before| difference(&row.value, &before.value),
                    ),
                }
            });
            // A key without new values is left out, a sum of 0 too.
            let mut rows: Vec<TotalRow> = rows.filter(|row| row.value.hits() > 0).collect();
            TotalRow::sort(&mut rows);
            TotalValue::Map(rows, others.saturating_sub(*base_others))
        }
        // Parsing refuses to clear the others.
        (value, _) => value.clone(),
    }
}
