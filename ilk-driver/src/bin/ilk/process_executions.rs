//! The choice of what follows when an instrumented process executes another program, and its measurements in one after the
//! other.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::process::{Client, StartedProgram, Supervisor};

use crate::process::{Measured, Measurement, ended};
use crate::process_children::Children;
use crate::process_every::{LOOK, PATIENCE, beside};
use crate::script::RecordingFile;

/// The fate of the measurement of a process that executes another program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Exec {
    /// It ends.
    #[default]
    Ends,
    /// It is made in that program, too.
    Follows,
}

impl Measurement {
    /// Instruments a process, without the kernel, until the end.
    pub(crate) fn instrument_alone(
        &self,
        pid: u32,
        mut started: Option<(&mut StartedProgram, &mut Supervisor)>,
    ) -> anyhow::Result<ExitCode> {
        let is_one = self.children != Children::Own && self.exec == Exec::Ends;
        let (Some(output), false) = (&self.output, is_one) else {
            let measured = self.executions(pid, &mut started, self.output.as_deref())?;
            return self.shown(&measured, started);
        };
        let folder = RecordingFile::new(None)?;
        let measured = self.executions(pid, &mut started, Some(folder.path()))?;
        let recordings = measured.iter().flat_map(|(measured, recording)| {
            let children = measured.children.iter();
            let children = children.map(|child| (child.pid, child.recording.as_path()));
            std::iter::once((pid, recording.as_path())).chain(children)
        });
        beside(recordings, output)?;
        self.shown(&measured, started)
    }

    /// Measures in the program of a process, and in those that it executes after it, if it is followed. Returns each with
    /// its recording.
    fn executions(
        &self,
        pid: u32,
        started: &mut Option<(&mut StartedProgram, &mut Supervisor)>,
        output: Option<&Path>,
    ) -> anyhow::Result<Vec<(Measured, PathBuf)>> {
        let process = Client::of(pid)?;
        let begun = Instant::now();
        let length = self.length.map(Duration::from_secs_f64);
        let is_over =
            || interrupt::arrived() || length.is_some_and(|length| begun.elapsed() >= length);
        let program = started
            .as_mut()
            .map(|(started, supervisor)| (&mut **started, &mut **supervisor));
        let recording = output.map_or_else(PathBuf::new, Path::to_path_buf);
        let first = self.instrument_process(pid, program, None, (output, &interrupt::arrived))?;
        let mut all = vec![(first, recording)];
        if self.exec == Exec::Ends {
            return Ok(all);
        }
        loop {
            let name = format!("{}.arrow", all.len());
            let output = output.map(|output| output.with_file_name(name));
            match self.next_execution(process, output.as_deref(), &is_over) {
                Some(next) => all.push((next, output.unwrap_or_default())),
                None => return Ok(all),
            }
        }
    }

    /// Measures in the program that a process executes now, as soon as it can be instrumented; `None` if the process has
    /// ended by then.
    fn next_execution(
        &self,
        process: Client,
        output: Option<&Path>,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Measured> {
        let (begun, mut is_noted) = (Instant::now(), false);
        let mut tried = begun;
        while process.is_alive() && !is_over() {
            // A program that cannot be instrumented may execute another.
            let interval = if is_noted { PATIENCE } else { LOOK };
            if tried.elapsed() >= interval || tried == begun {
                let measured = self.instrument_process(process.pid, None, None, (output, is_over));
                tried = Instant::now();
                match measured {
                    Ok(measured) => return Some(measured),
                    // One that begins is not ready at first.
                    Err(error) if !is_noted && begun.elapsed() >= PATIENCE => {
                        is_noted = true;
                        let pid = process.pid;
                        note!(
                            "Process {pid} is not instrumented in the program that it executes now: {error:#}"
                        );
                    }
                    Err(_) => {}
                }
            }
            std::thread::sleep(LOOK);
        }
        None
    }

    /// Prints the results of all executions; returns the exit status of the command.
    fn shown(
        &self,
        measured: &[(Measured, PathBuf)],
        started: Option<(&mut StartedProgram, &mut Supervisor)>,
    ) -> anyhow::Result<ExitCode> {
        let status = started.map(|(started, _)| started.wait()).transpose()?;
        for (number, (measured, _)) in measured.iter().enumerate() {
            if number > 0 {
                writeln!(std::io::stdout(), "After it executed a program:")?;
            }
            measured.print(self.all)?;
        }
        ended(status)
    }
}
