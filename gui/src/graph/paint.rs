//! Draws edges and blocks, without handling input.

use std::collections::HashMap;
use std::sync::Arc;

use egui::text::LayoutJob;
use egui::{
    Align2, Color32, CornerRadius, Galley, Painter, Pos2, Rect, Shape, Stroke, StrokeKind,
    TextFormat, pos2, vec2,
};
use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;
use gilk_engine::paths::Path;

use super::bundle::Bundle;
use super::camera::Camera;
use super::heat::Heat;
use super::layout::Route;
use super::marks::{Hooked, Mark};
use super::scene::{CodeLine, EdgeLook, Metrics, Scene, inside};
use crate::theme::{Palette, Tokens, code, prose, text};

/// Minimum size in points at which code is drawn.
const READABLE: f32 = 4.6;
/// Zoom below which edges are bundled.
const BUNDLED: f32 = 0.25;
/// Radius of an edge's bends at zoom 1, in points.
const BEND: f32 = 6.0;

/// Cache of laid-out text of blocks, for one zoom and theme.
#[derive(Default)]
pub(crate) struct Galleys {
    size: f32,
    palette: Palette,
    kept: HashMap<usize, Arc<[Arc<Galley>]>>,
}

impl std::fmt::Debug for Galleys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Galleys")
            .field("size", &self.size)
            .field("kept", &self.kept.len())
            .finish_non_exhaustive()
    }
}

impl Galleys {
    /// Clears the cache, for another function.
    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }

    fn get(
        &mut self,
        painter: &Painter,
        block: usize,
        lines: &[CodeLine],
        size: f32,
        palette: Palette,
    ) -> Arc<[Arc<Galley>]> {
        if self.size != size || self.palette != palette {
            self.kept.clear();
            (self.size, self.palette) = (size, palette);
        }
        let made = || {
            lines
                .iter()
                .map(|line| painter.layout_job(job(line, size, palette.tokens())))
                .collect()
        };
        Arc::clone(self.kept.entry(block).or_insert_with(made))
    }
}

/// Parameters of the drawing.
pub(crate) struct Canvas<'a> {
    pub(crate) painter: &'a Painter,
    pub(crate) rect: Rect,
    pub(crate) camera: Camera,
    pub(crate) tokens: &'a Tokens,
    pub(crate) palette: Palette,
    pub(crate) metrics: Metrics,
    pub(crate) heat: Option<&'a Heat>,
}

/// Highlights of a block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Emphasis {
    pub(crate) selected: bool,
    pub(crate) hovered: bool,
    pub(crate) found: bool,
    /// The highlighted path contains it.
    pub(crate) passed: bool,
}

