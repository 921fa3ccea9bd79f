//! The measurements of a process in the programs that it executes, one after the other.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ilk_driver::interrupt;
use ilk_driver::note;
use ilk_driver::process::{
    Children, Client, Exec, StartedProgram, Supervisor, executions, process_label, write_beside,
};

use crate::process::{Measured, Measurement, ended};
use crate::script::RecordingFile;

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
            let children =
                children.map(|child| (process_label(child.pid), child.recording.as_path()));
            std::iter::once((process_label(pid), recording.as_path())).chain(children)
        });
        write_beside(recordings, output)?;
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
            if all.iter().any(|(measured, _)| measured.counted.executed) {
                note!(
                    "ilk: Process {pid} has executed another program. With --exec follows, that is measured, too."
                );
            }
            return Ok(all);
        }
        let next = executions(
            process,
            &is_over,
            |number| {
                let name = format!("{number}.arrow");
                let output = output.map(|output| output.with_file_name(name));
                let about = (output.as_deref(), &is_over as &dyn Fn() -> bool);
                let measured = self.instrument_process(pid, None, None, about)?;
                Ok((measured, output.unwrap_or_default()))
            },
            |error: anyhow::Error| {
                note!(
                    "Process {pid} is not instrumented in the program that it executes now: {error:#}"
                );
            },
        );
        all.extend(next);
        Ok(all)
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
