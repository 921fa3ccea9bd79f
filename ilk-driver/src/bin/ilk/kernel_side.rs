//! The kernel's side of a measurement in a process: a script, or a session's part, in the kernel of this machine.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use crossbeam_channel::unbounded;
use gilk_engine::session::KernelPart;
use gilk_engine::{Image, Session};
use gilk_instruments::Library;
use gilk_samples::beside::Beside;
use gilk_samples::chart::scale;
use gilk_samples::chart::totals;
use gilk_samples::recording::Recording;
use gilk_samples::totals::Totals;
use ilk_driver::agent::SOCKET;
use ilk_driver::client::{Connection, Event, StopFlag, Summary};
use ilk_driver::note;
use ilk_driver::possible::{PossiblePlan, grouped};
use ilk_driver::process::{check_same_clock, tsc};
use ilk_driver::script::{Filter, Script, resolve};

use crate::plan::Strict;
use crate::script::RecordingFile;
use crate::target;

/// Names in a line of functions that are left out.
const NAMED: usize = 8;

/// Placements in the kernel of this machine.
pub(crate) struct KernelSide {
    pub(crate) work: KernelWork,
    /// The socket of the agent.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) library: Library,
}

/// The origin of the kernel's placements.
pub(crate) enum KernelWork {
    Script(Script),
    /// A session of a kernel.
    Session(Session),
}

/// The kernel's side of a measurement, ready to begin.
pub(crate) struct PlannedKernel {
    connection: Connection,
    planned: PossiblePlan,
    /// The placements, as a session's file has them: those of any process.
    part: KernelPart,
    left_out: String,
    /// The recordings of both sides, until they are one.
    parts: RecordingFile,
    pid: u32,
}

impl KernelSide {
    /// Reads the kernel, and plans for hits of a process.
    ///
    /// # Errors
    /// No agent answers, or nothing can be placed.
    pub(crate) fn planned(
        &self,
        pid: u32,
        duration: f64,
        strict: Strict,
    ) -> anyhow::Result<PlannedKernel> {
        let socket = self.socket.as_deref().unwrap_or(Path::new(SOCKET));
        let connection = Connection::connect(socket);
        let mut connection = connection
            .context("The kernel's part needs the agent of this machine: `ilk agent`, as root")?;
        let (parts, modules) = target::read(&mut connection)?;
        let layout = connection.info().layout.clone();
        let image = Arc::new(Image::with_modules(&parts, &modules)?.on(&layout));
        drop((parts, modules));
        connection.name_addresses(Arc::clone(&image));
        let (session, absent) = self.session(&image, duration)?;
        let mut part = KernelPart::of(session.clone());
        let session = session.within_process(pid, &self.library)?;
        let planned = strict.planned(&image, &session, &self.library, &layout)?;
        part.placements.clone_from(&planned.session.placements);
        for note in &planned.plan.plan().notes {
            note!("Note: {note}.");
        }
        Ok(PlannedKernel {
            connection,
            left_out: format!("{absent}{}", planned.left_out),
            planned,
            part,
            parts: RecordingFile::new(None)?,
            pid,
        })
    }
}

impl KernelSide {
    /// The placements of all processes, and a line for each reason why functions of a script are left out.
    fn session(&self, image: &Arc<Image>, duration: f64) -> anyhow::Result<(Session, String)> {
        let script = match &self.work {
            KernelWork::Session(session) => return Ok((session.clone(), String::new())),
            KernelWork::Script(script) => script,
        };
        ensure!(
            script.terminal().actions().next().is_none(),
            "Beside a process the terminal shows totals at the end; leave out what the kernel's script prints or clears."
        );
        let filter = Filter {
            duration,
            pid: None,
        };
        let query = resolve(script, image, filter, None).map_err(|faults| anyhow!("{faults}"))?;
        let absent = query.absent.iter();
        let absent = absent.map(|one| (one.reason.clone(), one.function.clone()));
        Ok((query.session, grouped(absent, "Left out", NAMED)))
    }
}

/// Recording and totals of the kernel's side.
pub(crate) struct KernelResults {
    summary: Summary,
    left_out: String,
    parts: RecordingFile,
    pid: u32,
}

