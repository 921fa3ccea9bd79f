//! Draws a lane by the meaning of its samples. No sample is dropped: samples that share a pixel are
//! drawn as their minimum and maximum.

use std::sync::Arc;

use egui::{Align2, Color32, CornerRadius, Painter, Pos2, Rect, Shape, Stroke, pos2, vec2};
use gilk_samples::Meaning;
use gilk_samples::index::{Column, Owner, Part, Point};
use gilk_samples::metadata::{Clock, InstrumentInfo};

use super::heat::{Heats, Heights};
use super::order::Axis;
use super::scale::{Scale, length, tick};
use crate::theme::{Tokens, prose, space, text};
use crate::widgets;

/// Maximum number of samples in view that are drawn one by one.
const FEW: u64 = 1500;
/// Number of rows for overlapping slices.
const ROWS: usize = 3;

/// A lane to draw.
pub(crate) struct Lane<'a> {
    pub(crate) painter: &'a Painter,
    pub(crate) rect: Rect,
    pub(crate) scale: Scale,
    pub(crate) info: &'a InstrumentInfo,
    /// Its samples, of one CPU or thread, or of all.
    pub(crate) index: Part<'a>,
    pub(crate) owner: Owner,
    pub(crate) clock: Clock,
    /// Time in seconds up to which samples have arrived.
    pub(crate) until: f64,
    pub(crate) color: Color32,
    pub(crate) tokens: &'a Tokens,
    pub(crate) axis: Axis,
    /// Place of the lane's scale, to the right of the samples.
    pub(crate) gutter: Rect,
    /// Draws in the gutter.
    pub(crate) margin: &'a Painter,
}

