//! Messages from workers to the window, and the means to send them from a thread.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crossbeam_channel::Sender;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::code::FunctionId;
use gilk_engine::{Session, VerifiedPlan};
use gilk_instruments::Definition;
use gilk_samples::clocks::Reading;
use gilk_samples::index::Index;
use gilk_samples::kept_stacks::KeptStacks;
use gilk_samples::metadata::{Clock, Metadata};
use gilk_samples::totals::Totals;
use ilk_driver::client::{AggregateSummary, Summary, TargetInfo};
use ilk_driver::process::{ListedProcess, ProcessLayouts};
use ilk_driver::sources::Sources;

use crate::Error;
use crate::call_graph::CallGraph;
use crate::calls::{CallRun, CallsKey};
use crate::catalogue::Catalogue;
use crate::document::{Edited, EditedSession};
use crate::graph::Scene;
use crate::graph::function_source::Listing;
use crate::plan_reply::PlanReply;
use crate::questions::{Made, Question};
use crate::sidecar::Sidecar;
use crate::statistics::StatisticsKey;
use crate::statistics::comparison::ComparedRuns;
use crate::statistics::rows::StatisticsRow;
use crate::threads::{guarded, spawn};
use crate::timeline::{Losses, Opened};

/// A message from a worker to the window.
#[derive(Debug)]
pub enum Message {
    /// From the target with that number; messages of earlier targets are ignored.
    Target(u64, TargetNews),
    /// Result of a search: the request's number, its filter, and the functions.
    Found(u64, String, Arc<Vec<FunctionId>>),
    /// A function's graph, with the block to select; `None` if the kernel lacks the function.
    Scene(FunctionId, Option<Arc<Scene>>, Option<BlockIndex>),
    /// The plan of a session or its errors, with its revision.
    Planned(u64, PlanReply),
    /// The plan for an additional machine: the machine's number, the revision, the plan or its
    /// errors.
    PlannedForMachine(u64, u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// A session that was read, with its sidecar.
    SessionRead(PathBuf, Result<EditedSession, Error>, Option<Box<Sidecar>>),
    /// The plan with the inspector's instrument added, or its errors, with the request's number, and the estimated
    /// nanoseconds of a hit of that instrument.
    Previewed(u64, Result<Arc<VerifiedPlan>, Vec<String>>, Option<f64>),
    /// The plan of the inspector's instrument alone, or its errors, with the request's number.
    Offered(u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// The plan of the editor's instrument, or its errors, with the request's number.
    Compiled(u64, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// An instrument's source that was read.
    SourceRead(PathBuf, Result<String, Error>),
    /// An object file with instruments that was read.
    Natives(PathBuf, Result<Vec<Definition>, Error>),
    /// Result of writing an instrument's source.
    SourceWritten(PathBuf, Result<(), Error>),
    /// Result of an export.
    Exported(PathBuf, Result<(), Error>),
    /// Progress of the export of a recording.
    Exporting(gilk_samples::export::Progress),
    /// The call graph of the target with that number.
    CallGraph(u64, Arc<CallGraph>),
    /// The functions with a hookable entry, of the target with that number.
    Hookable(u64, Arc<BTreeSet<FunctionId>>),
    /// Debug information of the target with that number.
    Sources(u64, Result<Arc<Sources>, Error>),
    /// The source of a function of the target with that number.
    Listing(u64, Box<Listing>),
    /// Progress of reading debug information, from 0 to 1, for the target with that number.
    SourcesProgress(u64, f32),
    /// The end of reading debug information, with the source file of every function, if there is
    /// any.
    SourceFiles(u64, Option<Arc<Vec<Arc<str>>>>),
    /// The plan of a counting session, or its errors.
    Counting(Session, Result<Arc<VerifiedPlan>, Vec<String>>),
    /// The session of a question on the target with that number, or the reason why there is none.
    Question(u64, Question, Result<Box<Made>, String>),
    /// A failure to write persistent state.
    NotSaved(Error),
    /// Result of writing a session file, with the contents written.
    SessionWritten(PathBuf, Edited, Result<(), Error>),
    /// Progress of reading a recording: samples so far, and in total.
    RecordingProgress(u64, u64),
    /// The rows of the table of statistics, with the contents that they answer.
    Statistics(StatisticsKey, Vec<StatisticsRow>),
    /// The calls of a recording, with the contents that they answer.
    Calls(CallsKey, Result<Box<CallRun>, Error>),
    /// Two recordings, compared.
    Compared(Result<Box<ComparedRuns>, Error>),
    /// The losses of the recording of a run that has ended, with their times, and its metadata with
    /// the measured times, and the names in it.
    Measured(PathBuf, Result<(Losses, Box<(Metadata, Totals)>), Error>),
    /// A recording that was read.
    Recording(PathBuf, Result<Box<Opened>, Error>),
    /// The recordings of a process and its kernel are one.
    PairMerged(PathBuf, Result<gilk_samples::recording::Summary, Error>),
    /// The processes of this machine.
    Processes(Result<Vec<ListedProcess>, Error>),
    /// The path chosen in the desktop's file dialog, if any.
    Picked(Option<PathBuf>),
    /// Completions of a path, with the number of the dialog and the typed path.
    Completed(u64, String, Vec<String>),
    /// Result of writing a screenshot.
    Pictured(Result<(), Error>),
}

/// A message from a target's thread.
#[derive(Debug)]
pub enum TargetNews {
    /// Progress of connecting.
    Step(Progress),
    /// The image: symbols and text are loaded.
    Image(Arc<Catalogue>),
    /// The process that the target is.
    Process(Box<ProcessLayouts>),
    /// New lines of the lab's console.
    Console(Vec<String>),
    /// The agent replied.
    Connected(Box<TargetInfo>),
    /// The target failed; its thread has ended.
    Failed(Error),
    /// The target was lost during a run, whose end has reported it; its thread has ended.
    Lost(Error),
    /// The target was cancelled; its thread has ended.
    Cancelled,
    /// A session has started; its samples go to the index in its order. Has the session's metadata.
    Started(Result<Box<Metadata>, Error>),
    /// A running session has more instruments: of an object that its process has loaded, of another process, or of a program
    /// that one executes. Has the metadata with those.
    Loaded(Box<Metadata>),
    /// A library could not be shown, or the process could not be read again; what was shown before is.
    NotRead(Error),
    /// All samples of a running session up to now, with its metadata.
    Recorded(Box<Metadata>, Index),
    /// The values of aggregates of a running session up to now.
    Aggregates(Vec<AggregateSummary>),
    /// Stacks that a running session has numbered since the last of them.
    Stacks(KeptStacks),
    /// A session has started on one of several machines: the clock, and its first reading.
    Begun(Clock, Reading),
    /// The session has ended.
    Ended(Result<Box<Summary>, Error>),
}

/// Progress of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Name of the step, e.g. `boot`.
    pub name: String,
    /// Details for the user.
    pub detail: String,
    /// Share of the whole task, from 0 to 1.
    pub overall: f32,
}

/// Sender of messages to the window; every message wakes the window.
#[derive(Clone)]
pub struct Mail {
    sender: Sender<Message>,
    ctx: egui::Context,
}

impl Mail {
    /// Creates a sender to the window drawn by `ctx`.
    pub(super) const fn new(sender: Sender<Message>, ctx: egui::Context) -> Self {
        Self { sender, ctx }
    }

    /// Returns the context of the window.
    pub(crate) const fn context(&self) -> &egui::Context {
        &self.ctx
    }

    /// Requests a frame because shared state has changed.
    pub fn wake(&self) {
        self.ctx.request_repaint();
    }

    /// Requests a frame after a time.
    pub fn wake_after(&self, after: std::time::Duration) {
        self.ctx.request_repaint_after(after);
    }

    /// Starts a named thread that answers with messages. If it panics, the window reports so.
    pub(crate) fn spawn(&self, name: &'static str, work: impl FnOnce(&Self) + Send + 'static) {
        let mail = self.clone();
        spawn(name, move || {
            let _reported = guarded(&mail.ctx, name, || work(&mail));
        });
    }

    /// Sends a message, which is dropped if the window is closed.
    pub fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.ctx.request_repaint();
        }
    }
}
