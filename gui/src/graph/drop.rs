//! Where an instrument that the pointer carries over the graph would stand: at a hook, on an edge, or,
//! by the row of places at the top, wherever control enters or leaves the function, or at every block.

use egui::{Align2, Pos2, Rect, Stroke, StrokeKind, Ui, pos2, vec2};
use gilk_engine::HookType;
use gilk_engine::cfg::{BlockIndex, Edge};

use super::paint::Canvas;
use super::scene::Scene;
use crate::command::{At, Command};
use crate::instruments_pane::Carried;
use crate::theme::{prose, space, text};
use crate::widgets;

/// How near an edge the pointer must be, in points.
const NEAR: f32 = 6.0;

/// Places that are no block's.
const PLACES: [(&str, At); 4] = [
    ("entry", At::Entry),
    ("every return", At::Returns),
    ("before every block", At::EveryBlock(HookType::Pre)),
    ("after every block", At::EveryBlock(HookType::Post)),
];

/// Shows where it would stand, and has it stand there when it is let go.
pub(super) fn show(
    ui: &Ui,
    canvas: &Canvas<'_>,
    scene: &Scene,
    blocks: &[(BlockIndex, Rect)],
    said: &mut Vec<Command>,
) {
    if Carried::by(ui).is_none() {
        return;
    }
    let pointer = ui.input(|input| input.pointer.latest_pos());
    let row = places(ui, canvas);
    let Some(pointer) = pointer.filter(|at| canvas.rect.contains(*at)) else {
        return;
    };
    let found = row
        .or_else(|| block(canvas, blocks, pointer))
        .or_else(|| edge(canvas, scene, pointer));
    if let Some(at) = found
        && let Some(name) = Carried::dropped(ui)
    {
        said.push(Command::Put(at, name));
    }
}

fn places(ui: &Ui, canvas: &Canvas<'_>) -> Option<At> {
    let painter = canvas.painter;
    let mut found = None;
    let mut left = canvas.rect.left() + space::PANEL;
    for (name, at) in PLACES {
        let font = prose(text::SMALL);
        let galley = painter.layout_no_wrap(name.to_owned(), font, canvas.tokens.strong);
        let corner = pos2(left, canvas.rect.top() + space::SMALL);
        let rect = Rect::from_min_size(corner, galley.size() + vec2(18.0, 12.0));
        left = rect.right() + space::TIGHT;
        if widgets::drop_place(ui, painter, rect, name, name) {
            found = Some(at);
        }
    }
    found
}

fn block(canvas: &Canvas<'_>, blocks: &[(BlockIndex, Rect)], pointer: Pos2) -> Option<At> {
    let &(index, rect) = blocks.iter().find(|(_, rect)| rect.contains(pointer))?;
    let (hook, half) = if pointer.y < rect.center().y {
        (HookType::Pre, rect.split_top_bottom_at_fraction(0.5).0)
    } else {
        (HookType::Post, rect.split_top_bottom_at_fraction(0.5).1)
    };
    let tokens = canvas.tokens;
    let line = Stroke::new(2.0, tokens.accent);
    canvas.painter.rect(
        half,
        space::CORNER,
        tokens.accent.gamma_multiply(0.18),
        line,
        StrokeKind::Inside,
    );
    Some(At::Hook(index, hook))
}

fn edge(canvas: &Canvas<'_>, scene: &Scene, pointer: Pos2) -> Option<At> {
    let routes = scene.cfg.edges.iter().zip(&scene.layout.routes);
    let screen = |point: &Pos2| canvas.camera.to_screen(canvas.rect.min, *point);
    let (edge, line): (&Edge, Vec<Pos2>) = routes
        .map(|(edge, route)| (edge, route.points.iter().map(screen).collect::<Vec<_>>()))
        .map(|(edge, line)| (distance(&line, pointer), edge, line))
        .filter(|(distance, ..)| *distance < NEAR)
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, edge, line)| (edge, line))?;
    let tokens = canvas.tokens;
    canvas.painter.line(line, Stroke::new(4.0, tokens.accent));
    let words = format!("from block {} to block {}", edge.from.0, edge.to.0);
    let at = pointer + vec2(12.0, -12.0);
    canvas.painter.text(
        at,
        Align2::LEFT_BOTTOM,
        words,
        prose(text::SMALL),
        tokens.strong,
    );
    Some(At::Edge(edge.from, edge.to))
}

/// From a line of points to a point.
fn distance(line: &[Pos2], to: Pos2) -> f32 {
    let pieces = line.windows(2).filter_map(|pair| {
        let &[a, b] = pair else { return None };
        let along = b - a;
        let share = ((to - a).dot(along) / along.length_sq().max(1e-6)).clamp(0.0, 1.0);
        Some((a + along * share).distance(to))
    });
    pieces.fold(f32::INFINITY, f32::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_to_the_nearest_piece() {
        let line = [pos2(0.0, 0.0), pos2(0.0, 10.0), pos2(20.0, 10.0)];
        assert_eq!(distance(&line, pos2(3.0, 5.0)), 3.0);
        assert_eq!(distance(&line, pos2(10.0, 14.0)), 4.0);
        assert_eq!(distance(&line, pos2(23.0, 14.0)), 5.0);
        assert_eq!(distance(&[], pos2(0.0, 0.0)), f32::INFINITY);
    }
}
