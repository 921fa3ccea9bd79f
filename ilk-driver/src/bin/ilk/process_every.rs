//! A measurement in every process that executes a program: in those of now, and in those that begin meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::process::{Client, LOOK, PATIENCE, ProgramFile, Supervisor, write_beside};

use crate::process::{Measured, Measurement};
use crate::process_count::report;
use crate::script::RecordingFile;

/// The measurement of a process, and the file of its recording.
struct OfProcess {
    measured: Measured,
    recording: PathBuf,
}

/// Processes that were not instrumented.
#[derive(Default)]
struct Missed {
    /// Since when each was tried.
    since: BTreeMap<Client, Instant>,
    /// Those that are left alone.
    left: BTreeSet<Client>,
    /// The number of those that had ended by then.
    ended: u64,
}

impl Missed {
    /// Notes that a process could not be instrumented. Returns whether it is left alone.
    fn add(&mut self, process: Client, error: &anyhow::Error, file: ProgramFile) -> bool {
        let since = *self.since.entry(process).or_insert_with(Instant::now);
        let lives = file.processes().is_ok_and(|all| all.contains(&process));
        if !lives {
            self.ended += 1;
            self.since.remove(&process);
        } else if since.elapsed() >= PATIENCE && self.left.insert(process) {
            note!("Process {} is not instrumented: {error:#}", process.pid);
        }
        self.left.contains(&process)
    }
}

impl Measurement {
    /// Measures in all processes that execute a program, to the end.
    ///
    /// # Errors
    /// The program is not found, no process was instrumented, or the recording cannot be written.
    pub(crate) fn of_every(&self, program: &Path) -> anyhow::Result<ExitCode> {
        ensure!(
            self.kernel.is_none() && self.save.is_none(),
            "A session of the kernel and a process, and a file of a session, are of one process: name it with -p."
        );
        let program = found(program)?;
        interrupt::watch();
        let mut supervisor = Supervisor::start()?;
        let folder = RecordingFile::new(None)?;
        let mut missed = Missed::default();
        let measured = self.in_all(&program, folder.path(), &mut missed)?;
        supervisor.dismiss();
        let name = program.display();
        if missed.ended > 0 {
            let ended = missed.ended;
            note!("{ended} processes of {name} had ended before they were instrumented.");
        }
        if measured.is_empty() {
            bail!("No process of {name} was instrumented.");
        }
        if let Some(output) = &self.output {
            let recordings = measured
                .iter()
                .map(|one| (one.measured.pid, one.recording.as_path()));
            write_beside(recordings, output)?;
        }
        let mut out = std::io::stdout().lock();
        for group in alike(&measured) {
            let numbers: BTreeSet<u32> = group.iter().map(|one| one.measured.pid).collect();
            let processes = match numbers.len() {
                1 => "1 process".to_owned(),
                many => format!("{many} processes"),
            };
            let executions = match group.len() {
                executions if executions == numbers.len() => String::new(),
                executions => format!(" ({executions} executions)"),
            };
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let numbers = numbers.join(", ");
            writeln!(out, "{processes} of {name}{executions}: {numbers}")?;
            let counted = group
                .iter()
                .map(|one| (one.measured.pid, &one.measured.counted));
            let counted: Vec<_> = counted.collect();
            if let Some(first) = group.first() {
                write!(out, "{}", report(&first.measured.plan, &counted, self.all)?)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Measures until Ctrl-C, or for the length of the measurement, each process in a thread of its own.
    fn in_all(
        &self,
        program: &Path,
        recordings: &Path,
        missed: &mut Missed,
    ) -> anyhow::Result<Vec<OfProcess>> {
        let begun = Instant::now();
        let over = self.length.map(Duration::from_secs_f64);
        let failed = AtomicBool::new(false);
        let is_over = || {
            let is_late = || over.is_some_and(|over| begun.elapsed() >= over);
            interrupt::arrived() || failed.load(Ordering::Relaxed) || is_late()
        };
        let file = ProgramFile::at(program)?;
        let mut all = Vec::new();
        let mut number = 0_u32;
        std::thread::scope(|scope| {
            let mut running: BTreeMap<Client, (PathBuf, ScopedJoinHandle<'_, _>)> = BTreeMap::new();
            let mut is_first = true;
            loop {
                let is_last = is_over();
                let processes = file.processes().inspect_err(|_| {
                    // Its threads end before this returns.
                    failed.store(true, Ordering::Relaxed);
                })?;
                for process in processes {
                    if is_last || running.contains_key(&process) || missed.left.contains(&process) {
                        continue;
                    }
                    number += 1;
                    let recording = recordings.with_file_name(format!("{number}.arrow"));
                    let output = self.output.as_ref().map(|_| recording.clone());
                    let is_over = &is_over;
                    let thread = scope.spawn(move || {
                        let output = (output.as_deref(), is_over as &dyn Fn() -> bool);
                        self.instrument_process(process.pid, None, None, output)
                    });
                    running.insert(process, (recording, thread));
                }
                if std::mem::take(&mut is_first) && running.is_empty() {
                    let name = program.display();
                    note!(
                        "No process executes {name} now; those that begin are instrumented. Ctrl-C ends."
                    );
                }
                let ended =
                    running.extract_if(.., |_, (_, thread)| is_last || thread.is_finished());
                let ended: Vec<_> = ended.collect();
                let mut is_left = false;
                for (process, (recording, thread)) in ended {
                    let measured = thread.join();
                    let failed = |_| Err(anyhow!("its thread has failed, which is a bug in gilk"));
                    match measured.unwrap_or_else(failed) {
                        Ok(measured) => all.push(OfProcess {
                            measured,
                            recording,
                        }),
                        Err(error) => is_left |= missed.add(process, &error, file),
                    }
                }
                // What keeps all of the start from being instrumented would keep others.
                if is_last || is_left && running.is_empty() && all.is_empty() {
                    return Ok(all);
                }
                std::thread::sleep(LOOK);
            }
        })
    }
}

/// The processes in groups, in each of which counts can be added.
fn alike(measured: &[OfProcess]) -> Vec<Vec<&OfProcess>> {
    let mut groups: Vec<Vec<&OfProcess>> = Vec::new();
    for one in measured {
        let counted = &one.measured.counted;
        let is_like = |group: &&mut Vec<&OfProcess>| {
            let first = group.first();
            first.is_some_and(|first| first.measured.counted.is_like(counted))
        };
        match groups.iter_mut().find(is_like) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// Returns the file of a program: a path, or a name that is found as a shell does.
fn found(program: &Path) -> anyhow::Result<PathBuf> {
    if program.components().count() > 1 || program.is_file() {
        let resolved = std::fs::canonicalize(program);
        return resolved.with_context(|| format!("{} is no program", program.display()));
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&search).map(|folder| folder.join(program));
    let path = all.find(|path| path.is_file());
    let path = path.with_context(|| format!("No folder of PATH has {}", program.display()))?;
    Ok(std::fs::canonicalize(path)?)
}
