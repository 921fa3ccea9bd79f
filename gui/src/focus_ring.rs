//! The outline of the widget that has the keyboard focus, while keys move the focus.

use egui::{Context, Event, Id, Key, LayerId, Order, Stroke, StrokeKind};

use crate::theme::{Palette, space};

/// Keys that move the focus.
const KEYS: [Key; 6] = [
    Key::Tab,
    Key::F6,
    Key::ArrowUp,
    Key::ArrowDown,
    Key::ArrowLeft,
    Key::ArrowRight,
];

/// Draws the outline. After a click it is absent until a key moves the focus.
pub(crate) fn show(ctx: &Context) {
    let shown = Id::unique("focus ring");
    let (keys, clicked) = ctx.input(|input| {
        let is_move = |event: &Event| match event {
            Event::Key { key, pressed, .. } => *pressed && KEYS.contains(key),
            _ => false,
        };
        let keys = input.raw.events.iter().any(is_move);
        (keys, input.pointer.any_pressed())
    });
    if keys || clicked {
        ctx.data_mut(|data| data.insert_temp(shown, keys));
    }
    let is_shown = ctx.data(|data| data.get_temp(shown)).unwrap_or(false);
    let Some(id) = ctx.memory(egui::Memory::focused).filter(|_| is_shown) else {
        return;
    };
    let Some(response) = ctx.read_response(id) else {
        return;
    };
    let rect = response.interact_rect.intersect(response.rect);
    if rect.is_positive() {
        let line = Stroke::new(
            2.0,
            Palette::of(&ctx.global_style().visuals).tokens().accent,
        );
        let painter = ctx.layer_painter(LayerId::new(Order::Tooltip, shown));
        painter.rect_stroke(rect, space::CORNER, line, StrokeKind::Inside);
    }
}
