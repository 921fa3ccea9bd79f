//! Minimap: the whole graph next to the canvas, with the visible part, which can be dragged.

use egui::accesskit::Role;
use egui::{Id, Rect, Sense, Stroke, StrokeKind, Ui, Vec2, pos2, vec2};
use gilk_engine::HookType;

use super::camera::Camera;
use super::marks::{Hooked, Mark};
use super::scene::Scene;
use crate::theme::Tokens;
use crate::widgets;

/// Maximum height of the minimap, in points or as a share of a high column.
const HIGHEST: (f32, f32) = (420.0, 0.6);
/// Minimum and maximum width of the column next to the canvas, and its share of the pane.
const COLUMN: (f32, f32, f32) = (124.0, 260.0, 0.08);
/// Distance of the minimap from the column's edges.
const MARGIN: f32 = 8.0;
/// Minimum size of the canvas next to a minimap.
const CANVAS: Vec2 = vec2(420.0, 200.0);

/// Splits a pane into the canvas and the column of the minimap, if there is enough space.
pub(super) fn split(rect: Rect) -> (Rect, Option<Rect>) {
    let (least, most, share) = COLUMN;
    let column = (share * rect.width()).clamp(least, most);
    if rect.width() < CANVAS.x + column || rect.height() < CANVAS.y {
        return (rect, None);
    }
    let at = rect.right() - column;
    (rect.with_max_x(at), Some(rect.with_min_x(at)))
}

/// Draws the minimap in its column, and moves the camera.
pub(super) fn show(
    ui: &Ui,
    camera: &mut Camera,
    scene: &Scene,
    hooked: &Hooked,
    (canvas, column): (Rect, Rect),
) {
    let tokens = Tokens::of(ui);
    let size = scene.layout.size;
    let seen = Rect::from_min_max(
        camera.to_graph(canvas.min, canvas.min),
        camera.to_graph(canvas.min, canvas.max),
    );
    let whole = Rect::from_min_size(egui::Pos2::ZERO, size);
    if seen.expand(4.0 / camera.zoom).contains_rect(whole) {
        return;
    }
    ui.painter().rect_filled(column, 0.0, tokens.panel);
    ui.painter().vline(
        column.left() + 0.5,
        column.y_range(),
        Stroke::new(1.0, tokens.line),
    );
    let highest = HIGHEST.0.max(HIGHEST.1 * column.height());
    let largest = column
        .shrink(MARGIN + 6.0)
        .size()
        .min(vec2(column.width(), highest));
    let scale = (largest.x / size.x.max(1.0)).min(largest.y / size.y.max(1.0));
    // A very narrow or flat graph is stretched, so that it can be clicked.
    let scale = vec2(
        (largest.x / size.x.max(1.0)).min(2.0 * scale),
        (largest.y / size.y.max(1.0)).min(2.0 * scale),
    );
    let inner = (size * scale).max(vec2(24.0, 24.0));
    let outer = inner + vec2(12.0, 12.0);
    let left = column.center().x - outer.x / 2.0;
    let frame = Rect::from_min_size(pos2(left, column.top() + MARGIN), outer);
    let response = ui.interact(frame, Id::unique("minimap"), Sense::click_and_drag());
    let response = widgets::named(response, Role::Canvas, "Minimap");
    let painter = ui.painter().with_clip_rect(frame.intersect(ui.clip_rect()));
    painter.rect_filled(frame, 5.0, tokens.panel.gamma_multiply(0.94));
    let origin = frame.center() - size * scale / 2.0;
    let place = |rect: Rect| {
        Rect::from_min_max(
            origin + rect.min.to_vec2() * scale,
            origin + rect.max.to_vec2() * scale,
        )
    };
    for (block, rect, region) in scene.boxes() {
        let marks =
            [HookType::Pre, HookType::Post].map(|hook| Mark::of(scene, hooked, block, hook));
        let color = if region.is_some() {
            tokens.outline
        } else if marks.iter().any(|mark| matches!(mark, Mark::Hooked(_))) {
            tokens.hooked
        } else if marks.iter().all(|mark| matches!(mark, Mark::Refused(_))) {
            tokens.refused
        } else {
            tokens.edge_jump
        };
        let small = place(rect);
        let small = Rect::from_center_size(small.center(), small.size().max(Vec2::splat(1.5)));
        painter.rect_filled(small, 0.0, color.gamma_multiply(0.8));
    }
    painter.rect(
        place(seen),
        1.0,
        tokens.accent.gamma_multiply(0.12),
        Stroke::new(1.0, tokens.accent),
        StrokeKind::Inside,
    );
    painter.rect_stroke(
        frame,
        5.0,
        Stroke::new(1.0, tokens.outline),
        StrokeKind::Inside,
    );
    if (response.clicked() || response.dragged())
        && let Some(at) = response.interact_pointer_pos()
    {
        let wanted = ((at - origin) / scale).to_pos2();
        *camera = Camera::looking_at(wanted, camera.zoom, canvas.size(), vec2(0.5, 0.5));
    }
}
