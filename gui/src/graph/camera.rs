//! Visible part of a graph, and its zoom.

use egui::{Pos2, Rect, Vec2, pos2};

/// Zoom and offset that map positions of the graph to positions of the canvas, relative to its
/// corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Points of the canvas per point of the graph.
    pub zoom: f32,
    /// Position of the graph's origin on the canvas.
    pub origin: Vec2,
}

/// A side of the canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The left side.
    Left,
    /// The right side.
    Right,
    /// The upper side.
    Up,
    /// The lower side.
    Down,
}

impl Camera {
    /// Minimum zoom.
    pub const FARTHEST: f32 = 0.002;
    /// Maximum zoom.
    pub const NEAREST: f32 = 2.5;

    /// Converts a position of the graph to the screen, for a canvas with its corner at `corner`.
    #[must_use]
    pub fn to_screen(&self, corner: Pos2, at: Pos2) -> Pos2 {
        corner + self.origin + at.to_vec2() * self.zoom
    }

    /// Converts a rectangle of the graph to the screen.
    #[must_use]
    pub fn rect_to_screen(&self, corner: Pos2, rect: Rect) -> Rect {
        Rect::from_min_max(
            self.to_screen(corner, rect.min),
            self.to_screen(corner, rect.max),
        )
    }

    /// Converts a position of the screen to the graph.
    #[must_use]
    pub fn to_graph(&self, corner: Pos2, at: Pos2) -> Pos2 {
        ((at - corner - self.origin) / self.zoom).to_pos2()
    }

    /// Multiplies the zoom by `factor`; the position `at` on the canvas stays fixed.
    pub fn zoom_at(&mut self, at: Vec2, factor: f32) {
        let zoom = (self.zoom * factor).clamp(Self::FARTHEST, Self::NEAREST);
        self.origin = at + (self.origin - at) * (zoom / self.zoom);
        self.zoom = zoom;
    }

    /// Moves the visible part by a quarter of the canvas towards a side.
    pub fn shift(&mut self, side: Side, canvas: Vec2) {
        let step = canvas / 4.0;
        match side {
            Side::Left => self.origin.x += step.x,
            Side::Right => self.origin.x -= step.x,
            Side::Up => self.origin.y += step.y,
            Side::Down => self.origin.y -= step.y,
        }
    }

    /// Returns a camera that shows a whole graph of `size`, at most at natural size.
    #[must_use]
    pub fn fitting(size: Vec2, canvas: Vec2) -> Self {
        let zoom = (canvas.x / size.x.max(1.0))
            .min(canvas.y / size.y.max(1.0))
            .clamp(Self::FARTHEST, 1.0);
        Self {
            zoom,
            origin: (canvas - size * zoom) / 2.0,
        }
    }

    /// Returns a camera that shows `at` of the graph at `share` of the canvas; (0.5, 0.5) is the
    /// centre.
    #[must_use]
    pub fn looking_at(at: Pos2, zoom: f32, canvas: Vec2, share: Vec2) -> Self {
        Self {
            zoom,
            origin: canvas * share - at.to_vec2() * zoom,
        }
    }

    /// Moves as little as necessary to show `rect` of the graph, with a margin.
    pub fn reveal(&mut self, rect: Rect, canvas: Vec2) {
        let margin = (canvas * 0.12).min(Vec2::splat(80.0));
        let seen = self.rect_to_screen(Pos2::ZERO, rect);
        let shift = |low: f32, high: f32, size: f32, margin: f32| {
            if high - low > size - 2.0 * margin || low < margin {
                margin - low
            } else {
                (size - margin - high).min(0.0)
            }
        };
        let inside = Rect::from_min_size(pos2(0.0, 0.0), canvas).shrink2(margin * 0.5);
        if !inside.contains_rect(seen) {
            self.origin.x += shift(seen.left(), seen.right(), canvas.x, margin.x);
            self.origin.y += shift(seen.top(), seen.bottom(), canvas.y, margin.y);
        }
    }
}

impl Default for Camera {
    fn default() -> Self {
        Self {
            zoom: 1.0,
            origin: Vec2::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn zooming_keeps_the_position_under_the_pointer(
            zoom in 0.05f32..2.0, x in -500f32..500.0, y in -500f32..500.0,
            px in 0f32..800.0, py in 0f32..600.0, factor in 0.2f32..5.0,
        ) {
            let mut camera = Camera { zoom, origin: vec2(x, y) };
            let before = camera.to_graph(Pos2::ZERO, pos2(px, py));
            camera.zoom_at(vec2(px, py), factor);
            let after = camera.to_screen(Pos2::ZERO, before);
            prop_assert!((after - pos2(px, py)).length() < 0.5, "{after:?}");
        }

        #[test]
        fn a_fitting_camera_shows_the_whole_graph(w in 10f32..50_000.0, h in 10f32..50_000.0) {
            let (size, canvas) = (vec2(w, h), vec2(900.0, 600.0));
            let camera = Camera::fitting(size, canvas);
            let seen = camera.rect_to_screen(Pos2::ZERO, Rect::from_min_size(Pos2::ZERO, size));
            if camera.zoom > Camera::FARTHEST {
                prop_assert!(seen.left() >= -0.5 && seen.top() >= -0.5);
                prop_assert!(seen.right() <= 900.5 && seen.bottom() <= 600.5);
            }
            prop_assert!(camera.zoom <= 1.0);
        }

        #[test]
        fn revealed_rectangles_are_visible(x in -3000f32..3000.0, y in -3000f32..3000.0, zoom in 0.1f32..1.0) {
            let mut camera = Camera { zoom, origin: Vec2::ZERO };
            let rect = Rect::from_min_size(pos2(x, y), vec2(200.0, 100.0));
            camera.reveal(rect, vec2(900.0, 600.0));
            let seen = camera.rect_to_screen(Pos2::ZERO, rect);
            prop_assert!(Rect::from_min_size(Pos2::ZERO, vec2(900.0, 600.0)).contains_rect(seen), "{seen:?}");
        }
    }
}
