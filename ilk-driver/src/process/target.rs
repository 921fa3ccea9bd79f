//! A process as the target of sessions: its objects are read once, and each session instruments it and leaves it.

use std::sync::{Arc, OnceLock};

use gilk_engine::layout::RuntimeLayout;
use gilk_engine::{Image, Plan, Session};
use gilk_instruments::{Library, Source};

use super::record::text_of;
use super::reserved::any_source;
use super::stacks::Callers;
use super::supervisor::Supervisor;
use super::{ObjectChoice, Reserved, StartedProgram, Subject};
use crate::client::TargetInfo;
use crate::{Error, Result};

/// Words of each CPU for the counters of a session.
const WORDS: u32 = 1 << 14;
/// Patterns of all functions of the program and of its libraries.
const ALL: [&str; 2] = ["*", "*:*"];

/// The layouts of plans for a process with all of its objects, as it was read.
#[derive(Clone, Debug)]
pub struct ProcessLayouts {
    pub(super) subject: Arc<Subject>,
    pub(super) reserved: Reserved,
    /// Those for sessions that number stacks, once there was one.
    stacked: Arc<OnceLock<Reserved>>,
    /// The reason why no instruments run in the code cache of the process, if it was read for that.
    pub(super) uninstrumented: Option<String>,
}

impl ProcessLayouts {
    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.subject.pid
    }

    /// Returns the addresses for a session, with its replacements linked for the process as it is now.
    pub(super) fn reserved(&self, session: &Session, library: &Library) -> Result<Reserved> {
        let numbers_stacks = any_source(session, library, Source::numbers_stacks);
        let reserved = match numbers_stacks {
            true => self.stacked()?,
            false => &self.reserved,
        };
        let reserved = reserved.clone().for_session(session, library);
        reserved.with_replacements(&self.subject, session, library)
    }

    /// Returns the addresses for sessions that number stacks, with the ways to find callers.
    fn stacked(&self) -> Result<&Reserved> {
        if let Some(known) = self.stacked.get() {
            return Ok(known);
        }
        let callers = Arc::new(Callers::read(self.pid())?);
        let reserved = self.subject.reserve_with(WORDS, Some(callers))?;
        // Another thread may have been faster.
        Ok(self.stacked.get_or_init(|| reserved))
    }

    /// Returns the layout of a plan for a session.
    ///
    /// # Errors
    /// As [`Reserved::with_replacements`].
    pub fn layout(&self, session: &Session, library: &Library) -> Result<RuntimeLayout> {
        Ok(self.reserved(session, library)?.layout)
    }
}

/// A process with all of its objects.
#[derive(Debug)]
pub struct ProcessTarget {
    pub(super) layouts: ProcessLayouts,
    pub(super) info: TargetInfo,
    /// A program that was started for its sessions.
    pub(super) program: Option<LaunchedProgram>,
    /// Removes what this leaves in the process, should this program be killed.
    pub(super) supervisor: Supervisor,
    /// A session's splices could not be removed: the supervisor tries again.
    pub(super) leaves: bool,
}

#[derive(Debug)]
pub(super) struct LaunchedProgram {
    pub(super) started: StartedProgram,
    /// A session has begun, and released it.
    pub(super) executes: bool,
}

impl ProcessTarget {
    /// Reads a process, which continues until a session instruments it.
    ///
    /// # Errors
    /// [`Error::Process`] as [`Subject::read`] and [`Subject::reserve`], and if the supervisor does not start.
    pub fn open(pid: u32) -> Result<Self> {
        let read = Subject::read(pid, &all_objects())?;
        Self::of(read, None, None, Supervisor::start()?)
    }

    /// Reads a process for runs in the code cache, in which instruments may be [refused](ProcessLayouts::cache_refusal).
    ///
    /// # Errors
    /// As [`Self::open`], but for what is refused of instruments alone.
    pub fn open_for_cache(pid: u32) -> Result<Self> {
        let (read, why) = Subject::read_for_cache(pid, &all_objects())?;
        Self::of(read, why, None, Supervisor::start()?)
    }

    /// Starts a program, which executes its own first instruction when a session has instrumented it. It is killed if
    /// this is dropped before.
    ///
    /// # Errors
    /// As [`StartedProgram::start`] and [`Self::open`].
    pub fn start(program: &str, arguments: &[String]) -> Result<Self> {
        let mut supervisor = Supervisor::start()?;
        let guard = |program| supervisor.guard(program);
        let started = StartedProgram::start(program, arguments, guard)?;
        started.check_registered()?;
        let read = Subject::read(started.pid(), &all_objects())?;
        Self::of(read, None, Some(started), supervisor)
    }

    /// Starts a program for runs in the code cache, in which instruments may be [refused](ProcessLayouts::cache_refusal).
    ///
    /// # Errors
    /// As [`Self::start`], but for what is refused of instruments alone.
    pub fn start_for_cache(program: &str, arguments: &[String]) -> Result<Self> {
        let mut supervisor = Supervisor::start()?;
        let guard = |program| supervisor.guard(program);
        let started = StartedProgram::start(program, arguments, guard)?;
        let later = started.check_registered().err();
        let (read, why) = Subject::read_for_cache(started.pid(), &all_objects())?;
        let why = later.map(|error| error.to_string()).or(why);
        Self::of(read, why, Some(started), supervisor)
    }

    fn of(
        subject: Subject,
        uninstrumented: Option<String>,
        started: Option<StartedProgram>,
        supervisor: Supervisor,
    ) -> Result<Self> {
        let reserved = subject.reserve(WORDS)?;
        let info = subject.info(&reserved)?;
        Ok(Self {
            layouts: ProcessLayouts {
                subject: Arc::new(subject),
                reserved,
                stacked: Arc::default(),
                uninstrumented,
            },
            info,
            program: started.map(|started| LaunchedProgram {
                started,
                executes: false,
            }),
            supervisor,
            leaves: false,
        })
    }

    /// Returns the number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.layouts.pid()
    }

    /// The layouts of plans for it.
    #[must_use]
    pub const fn layouts(&self) -> &ProcessLayouts {
        &self.layouts
    }

    /// The objects, with their bytes in the process.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.layouts.subject.image()
    }

    /// The machine and the process, as recordings describe them, and the layout that plans have.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Returns the reason why a plan cannot be written into any process, if there is one.
    #[must_use]
    pub fn refusal(plan: &Plan) -> Option<String> {
        text_of(plan).err().map(|error| error.to_string())
    }

    /// Checks that the process executes the program still that was read.
    ///
    /// # Errors
    /// [`Error::Target`] if it does not.
    pub fn check(&self) -> Result<()> {
        let ended = |_| {
            let pid = self.pid();
            let what = format!(
                "Process {pid} has ended, or executed another program; choose it or start it again."
            );
            Error::Target(what)
        };
        self.layouts.subject.is_still_mapped().map_err(ended)
    }

    /// Describes the end of the process.
    pub(super) fn end(&mut self) -> Result<String> {
        match self.program.take() {
            Some(mut program) => {
                let status = program.started.wait()?;
                Ok(format!("The program has ended: {status}"))
            }
            None => Ok("The process has ended".to_owned()),
        }
    }
}

/// All objects of a process.
fn all_objects() -> ObjectChoice {
    ObjectChoice::of(ALL.into_iter())
}

impl AsRef<Self> for ProcessTarget {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Drop for ProcessTarget {
    fn drop(&mut self) {
        // A supervisor that is not dismissed takes the end of its pipe for that of its client.
        if !self.leaves {
            self.supervisor.dismiss();
        }
    }
}