impl PlannedKernel {
    /// The placements, as a session's file has them.
    pub(crate) fn part(&self) -> &KernelPart {
        &self.part
    }

    /// The file that the process is to be recorded in.
    pub(crate) fn recording_of_process(&self) -> PathBuf {
        self.parts.path().with_file_name("process.arrow")
    }

    /// Instruments the kernel while the process is instrumented: `work` receives whether the kernel's side has ended.
    ///
    /// # Errors
    /// Either side has failed. Both are removed then.
    pub(crate) fn while_instrumented<T>(
        self,
        work: impl FnOnce(&dyn Fn() -> bool) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, KernelResults)> {
        let Self {
            mut connection,
            planned,
            part: _,
            left_out,
            parts,
            pid,
        } = self;
        let stop = StopFlag::new();
        let (sender, events) = unbounded();
        let before = tsc();
        let (done, summary) = std::thread::scope(|scope| {
            let (plan, session) = (&planned.plan, &planned.session);
            let (connection, path, stop) = (&mut connection, parts.path(), &stop);
            let runner = scope.spawn(move || {
                let sender = sender;
                connection.run(plan, session, path, &sender, stop)
            });
            let clock = events.iter().find_map(|event| match event {
                Event::Started(clock) => Some(clock),
                _ => None,
            });
            // Nothing else that the kernel's side reports is shown while it is under way.
            drop(events);
            let done = clock.map(|clock| {
                check_same_clock(clock, before)?;
                work(&|| runner.is_finished())
            });
            stop.stop();
            let summary = runner.join();
            let summary = summary.map_err(|_| anyhow!("The kernel's side ended by a bug in gilk."));
            (done, summary)
        });
        let summary = summary?;
        // An end of the kernel's side before its start is the cause of all else.
        let done = match done {
            Some(done) => done?,
            None => {
                return Err(summary
                    .err()
                    .map_or_else(|| anyhow!("The kernel's side did not begin."), Into::into));
            }
        };
        let results = KernelResults {
            summary: summary?,
            left_out,
            parts,
            pid,
        };
        Ok((done, results))
    }
}

impl KernelResults {
    /// Writes both recordings as one.
    ///
    /// # Errors
    /// A recording cannot be read or written.
    pub(crate) fn write(&self, process: &Path, output: &Path) -> anyhow::Result<()> {
        let both = [
            ("kernel".to_owned(), Recording::open(self.parts.path())?),
            (format!("process {}", self.pid), Recording::open(process)?),
        ];
        let [_, (_, of_process)] = &both;
        let session = of_process.metadata().session.clone();
        Beside::new(both)?.of_session(session).write(output)?;
        Ok(())
    }

    /// Prints the results of the kernel's side.
    ///
    /// # Errors
    /// The output is closed, or the recording cannot be read.
    pub(crate) fn print(&self, all: bool) -> anyhow::Result<()> {
        let summary = &self.summary;
        let metadata = Recording::open(self.parts.path())?.metadata().clone();
        let mut out = std::io::stdout().lock();
        writeln!(out, "\nThe kernel, for process {}:", self.pid)?;
        for one in &summary.instruments {
            if let Some(hits) = one.total.filter(|hits| all || *hits > 0) {
                writeln!(out, "{:>16}  {}", scale::grouped(hits), one.label)?;
            }
        }
        let totals = Totals {
            added_up: summary.aggregates.clone(),
            failed_reads: summary.failed_reads.clone(),
            no_room: summary.no_room.clone(),
            symbols: summary.symbols.clone(),
            stacks: summary.stacks.clone(),
            ended: String::new(),
            ends: Vec::new(),
            gaps: summary.gaps.clone(),
            cost: None,
            cache: None,
        };
        write!(out, "{}", totals::text(&totals, &metadata, all))?;
        let lost = summary.lost_by_cause();
        let lost = lost.full + lost.disabled + lost.gone();
        writeln!(
            out,
            "{}, {} lost.",
            scale::counted(summary.taken, "sample"),
            scale::grouped(lost)
        )?;
        write!(out, "{}", self.left_out)?;
        Ok(())
    }
}
