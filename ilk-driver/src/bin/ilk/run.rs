//! `ilk run`: the execution of a session.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, unbounded};
use gilk_engine::{Image, Session};
use gilk_instruments::Library;
use gilk_samples::chart::{scale, totals};
use gilk_samples::metadata::Metadata;
use gilk_samples::output::{Contents, Goals};
use gilk_samples::recording::Recording;
use gilk_samples::totals::Totals;
use ilk_driver::client::{
    Connection, CpuLosses, Event, Participant, Prediction, StopFlag, Summary, counting, together,
};
use ilk_driver::interrupt;
use ilk_driver::possible::PossiblePlan;
use ilk_driver::process::{Children, Exec};

use crate::kernel_side::{KernelSide, KernelWork};
use crate::output::Force;
use crate::plan::Strict;
use crate::process::{Measurement, Work};
use crate::progress::Progress;
use crate::script::RecordingFile;
use crate::{plan, program, show, target};

/// Interval at which Ctrl-C is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Run a session and record it. Ctrl-C removes every splice and ends the recording properly.
///
/// With -p it is run in a process of this machine, and with a program after `--` in that: its functions are those of
/// the program, `main`, and of its libraries, `libc.so.6:malloc`. Neither needs the kernel's module; `ilk process`
/// does the same for functions and scripts from the command line. A session of a process and its kernel (`ilk process
/// --kernel … --save FILE`) is run in both at once, and recorded on one timeline; the kernel's part is hit by that
/// process only, and needs the agent of this machine (at --socket, if it is not the usual one).
///
/// With several machines after --target, it begins on all of them at the same moment, writes a
/// recording per machine to the folder --output, and shows all of them on one timeline.
#[derive(Args)]
pub(crate) struct Run {
    /// The session's file.
    session: PathBuf,
    /// The recording to write; for several machines, the folder.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write a picture of the recording to this file.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Show instruments without hits, too.
    #[arg(long)]
    all: bool,
    /// Count the hits of the session's hooks for so many seconds first, with its program, and compare the cost that
    /// they predict with that of the hits that the session has.
    #[arg(long, value_name = "SECONDS")]
    predict: Option<f64>,
    #[command(flatten)]
    force: Force,
    #[command(flatten)]
    natives: plan::Natives,
    #[command(flatten)]
    strict: plan::Strict,
    #[command(flatten)]
    target: target::TargetArgs,
    /// The process, in place of a kernel.
    #[arg(short = 'p', long, value_name = "PID", conflicts_with_all = ["lab", "target"])]
    pid: Option<u32>,
    /// Every process that executes this program, a path or a name, in place of a kernel: those of now, and those that
    /// begin meanwhile.
    #[arg(short = 'x', long, value_name = "PROGRAM", conflicts_with_all = ["pid", "program", "lab", "target"])]
    executable: Option<PathBuf>,
    /// The children that the process forks: `shared`, they count with it; `clean`, everything is removed from each
    /// before it executes an instruction; or `own`, each has counts of its own, and lanes in the recording.
    #[arg(long, value_name = "CHOICE", conflicts_with = "executable")]
    children: Option<Children>,
    /// The session of a process that executes another program: it `ends`, or `follows`, and is run in that program, too,
    /// once its libraries are loaded.
    #[arg(long, value_name = "CHOICE", conflicts_with = "executable")]
    exec: Option<Exec>,
    /// The program to start with its arguments, in place of a kernel: instrumented from its entry on. Its exit status is
    /// the command's.
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = ["pid", "lab", "target"])]
    program: Vec<String>,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut goals = self.force.goals().reads(&self.session);
        for native in self.natives.files() {
            goals = goals.reads(native);
        }
        if let Some(png) = &self.png {
            goals.goal(png, Contents::Other)?;
        }
        interrupt::watch();
        let several = self.target.is_several();
        let contents = match several {
            true => Contents::Folder,
            false => Contents::Recording,
        };
        goals.goal(&self.output, contents)?;
        let session = plan::open(&self.session)?;
        let library = self.natives.library()?;
        if self.pid.is_some() || self.executable.is_some() || !self.program.is_empty() {
            ensure!(
                self.predict.is_none(),
                "--predict is for a kernel; leave it out for a process"
            );
            plan::without_program(&session, &self.session)?;
            return self.in_process(session, library);
        }
        ensure!(
            self.exec.is_none(),
            "--exec is for a process, which may execute another program: name it with -p, or a program after --"
        );
        ensure!(
            self.children.is_none(),
            "--children is for a process, whose children are forked with its instruments: name it with -p, or a program \
             after --"
        );
        ensure!(
            session.kernel.is_none(),
            "{} is of a process and its kernel: name the process with -p, or a program after --.",
            self.session.display()
        );
        if several {
            ensure!(
                self.predict.is_none(),
                "--predict is for one machine; name one target"
            );
            return self.run_together(&session, &library, goals);
        }
        let mut connected = self.target.connect()?;
        let connection = &mut connected.connection;
        let (image, planned) = prepare(connection, &session, &library, self.strict)?;
        let (plan, session) = (&planned.plan, &planned.session);
        if let Some(seconds) = self.predict {
            let prediction = self.predicted(connection, &image, &planned, seconds)?;
            connection.compare_with(prediction);
        }
        let (summary, status) = run_watched(session, &self.output, |events, stop| {
            connection.run(plan, session, &self.output, events, stop)
        })?;
        let paths = std::slice::from_ref(&self.output);
        let metadata = show::draw(paths, self.png.as_deref(), self.all)?;
        print(&summary, &metadata, self.all)?;
        write!(std::io::stdout(), "{}", planned.left_out)?;
        Ok(status)
    }

    /// Counts the hits of a session's hooks.
    fn predicted(
        &self,
        connection: &mut Connection,
        image: &Image,
        planned: &PossiblePlan,
        seconds: f64,
    ) -> anyhow::Result<Prediction> {
        ensure!(
            seconds.is_finite() && seconds > 0.0,
            "--predict takes the seconds to count for, more than 0"
        );
        let session = counting(planned.plan.plan(), &planned.session, seconds);
        let library = Library::builtin()?;
        let layout = &connection.info().layout;
        let planned = self.strict.planned(image, &session, &library, layout)?;
        let recording = RecordingFile::new(None)?;
        let (summary, _) = run_watched(&planned.session, recording.path(), |events, stop| {
            let (plan, session) = (&planned.plan, &planned.session);
            connection.run(plan, session, recording.path(), events, stop)
        })?;
        Ok(Prediction::of(planned.plan.plan(), &summary, seconds))
    }

    /// Runs the session in a process.
    fn in_process(self, session: Session, library: Library) -> anyhow::Result<ExitCode> {
        let socket = self.target.socket().map(Path::to_path_buf);
        let kernel = session.of_kernel().map(|session| KernelSide {
            work: KernelWork::Session(session),
            socket: socket.clone(),
            library: library.clone(),
        });
        ensure!(
            kernel.is_some() || socket.is_none(),
            "{} has no kernel's part, so that no agent takes part; leave out --socket.",
            self.session.display()
        );
        let measurement = Measurement {
            replaced: Vec::new(),
            children: self.children.unwrap_or_default(),
            exec: self.exec.unwrap_or_default(),
            length: Some(session.duration),
            work: Work::Session(session),
            library,
            output: Some(self.output.clone()),
            save: None,
            all: self.all,
            strict: self.strict,
            kernel,
        };
        let status = match &self.executable {
            Some(executable) => measurement.of_every(executable)?,
            None => measurement.of(self.pid, &self.program)?,
        };
        show::draw(&[self.output], self.png.as_deref(), self.all)?;
        Ok(status)
    }

    /// Runs the session on several machines, each with a recording of its name.
    fn run_together(
        &self,
        session: &Session,
        library: &Library,
        mut goals: Goals,
    ) -> anyhow::Result<ExitCode> {
        std::fs::create_dir_all(&self.output).with_context(|| {
            format!(
                "{} cannot be created as the folder of the machines' recordings; choose another with -o",
                self.output.display()
            )
        })?;
        let mut connected = self.target.connect_all()?;
        let mut plans = Vec::new();
        for machine in &mut connected {
            let host = machine.connection.info().host.clone();
            // All machines share one session, so a placement is left out on none of them.
            let planned = prepare(&mut machine.connection, session, library, Strict::ON);
            let (_, planned) = planned.with_context(|| format!("On {host}"))?;
            plans.push(planned.plan);
        }
        let (mut machines, mut events, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for (machine, plan) in connected.iter_mut().zip(&plans) {
            let (sender, received) = unbounded();
            events.push(received);
            let name = machine.connection.info().host.clone();
            let recording = self.output.join(format!("{name}.arrow"));
            goals.goal(&recording, Contents::Recording)?;
            names.push((name, recording.clone()));
            machines.push(Participant {
                connection: &mut machine.connection,
                plan,
                recording,
                events: sender,
            });
        }
        let stop = StopFlag::new();
        let (outcomes, status) = std::thread::scope(|scope| {
            let runner = scope.spawn(|| together(machines, session, &stop));
            let status = watch(events, session, &stop);
            let outcomes = runner.join();
            outcomes
                .map(|outcomes| (outcomes, status))
                .map_err(|_| anyhow!("The run ended by a bug in gilk."))
        })?;
        let recorded = names.iter().zip(&outcomes);
        let recorded = recorded.filter(|((_, path), _)| path.exists());
        let paths: Vec<PathBuf> = recorded.map(|((_, path), _)| path.clone()).collect();
        if !paths.is_empty() {
            show::draw(&paths, self.png.as_deref(), self.all)?;
        }
        let mut failed = 0;
        for ((name, path), outcome) in names.iter().zip(outcomes) {
            writeln!(std::io::stdout(), "\n{name}:")?;
            match outcome {
                Ok(summary) => {
                    let metadata = Recording::open(path)?.metadata().clone();
                    print(&summary, &metadata, self.all)?;
                }
                Err(error) => {
                    failed += 1;
                    writeln!(std::io::stdout(), "{error}")?;
                }
            }
        }
        ensure!(
            failed == 0,
            "{failed} of {} failed.",
            scale::counted(names.len() as u64, "machine")
        );
        Ok(status)
    }
}

