//! The executions of `ilk clone` in the cache: those of a process, of the programs that it executes one after the other,
//! and of its children.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use ilk_driver::process::{
    Announced, CHILD_LEFT, CachedChildren, CloneEnd, CloneNews, CloneOptions, CloneReport, Exec,
    HeldProcess, OUTSIDE, ReadImages, StartedProgram, StoppedProgram, execute_in_cache, live_pause,
    process_label, program_of, ready, recorded_so_far, replace_live, write_beside,
};
use ilk_driver::{interrupt, note};

use crate::clone::Clone;
use crate::clone_instruments::{CacheSession, CacheWork};
use crate::script::RecordingFile;

/// Executions with the choices of a command.
pub(crate) struct CacheExecutions<'c> {
    command: &'c Clone,
    options: &'c CloneOptions,
    work: Option<&'c CacheWork>,
    begun: Instant,
    /// A folder of recordings, which are written as one at the end, if there may be several.
    several: Option<RecordingFile>,
    /// Recordings by when their executions began; those that were not written are removed.
    recordings: Mutex<Vec<Option<PartRecording>>>,
    /// The earliest moment of the next recording of all up to now; none if one could not be written.
    next_live: Mutex<Option<Instant>>,
    images: ReadImages,
    /// Held while the results of one are printed.
    printing: Mutex<()>,
}

/// A recording among those of several.
struct PartRecording {
    name: String,
    file: PathBuf,
    /// The execution has ended, and the file is whole.
    is_whole: bool,
}

impl PartRecording {
    /// The file that it has in the course of the execution.
    fn live(&self) -> PathBuf {
        live(&self.file)
    }

    /// Its name, and the file with the most, if there is one.
    fn up_to_now(&self) -> Option<(String, PathBuf)> {
        let file = match self.is_whole {
            true => self.file.clone(),
            false => Some(self.live()).filter(|live| live.exists())?,
        };
        Some((self.name.clone(), file))
    }
}

