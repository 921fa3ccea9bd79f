//! Legend of the graph's colours.

use egui::{Rect, Ui, pos2, vec2};

use crate::theme::{Tokens, text};

/// Draws the legend, if the canvas is large enough.
pub(crate) fn show(ui: &Ui, rect: Rect) {
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
    let height = 24.0;
    let entry = |label: &str| 16.0 + galley(label).size().x + 14.0;
    let width: f32 = edges
        .iter()
        .chain(&hooks)
        .map(|(label, _)| entry(label))
        .sum::<f32>()
        + 22.0;
    if width + 24.0 > rect.width() || rect.height() < 120.0 {
        return;
    }
    let frame = Rect::from_min_size(
        rect.left_bottom() + vec2(10.0, -height - 10.0),
        vec2(width, height),
    );
    painter.rect_filled(frame, 5.0, tokens.panel.gamma_multiply(0.92));
    painter.rect_stroke(
        frame,
        5.0,
        egui::Stroke::new(1.0, tokens.line),
        egui::StrokeKind::Inside,
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
}