/// Reads the target's kernel and plans the session for it.
fn prepare(
    connection: &mut Connection,
    session: &Session,
    library: &Library,
    strict: Strict,
) -> anyhow::Result<(Arc<Image>, PossiblePlan)> {
    let (parts, modules) = target::read(connection)?;
    if strict.unknown_kernel() {
        connection.insist_on_unknown_kernel();
    }
    let layout = &connection.info().layout;
    let image = Arc::new(Image::with_modules(&parts, &modules)?.on(layout));
    let planned = strict.planned(&image, session, library, layout)?;
    connection.name_addresses(Arc::clone(&image));
    for note in &planned.plan.plan().notes {
        writeln!(std::io::stdout(), "Note: {note}.")?;
    }
    Ok((image, planned))
}

/// Runs a session while showing its events, and returns the exit status that its program gives to
/// the command.
pub(crate) fn run_watched(
    session: &Session,
    recording: &Path,
    run: impl FnOnce(&Sender<Event>, &StopFlag) -> ilk_driver::Result<Summary> + Send,
) -> anyhow::Result<(Summary, ExitCode)> {
    let stop = StopFlag::new();
    let (sender, events) = unbounded();
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| {
            let sender = sender;
            run(&sender, &stop)
        });
        let status = watch(vec![events], session, &stop);
        let summary = runner.join().map_err(|_| {
            anyhow!(
                "The run ended by a bug in gilk; the samples up to then are in {}.",
                recording.display()
            )
        })??;
        Ok((summary, status))
    })
}

