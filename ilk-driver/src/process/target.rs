//! A process as the target of sessions: its objects are read once, and each session instruments it and leaves it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gilk_engine::layout::RuntimeLayout;
use gilk_engine::{Image, Plan, Session, Span};
use gilk_instruments::{Library, Source};

use super::maps;
use super::objects::{Object, chosen, objects};
use super::opened::{self, OpenedLibrary};
use super::record::{refused_times, text_of};
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
    /// Names of libraries whose files were opened, and that are not mapped.
    pub(super) opened: Vec<String>,
}

impl ProcessLayouts {
    fn new(subject: Subject, uninstrumented: Option<String>) -> Result<Self> {
        Ok(Self {
            reserved: subject.reserve(WORDS)?,
            subject: Arc::new(subject),
            stacked: Arc::default(),
            uninstrumented,
            opened: Vec::new(),
        })
    }

    /// The layouts for the same process, which was read again.
    fn of(&self, subject: Subject) -> Result<Self> {
        Self::new(subject, self.uninstrumented.clone())
    }

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

    /// Finds other addresses if the process has mapped memory at those for a session since they were found. Returns the
    /// addresses that are to stay free.
    pub(super) fn free(&mut self, session: &Session, library: &Library) -> Result<Vec<Span>> {
        let taken = self.spans(session, library)?;
        let maps = maps::read(self.pid())?;
        if !maps
            .iter()
            .any(|one| taken.iter().any(|span| span.overlaps(one.span)))
        {
            return Ok(taken);
        }
        self.reserved = self.subject.reserve(WORDS)?;
        self.stacked = Arc::default();
        self.spans(session, library)
    }

    fn spans(&self, session: &Session, library: &Library) -> Result<Vec<Span>> {
        let numbers_stacks = any_source(session, library, Source::numbers_stacks);
        Ok(match numbers_stacks {
            true => self.stacked()?.spans(),
            false => self.reserved.spans(),
        })
    }

    /// Returns the library of a function, by its designation, if the process has not mapped it.
    #[must_use]
    pub fn awaited<'f>(&self, function: &'f str) -> Option<&'f str> {
        let (library, _) = function.split_once(':')?;
        (!self.is_mapped(library)).then_some(library)
    }

    /// Returns whether the process has mapped a library.
    fn is_mapped(&self, library: &str) -> bool {
        let mut mapped = self.subject.objects.iter().map(Object::name);
        mapped.any(|name| name == library)
    }

    /// Returns whether a library is listed whose file was opened, and that is not mapped.
    #[must_use]
    pub fn is_opened(&self, library: &str) -> bool {
        self.opened.iter().any(|opened| opened == library)
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
    /// Libraries whose files were opened, and that are not mapped.
    pub(super) opened: Vec<OpenedLibrary>,
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
        let layouts = ProcessLayouts::new(subject, uninstrumented)?;
        let info = layouts.subject.info(&layouts.reserved)?;
        Ok(Self {
            layouts,
            info,
            opened: Vec::new(),
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

    /// The refusal of instruments that begin or end in the middle of a session.
    #[must_use]
    pub fn refused_times() -> Error {
        refused_times()
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

    /// Shows the functions of a library that the process has not mapped yet, from its file. Where it is mapped already,
    /// those are shown that the process has.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::Target`] if it is no library of 64 bits, or none that is
    /// instrumented when it is loaded; [`Error::Process`] as [`Self::open`].
    pub fn open_library(&mut self, path: &Path) -> Result<()> {
        let hint = "Name the file of a library.";
        let path = fs::canonicalize(path).map_err(Error::io(path, hint))?;
        // It is refused before the process is read again.
        opened::read(&path)?;
        let paths = self.opened.iter().map(|opened| opened.path.clone());
        let mut paths: Vec<PathBuf> = paths.collect();
        if !paths.contains(&path) {
            paths.push(path);
        }
        self.read_again(&paths)
    }

    /// Reads the process again if the objects that it has mapped have changed. Returns whether they have; not of a process
    /// that has ended.
    ///
    /// # Errors
    /// As [`Self::open_library`].
    pub fn refresh(&mut self) -> Result<bool> {
        let changed = self.changed();
        match self.check() {
            Ok(()) => changed,
            Err(_) => Ok(false),
        }
    }

    fn changed(&mut self) -> Result<bool> {
        let known = &self.layouts.subject.objects;
        let now = objects(self.pid())?;
        let is_same =
            now.len() == known.len() && now.iter().zip(known).all(|(one, other)| one.is(other));
        // Without objects, it is about to end.
        if is_same || now.is_empty() {
            return Ok(false);
        }
        let paths: Vec<PathBuf> = self.opened.iter().map(|one| one.path.clone()).collect();
        self.read_again(&paths)?;
        Ok(true)
    }

    /// The functions of all objects that the process has mapped, and of opened libraries.
    ///
    /// # Errors
    /// [`Error::Engine`] if their names take up too much memory.
    pub fn shown(&self) -> Result<Image> {
        let mut shown = self.image().clone();
        for opened in &self.opened {
            shown.join(opened.image.clone())?;
        }
        Ok(shown)
    }

    fn read_again(&mut self, paths: &[PathBuf]) -> Result<()> {
        let pid = self.pid();
        let old = &self.layouts.subject;
        let mapped = chosen(pid, &objects(pid)?, &all_objects())?;
        let known = Some(old.registered);
        let subject = Subject::of_objects(pid, &mapped, old.shadow_stack, known)?;
        let layouts = self.layouts.of(subject)?;
        let mut taken = layouts.reserved.spans();
        let mut opened = Vec::new();
        for path in paths {
            if !layouts.is_mapped(&opened::name(path)) {
                let library = OpenedLibrary::of(&layouts.subject, &taken, path)?;
                taken.push(library.span);
                opened.push(library);
            }
        }
        self.info = layouts.subject.info(&layouts.reserved)?;
        self.layouts = layouts;
        self.layouts.opened = opened.iter().map(|one| one.name.clone()).collect();
        self.opened = opened;
        Ok(())
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

impl Drop for ProcessTarget {
    fn drop(&mut self) {
        // A supervisor that is not dismissed takes the end of its pipe for that of its client.
        if !self.leaves {
            self.supervisor.dismiss();
        }
    }
}