impl Canvas<'_> {
    /// Returns the size of code in points, in quarters, so that few sizes of glyphs are rasterized.
    fn letters(&self) -> f32 {
        (text::CODE * self.camera.zoom * 4.0).floor() / 4.0
    }

    /// Returns whether the text of blocks is readable at this zoom.
    pub(crate) fn readable(&self) -> bool {
        self.letters() >= READABLE
    }

    /// Converts a rectangle of the graph to the screen.
    pub(crate) fn place(&self, rect: Rect) -> Rect {
        self.camera.rect_to_screen(self.rect.min, rect)
    }

    /// Draws all visible edges: those of `focus` last and wider, and those of `path` above them in
    /// the accent colour.
    pub(crate) fn edges(&self, scene: &Scene, focus: Option<BlockIndex>, path: Option<&Path>) {
        let seen = Rect::from_min_max(
            self.camera.to_graph(self.rect.min, self.rect.min),
            self.camera.to_graph(self.rect.min, self.rect.max),
        )
        .expand(20.0);
        let (mut strong, mut way) = (Vec::new(), Vec::new());
        let mut bundle = Bundle::default();
        for ((edge, route), look) in scene.edges().zip(&scene.layout.routes).zip(&scene.looks) {
            if !Rect::from_points(&route.points).intersects(seen) {
                continue;
            }
            // Edges are wider the more often they were taken.
            let hits = self
                .heat
                .and_then(|heat| Some((heat, heat.edge(&scene.cfg, edge)?)));
            let share = hits.map_or(0.0, |(heat, hits)| heat.share(hits));
            let heat = 4.0 * share;
            let passed = path.is_some_and(|path| {
                path.blocks
                    .windows(2)
                    .any(|pair| pair == [edge.from, edge.to])
            });
            if passed {
                way.push(route);
            } else if Some(edge.from) == focus || Some(edge.to) == focus {
                strong.push((route, *look, 2.4 + heat));
            } else {
                // From afar, edges are fainter than blocks; those that were taken often are not.
                let near = (2.0 * self.camera.zoom).clamp(0.3, 1.0);
                if self.camera.zoom < BUNDLED && share == 0.0 {
                    let color = self.color(route, *look).gamma_multiply(near);
                    bundle.add(&self.points(route), color);
                } else {
                    self.edge(route, *look, 1.3 * near + heat, near.max(share));
                }
            }
        }
        for (line, color) in bundle.lines() {
            self.painter.line_segment(line, Stroke::new(1.0, color));
        }
        for (route, look, width) in strong {
            self.edge(route, look, width, 1.0);
        }
        for route in way {
            self.line(route, self.tokens.accent, 3.4, false);
        }
    }

    fn color(&self, route: &Route, look: EdgeLook) -> Color32 {
        match look {
            _ if route.back => self.tokens.edge_back,
            EdgeLook::True => self.tokens.edge_true,
            EdgeLook::False => self.tokens.edge_false,
            EdgeLook::Jump => self.tokens.edge_jump,
            EdgeLook::Rare => self.tokens.edge_rare,
        }
    }

    /// Returns the points of an edge on the screen.
    fn points(&self, route: &Route) -> Vec<Pos2> {
        let points = route.points.iter();
        points
            .map(|&point| self.camera.to_screen(self.rect.min, point))
            .collect()
    }

    fn edge(&self, route: &Route, look: EdgeLook, width: f32, strength: f32) {
        let color = self.color(route, look).gamma_multiply(strength);
        self.line(route, color, width, look == EdgeLook::Rare);
    }

    /// Draws an edge with its arrow.
    fn line(&self, route: &Route, color: Color32, width: f32, dashed: bool) {
        let zoom = self.camera.zoom;
        let stroke = Stroke::new((width * zoom.sqrt()).clamp(0.5, 6.0), color);
        let points = self.points(route);
        let Some(&end) = points.last() else { return };
        let head = (5.5 * zoom).clamp(1.5, 8.0);
        let mut bent = if zoom > 0.25 {
            rounded(&points, BEND * zoom)
        } else {
            points
        };
        if let Some(last) = bent.last_mut() {
            last.y -= head;
        }
        if dashed && zoom > 0.25 {
            self.painter.extend(Shape::dashed_line(
                &bent,
                stroke,
                5.0 * zoom.max(0.5),
                4.0 * zoom.max(0.5),
            ));
        } else {
            self.painter.add(Shape::line(bent, stroke));
        }
        let base = end.y - head * 1.5;
        let arrow = vec![
            end,
            pos2(end.x - head * 0.75, base),
            pos2(end.x + head * 0.75, base),
        ];
        self.painter
            .add(Shape::convex_polygon(arrow, color, Stroke::NONE));
    }

    /// Draws the box of a cold region: two outlines, and the number of its blocks.
    pub(crate) fn region(&self, words: &str, rect: Rect, hovered: bool) {
        let tokens = self.tokens;
        let zoom = self.camera.zoom;
        let corner = CornerRadius::same((5.0 * zoom).clamp(0.0, 5.0) as u8);
        let fill = if hovered { tokens.hover } else { tokens.canvas };
        let line = Stroke::new(1.0, tokens.outline);
        self.painter
            .rect(rect, corner, fill, line, StrokeKind::Inside);
        let inner = rect.shrink(3.0 * zoom);
        self.painter
            .rect_stroke(inner, corner, line, StrokeKind::Inside);
        let size = (text::BODY * zoom).max(text::SMALL);
        if rect.height() >= size && rect.width() >= 8.0 * size {
            let center = Align2::CENTER_CENTER;
            self.painter
                .text(rect.center(), center, words, prose(size), tokens.weak);
        }
    }

    /// Draws a block: its frame, its marks, and its text if readable.
    pub(crate) fn block(
        &self,
        scene: &Scene,
        index: BlockIndex,
        rect: Rect,
        hooked: &Hooked,
        emphasis: Emphasis,
        galleys: &mut Galleys,
    ) {
        let tokens = self.tokens;
        let zoom = self.camera.zoom;
        let corner = CornerRadius::same((5.0 * zoom).clamp(0.0, 5.0) as u8);
        let marks =
            [HookType::Pre, HookType::Post].map(|hook| Mark::of(scene, hooked, index, hook));
        let fill = if emphasis.hovered {
            tokens.hover
        } else {
            tokens.card
        };
        let outline = if emphasis.selected || emphasis.passed {
            Stroke::new(2.0, tokens.accent)
        } else if emphasis.found {
            Stroke::new(2.0, tokens.number)
        } else if marks.iter().any(|mark| matches!(mark, Mark::Hooked(_))) {
            Stroke::new(1.2, tokens.hooked)
        } else {
            Stroke::new(1.0, tokens.outline)
        };
        if self.readable() {
            let shadow = rect.translate(vec2(0.0, 2.0 * zoom));
            self.painter.rect_filled(shadow, corner, tokens.shadow);
        }
        self.painter.rect_filled(rect, corner, fill);
        if let Some((heat, hits)) = self.heat.and_then(|heat| Some((heat, heat.block(index)?))) {
            let color = heat
                .change(index)
                .map_or(tokens.hooked, |change| self.changed(change));
            let glow = color.gamma_multiply(0.04 + 0.14 * heat.share(hits));
            self.painter.rect_filled(rect, corner, glow);
        }
        self.bar(rect, &marks);
        self.painter.rect_stroke(
            rect,
            corner,
            outline,
            if emphasis.selected {
                StrokeKind::Outside
            } else {
                StrokeKind::Inside
            },
        );
        let Some(shown) = scene.shown.get(index.0 as usize) else {
            return;
        };
        if !self.readable() {
            let size = (rect.height() * 0.4).min(rect.width() * 0.25).min(30.0);
            if size >= 7.0 {
                self.painter.text(
                    rect.center(),
                    Align2::CENTER_CENTER,
                    index.0,
                    prose(size),
                    tokens.weak,
                );
            }
            return;
        }
        let painter = self
            .painter
            .with_clip_rect(self.painter.clip_rect().intersect(rect));
        let middle = rect.top() + inside::HEADING * zoom / 2.0;
        let left = rect.left() + inside::PADDING * zoom + 2.0 * zoom;
        let size = text::BODY * zoom;
        let name = painter.text(
            pos2(left, middle),
            Align2::LEFT_CENTER,
            format!("block {}", index.0),
            prose(size),
            tokens.strong,
        );
        let offset = format!("+{:x}", shown.offset);
        painter.text(
            pos2(name.right() + 8.0 * zoom, middle),
            Align2::LEFT_CENTER,
            offset,
            code(self.letters()),
            tokens.weak,
        );
        let under = rect.top() + inside::HEADING * zoom;
        painter.hline(
            rect.left() + 6.0 * zoom..=rect.right() - 1.0,
            under,
            Stroke::new(1.0, tokens.line),
        );
        let lines = galleys.get(
            &painter,
            index.0 as usize,
            &shown.lines,
            self.letters(),
            self.palette,
        );
        let mut at = rect.min
            + vec2(
                inside::PADDING + 2.0,
                inside::HEADING + inside::PADDING * 0.6,
            ) * zoom;
        for line in lines.iter() {
            if at.y > painter.clip_rect().bottom() {
                break;
            }
            painter.galley(at, Arc::clone(line), tokens.text);
            at.y += self.metrics.line * zoom;
        }
    }
}

