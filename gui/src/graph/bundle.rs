//! Edges from afar: segments that lie on the same pixels are drawn once, so that many edges side by
//! side are lines and not bars.

use std::collections::BTreeMap;

use egui::{Color32, Pos2, pos2};

/// Minimum length in points of a segment that is drawn.
const LEAST: f32 = 1.0;

/// Direction of a line (true if it is level), its pixel, and its colour.
type LineKey = (bool, i32, [u8; 4]);

/// Segments by direction, pixel and colour.
#[derive(Default)]
pub(super) struct Bundle {
    lines: BTreeMap<LineKey, Vec<(f32, f32)>>,
}

impl Bundle {
    /// Adds the segments of an edge; each is horizontal or vertical.
    pub(super) fn add(&mut self, points: &[Pos2], color: Color32) {
        for pair in points.windows(2) {
            let &[a, b] = pair else { continue };
            let is_level = (a.y - b.y).abs() < (a.x - b.x).abs();
            let (at, from, to) = match is_level {
                true => (a.y, a.x, b.x),
                false => (a.x, a.y, b.y),
            };
            let key = (is_level, at.round() as i32, color.to_array());
            let line = self.lines.entry(key).or_default();
            line.push((from.min(to), from.max(to)));
        }
    }

    /// Returns the lines to draw: of overlapping segments, their union.
    pub(super) fn lines(self) -> Vec<([Pos2; 2], Color32)> {
        let mut drawn = Vec::new();
        for ((is_level, at, [r, g, b, a]), mut parts) in self.lines {
            parts.sort_by(|one, other| one.0.total_cmp(&other.0));
            let mut joined: Vec<(f32, f32)> = Vec::new();
            for (from, to) in parts {
                match joined.last_mut() {
                    Some(last) if from <= last.1 + 1.0 => last.1 = last.1.max(to),
                    _ => joined.push((from, to)),
                }
            }
            let color = Color32::from_rgba_premultiplied(r, g, b, a);
            let at = at as f32;
            let long = joined.into_iter().filter(|(from, to)| to - from >= LEAST);
            drawn.extend(long.map(|(from, to)| match is_level {
                true => ([pos2(from, at), pos2(to, at)], color),
                false => ([pos2(at, from), pos2(at, to)], color),
            }));
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_on_the_same_pixels_are_one_line() {
        let mut bundle = Bundle::default();
        let color = Color32::from_rgb(1, 2, 3);
        // Three edges down the same pixel, two of which overlap, and a bend.
        bundle.add(&[pos2(10.2, 0.0), pos2(10.2, 50.0)], color);
        bundle.add(&[pos2(9.9, 30.0), pos2(9.9, 80.0), pos2(40.0, 80.0)], color);
        bundle.add(&[pos2(10.0, 120.0), pos2(10.0, 100.0)], color);
        bundle.add(&[pos2(10.0, 120.0), pos2(10.0, 120.2)], color);
        let lines: Vec<_> = bundle.lines().into_iter().map(|(line, _)| line).collect();
        let down = |from, to| [pos2(10.0, from), pos2(10.0, to)];
        let bend = [pos2(9.9, 80.0), pos2(40.0, 80.0)];
        assert_eq!(lines, [down(0.0, 80.0), down(100.0, 120.2), bend]);
    }
}
