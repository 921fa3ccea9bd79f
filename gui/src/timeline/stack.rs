//! Which lanes there are, and in which order: as the session has them, by instrument, CPU by CPU, or
//! thread by thread.

use std::collections::HashSet;

use egui::{Rect, Ui, UiBuilder, pos2};
use gilk_samples::index::{By, Owner};
use gilk_samples::metadata::InstrumentInfo;

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

/// A lane that is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    /// Its place in the recording, which its colour comes from.
    pub(crate) index: usize,
    pub(crate) info: &'a InstrumentInfo,
    pub(crate) owner: Owner,
}

impl Row<'_> {
    /// What stands before the place of its instrument: `CPU 1 · `.
    pub(crate) fn before(&self, record: &Record) -> String {
        let name = self.owner.name(&record.metadata, &record.index.look());
        name.map_or_else(String::new, |name| format!("{name} · "))
    }

    /// What it is called.
    pub(crate) fn label(&self, record: &Record) -> String {
        let label = self.owner.label(self.info);
        let name = self.owner.name(&record.metadata, &record.index.look());
        match (self.owner, name) {
            (Owner::Cpu(_), Some(name)) => format!("{label} on {name}"),
            (Owner::Thread(..), Some(name)) => format!("{label} of {name}"),
            _ => label,
        }
    }
}

/// The lanes of a recording.
pub(crate) fn rows(record: &Record, stack: Stack) -> Vec<Row<'_>> {
    let ids: Vec<u64> = record.lanes().iter().map(|info| info.id).collect();
    let shown: HashSet<usize> = record.metadata.lanes().into_iter().collect();
    let rows = |lanes: Vec<(usize, Owner)>| {
        let row = |(index, owner)| {
            let info = record.lanes().get(index)?;
            { shown.contains(&index) }.then_some(Row { index, info, owner })
        };
        lanes.into_iter().filter_map(row).collect::<Vec<_>>()
    };
    let index = record.index.look();
    match stack {
        Stack::Session => rows(index.lanes_whole(&ids)),
        Stack::Instrument => {
            let mut rows = rows(index.lanes_whole(&ids));
            rows.sort_by_key(|row| &row.info.instrument);
            rows
        }
        Stack::Cpu => rows(index.lanes_by(By::Cpu, &ids)),
        Stack::Thread => rows(index.lanes_by(By::Thread, &ids)),
    }
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