/// Rounds the corners of a polyline.
fn rounded(points: &[Pos2], radius: f32) -> Vec<Pos2> {
    let mut line = Vec::with_capacity(points.len() * 4);
    line.extend(points.first());
    for triple in points.windows(3) {
        let &[before, corner, after] = triple else {
            continue;
        };
        let (toward, away) = (before - corner, after - corner);
        let radius = radius.min(toward.length() / 2.0).min(away.length() / 2.0);
        if radius < 0.5 {
            line.push(corner);
            continue;
        }
        let (start, end) = (
            corner + toward.normalized() * radius,
            corner + away.normalized() * radius,
        );
        for step in 0..=4 {
            let t = step as f32 / 4.0;
            let (a, b) = (start.lerp(corner, t), corner.lerp(end, t));
            line.push(a.lerp(b, t));
        }
    }
    line.extend(points.last().filter(|_| points.len() > 1));
    line
}

fn job(line: &CodeLine, size: f32, tokens: &Tokens) -> LayoutJob {
    let mut job = LayoutJob::default();
    job.wrap.max_width = f32::INFINITY;
    let format = |color| TextFormat::simple(code(size), color);
    job.append(&format!("{:<5} ", line.offset), 0.0, format(tokens.weak));
    for (part, piece) in &line.parts {
        let color = part.color(tokens);
        job.append(piece, 0.0, format(color));
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_keeps_the_ends() {
        let points = [
            pos2(0.0, 0.0),
            pos2(0.0, 50.0),
            pos2(80.0, 50.0),
            pos2(80.0, 90.0),
        ];
        let line = rounded(&points, 6.0);
        assert_eq!((line[0], line[line.len() - 1]), (points[0], points[3]));
        assert!(line.iter().all(|point| !point.any_nan()));
        assert_eq!(rounded(&points[..2], 6.0), points[..2]);
        assert_eq!(rounded(&[], 6.0), []);
    }
}