/// Shows the events of all machines until their runs have ended. Returns the exit status that the
/// session's program gives to the command: that of the first machine whose program failed.
fn watch(mut events: Vec<Receiver<Event>>, session: &Session, stop: &StopFlag) -> ExitCode {
    let mut failed = None;
    let mut progress = Progress::new();
    let mut begun: Option<Instant> = None;
    let mut samples = 0;
    let mut lost = vec![0; events.len()];
    while !events.is_empty() {
        if interrupt::arrived() && !stop.is_stopped() {
            progress.print("Stopping.");
            stop.stop();
        }
        let mut choice = Select::new();
        events.iter().for_each(|events| {
            choice.recv(events);
        });
        let ready = choice.ready_timeout(POLL_INTERVAL);
        let received = ready
            .ok()
            .and_then(|at| Some((at, events.get(at)?.try_recv())));
        match received {
            Some((_, Ok(Event::Started(_)))) => begun = Some(Instant::now()),
            Some((_, Ok(Event::Samples(batch)))) => samples += batch.len(),
            Some((at, Ok(Event::Losses(losses)))) => {
                let sum = losses.iter().map(CpuLosses::lost).sum();
                if let Some(lost) = lost.get_mut(at) {
                    *lost = sum;
                }
            }
            Some((_, Ok(Event::Workload(line)))) => progress.print(&format!("workload: {line}")),
            Some((_, Ok(Event::Gap(gap)))) => progress.print(&gap.to_string()),
            Some((_, Ok(Event::WorkloadEnded { success, status }))) if !success => {
                failed.get_or_insert_with(|| program::exit(&status));
            }
            Some((at, Err(TryRecvError::Disconnected))) => {
                events.swap_remove(at);
                lost.swap(at, events.len());
            }
            Some((_, Ok(_) | Err(TryRecvError::Empty))) | None => {}
        }
        if let Some(begun) = begun {
            let at = begun.elapsed().as_secs_f64().min(session.duration);
            let share = at / session.duration;
            let lost: u64 = lost.iter().sum();
            progress.share(
                share as f32,
                &format!(
                    "{at:.1} s of {} s, {}, {lost} lost",
                    session.duration,
                    scale::counted(samples as u64, "sample")
                ),
            );
        }
    }
    failed.unwrap_or(ExitCode::SUCCESS)
}

