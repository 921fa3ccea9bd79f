//! A measurement in every process that executes a program: in those of now, and in those that begin meanwhile.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use gilk_samples::chart::scale;
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::process::{
    Client, EveryEnd, EveryNews, ProgramFile, Supervisor, in_every, process_label, write_beside,
};

use crate::process::{Measured, Measurement};
use crate::process_count::report;
use crate::script::RecordingFile;

/// The measurement of a process, and the file of its recording.
struct OfProcess {
    measured: Measured,
    recording: PathBuf,
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
        let (program, file) = ProgramFile::find(program)?;
        interrupt::watch();
        let mut supervisor = Supervisor::start()?;
        let folder = RecordingFile::new(None)?;
        let EveryEnd { measured, missed } = self.in_all((&program, file), folder.path())?;
        supervisor.dismiss();
        let name = program.display();
        if missed > 0 {
            let missed = scale::counted(missed, "process");
            note!("Of {name}, {missed} had ended before the instrumentation.");
        }
        if measured.is_empty() {
            bail!("No process of {name} was instrumented.");
        }
        if let Some(output) = &self.output {
            let recordings = measured
                .iter()
                .map(|one| (process_label(one.measured.pid), one.recording.as_path()));
            write_beside(recordings, output)?;
        }
        let mut out = std::io::stdout().lock();
        for group in alike(&measured) {
            let numbers: BTreeSet<u32> = group.iter().map(|one| one.measured.pid).collect();
            let processes = scale::counted(numbers.len() as u64, "process");
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
        (program, file): (&Path, ProgramFile),
        recordings: &Path,
    ) -> anyhow::Result<EveryEnd<OfProcess>> {
        let begun = Instant::now();
        let over = self.length.map(Duration::from_secs_f64);
        let is_over = || interrupt::arrived() || over.is_some_and(|over| begun.elapsed() >= over);
        let measure = |process: Client, number: u32, is_over: &(dyn Fn() -> bool + Sync)| {
            let recording = recordings.with_file_name(format!("{number}.arrow"));
            let output = self.output.as_ref().map(|_| recording.as_path());
            let is_over: &dyn Fn() -> bool = is_over;
            let measured = self.instrument_process(process.pid, None, None, (output, is_over))?;
            Ok::<_, anyhow::Error>(OfProcess {
                measured,
                recording,
            })
        };
        in_every(file, &is_over, &measure, &mut |news| match news {
            EveryNews::NoneNow => {
                let name = program.display();
                note!(
                    "No process executes {name} now that you may trace; those that begin are instrumented. Ctrl-C ends."
                );
            }
            EveryNews::LeftAlone(process, error) => {
                note!("Process {} is not instrumented: {error:#}", process.pid);
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
