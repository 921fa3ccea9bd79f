//! The payload of dragging an instrument.

use egui::{Context, CursorIcon, DragAndDrop, Id, LayerId, Order, Rect, Response, Ui, vec2};

use crate::theme::{Palette, code, space, text};

/// Time in seconds that an instrument is held over a tab until the tab opens.
const OPENS_AFTER: f64 = 0.4;

/// An instrument being dragged, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DraggedInstrument(pub(crate) String);

impl DraggedInstrument {
    /// Returns the dragged instrument, if any.
    pub(crate) fn by(ui: &Ui) -> Option<String> {
        let carried = DragAndDrop::payload::<Self>(ui.ctx())?;
        Some(carried.0.clone())
    }

    /// Returns the dragged instrument and ends the drag, if it is released in this frame.
    pub(crate) fn dropped(ui: &Ui) -> Option<String> {
        if !ui.input(|input| input.pointer.any_released()) {
            return None;
        }
        let carried = DragAndDrop::take_payload::<Self>(ui.ctx())?;
        Some(carried.0.clone())
    }

    /// Returns whether an instrument was held over a tab long enough to open it.
    pub(crate) fn opens(ui: &Ui, tab: &Response) -> bool {
        if Self::by(ui).is_none() || !tab.contains_pointer() {
            return false;
        }
        let id = Id::unique("tab below the dragged instrument");
        let now = ui.input(|input| input.time);
        let held = ui.data(|data| data.get_temp::<(Id, f64)>(id));
        let since = match held {
            Some((held, since)) if held == tab.id => since,
            _ => {
                ui.data_mut(|data| data.insert_temp(id, (tab.id, now)));
                now
            }
        };
        let left = OPENS_AFTER - (now - since);
        if left > 0.0 {
            let left = std::time::Duration::from_secs_f64(left);
            ui.ctx().request_repaint_after(left);
        }
        left <= 0.0
    }

    /// Draws the dragged instrument at the pointer, if there is one.
    pub(crate) fn show(ctx: &Context) {
        let Some(carried) = DragAndDrop::payload::<Self>(ctx) else {
            return;
        };
        let Some(at) = ctx.input(|input| input.pointer.latest_pos()) else {
            return;
        };
        let tokens = Palette::of(&ctx.global_style().visuals).tokens();
        let layer = LayerId::new(Order::Tooltip, Id::unique("carried"));
        let painter = ctx.layer_painter(layer);
        let name = carried.0.clone();
        let galley = painter.layout_no_wrap(name, code(text::CODE), tokens.on_accent);
        let corner = at + vec2(space::MEDIUM, space::SMALL);
        let rect = Rect::from_min_size(corner, galley.size() + vec2(14.0, space::SMALL));
        painter.rect_filled(rect, space::CORNER, tokens.accent);
        painter.galley(rect.min + vec2(7.0, space::TIGHT), galley, tokens.on_accent);
        ctx.set_cursor_icon(CursorIcon::Grabbing);
    }
}
