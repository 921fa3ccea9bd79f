//! A lane to draw, and the strip that offers to record threads.

use egui::{Rect, Ui, UiBuilder, pos2};
use gilk_samples::index::Owner;
use gilk_samples::metadata::InstrumentInfo;

use super::Record;
use super::paths::CountedTotals;
use crate::command::Command;
use crate::theme::space;
use crate::widgets;

/// A lane to draw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneRow<'a> {
    /// Its index in the recording.
    pub(crate) index: usize,
    pub(crate) info: &'a InstrumentInfo,
    pub(crate) owner: Owner,
    /// True if the heading of its group is not its owner's name.
    pub(crate) names_owner: bool,
    /// The totals of the recording.
    pub(super) counted: Option<&'a CountedTotals>,
}

impl LaneRow<'_> {
    /// Returns the prefix of the instrument's location, e.g. `CPU 1 · `.
    pub(crate) fn before(&self, record: &Record) -> String {
        let name = self.owner.name(&record.metadata, &record.index.look());
        name.map_or_else(String::new, |name| format!("{name} · "))
    }

    /// Returns the label of the lane.
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

/// Draws a strip above the lanes that says how to record running threads, if the recording has
/// none, and returns the rest of `rect`.
pub(crate) fn offer_recording_threads(
    ui: &mut Ui,
    rect: Rect,
    commands: &mut Vec<Command>,
) -> Rect {
    let below = rect.with_min_y(rect.top() + space::STRIP);
    let strip = Rect::from_min_max(rect.min, pos2(rect.right(), below.top()));
    let inside = UiBuilder::new()
        .max_rect(strip.shrink2(egui::vec2(space::PANEL, space::TIGHT)))
        .layout(egui::Layout::left_to_right(egui::Align::Center))
        .id_salt("offer_recording_threads");
    ui.scope_builder(inside, |ui| {
        widgets::button(ui, "Record running threads", Command::RecordThreads, true, commands);
        widgets::caption(
            ui,
            "This recording has no running threads. Add running-thread at the entry of finish_task_switch and run again.",
        );
    });
    below
}