impl Lane<'_> {
    /// Returns the first tick in view, and the first tick after the view.
    fn ticks(&self) -> (u64, u64) {
        let first = tick(self.clock, self.scale.range.start);
        (first, tick(self.clock, self.scale.range.end).max(first + 1))
    }

    fn x(&self, tsc: u64) -> f32 {
        self.scale.x(self.clock.seconds(tsc))
    }

    fn columns(&self, heats: &mut Heats) -> Arc<[Column]> {
        let (first, end) = self.ticks();
        heats.tiles.view(
            self.index,
            self.info.id,
            first,
            end,
            self.rect.width().ceil().max(1.0) as usize,
        )
    }

    /// Draws the samples. If they are drawn as a heat map, returns the maximum count of a cell.
    pub(crate) fn draw(&self, heats: &mut Heats) -> Option<u32> {
        match self.info.meaning {
            Meaning::Event => self.events(heats),
            Meaning::Count => self.steps(heats),
            Meaning::Duration => return self.slices(heats),
            Meaning::Level if self.owner == Owner::Level => self.level(heats),
            // A part of a level's samples does not show how long each value held.
            Meaning::Value | Meaning::Block | Meaning::Level => return self.points(heats),
        }
        None
    }

    /// Draws a text in place of samples, in the time range of the instrument.
    pub(crate) fn text(&self, words: &str) {
        let from = self.scale.x(self.info.launch).max(self.rect.left());
        let to = self.scale.x(self.info.splash).min(self.rect.right());
        let words = widgets::truncated(
            self.painter,
            words.to_owned(),
            prose(text::SMALL),
            self.tokens.weak,
            (to - from - 16.0).max(0.0),
        );
        let at = pos2(from + 8.0, self.rect.center().y - words.size().y / 2.0);
        self.painter.galley(at, words, self.tokens.weak);
    }

    /// Draws a vertical line per pixel with events, taller for more events.
    fn events(&self, heats: &mut Heats) {
        let columns = self.columns(heats);
        let most = columns.iter().map(|column| column.count).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        let full = (1.0 + most as f32).ln();
        let floor = if most == 1 { 0.72 } else { 0.34 };
        for (place, column) in columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.count > 0)
        {
            let share = floor + (0.94 - floor) * ((1.0 + column.count as f32).ln() / full);
            let share = if most == 1 { floor } else { share };
            let x = self.rect.left() + place as f32 + 0.5;
            let height = self.rect.height() * share;
            self.painter.vline(
                x,
                self.rect.bottom() - height..=self.rect.bottom(),
                Stroke::new(1.2, self.color),
            );
        }
        if most > 1 {
            self.mark(
                Align2::RIGHT_TOP,
                &format!("\u{2264} {} / px", widgets::grouped(most)),
            );
        }
    }

    /// Draws a running total.
    fn steps(&self, heats: &mut Heats) {
        let (first, end) = self.ticks();
        let before = self.index.total(self.info.id, 0, first).max;
        let most = self.index.total(self.info.id, first, end).max.max(before);
        if self.index.lane(self.info.id).is_none() {
            return;
        }
        let least = before.min(most);
        let height = |value: u64| {
            let share = if most == least {
                0.5
            } else {
                (value - least.min(value)) as f32 / (most - least) as f32
            };
            self.rect.bottom() - 3.0 - share * (self.rect.height() - 8.0)
        };
        let mut value = before;
        let begin = self.scale.x(self.info.launch).max(self.rect.left());
        let mut line = vec![pos2(begin, height(value))];
        for (place, column) in self
            .columns(heats)
            .iter()
            .enumerate()
            .filter(|(_, column)| column.count > 0)
        {
            let x = (self.rect.left() + place as f32 + 0.5).max(begin);
            line.push(pos2(x, height(value)));
            value = column.max.max(value);
            line.push(pos2(x, height(value)));
        }
        // A total is recorded when it changes.
        self.step_line(line);
        self.bounds(Heights::new(least, most, Axis::Linear));
    }

    /// Draws a step line and the area under it; the last step extends to the splash or the current
    /// time.
    fn step_line(&self, mut line: Vec<Pos2>) {
        let Some(&last) = line.last() else { return };
        let end = self
            .scale
            .x(self.info.splash.min(self.until))
            .clamp(self.rect.left(), self.rect.right());
        line.push(pos2(end.max(last.x), last.y));
        self.under(&line);
        self.painter
            .add(Shape::line(line, Stroke::new(1.5, self.color)));
    }

    /// Draws a level, which holds until the next sample. If it changes more than once in a pixel,
    /// draws a line from the minimum to the maximum there.
    fn level(&self, heats: &mut Heats) {
        let (first, end) = self.ticks();
        let id = self.info.id;
        if self.index.is_coarse(id) {
            // A coarse lane does not record the last sample of a pixel.
            return self.heights(heats);
        }
        let before = self.index.last_before(id, first).map(|point| point.value);
        let total = self.index.total(id, first, end);
        let most = total.max.max(before.unwrap_or(0));
        let height = |value: u64| {
            let share = value.min(most) as f32 / most.max(1) as f32;
            self.rect.bottom() - 3.0 - share * (self.rect.height() - 8.0)
        };
        let left = self.scale.x(self.info.launch).max(self.rect.left());
        let mut line: Vec<Pos2> = Vec::new();
        line.extend(before.map(|value| pos2(left, height(value))));
        for (place, column) in self.columns(heats).iter().enumerate() {
            if column.count == 0 {
                continue;
            }
            let x = (self.rect.left() + place as f32 + 0.5).max(left);
            let end = tick(self.clock, self.scale.seconds(x + 0.5));
            let last = self.index.last_before(id, end);
            let last = last.map_or(column.max, |last| last.value);
            line.extend(line.last().map(|last| pos2(x, last.y)));
            line.extend([column.max, column.min, last].map(|value| pos2(x, height(value))));
        }
        if line.is_empty() {
            return;
        }
        self.step_line(line);
        self.bounds(Heights::new(0, most, Axis::Linear));
    }

    /// Draws the area under a step line.
    fn under(&self, line: &[Pos2]) {
        let fill = self.color.gamma_multiply(0.16);
        for pair in line.windows(2) {
            let &[a, b] = pair else { continue };
            if b.x > a.x {
                let area = Rect::from_min_max(pos2(a.x, a.y), pos2(b.x, self.rect.bottom()));
                self.painter.rect_filled(area, 0.0, fill);
            }
        }
    }

    /// Draws durations that end at their samples: as slices if there are few, as a heat map if
    /// there are many.
    fn slices(&self, heats: &mut Heats) -> Option<u32> {
        let (first, end) = self.ticks();
        let lane = self.index.lane(self.info.id)?;
        // A slice that ends after the view may begin in it.
        let until = end.saturating_add(lane.total.max).max(end);
        if self.index.total(self.info.id, first, until).count > FEW {
            return self.many(heats);
        }
        let mut busy = [f32::NEG_INFINITY; ROWS];
        let row_height = (self.rect.height() - 6.0) / ROWS as f32;
        let mut points = self
            .index
            .samples_in(self.info.id, first, until, FEW as usize);
        points.sort_by_key(|point| point.tsc.saturating_sub(point.value));
        let spread = points
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if b.tsc.saturating_sub(b.value) < a.tsc));
        for point in points {
            let (left, right) = (
                self.x(point.tsc.saturating_sub(point.value)),
                self.x(point.tsc),
            );
            if left > self.rect.right() {
                continue;
            }
            let row = busy
                .iter()
                .position(|&until| until <= left)
                .unwrap_or(ROWS - 1);
            if let Some(until) = busy.get_mut(row) {
                *until = right;
            }
            let (top, height) = if spread {
                (row as f32 * row_height, row_height - 1.0)
            } else {
                (5.0, self.rect.height() - 12.0)
            };
            let slice = Rect::from_min_max(
                pos2(left.max(self.rect.left()), self.rect.top() + 3.0 + top),
                pos2(
                    right.min(self.rect.right()).max(left + 1.5),
                    self.rect.top() + 3.0 + top + height,
                ),
            );
            self.painter.rect_filled(
                slice,
                CornerRadius::same(2),
                self.color.gamma_multiply(0.75),
            );
            let words = length(self.clock_seconds(point.value));
            let galley = self
                .painter
                .layout_no_wrap(words, prose(text::SMALL), self.tokens.canvas);
            if slice.width() > galley.size().x + 8.0 && slice.height() >= galley.size().y {
                self.painter.galley(
                    slice.center() - galley.size() / 2.0,
                    galley,
                    self.tokens.canvas,
                );
            }
        }
        None
    }

    /// Draws many samples: as a heat map, or as the minimum and maximum of each pixel while the
    /// heat map is not computed.
    fn many(&self, heats: &mut Heats) -> Option<u32> {
        let (first, end) = self.ticks();
        let seen = self.index.total(self.info.id, first, end);
        let place = self.rect.shrink2(vec2(0.0, 3.0));
        let view = (self.scale.range, (first, end), self.axis);
        let cells = heats.of((self.info.id, self.owner), self.index, view, seen, place);
        // A coarse lane has only sums.
        let Some(cells) = cells.filter(|cells| cells.most > 0) else {
            self.heights(heats);
            return None;
        };
        self.painter.add(cells.shape(place, self.color));
        self.bounds(Heights::new(seen.min, seen.max, self.axis));
        Some(cells.most)
    }

    fn clock_seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.clock.hz.max(1) as f64
    }

    /// Draws the minimum to maximum of each pixel, on a scale of the values in view.
    fn heights(&self, heats: &mut Heats) {
        let columns = self.columns(heats);
        let Some((least, most)) = seen(&columns) else {
            return;
        };
        let heights = Heights::new(least, most, self.axis);
        for (place, column) in columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.count > 0)
        {
            let x = self.rect.left() + place as f32 + 0.5;
            let (top, bottom) = (
                self.height(column.max, heights),
                self.height(column.min, heights),
            );
            self.painter.vline(
                x,
                top..=bottom.max(top + 1.5),
                Stroke::new(1.0, self.color.gamma_multiply(0.55)),
            );
            if let Some(mean) = column.mean() {
                let mean = self.height(mean as u64, heights);
                self.painter.rect_filled(
                    Rect::from_center_size(pos2(x, mean), vec2(1.2, 1.5)),
                    0.0,
                    self.color,
                );
            }
        }
        self.bounds(heights);
    }

    fn height(&self, value: u64, heights: Heights) -> f32 {
        self.rect.bottom() - 5.0 - heights.share(value) * (self.rect.height() - 10.0)
    }

    /// Draws values: as dots if there are few, as a heat map if there are many.
    fn points(&self, heats: &mut Heats) -> Option<u32> {
        let (first, end) = self.ticks();
        let total = self.index.total(self.info.id, first, end);
        if total.count > FEW {
            return self.many(heats);
        }
        let heights = Heights::new(total.min, total.max, self.axis);
        for Point { tsc, value, .. } in
            self.index
                .samples_in(self.info.id, first, end, FEW as usize)
        {
            let at = pos2(self.x(tsc), self.height(value, heights));
            if self.info.meaning == Meaning::Block {
                self.painter.rect_filled(
                    Rect::from_center_size(at, vec2(4.0, 4.0)),
                    1.0,
                    self.color,
                );
            } else {
                self.painter.circle_filled(at, 2.4, self.color);
            }
        }
        if total.count > 0 {
            self.bounds(heights);
        }
        None
    }

    /// Draws the scale from the least to the greatest value in view.
    fn bounds(&self, heights: Heights) {
        let (least, most) = heights.bounds();
        let words = |value: u64| match self.info.meaning {
            Meaning::Duration => length(self.clock_seconds(value)),
            _ => number(value),
        };
        if least == most {
            self.mark(Align2::RIGHT_CENTER, &words(most));
            return;
        }
        self.mark(Align2::RIGHT_TOP, &words(most));
        // Three lines of text need the height.
        if let Some(middle) = heights.middle().filter(|_| self.rect.height() >= 46.0) {
            self.mark(Align2::RIGHT_CENTER, &words(middle));
        }
        self.mark(Align2::RIGHT_BOTTOM, &words(least));
    }

    /// Draws a number of the scale at the top, in the middle or at the bottom of the gutter.
    fn mark(&self, align: Align2, words: &str) {
        // The scroll bar is at the right edge.
        let area = self.gutter.shrink2(vec2(space::TIGHT, 3.0));
        let area = area.with_max_x(area.right() - space::SMALL);
        let lay = |words: String| {
            let font = prose(text::SMALL);
            widgets::truncated(self.margin, words, font, self.tokens.weak, area.width())
        };
        let mut galley = lay(words.to_owned());
        if galley.elided {
            galley = lay(shortened(words));
        }
        let at = align.align_size_within_rect(galley.size(), area).min;
        self.margin.galley(at, galley, self.tokens.weak);
    }
}

/// Formats a value; large values, such as pointers and flags, in hexadecimal.
pub(crate) fn number(value: u64) -> String {
    if value > u64::from(u32::MAX) {
        format!("{value:#x}")
    } else {
        widgets::grouped(value)
    }
}

/// Shortens a number in hexadecimal in its middle: neighbouring addresses differ at their ends.
fn shortened(words: &str) -> String {
    match (words.get(..4), words.len().checked_sub(5)) {
        (Some(start), Some(end)) if words.starts_with("0x") => {
            format!("{start}…{}", words.get(end..).unwrap_or_default())
        }
        _ => words.to_owned(),
    }
}

fn seen(columns: &[Column]) -> Option<(u64, u64)> {
    let taken = columns.iter().filter(|column| column.count > 0);
    Some((
        taken.clone().map(|column| column.min).min()?,
        taken.map(|column| column.max).max()?,
    ))
}
