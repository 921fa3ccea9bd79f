//! The payload of dragging an instrument.

use egui::Ui;

/// An instrument being dragged, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraggedInstrument(pub(crate) String);

impl DraggedInstrument {
    /// Returns the dragged instrument, if any.
    pub(crate) fn by(ui: &Ui) -> Option<String> {
        let carried = egui::DragAndDrop::payload::<Self>(ui.ctx())?;
        Some(carried.0.clone())
    }

    /// Returns the dragged instrument and ends the drag, if it is released in this frame.
    pub(crate) fn dropped(ui: &Ui) -> Option<String> {
        if !ui.input(|input| input.pointer.any_released()) {
            return None;
        }
        let carried = egui::DragAndDrop::take_payload::<Self>(ui.ctx())?;
        Some(carried.0.clone())
    }
}
