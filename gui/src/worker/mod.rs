//! Worker threads for tasks that take longer than a frame, and the messages with which they reply.
//!
//! | module | task of its thread |
//! |---|---|
//! | `target` | one per target: boots the lab, connects, loads symbols and text, runs sessions |
//! | `run_output` | one per run: passes on its events |
//! | `analyst` | analyses, disassembles and lays out a function |
//! | `searcher` | filters the list of functions |
//! | `planner` | plans and verifies the session after every change, the previews, the editor's text, and a counting run |
//! | `machine_planner` | one per additional machine: plans the session for its kernel |
//! | `call_finder` | one per kernel: builds the call graph |
//! | `sources` | one per kernel: reads debug information and the source file of every function |
//! | `hookable` | one per kernel: finds the functions with a hookable entry |
//! | `files` | one per task: sessions, recordings and the desktop's file dialog |

mod analyst;
pub(crate) mod call_finder;
pub mod files;
pub(crate) mod hookable;
pub(crate) mod machine_lane;
pub(crate) mod machine_planner;
mod mail;
pub(crate) mod pair_sink;
pub(crate) mod path_completion;
mod planner;
pub(crate) mod run_output;
mod runner;
pub(crate) mod searcher;
pub(crate) mod sources;
pub(crate) mod target;

use crossbeam_channel::{Receiver, Sender, unbounded};

pub(crate) use crate::threads::discard;
use crate::threads::{guarded, spawn};
pub use analyst::Analysis;
pub use mail::{Mail, Message, Progress, TargetNews};
pub use planner::Planning;
pub(crate) use planner::SUPPOSED_ARENA;
pub use searcher::Search;

/// Threads that run as long as the window. A request to a thread that could not be started is
/// dropped; `spawn` has reported it.
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
    /// Starts the threads, and returns the receiver of their messages.
    #[must_use]
    pub fn start(ctx: &egui::Context) -> (Self, Receiver<Message>) {
        let (sender, inbox) = unbounded();
        let mail = Mail::new(sender, ctx.clone());
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

    /// Returns the sender of messages.
    #[must_use]
    pub const fn mail(&self) -> &Mail {
        &self.mail
    }

    /// Requests the graph of a function.
    pub fn analyse(&self, analysis: Analysis) {
        let _ended = self.analyst.send(analysis);
    }

    /// Requests a search in the list of functions.
    pub fn search(&self, search: Search) {
        let _ended = self.searcher.send(search);
    }

    /// Requests a plan with the inspector's instrument added.
    pub fn preview(&self, planning: Planning) {
        let _ended = self.previewer.send(planning);
    }

    /// Requests a plan of the inspector's instrument alone.
    pub fn offer(&self, planning: Planning) {
        let _ended = self.offerer.send(planning);
    }

    /// Requests a plan of the editor's instrument alone.
    pub fn compile(&self, planning: Planning) {
        let _ended = self.compiler.send(planning);
    }

    /// Requests a plan of a counting session, to run at once.
    pub fn count(&self, planning: Planning) {
        let _ended = self.counter.send(planning);
    }

    /// Requests a plan of the session.
    pub fn plan(&self, planning: Planning) {
        let _ended = self.planner.send(planning);
    }
}

/// Starts a thread for requests of which only the newest matters: older queued requests are
/// dropped. `work` also gets the queue, to poll it for a newer request. If it panics, the window
/// reports so, and the thread continues with the next request.
fn newest<T: Send + 'static>(
    name: &'static str,
    mail: &Mail,
    work: fn(&T, &Receiver<T>, &Mail),
) -> Sender<T> {
    let (sender, requests) = unbounded::<T>();
    let mail = mail.clone();
    spawn(name, move || {
        while let Ok(first) = requests.recv() {
            let newest = requests.try_iter().last().unwrap_or(first);
            let _reported = guarded(mail.context(), name, || work(&newest, &requests, &mail));
        }
    });
    sender
}
