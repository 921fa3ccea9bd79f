//! Tags on a block: its hits, its marks, and the pills of its hooks.

use egui::{Align2, Color32, CornerRadius, Rect, Stroke, StrokeKind, Vec2, pos2, vec2};
use gilk_engine::HookType;
use gilk_engine::cfg::BlockIndex;

use super::heat::BlockChange;
use super::marks::Mark;
use super::paint::{Canvas, Emphasis};
use super::scene::{Scene, inside};
use crate::theme::{prose, text};
use crate::widgets;

impl Canvas<'_> {
    /// Draws a block's hit count as a tag on its upper edge. Returns the tag's rectangle, and the
    /// hits.
    pub(crate) fn hits(&self, index: BlockIndex, rect: Rect) -> Option<(Rect, u64)> {
        let hits = self.heat?.block(index)?;
        let size = (text::SMALL * self.camera.zoom.sqrt()).max(8.0);
        let change = self.heat?.change(index);
        let by = change.map_or_else(String::new, |change| format!("  {}", change.words()));
        let words = format!("{} ×{by}", widgets::grouped(hits));
        let fill = match change {
            Some(change) => self.changed(change),
            None => self.tokens.hooked,
        };
        let galley = self
            .painter
            .layout_no_wrap(words, prose(size), self.tokens.canvas);
        let room = galley.size() + vec2(10.0, 2.0);
        let corner = pos2(rect.right() - room.x - 4.0, rect.top() - room.y * 0.75);
        let tag = Rect::from_min_size(corner, room);
        self.painter.rect_filled(tag, 6.0, fill);
        let at = tag.center() - galley.size() / 2.0;
        self.painter.galley(at, galley, self.tokens.canvas);
        Some((tag, hits))
    }

    /// Returns the colour of a change: more is a warning, less is good, and chance is neither.
    pub(super) fn changed(&self, change: BlockChange) -> Color32 {
        match change.share {
            _ if !change.differs => self.tokens.weak,
            Some(share) if share < 0.0 => self.tokens.good,
            _ => self.tokens.warning,
        }
    }

    /// Draws the bar at the left edge: its upper half for the pre-hook, its lower half for the
    /// post-hook.
    pub(super) fn bar(&self, rect: Rect, marks: &[Mark<'_>; 2]) {
        let width = (4.0 * self.camera.zoom)
            .clamp(2.0, 5.0)
            .min(rect.width() * 0.3);
        let [pre, post] = marks;
        let middle = rect.center().y;
        for (mark, top, bottom) in [(pre, rect.top(), middle), (post, middle, rect.bottom())] {
            let half =
                Rect::from_min_max(pos2(rect.left(), top), pos2(rect.left() + width, bottom))
                    .shrink2(vec2(0.0, 1.0));
            self.painter.rect_filled(half, 1.0, mark.color(self.tokens));
        }
    }

    /// Returns the rectangle of a hook's pill: pre and post in the heading, the ways of the branch
    /// below the block, each at the side of its edge, and as wide as its hits.
    pub(crate) fn pill_of(
        &self,
        scene: &Scene,
        (index, rect): (BlockIndex, Rect),
        hook: HookType,
    ) -> Rect {
        let zoom = self.camera.zoom;
        let size = vec2(40.0, 16.0) * zoom;
        let top = rect.top() + (inside::HEADING * zoom - size.y) / 2.0;
        let right = rect.right() - inside::PADDING * zoom;
        let post = Rect::from_min_size(pos2(right - size.x, top), size);
        let pre = post.translate(Vec2::new(-(size.x + 5.0 * zoom), 0.0));
        if !hook.is_way() {
            return if hook == HookType::Pre { pre } else { post };
        }
        let mut size = vec2(52.0, 14.0) * zoom;
        if let Some(words) = self.way_hits(index, hook) {
            let font = prose(text::SMALL * zoom);
            let all = format!("{hook} 9{words}");
            let galley = self.painter.layout_no_wrap(all, font, self.tokens.canvas);
            size.x = size.x.max(galley.size().x + 10.0 * zoom);
        }
        let below = rect.center_bottom() + vec2(0.0, 10.0 * zoom - size.y / 2.0);
        let is_right = (hook == HookType::Taken) == scene.is_taken_to_the_right(index);
        let aside = if is_right {
            4.0 * zoom
        } else {
            -4.0 * zoom - size.x
        };
        Rect::from_min_size(below + vec2(aside, 0.0), size)
    }

    /// Returns the hits of a way of a branch that has an instrument, in words.
    fn way_hits(&self, index: BlockIndex, way: HookType) -> Option<String> {
        let hits = self.heat?.way(index, way)?;
        Some(format!("  {} ×", widgets::grouped(hits)))
    }

    /// Draws the pill of a hook: outlined if free, filled if hooked, struck out if refused.
    ///
    /// Dots on its lower edge show the cost of the hook's tactic in steps above a direct splice.
    pub(crate) fn pill(
        &self,
        (index, rect): (BlockIndex, Rect),
        hook: HookType,
        (mark, steps): (&Mark<'_>, usize),
        emphasis: Emphasis,
    ) {
        let zoom = self.camera.zoom;
        let color = mark.color(self.tokens);
        let corner = CornerRadius::same((8.0 * zoom).clamp(1.0, 12.0) as u8);
        let (fill, ink) = match mark {
            Mark::Hooked(_) => (color, self.tokens.canvas),
            _ if emphasis.hovered || emphasis.selected => (self.tokens.hover, color),
            // Below the block, edges are drawn there.
            _ if hook.is_way() => (self.tokens.canvas, color),
            _ => (Color32::TRANSPARENT, color),
        };
        self.painter.rect_filled(rect, corner, fill);
        let weight = if emphasis.selected { 1.8 } else { 1.0 };
        self.painter
            .rect_stroke(rect, corner, Stroke::new(weight, color), StrokeKind::Inside);
        let mut label = match mark {
            Mark::Hooked(count) if *count > 1 => format!("{hook} {count}"),
            _ => hook.to_string(),
        };
        label += &self.way_hits(index, hook).unwrap_or_default();
        let text = self.painter.text(
            rect.center(),
            Align2::CENTER_CENTER,
            label,
            prose(text::SMALL * zoom),
            ink,
        );
        let step = 5.0 * zoom;
        let first = rect.center().x - step * (steps as f32 - 1.0) / 2.0;
        for dot in 0..steps {
            let at = pos2(first + step * dot as f32, rect.bottom());
            let ring = Stroke::new(0.8 * zoom, self.tokens.card);
            self.painter
                .circle(at, 2.3 * zoom, self.tokens.warning, ring);
        }
        if matches!(mark, Mark::Refused(_)) {
            self.painter.hline(
                text.expand(2.0 * zoom).x_range(),
                rect.center().y + 0.5,
                Stroke::new(1.0, color),
            );
        }
    }
}
