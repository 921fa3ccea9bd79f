//! The pane in use: F6 moves the keyboard focus from pane to pane, Tab continues inside, and a click moves it too.

use egui::accesskit::Role;
use egui::{Id, Sense, Ui};

use super::{Desk, Pane};
use crate::widgets;

/// The pane that F6 focused or the pointer pressed last.
#[derive(Debug, Default)]
pub(crate) struct PaneFocus {
    at: Option<Pane>,
    /// True until the pane has taken the focus.
    wanted: bool,
}

impl PaneFocus {
    /// Moves the focus by a number of visible panes.
    pub(crate) fn step(&mut self, desk: &Desk, by: isize) {
        let visible: Vec<Pane> = Pane::ALL
            .into_iter()
            .filter(|pane| desk.sees(*pane))
            .collect();
        let at = visible.iter().position(|pane| Some(*pane) == self.at);
        let count = visible.len().cast_signed();
        let next = match at {
            Some(at) => at.cast_signed() + by,
            None if by > 0 => 0,
            None => count - 1,
        };
        let next = next.checked_rem_euclid(count).map(isize::cast_unsigned);
        self.at = next.and_then(|next| visible.get(next)).copied();
        self.wanted = self.at.is_some();
    }

    /// Returns the pane in use, if it is visible.
    pub(crate) fn in_use(&self, desk: &Desk) -> Option<Pane> {
        self.at.filter(|pane| desk.sees(*pane))
    }

    /// Records that a pane was chosen by its tab.
    pub(super) fn choose(&mut self, pane: Pane) {
        self.at = Some(pane);
    }

    /// Adds a widget that can be focused before all others of a pane.
    pub(crate) fn stop(&mut self, ui: &Ui, pane: Pane) {
        let rect = ui.max_rect();
        let id = Id::unique("pane focus").with(pane.name());
        let response = ui.interact(rect, id, Sense::focusable_noninteractive());
        let response = widgets::named(response, Role::Pane, &format!("{} region", pane.name()));
        if self.at == Some(pane) && std::mem::take(&mut self.wanted) {
            response.request_focus();
        }
        let is_pressed = ui.input(|input| input.pointer.any_pressed());
        let is_used = response.has_focus() || (is_pressed && ui.rect_contains_pointer(rect));
        if is_used && !self.wanted {
            self.at = Some(pane);
        }
    }
}

/// Returns the field that filters a pane's list.
pub(crate) fn filter_field(pane: Pane) -> Id {
    Id::unique("filter of pane").with(pane.name())
}
