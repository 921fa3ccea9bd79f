//! Legend of the graph's colours.

use egui::{Rect, Ui, pos2, vec2};

use crate::theme::{Tokens, text};

/// Height of the strip below the canvas in points.
const HEIGHT: f32 = 26.0;
/// Minimum height of the canvas with a legend in points.
const CANVAS: f32 = 120.0;

/// Draws the legend in a strip below the canvas, if there is enough space, and returns the canvas.
pub(crate) fn show(ui: &Ui, rect: Rect) -> Rect {
    let tokens = Tokens::of(ui);
    let edges = [
        ("taken", tokens.edge_true),
        ("not taken", tokens.edge_false),
        ("falls through", tokens.edge_jump),
        ("loop", tokens.edge_back),
        ("static key", tokens.edge_rare),
    ];
    // The last is a dot on a hook's pill.
    let hooks = [
        ("can be hooked", tokens.hookable),
        ("hooked", tokens.hooked),
        ("refused", tokens.refused),
        ("costs more", tokens.warning),
    ];
    let painter = ui.painter().with_clip_rect(rect);
    let galley = |label: &str| {
        painter.layout_no_wrap(
            label.to_owned(),
            crate::theme::prose(text::SMALL),
            tokens.weak,
        )
    };
    let entry = |label: &str| 16.0 + galley(label).size().x + 14.0;
    let width: f32 = edges
        .iter()
        .chain(&hooks)
        .map(|(label, _)| entry(label))
        .sum::<f32>()
        + 22.0;
    if width > rect.width() || rect.height() < CANVAS + HEIGHT {
        return rect;
    }
    let frame = rect.with_min_y(rect.bottom() - HEIGHT);
    painter.rect_filled(frame, 0.0, tokens.panel);
    painter.hline(
        frame.x_range(),
        frame.top() + 0.5,
        egui::Stroke::new(1.0, tokens.line),
    );
    let mut x = frame.left() + 12.0;
    for (kind, (label, color)) in edges
        .iter()
        .map(|entry| (0, entry))
        .chain(hooks.iter().map(|entry| (1, entry)))
    {
        let middle = frame.center().y;
        let center = pos2(x + 6.0, middle);
        if *label == "costs more" {
            painter.circle_filled(center, 2.3, *color);
        } else {
            let sign = if kind == 0 {
                vec2(12.0, 2.0)
            } else {
                vec2(4.0, 12.0)
            };
            painter.rect_filled(Rect::from_center_size(center, sign), 1.0, *color);
        }
        let text = galley(label);
        painter.galley(
            pos2(x + 18.0, middle - text.size().y / 2.0),
            text.clone(),
            tokens.weak,
        );
        x += 18.0 + text.size().x + 12.0;
    }
    rect.with_max_y(frame.top())
}
