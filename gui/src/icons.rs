//! Icons drawn as shapes: no single font has all of them, and shapes are sharp at any size.

use std::f32::consts::PI;

use egui::{Color32, Painter, Pos2, Rect, Shape, Stroke, Vec2, pos2, vec2};

/// An icon of a button.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icon {
    /// A triangle to the right.
    Run,
    /// A square.
    Stop,
    /// An arrow to the left.
    Back,
    /// An arrow to the right.
    Forward,
    /// An arrow that turns left.
    Undo,
    /// An arrow that turns right.
    Redo,
    /// A cross.
    Close,
    /// Four strokes and one across them.
    Tally,
    /// A dial with two hands.
    Clock,
    /// Columns of different heights.
    Bars,
    /// A line that parts in two.
    Branch,
    /// Bars below each other, each shorter.
    Nested,
    /// A padlock.
    Lock,
    /// A slanted stroke with a point.
    Pencil,
}

impl Icon {
    /// Side of the square that an icon is drawn in, in points.
    pub(crate) const SIZE: f32 = 12.0;

    /// Draws it with its centre at `center`.
    pub(crate) fn paint(self, painter: &Painter, center: Pos2, color: Color32) {
        let half = Self::SIZE / 2.0;
        let at = |x: f32, y: f32| center + vec2(x, y) * half;
        let stroke = Stroke::new(1.5, color);
        match self {
            Self::Run => {
                let corners = vec![at(-0.6, -0.85), at(0.85, 0.0), at(-0.6, 0.85)];
                painter.add(Shape::convex_polygon(corners, color, Stroke::NONE));
            }
            Self::Stop => {
                painter.rect_filled(
                    Rect::from_center_size(center, Vec2::splat(half * 1.4)),
                    1.0,
                    color,
                );
            }
            Self::Back | Self::Forward => {
                let side = if self == Self::Back { -1.0 } else { 1.0 };
                painter.line(
                    vec![
                        at(-0.3 * side, -0.8),
                        at(0.5 * side, 0.0),
                        at(-0.3 * side, 0.8),
                    ],
                    stroke,
                );
            }
            Self::Undo | Self::Redo => {
                let side = if self == Self::Undo { 1.0 } else { -1.0 };
                let mut line = vec![at(-0.8 * side, -0.35), at(0.3 * side, -0.35)];
                line.extend((0..=8).map(|step| {
                    let angle = -PI / 2.0 + PI * step as f32 / 8.0;
                    pos2(
                        center.x + (0.3 + 0.55 * angle.cos()) * half * side,
                        center.y + (0.2 + 0.55 * angle.sin()) * half,
                    )
                }));
                line.push(at(-0.3 * side, 0.75));
                painter.line(line, stroke);
                painter.line(
                    vec![
                        at(-0.35 * side, -0.85),
                        at(-0.85 * side, -0.35),
                        at(-0.35 * side, 0.15),
                    ],
                    stroke,
                );
            }
            Self::Tally => {
                for x in [-0.75, -0.25, 0.25, 0.75] {
                    painter.line_segment([at(x, -0.7), at(x, 0.7)], stroke);
                }
                painter.line_segment([at(-1.0, 0.5), at(1.0, -0.5)], stroke);
            }
            Self::Clock => {
                painter.circle_stroke(center, half * 0.9, stroke);
                painter.line(vec![at(0.0, -0.55), at(0.0, 0.0), at(0.45, 0.2)], stroke);
            }
            Self::Bars => {
                for (x, top) in [(-0.9, 0.1), (-0.25, -0.9), (0.4, -0.35)] {
                    let bar = Rect::from_min_max(at(x, top), at(x + 0.45, 0.9));
                    painter.rect_filled(bar, 0.0, color);
                }
            }
            Self::Branch => {
                painter.line_segment([at(0.0, -0.9), at(0.0, -0.2)], stroke);
                for side in [-1.0, 1.0] {
                    let way = [at(0.0, -0.2), at(0.65 * side, 0.3), at(0.65 * side, 0.9)];
                    painter.line(way.to_vec(), stroke);
                }
            }
            Self::Nested => {
                for (row, right) in [(-0.7, 0.9), (0.0, 0.4), (0.7, -0.1)] {
                    painter.line_segment([at(-0.9, row), at(right, row)], Stroke::new(2.5, color));
                }
            }
            Self::Lock => {
                let body = Rect::from_min_max(at(-0.7, -0.1), at(0.7, 0.9));
                painter.rect_filled(body, 1.5, color);
                let shackle = (0..=8).map(|step| {
                    let angle = PI + PI * step as f32 / 8.0;
                    at(0.45 * angle.cos(), -0.3 + 0.55 * angle.sin())
                });
                painter.line(shackle.collect(), stroke);
            }
            Self::Pencil => {
                painter.line_segment([at(-0.55, 0.55), at(0.6, -0.6)], Stroke::new(3.0, color));
                painter.line_segment([at(-0.9, 0.9), at(-0.6, 0.6)], stroke);
            }
            Self::Close => {
                for side in [-1.0, 1.0] {
                    painter.line_segment([at(-0.55 * side, -0.55), at(0.55 * side, 0.55)], stroke);
                }
            }
        }
    }
}
