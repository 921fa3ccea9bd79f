//! From a question to its session and view.

use std::sync::Arc;

use gilk_engine::layout::RuntimeLayout;
use ilk_driver::process::{CachedWork, ProcessChoices};

use super::session::{Inquiry, QuestionLayout, make};
use super::{Made, Question};
use crate::app::App;
use crate::args::Source;
use crate::desk::Pane;
use crate::document::Document;
use crate::session_panel::pulsar;
use crate::state::{NoticeKind, State, TargetState};
use crate::statistics::Column;
use crate::timeline::{LaneSort, Stack};
use crate::widgets;
use crate::worker::Message;

impl Question {
    /// Returns the reason why it cannot be answered now, as a whole sentence, if any.
    #[must_use]
    pub fn hindrance(self, state: &State) -> Option<&'static str> {
        if state.run.active.is_some() {
            return Some("A session is running; stop it first.");
        }
        if !self.fits(state.shows_process()) {
            return Some(match state.shows_process() {
                true => "It is about a kernel, and the target is a process.",
                false => "It is about a process; open one from the Target menu.",
            });
        }
        if self.is_about_function() && state.graph.scene.is_none() {
            return Some("Open a function first.");
        }
        match state.target {
            TargetState::Busy(_) => Some("The target is not ready yet."),
            _ => None,
        }
    }
}

impl App {
    /// Makes the session of a question. Without a kernel, the lab is started first.
    pub(crate) fn pose(&mut self, question: Question) {
        if let Some(why) = question.hindrance(&self.state) {
            self.state.notify(NoticeKind::Warning, why);
            return;
        }
        // The tour goes another way.
        self.state.tour = None;
        let Some(catalogue) = self.state.catalogue.clone() else {
            self.state.question = Some(question);
            self.connect(Source::Lab);
            return;
        };
        self.state.question = None;
        let layout = match (self.state.shown_process(), &self.state.target) {
            (Some(process), TargetState::Ready(_)) => QuestionLayout::Process(process.clone()),
            (_, TargetState::Ready(info)) => QuestionLayout::Fixed(info.layout.clone()),
            _ => QuestionLayout::Fixed(RuntimeLayout::supposed(crate::worker::SUPPOSED_ARENA)),
        };
        let scene = self.state.graph.scene.as_ref();
        let function = scene.map(|scene| (scene.function(), scene.name.clone()));
        // Programs run in the lab only.
        let own = self.state.document.session().workload.clone();
        let in_lab = matches!(self.state.source, Some(Source::Lab | Source::LabOf(_)));
        let workload = own.or_else(|| in_lab.then(pulsar));
        let library = Arc::clone(&self.state.library);
        let target = self.targets;
        self.workers.mail().spawn("question", move |mail| {
            let made = make(&Inquiry {
                question,
                image: catalogue.image(),
                library: &library,
                layout,
                function,
                workload,
            });
            mail.send(Message::Question(target, question, made.map(Box::new)));
        });
    }

    /// Poses the question that waits for a target.
    pub(crate) fn pose_waiting(&mut self) {
        if let Some(question) = self.state.question.take() {
            self.pose(question);
        }
    }

    /// Opens the session of a question, with its view.
    pub(crate) fn posed(&mut self, question: Question, made: Result<Box<Made>, String>) {
        let made = match made {
            Ok(made) => made,
            Err(why) => {
                let words = format!(
                    "\u{201c}{}\u{201d} cannot be answered. {why}",
                    question.text()
                );
                self.state.notify(NoticeKind::Warning, words);
                return;
            }
        };
        let placed = made.session.placements.len();
        let document = Document::of(made.session, Vec::new(), None);
        self.replace_document(match self.state.is_in_cache() {
            true => document.with_choices(ProcessChoices {
                cached: CachedWork::Instruments,
                ..ProcessChoices::default()
            }),
            false => document,
        });
        let workload = self.state.document.session().workload.is_some();
        let work = match workload || self.state.shows_process() {
            true => "",
            false => " Give the kernel work meanwhile.",
        };
        let mut words = format!(
            "{} placed for \u{201c}{}\u{201d} Run the session with F5.{work}",
            widgets::counted(placed, "instrument"),
            question.text()
        );
        if let Some((count, example)) = made.left_out {
            words += &format!(
                " {} left out, for example {example}.",
                widgets::grouped(count as u64)
            );
        }
        for (symbol, function) in &made.bound {
            words += &format!(" {symbol} is {function} here.");
        }
        self.state.notify(NoticeKind::Good, words);
        self.view_answer(question);
    }

    /// Shows the panes that answer a question.
    fn view_answer(&mut self, question: Question) {
        let state = &mut self.state;
        let (pane, column) = match question {
            Question::SlowCalls | Question::Locks => (Pane::Statistics, Column::Max),
            Question::FrequentCalls | Question::FrequentFunctions => {
                (Pane::Statistics, Column::Count)
            }
            Question::TimeInside | Question::SlowFunctions | Question::Waits => {
                (Pane::Statistics, Column::Sum)
            }
            Question::Callers | Question::Branches | Question::Allocations => {
                (Pane::Timeline, Column::Count)
            }
        };
        state.desk.show(pane);
        (state.statistics.column, state.statistics.ascending) = (column, false);
        state.statistics.filter.clear();
        state.timeline.stack_by(Stack::Function);
        state.timeline.view.change(|view| {
            view.hide_empty = !matches!(question, Question::Callers | Question::Allocations);
            view.filter.clear();
            view.sort = match column {
                Column::Count => LaneSort::Count,
                _ => LaneSort::Largest,
            };
        });
    }
}
