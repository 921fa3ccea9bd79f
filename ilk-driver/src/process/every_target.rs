//! All processes of a program as the target of sessions: the objects of one of them are shown, and each session
//! instruments all, and those that begin until its end.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use gilk_samples::metadata::Clock;
use gilk_samples::recording::Writer;

use super::listener::Listeners;
use super::runs::{Course, in_parts, merged};
use super::{
    Client, EveryEnd, EveryNews, ProcessChoices, ProcessRun, ProcessTarget, ProgramFile, clock,
    in_every,
};
use crate::client::{Event, Summary, metadata};
use crate::{Error, Result};

/// All processes of a program.
#[derive(Debug)]
pub struct EveryTarget {
    shown: ProcessTarget,
    program: PathBuf,
    file: ProgramFile,
}

impl EveryTarget {
    /// Reads a process of a program, which is named by a path, or by a name as in a shell.
    ///
    /// # Errors
    /// As [`ProgramFile::find`]; [`Error::Target`] if no process executes the program; as [`ProcessTarget::open`] if none of
    /// them can be read.
    pub fn open(program: &Path) -> Result<Self> {
        let (program, file) = ProgramFile::find(program)?;
        let mut failed = Error::Target(format!(
            "No process executes {} now; start one first, whose functions are shown.",
            program.display()
        ));
        let mut newest = file.processes()?;
        newest.sort_by_key(|process| Reverse((process.started, process.pid)));
        for process in newest {
            match ProcessTarget::open(process.pid) {
                Ok(shown) => {
                    return Ok(Self {
                        shown,
                        program,
                        file,
                    });
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// The process that is shown.
    pub fn shown(&mut self) -> &mut ProcessTarget {
        &mut self.shown
    }

    /// Returns why the processes cannot be measured with choices for what they start, if so.
    #[must_use]
    pub fn refusal(choices: ProcessChoices) -> Option<&'static str> {
        (!choices.is_usual()).then_some(
            "All processes of a program are measured, and their forked children with them, in this program alone",
        )
    }

    /// Runs a session in all processes: plans it for each, and records until its end or `stop`. The plan of the run is for
    /// the process that is shown, and describes the session until the end.
    ///
    /// # Errors
    /// [`Error::Target`] if no process was instrumented, or with [choices](Self::refusal); [`Error::Recording`] if the
    /// recording cannot be written.
    pub fn run(&mut self, run: ProcessRun<'_>) -> Result<Summary> {
        if let Some(why) = Self::refusal(run.choices) {
            return Err(Error::Target(format!("{why}.")));
        }
        // An error in creating the file must show before the first splice.
        let described = metadata(
            run.plan.plan(),
            run.session,
            self.shown.info(),
            Clock::default(),
        )?;
        Writer::check(run.recording, &described).map_err(|source| Error::Recording { source })?;
        let summary = in_parts(run.recording, |folder| self.measured(run, folder))?;
        // A listener that has ended needs no events.
        let _no_listener = run.events.send(Event::Finished(Box::new(summary.clone())));
        Ok(summary)
    }

    fn measured(&mut self, run: ProcessRun<'_>, folder: &Path) -> Result<Summary> {
        let name = self.program.display().to_string();
        let begun = Instant::now();
        let length = Duration::from_secs_f64(run.session.duration);
        let is_over = || run.stop.is_stopped() || begun.elapsed() >= length;
        let clock = Clock::from(clock());
        // A listener that has ended needs no events.
        let _no_listener = run.events.send(Event::Started(clock));
        let leaves = AtomicBool::new(false);
        let listeners = Listeners::new(run.events, true);
        let measure = |process: Client, number: u32, is_over: &(dyn Fn() -> bool + Sync)| {
            let course = Course {
                run,
                is_over,
                leaves: &leaves,
                listeners: &listeners,
            };
            course.measured_next(process.pid, &folder.join(format!("{number}.arrow")))
        };
        let end = in_every(self.file, &is_over, &measure, &mut |news| {
            let line = match news {
                EveryNews::NoneNow => {
                    format!("No process executes {name} now; those that begin are instrumented.")
                }
                EveryNews::LeftAlone(process, error) => {
                    let error: &Error = error;
                    format!("Process {} is not instrumented: {error}", process.pid)
                }
            };
            let _no_listener = run.events.send(Event::Workload(line));
        });
        self.shown.leaves |= leaves.into_inner();
        let EveryEnd { measured, missed } = end?;
        let mut measured = measured.into_iter();
        let first = measured.next();
        let mut all = first
            .ok_or_else(|| Error::Target(format!("No process of {name} was instrumented.")))?;
        for next in measured {
            all.add(next);
        }
        let others = all.others.iter().map(|other| other.pid);
        let processes: BTreeSet<u32> = others.chain([all.first.pid]).collect();
        let mut ended = match processes.len() {
            1 => format!("1 process of {name} was measured."),
            many => format!("{many} processes of {name} were measured."),
        };
        if missed > 0 {
            ended += &format!(" {missed} had ended before they were instrumented.");
        }
        Ok(Summary {
            clock,
            ended,
            ..merged(all, run.recording)?
        })
    }
}
