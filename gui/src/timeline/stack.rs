//! Which lanes there are, and in which order: as the session has them, by instrument, CPU by CPU, or
//! thread by thread.

use std::collections::BTreeSet;

use egui::{Rect, Ui, UiBuilder, pos2};
use gilk_samples::index::threads::{Thread, Threads};
use gilk_samples::index::{Index, Part};
use gilk_samples::metadata::InstrumentInfo;
use gilk_samples::record::ALL_CPUS;

use super::Record;
use crate::command::Command;
use crate::theme::space;
use crate::widgets;

/// How lanes are stacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stack {
    /// A lane an instrument, in the session's order.
    #[default]
    Session,
    /// The same, those of one kind beside each other.
    Instrument,
    /// CPU after CPU, a lane for every instrument that delivered there; then what is no CPU's.
    Cpu,
    /// Thread after thread, a lane for every instrument that it ran into; then what is no thread's.
    Thread,
}

impl Stack {
    /// All of them, and what they are called beside "lanes by".
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Session, "order"),
        (Self::Instrument, "instrument"),
        (Self::Cpu, "CPU"),
        (Self::Thread, "thread"),
    ];
}

/// Whose samples of its instrument a lane has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Whose {
    /// Everybody's.
    #[default]
    All,
    /// A CPU's.
    Cpu(u16),
    /// A thread's, and its place in the index by threads.
    Thread(Thread, u16),
}

impl Whose {
    /// These samples of an index.
    pub(crate) fn part(self, index: &Index) -> Part<'_> {
        match self {
            Self::All => index.part(None),
            Self::Cpu(cpu) => index.part(Some(cpu)),
            Self::Thread(_, place) => index
                .threads()
                .map_or(index, Threads::index)
                .part(Some(place)),
        }
    }

    /// What a person calls whom they are of, if not of all.
    pub(crate) fn name(self, record: &Record) -> Option<String> {
        match self {
            Self::All => None,
            Self::Cpu(cpu) => Some(record.metadata.cpu_name(cpu)),
            Self::Thread(thread, _) => {
                let index = record.index.look();
                index.threads().map(|threads| threads.name(thread))
            }
        }
    }
}

/// A lane that is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Its place in the recording, which its colour comes from.
    pub(crate) index: usize,
    pub(crate) info: &'a InstrumentInfo,
    pub(crate) whose: Whose,
}

impl Row<'_> {
    /// What stands before the place of its instrument: `CPU 1 · `.
    pub(crate) fn before(&self, record: &Record) -> String {
        let name = self.whose.name(record);
        name.map_or_else(String::new, |name| format!("{name} · "))
    }

    /// What it is called.
    pub(crate) fn label(&self, record: &Record) -> String {
        let label = &self.info.label;
        match (self.whose, self.whose.name(record)) {
            (Whose::Cpu(_), Some(name)) => format!("{label} on {name}"),
            (Whose::Thread(..), Some(name)) => format!("{label} of {name}"),
            _ => label.clone(),
        }
    }
}

/// The lanes of a recording.
pub(crate) fn rows(record: &Record, stack: Stack) -> Vec<Row<'_>> {
    let all = || {
        let lanes = record.lanes().iter().enumerate();
        lanes.map(|(index, info)| Row {
            index,
            info,
            whose: Whose::All,
        })
    };
    match stack {
        Stack::Session => all().collect(),
        Stack::Instrument => {
            let mut rows: Vec<_> = all().collect();
            rows.sort_by_key(|row| &row.info.instrument);
            rows
        }
        Stack::Cpu => {
            // Totals are told for all CPUs at once.
            let cpus = |row: &Row<'_>| {
                let mut cpus = record.index.look().cpus(row.info.id);
                cpus.remove(&ALL_CPUS);
                cpus
            };
            let mut rows: Vec<_> = all()
                .flat_map(|row| {
                    let own: BTreeSet<u16> = cpus(&row);
                    let nobodys = own.is_empty().then_some(Whose::All);
                    let own = own.into_iter().map(Whose::Cpu);
                    own.chain(nobodys).map(move |whose| Row { whose, ..row })
                })
                .collect();
            rows.sort_by_key(|row| match row.whose {
                Whose::Cpu(cpu) => (false, cpu),
                _ => (true, 0),
            });
            rows
        }
        Stack::Thread => {
            let index = record.index.look();
            match index.threads() {
                Some(threads) => by_thread(threads, all().collect()),
                None => all().collect(),
            }
        }
    }
}

fn by_thread<'a>(threads: &Threads, all: Vec<Row<'a>>) -> Vec<Row<'a>> {
    let ran: Vec<(Row<'a>, BTreeSet<u16>)> = all
        .into_iter()
        .map(|row| (row, threads.index().cpus(row.info.id)))
        .collect();
    let mut rows = Vec::new();
    for (thread, place) in threads.places() {
        let own = ran.iter().filter(|(_, places)| places.contains(&place));
        let whose = Whose::Thread(thread, place);
        rows.extend(own.map(|&(row, _)| Row { whose, ..row }));
    }
    // Totals, and what was never hit.
    let nobodys = |(_, places): &&(Row<'a>, BTreeSet<u16>)| places.iter().all(|at| *at == ALL_CPUS);
    rows.extend(ran.iter().filter(nobodys).map(|&(row, _)| row));
    rows
}

/// Where lanes are wanted by thread of a recording that has none: says what to add, in a strip above the
/// lanes, and returns what is left of `rect`.
pub(crate) fn untold(ui: &mut Ui, rect: Rect, said: &mut Vec<Command>) -> Rect {
    let below = rect.with_min_y(rect.top() + space::STRIP);
    let strip = Rect::from_min_max(rect.min, pos2(rect.right(), below.top()));
    let inside = UiBuilder::new()
        .max_rect(strip.shrink2(egui::vec2(space::PANEL, space::TIGHT)))
        .layout(egui::Layout::left_to_right(egui::Align::Center))
        .id_salt("untold");
    ui.scope_builder(inside, |ui| {
        widgets::button(ui, "Tell threads apart", Command::TellThreads, true, said);
        widgets::caption(
            ui,
            "No instrument of this recording tells which thread ran. running-thread does, at the entry of finish_task_switch: add it, and run again.",
        );
    });
    below
}
