//! Threads that do what takes longer than a frame, and the messages in which they answer.
//!
//! | module | its thread |
//! |---|---|
//! | `target` | one a target: boots the lab, connects, loads symbols and text, runs sessions |
//! | `analyst` | analyses, disassembles and lays out the function that is opened |
//! | `searcher` | filters the list of functions |
//! | `planner` | plans and verifies the session after every change, and as it would be with the inspector's instrument in it; compiles the editor's; plans a counting run |
//! | `beside` | one a machine beside the target: plans the session for its kernel |
//! | `caller` | one a kernel: who calls whom |
//! | `sources` | one a kernel: its debug information, and the file of every function |
//! | `hookable` | one a kernel: which functions can be hooked |
//! | `files` | one a task: sessions, recordings and the desktop's file dialog |

mod analyst;
pub(crate) mod beside;
pub(crate) mod caller;
pub mod files;
pub(crate) mod hookable;
pub(crate) mod lane;
mod planner;
pub(crate) mod searcher;
pub(crate) mod sources;
pub(crate) mod target;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use gilk_engine::cfg::BlockIndex;
use gilk_engine::image::FunctionId;
use gilk_engine::placement::Comparison;
use gilk_engine::{Session, VerifiedPlan};
use gilk_instruments::Definition;
use gilk_samples::clocks::Reading;
use gilk_samples::metadata::{Clock, Metadata};
use ilk_driver::client::{Summary, TargetInfo};
use ilk_driver::sources::Sources;

use crate::Error;
use crate::calls::Calls;
use crate::catalogue::Catalogue;
use crate::document::Edited;
use crate::graph::Scene;
use crate::keep::Beside;
use crate::timeline::Opened;

pub use analyst::Analysis;
pub use planner::Planning;
pub use searcher::Search;