/// Prints the totals of a run, whose chart has the hits of its instruments, and its losses.
pub(crate) fn print(summary: &Summary, metadata: &Metadata, all: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out)?;
    let totals = Totals {
        added_up: summary.aggregates.clone(),
        failed_reads: summary.failed_reads.clone(),
        no_room: summary.no_room.clone(),
        symbols: summary.symbols.clone(),
        stacks: summary.stacks.clone(),
        ended: String::new(),
        ends: Vec::new(),
        gaps: summary.gaps.clone(),
        cost: summary.cost,
        cache: summary.cache,
    };
    write!(out, "{}", totals::text(&totals, metadata, all))?;
    let lost = summary.lost_by_cause();
    let stopped = if summary.stopped {
        " It was stopped before its end."
    } else {
        ""
    };
    writeln!(
        out,
        "{} taken, {} lost to full rings; batches were up to {} late and took up to {}.{stopped}",
        scale::counted(summary.taken, "sample"),
        scale::grouped(lost.full),
        scale::duration(summary.lateness()),
        scale::duration(summary.longest_switch())
    )?;
    for (count, what) in [
        (lost.disabled, "hits while the ring was off"),
        (lost.overwritten, "samples overwritten by newer ones"),
        (lost.overtaken, "samples overwritten by interrupted ones"),
        (
            lost.unfinished,
            "samples that their threads have left unfinished",
        ),
        (
            summary.retired,
            "splices retired after their instruments were hit",
        ),
        (
            summary.gone(),
            "writes of splices left out because a module was unloaded, together with its splices, after its text was read",
        ),
    ] {
        if count > 0 {
            writeln!(out, "{} {what}.", scale::grouped(count))?;
        }
    }
    if summary.missing > 0 {
        writeln!(
            out,
            "Taken but not arrived, which is a bug in gilk: {}.",
            scale::counted(summary.missing, "sample")
        )?;
    }
    if let Some(workload) = &summary.workload {
        writeln!(out, "The workload {workload}.")?;
    }
    writeln!(
        out,
        "{} bytes in {}.",
        scale::grouped(summary.recording.bytes),
        summary.recording.path.display()
    )?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_session_decides_the_exit_status() {
        for (success, status, expected) in [
            (true, "exit status: 0", ExitCode::SUCCESS),
            (false, "exit status: 3", ExitCode::from(3)),
            (false, "/no/such could not be started", ExitCode::FAILURE),
        ] {
            let (sender, events) = unbounded();
            let status = status.to_owned();
            sender
                .send(Event::WorkloadEnded { success, status })
                .unwrap();
            drop(sender);
            let found = watch(vec![events], &Session::empty(), &StopFlag::new());
            assert_eq!(found, expected);
        }
    }
}