/// A recording of an execution: its file, and its number among those of several.
type RecordingPlace = (PathBuf, Option<usize>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'c> CacheExecutions<'c> {
    pub(crate) fn new(
        command: &'c Clone,
        options: &'c CloneOptions,
        work: Option<&'c CacheWork>,
    ) -> anyhow::Result<Self> {
        let several = command.output.as_ref().filter(|_| may_be_several(command));
        Ok(Self {
            command,
            options,
            work,
            begun: Instant::now(),
            several: several.map(|_| RecordingFile::new(None)).transpose()?,
            recordings: Mutex::default(),
            next_live: Mutex::new(Some(Instant::now())),
            images: ReadImages::default(),
            printing: Mutex::default(),
        })
    }

    /// Executes a process, and what is to follow it, in the cache, and shows and records what was counted. Returns the
    /// last end of the process.
    pub(crate) fn execute(
        self,
        pid: u32,
        launched: Option<&mut StartedProgram>,
    ) -> anyhow::Result<CloneEnd> {
        if let (Some(_), Some(program)) = (self.work, &launched) {
            program.check_registered()?;
        }
        let held = launched.map(|program| program as &mut dyn StoppedProgram);
        let end = std::thread::scope(|scope| self.executions(pid, held, scope));
        if let (Some(live), Some(_)) = (&self.options.live, &self.several) {
            // There is none if none was written.
            let _none = std::fs::remove_file(live);
        }
        match (end, self.write_recordings()) {
            (Ok(end), written) => written.map(|_| end),
            (Err(error), Ok(None)) => Err(error),
            (Err(error), Ok(Some(output))) => {
                note!("ilk: The others are recorded in {}.", output.display());
                Err(error)
            }
            (Err(error), Err(unwritten)) => {
                note!("ilk: The others are not recorded: {unwritten:#}");
                Err(error)
            }
        }
    }

    /// Writes the recordings of all executions as one, if there may be several; returns its file. There is none if no
    /// execution was recorded.
    fn write_recordings(&self) -> anyhow::Result<Option<&Path>> {
        let (Some(output), Some(_)) = (&self.command.output, &self.several) else {
            return Ok(None);
        };
        let recordings = lock(&self.recordings);
        if recordings.iter().flatten().next().is_none() {
            return Ok(None);
        }
        let parts = recordings.iter().flatten();
        write_beside(
            parts.map(|part| (part.name.clone(), part.file.as_path())),
            output,
        )?;
        Ok(Some(output))
    }

    /// Writes the recordings of all executions up to now as one, unless that was done a moment ago.
    fn write_live(&self) {
        let Some(live) = &self.options.live else {
            debug_assert!(false, "an execution was recorded up to now without request");
            return;
        };
        // Another execution's is being written.
        let Ok(mut next) = self.next_live.try_lock() else {
            return;
        };
        let begun = Instant::now();
        if next.is_none_or(|next| begun < next) {
            return;
        }
        let recordings = lock(&self.recordings);
        let parts = recordings.iter().flatten();
        let parts: Vec<_> = parts.filter_map(PartRecording::up_to_now).collect();
        drop(recordings);
        let new = live.with_added_extension("part");
        let written = write_beside(
            parts
                .iter()
                .map(|(name, file)| (name.clone(), file.as_path())),
            &new,
        );
        match written.and_then(|_| replace_live(&new, live)) {
            Ok(()) => {
                note!("ilk: {}", recorded_so_far(live));
                *next = Some(Instant::now() + live_pause(begun.elapsed()));
            }
            Err(error) => {
                not_recorded(&error);
                *next = None;
            }
        }
    }

    /// Executes a process in one program after the other, and its children each in a thread of its own.
    fn executions<'s>(
        &'s self,
        pid: u32,
        held: Option<&mut dyn StoppedProgram>,
        scope: &'s Scope<'s, '_>,
    ) -> anyhow::Result<CloneEnd> {
        let mut report = self.execution(pid, held, scope)?;
        while let Some(next) = report.next.take() {
            let is_over = self.left().is_some_and(|left| left.is_zero());
            if interrupt::arrived() || is_over {
                break;
            }
            let executed = next.map_err(anyhow::Error::from).and_then(|mut next| {
                self.check_registered(&next)?;
                self.execution(pid, Some(&mut next), scope)
            });
            match executed {
                Ok(executed) => report = executed,
                Err(error) => {
                    note!("ilk: Process {pid}{OUTSIDE}{error:#}");
                    break;
                }
            }
        }
        Ok(report.end)
    }

    /// The time that is left for all.
    fn left(&self) -> Option<Duration> {
        let length = self.options.length;
        length.map(|length| length.saturating_sub(self.begun.elapsed()))
    }

    /// Executes a child until its end.
    fn child<'s>(&'s self, child: ilk_driver::Result<HeldProcess>, scope: &'s Scope<'s, '_>) {
        let left_alone = |error: anyhow::Error| {
            note!("ilk: {CHILD_LEFT}{error:#}");
        };
        let mut child = match child {
            Ok(child) => child,
            Err(error) => return left_alone(error.into()),
        };
        scope.spawn(move || {
            let checked = self.check_registered(&child);
            let pid = child.pid();
            let executed = checked.and_then(|()| self.executions(pid, Some(&mut child), scope));
            if let Err(error) = executed {
                left_alone(error);
            }
        });
    }

    /// Refuses instruments in a program that does not register for restartable sequences in time.
    fn check_registered(&self, held: &HeldProcess) -> anyhow::Result<()> {
        if self.work.is_some() {
            held.check_registered()?;
        }
        Ok(())
    }

    /// Executes a process in one program, and shows and records what was counted.
    fn execution<'s>(
        &'s self,
        pid: u32,
        held: Option<&mut dyn StoppedProgram>,
        scope: &'s Scope<'s, '_>,
    ) -> anyhow::Result<CloneReport> {
        let command = self.command;
        let program = executable(pid);
        let place = self.place(pid, &program);
        let number = place.as_ref().and_then(|(_, number)| *number);
        let news = |news: CloneNews<'_>| match news {
            CloneNews::Begun => {
                self.announce(number, false);
                if command.pid == Some(pid) {
                    note!("ilk: {} Ctrl-C lets the process go.", ready(pid));
                }
            }
            CloneNews::Recorded(_) if self.several.is_some() => self.write_live(),
            CloneNews::Recorded(path) => note!("ilk: {}", recorded_so_far(path)),
            CloneNews::NotRecorded(error) => not_recorded(error),
            CloneNews::Child(child) => self.child(child, scope),
        };
        let output = place.as_ref().map(|(file, _)| file.as_path());
        let executed = self.executed((pid, &program), held, output, &news);
        self.announce(number, true);
        if let Some(number) = number
            && let Some(recording) = lock(&self.recordings).get_mut(number)
        {
            match (&executed, recording.as_mut()) {
                (Ok(_), Some(part)) => part.is_whole = true,
                _ => *recording = None,
            }
        }
        executed
    }

    /// Announces that a recording has begun, or is whole or given up, if that is requested.
    fn announce(&self, number: Option<usize>, has_ended: bool) {
        let Some(index) = number.filter(|_| self.command.announce) else {
            return;
        };
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let recordings = lock(&self.recordings);
        let part = recordings.get(index).and_then(Option::as_ref);
        let announced = match (has_ended, part) {
            (true, _) => Announced::Ended { number },
            (false, Some(part)) => Announced::Begun {
                number,
                name: part.name.clone(),
                file: part.file.clone(),
            },
            (false, None) => return,
        };
        let written = serde_json::to_string(&announced)
            .map_err(std::io::Error::from)
            .and_then(|line| writeln!(std::io::stdout(), "{line}"));
        if let Err(error) = written {
            note!("ilk: A recording cannot be announced: {error}");
        }
    }

    /// The place of the recording of an execution that begins.
    fn place(&self, pid: u32, program: &str) -> Option<RecordingPlace> {
        let output = self.command.output.as_ref()?;
        let Some(several) = &self.several else {
            return Some((output.clone(), None));
        };
        let name = program.rsplit('/').next().unwrap_or(program);
        let mut recordings = lock(&self.recordings);
        let number = recordings.len();
        let file = several.path().with_file_name(format!("{number}.arrow"));
        recordings.push(Some(PartRecording {
            name: format!("{} {name}", process_label(pid)),
            file: file.clone(),
            is_whole: false,
        }));
        Some((file, Some(number)))
    }

    fn executed(
        &self,
        (pid, program): (u32, &str),
        held: Option<&mut dyn StoppedProgram>,
        output: Option<&Path>,
        news: &(dyn Fn(CloneNews<'_>) + Sync),
    ) -> anyhow::Result<CloneReport> {
        let command = self.command;
        let several = output.filter(|_| self.several.is_some());
        let of_all = self.options.live.clone();
        let options = CloneOptions {
            length: self.left(),
            live: match several {
                Some(file) => of_all.map(|_| live(file)),
                None => of_all,
            },
            // That of an execution which has ended is used until its recording is whole.
            live_stays: several.is_some(),
            ..self.options.clone()
        };
        let begun = self.work.map(|work| work.begin(pid, output));
        let (instruments, mut results) = begun.transpose()?.map(CacheSession::split).unzip();
        let taken = results.as_mut().zip(instruments);
        let mut report = execute_in_cache(
            pid,
            held,
            &options,
            taken.map(|(results, instruments)| results.taking(instruments)),
            news,
        )?;
        let _printing = lock(&self.printing);
        if may_be_several(command) {
            note!("Process {pid}, {program}:");
        }
        command.show(pid, &mut report);
        report.reuse(&self.images);
        let counted = output.filter(|_| command.count);
        let recorded = match results {
            None => counted.map(|output| report.record(output)),
            Some(results) => {
                results.finish(&mut report, command.all)?;
                counted.map(|output| report.record_beside(output))
            }
        };
        if let Some(mut recorded) = recorded.transpose()? {
            if let Some(output) = &command.output {
                recorded.summary.path.clone_from(output);
            }
            command.show_recorded(&recorded);
        }
        Ok(report)
    }
}

/// Returns the file of a recording up to now.
pub(crate) fn live(recording: &Path) -> PathBuf {
    recording.with_added_extension("live")
}

fn not_recorded(error: &ilk_driver::Error) {
    note!("ilk: The recording up to now is not written: {error}");
}

/// Returns whether a command may have more than one execution.
fn may_be_several(command: &Clone) -> bool {
    command.exec == Exec::Follows || command.children == CachedChildren::Own
}

/// The path of the program that a process executes.
fn executable(pid: u32) -> String {
    program_of(pid).map_or_else(|error| error.to_string(), |path| path.display().to_string())
}