/// What workers tell the window.
#[derive(Debug)]
pub enum Message {
    /// From the target of that number; older ones' words are not listened to.
    Target(u64, TargetNews),
    /// A search is answered: its filter, and the functions.
    Found(String, Arc<Vec<FunctionId>>),
    /// A function is ready to be shown, with the block to choose; nothing if the kernel lacks it.
    Scene(FunctionId, Option<Arc<Scene>>, Option<BlockIndex>),
    /// A session was planned: its revision, the plan or what is wrong, and what each function costs in
    /// place and whole.
    Planned(
        u64,
        Result<Arc<VerifiedPlan>, Vec<String>>,
        BTreeMap<String, Comparison>,
    ),
    /// A session was planned for the machine beside the target of the first number.
    PlannedBeside(u64, u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// A session file was read, and the arrangement beside it.
    SessionRead(PathBuf, Result<Session, Error>, Option<Box<Beside>>),
    /// What would be written if the inspector's instrument were added: the question's number, and the plan
    /// or what is wrong.
    Previewed(u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// What the inspector's instrument would write by itself: the question's number, and the plan or what is
    /// wrong.
    Offered(u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// What the editor's text becomes: the question's number, and the plan or what is wrong.
    Compiled(u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// An instrument's source was read.
    SourceRead(PathBuf, Result<String, Error>),
    /// An object file with instruments was read.
    Natives(PathBuf, Result<Vec<Definition>, Error>),
    /// An instrument's source was written.
    SourceWritten(PathBuf, Result<(), Error>),
    /// A file that was asked for was written.
    Exported(PathBuf, Result<(), Error>),
    /// How far the recording is written for other programs.
    Exporting(gilk_samples::export::Progress),
    /// Who calls whom in the kernel of the target of that number.
    Calls(u64, Arc<Calls>),
    /// Which functions of the kernel of the target of that number can be hooked at their entries.
    Hookable(u64, Arc<BTreeSet<FunctionId>>),
    /// Debug information was read for the target of that number.
    Sources(u64, Result<Arc<Sources>, Error>),
    /// How far reading debug information for the target of that number is, from 0 to 1.
    SourcesProgress(u64, f32),
    /// That is over; and the file of every function of the target of that number, if there is such
    /// information.
    SourceFiles(u64, Option<Arc<Vec<Arc<str>>>>),
    /// A session that only counts was planned: it, and the plan or what is wrong.
    Counting(Session, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// Something that was to outlive the window could not be written.
    NotKept(Error),
    /// A session file was written, with what.
    SessionWritten(PathBuf, Edited, Result<(), Error>),
    /// How far a recording is read: samples so far, and all.
    RecordingProgress(u64, u64),
    /// A recording was read.
    Recording(PathBuf, Result<Box<Opened>, Error>),
    /// The desktop's dialog is closed, with a path if one was chosen.
    Picked(Option<PathBuf>),
    /// A picture was written.
    Pictured(Result<(), Error>),
}

/// What a target's thread tells.
#[derive(Debug)]
pub enum TargetNews {
    /// What is being done.
    Step(Progress),
    /// Symbols and text are loaded.
    Image(Arc<Catalogue>),
    /// Lines that the lab's kernel has said since the last.
    Console(Vec<String>),
    /// An agent answered.
    Connected(TargetInfo),
    /// It is over; the thread has ended.
    Failed(Error),
    /// It was cancelled; the thread has ended.
    Cancelled,
    /// A session has begun; its samples are in the index that came with the order. What it says of itself.
    Started(Result<Box<Metadata>, Error>),
    /// The same, of a machine among several: its clock, and how that was read.
    Begun(Clock, Reading),
    /// The session that ran is over.
    Ended(Result<Box<Summary>, Error>),
}

/// How far something is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What it is: `boot`.
    pub name: String,
    /// Which of how many, from 0.
    pub step: (usize, usize),
    /// What is being done, for a person.
    pub detail: String,
    /// Share of everything that is done, 0 to 1.
    pub overall: f32,
}

/// Where workers send their messages; every message wakes the window.
#[derive(Clone)]
pub struct Mail {
    sender: Sender<Message>,
    ctx: egui::Context,
}

impl Mail {
    /// Has the window draw, because something it looks at has changed.
    pub fn wake(&self) {
        self.ctx.request_repaint();
    }

    /// Sends a message; if the window is gone, nobody needs it.
    pub fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.ctx.request_repaint();
        }
    }
}

/// The threads that live as long as the window.
pub struct Workers {
    mail: Mail,
    analyst: Sender<Analysis>,
    searcher: Sender<Search>,
    planner: Sender<Planning>,
    previewer: Sender<Planning>,
    offerer: Sender<Planning>,
    compiler: Sender<Planning>,
    counter: Sender<Planning>,
}

impl Workers {
    /// Starts them, and returns where their messages arrive.
    #[must_use]
    pub fn start(ctx: &egui::Context) -> (Self, Receiver<Message>) {
        let (sender, inbox) = unbounded();
        let mail = Mail {
            sender,
            ctx: ctx.clone(),
        };
        let workers = Self {
            analyst: newest("analyst", &mail, analyst::analyse),
            searcher: newest("searcher", &mail, searcher::search),
            planner: newest("planner", &mail, planner::work),
            previewer: newest("previewer", &mail, planner::preview),
            offerer: newest("offerer", &mail, planner::offer),
            compiler: newest("compiler", &mail, planner::compile),
            counter: newest("counter", &mail, planner::count),
            mail,
        };
        (workers, inbox)
    }

    /// Where messages go.
    #[must_use]
    pub const fn mail(&self) -> &Mail {
        &self.mail
    }

    /// Has a function made ready to be shown.
    pub fn analyse(&self, analysis: Analysis) {
        let _ended = self.analyst.send(analysis);
    }

    /// Has the list of functions filtered.
    pub fn search(&self, search: Search) {
        let _ended = self.searcher.send(search);
    }

    /// Has a session planned as it would be with one instrument more.
    pub fn preview(&self, planning: Planning) {
        let _ended = self.previewer.send(planning);
    }

    /// Has a session planned that has nothing but the inspector's instrument.
    pub fn offer(&self, planning: Planning) {
        let _ended = self.offerer.send(planning);
    }

    /// Has a session planned that has nothing but the editor's instrument.
    pub fn compile(&self, planning: Planning) {
        let _ended = self.compiler.send(planning);
    }

    /// Has a session planned that only counts, to be run at once.
    pub fn count(&self, planning: Planning) {
        let _ended = self.counter.send(planning);
    }

    /// Has a session planned.
    pub fn plan(&self, planning: Planning) {
        let _ended = self.planner.send(planning);
    }
}

/// A thread for requests of which only the newest matters: those that wait behind it are dropped.
/// `work` is given the queue too, to look whether a newer request waits.
fn newest<T: Send + 'static>(
    name: &str,
    mail: &Mail,
    work: fn(&T, &Receiver<T>, &Mail),
) -> Sender<T> {
    let (sender, requests) = unbounded::<T>();
    let mail = mail.clone();
    spawn(name, move || {
        while let Ok(first) = requests.recv() {
            let newest = requests.try_iter().last().unwrap_or(first);
            work(&newest, &requests, &mail);
        }
    });
    sender
}

/// Starts a named thread. If the system has none left, what it would have done is not done; the
/// window stays usable.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new()
        .name(format!("gilk {name}"))
        .spawn(work);
    if let Err(error) = started {
        eprintln!(
            "The thread {name} could not be started: {error}. End other programs and start gilk again."
        );
    }
}
