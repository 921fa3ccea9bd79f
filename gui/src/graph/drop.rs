//! Drop targets for an instrument dragged over the graph: a hook, an edge, or one of a row of
//! targets for the entry, every return, or every block.

use egui::{Align2, Pos2, Rect, Stroke, StrokeKind, Ui, pos2, vec2};
use gilk_engine::HookType;
use gilk_engine::cfg::{BlockIndex, Edge};

use super::paint::Canvas;
use super::scene::Scene;
use crate::command::{Command, Destination};
use crate::dragged_instrument::DraggedInstrument;
use crate::theme::{prose, space, text};
use crate::widgets;

/// Maximum distance in points between the pointer and an edge.
const NEAR: f32 = 6.0;

/// Margin of a pill in points within which a drop is on it.
const PILL: f32 = 2.0;

/// Drop targets for the whole function.
const PLACES: [(&str, Destination); 4] = [
    ("entry", Destination::Entry),
    ("every return", Destination::Returns),
    ("before every block", Destination::EveryBlock(HookType::Pre)),
    ("after every block", Destination::EveryBlock(HookType::Post)),
];

/// Shows the drop target under the pointer, and places the instrument when it is released.
pub(super) fn show(
    ui: &Ui,
    canvas: &Canvas<'_>,
    scene: &Scene,
    blocks: &[(BlockIndex, Rect)],
    commands: &mut Vec<Command>,
) {
    if DraggedInstrument::by(ui).is_none() {
        return;
    }
    let pointer = ui.input(|input| input.pointer.latest_pos());
    let row = places(ui, canvas);
    let Some(pointer) = pointer.filter(|at| canvas.rect.contains(*at)) else {
        return;
    };
    let found = row
        .or_else(|| block(canvas, scene, blocks, pointer))
        .or_else(|| edge(canvas, scene, pointer));
    if let Some(at) = found
        && let Some(name) = DraggedInstrument::dropped(ui)
    {
        commands.push(Command::Put(at, name));
    }
}

fn places(ui: &Ui, canvas: &Canvas<'_>) -> Option<Destination> {
    let painter = canvas.painter;
    let mut target = None;
    let mut left = canvas.rect.left() + space::PANEL;
    for (name, at) in PLACES {
        let font = prose(text::SMALL);
        let galley = painter.layout_no_wrap(name.to_owned(), font, canvas.tokens.strong);
        let corner = pos2(left, canvas.rect.top() + space::SMALL);
        let rect = Rect::from_min_size(corner, galley.size() + vec2(18.0, 12.0));
        left = rect.right() + space::TIGHT;
        if widgets::drop_place(ui, painter, rect, name, name) {
            target = Some(at);
        }
    }
    target
}

fn block(
    canvas: &Canvas<'_>,
    scene: &Scene,
    blocks: &[(BlockIndex, Rect)],
    pointer: Pos2,
) -> Option<Destination> {
    // Pills of a branch's ways extend below their block.
    let pills = blocks.iter().flat_map(|&(index, rect)| {
        let hooks = scene.hooks(index);
        hooks.map(move |hook| (index, hook, canvas.pill_of(scene, (index, rect), hook)))
    });
    let pill = pills
        .filter(|_| canvas.readable())
        .find(|(.., pill)| pill.expand(PILL).contains(pointer));
    let within = || blocks.iter().find(|(_, rect)| rect.contains(pointer));
    let (index, hook, half) = if let Some(found) = pill {
        found
    } else {
        let &(index, rect) = within()?;
        let (hook, half) = if pointer.y < rect.center().y {
            (HookType::Pre, rect.split_top_bottom_at_fraction(0.5).0)
        } else {
            (HookType::Post, rect.split_top_bottom_at_fraction(0.5).1)
        };
        (index, hook, half)
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
    Some(Destination::Hook(index, hook))
}

fn edge(canvas: &Canvas<'_>, scene: &Scene, pointer: Pos2) -> Option<Destination> {
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
    Some(Destination::Edge(edge.from, edge.to))
}

/// Returns the distance from a polyline to a point.
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
    fn distance_is_to_the_nearest_segment() {
        let line = [pos2(0.0, 0.0), pos2(0.0, 10.0), pos2(20.0, 10.0)];
        assert_eq!(distance(&line, pos2(3.0, 5.0)), 3.0);
        assert_eq!(distance(&line, pos2(10.0, 14.0)), 4.0);
        assert_eq!(distance(&line, pos2(23.0, 14.0)), 5.0);
        assert_eq!(distance(&[], pos2(0.0, 0.0)), f32::INFINITY);
    }
}
