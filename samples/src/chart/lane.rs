//! Drawing of a lane's samples according to their meaning.

use super::canvas::Canvas;
use super::{LaneView, scale};
use crate::Meaning;
use crate::index::{Column, Point};
use crate::stats::bursts;

/// Number of samples up to which each is drawn; above it, columns of pixels are.
const FEW: usize = 1500;
/// Columns per pixel of a lane that has many samples.
const COLUMNS_A_PIXEL: f64 = 1.0;
/// Maximum number of bursts that are labelled with their size.
const MAX_LABELLED_BURSTS: usize = 24;

/// Draws the samples of `view` between `top` and `top + high`.
pub(super) fn draw(
    canvas: &mut Canvas<'_>,
    view: &LaneView<'_>,
    top: f64,
    high: f64,
    colour: &str,
) {
    // A level may hold throughout the range without a sample.
    if view.total.count == 0 && view.meaning != Meaning::Level {
        return;
    }
    let (index, t0, t1) = (view.part, canvas.t0, canvas.t1);
    let points = if view.total.count <= FEW as u64 {
        index.samples_in(view.id, t0, t1, FEW)
    } else {
        Vec::new()
    };
    let columns = index.query(view.id, t0, t1, (canvas.width * COLUMNS_A_PIXEL) as usize);
    let lane = LaneDrawing {
        view,
        points,
        columns,
        top,
        high,
        colour,
    };
    match view.meaning {
        Meaning::Event => lane.ticks(canvas),
        Meaning::Count => lane.steps(canvas),
        Meaning::Duration => lane.slices(canvas),
        Meaning::Value | Meaning::Block => lane.points(canvas),
        Meaning::Level => lane.level(canvas),
    }
}

struct LaneDrawing<'a> {
    view: &'a LaneView<'a>,
    /// All samples, if there are few.
    points: Vec<Point>,
    columns: Vec<Column>,
    top: f64,
    high: f64,
    colour: &'a str,
}

impl LaneDrawing<'_> {
    /// Draws a tick per sample; samples that share a pixel make it higher. Each burst is labelled
    /// with its size.
    fn ticks(&self, canvas: &mut Canvas<'_>) {
        let room = if self.high > 40.0 { 16.0 } else { 2.0 };
        let (base, full) = (self.top + self.high - 3.0, self.high - 3.0 - room);
        let pixel = canvas.width / self.columns.len().max(1) as f64;
        let most = self
            .columns
            .iter()
            .map(|column| column.count)
            .max()
            .unwrap_or(1)
            .max(1) as f64;
        for (number, column) in self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.count > 0)
        {
            let share = if most > 1.0 {
                (column.count as f64).ln_1p() / most.ln_1p()
            } else {
                1.0
            };
            let tall = full * (0.45 + 0.55 * share);
            let x = canvas.left + number as f64 * pixel;
            let style = format_args!("fill=\"{}\"", self.colour);
            canvas.rect(x, base - tall, pixel.max(1.4), tall, style);
        }
        if room < 10.0 {
            return;
        }
        // A burst ends after a dozen pixels without a sample.
        let ticks_a_pixel = (canvas.t1 - canvas.t0) as f64 / canvas.width;
        let bursts_in_lane = bursts(
            self.points.iter().map(|point| point.tsc),
            (ticks_a_pixel * 12.0) as u64,
        );
        if bursts_in_lane.len() > MAX_LABELLED_BURSTS
            || bursts_in_lane.iter().all(|burst| burst.count == 1)
        {
            return;
        }
        let mut free_from = canvas.left;
        for burst in bursts_in_lane {
            let x = (canvas.x(burst.first) + canvas.x(burst.last)) / 2.0;
            let label = scale::grouped(burst.count);
            let half = label.len() as f64 * 3.4 + 2.0;
            if x - half >= free_from {
                canvas.text(x, self.top + 12.0, 11.0, self.colour, "middle", &label);
                free_from = x + half;
            }
        }
    }

    /// Draws a running total as steps over an area, from zero.
    fn steps(&self, canvas: &mut Canvas<'_>) {
        let greatest = self.view.total.max.max(1) as f64;
        let (base, full) = (self.top + self.high - 3.0, self.high - 10.0);
        let y = |value: u64| base - full * value as f64 / greatest;
        let pixel = canvas.width / self.columns.len().max(1) as f64;
        let mut path = String::new();
        let mut start = None;
        let mut x = canvas.left;
        let seen = self
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| column.count > 0);
        for (number, column) in seen {
            x = canvas.left + number as f64 * pixel;
            if start.is_none() {
                start = Some(x);
                path.push_str(&format!("M{x:.2} {base:.2}"));
            }
            path.push_str(&format!("H{x:.2}V{:.2}", y(column.max)));
        }
        let Some(start) = start else { return };
        self.stands(canvas, path, (start, x), base);
        self.scale_label(canvas, self.view.total.max, y(self.view.total.max));
    }

    /// Draws a line of steps and the area under it down to `base`. The line begins at the first
    /// position; from the second one its last step extends to the end.
    fn stands(&self, canvas: &mut Canvas<'_>, mut path: String, (start, x): (f64, f64), base: f64) {
        let end = self.end(canvas).max(x);
        path.push_str(&format!("H{end:.2}"));
        canvas.put(format_args!(
            "<path d=\"{path}V{base:.2}H{start:.2}Z\" fill=\"{0}\" fill-opacity=\"0.18\"/>\n\
             <path d=\"{path}\" fill=\"none\" stroke=\"{0}\" stroke-width=\"1.6\"/>\n",
            self.colour
        ));
    }

    /// Draws a level as steps over an area, from zero; where it changes more than once in a pixel,
    /// from the minimum to the maximum there.
    fn level(&self, canvas: &mut Canvas<'_>) {
        let (part, id) = (self.view.part, self.view.id);
        // A coarse lane does not record which sample was the last of a pixel.
        if part.is_coarse(id) {
            return self.points(canvas);
        }
        let before = part.last_before(id, canvas.t0).map(|point| point.value);
        let greatest = self.view.total.max.max(before.unwrap_or(0));
        let (base, full) = (self.top + self.high - 3.0, self.high - 10.0);
        let y = |value: u64| base - full * value as f64 / greatest.max(1) as f64;
        let pixels = self.columns.len().max(1);
        // First and current position of the line.
        let mut ends = before.map(|_| (canvas.left, canvas.left));
        let mut path = before.map_or_else(String::new, |value| {
            format!("M{:.2} {base:.2}V{:.2}", canvas.left, y(value))
        });
        let seen = self.columns.iter().enumerate();
        for (number, column) in seen.filter(|(_, column)| column.count > 0) {
            let x = canvas.left + number as f64 * canvas.width / pixels as f64;
            let times = (canvas.t0, canvas.t1);
            let last = self.view.held_after(times, (number, pixels));
            let last = last.unwrap_or(column.max);
            match ends {
                Some(_) => path.push_str(&format!("H{x:.2}")),
                None => path.push_str(&format!("M{x:.2} {base:.2}")),
            }
            for value in [column.max, column.min, last] {
                path.push_str(&format!("V{:.2}", y(value)));
            }
            ends = Some((ends.map_or(x, |(start, _)| start), x));
        }
        let Some(ends) = ends else { return };
        self.stands(canvas, path, ends, base);
        self.scale_label(canvas, greatest, y(greatest));
    }

    /// Draws a bar from the start of each measured time to its end. Where bars would be too short
    /// or too many, their lengths are drawn as points.
    fn slices(&self, canvas: &mut Canvas<'_>) {
        let pixel = (canvas.t1 - canvas.t0) as f64 / canvas.width;
        if self.points.is_empty() || (self.view.total.max as f64) < 3.0 * pixel {
            return self.points(canvas);
        }
        let (top, tall) = (self.top + self.high * 0.2, self.high * 0.6);
        for point in &self.points {
            let (from, to) = (
                canvas
                    .x(point.tsc.saturating_sub(point.value))
                    .max(canvas.left),
                canvas.x(point.tsc),
            );
            let style = format_args!(
                "rx=\"1.5\" fill=\"{0}\" fill-opacity=\"0.55\" stroke=\"{0}\"",
                self.colour
            );
            canvas.rect(from, top, (to - from).max(1.2), tall, style);
            let words = scale::value(point.value, self.view.unit, canvas.chart.clock());
            if to - from > words.len() as f64 * 6.5 + 6.0 {
                canvas.text(
                    (from + to) / 2.0,
                    top + tall / 2.0 + 4.0,
                    11.0,
                    "#ffffff",
                    "middle",
                    &words,
                );
            }
        }
    }

    /// Draws a dot per sample between minimum and maximum; samples that share a pixel become a bar
    /// from their minimum to their maximum with the mean on it.
    fn points(&self, canvas: &mut Canvas<'_>) {
        let (least, greatest) = (self.view.total.min, self.view.total.max);
        let (base, full) = (self.top + self.high - 6.0, self.high - 12.0);
        let range = greatest.saturating_sub(least).max(1) as f64;
        let flat = greatest == least;
        let height = |value: f64| base - full * if flat { 0.5 } else { value / range };
        let y = |value: u64| height(value.saturating_sub(least) as f64);
        if self.points.is_empty() {
            let pixel = canvas.width / self.columns.len().max(1) as f64;
            for (number, column) in self
                .columns
                .iter()
                .enumerate()
                .filter(|(_, column)| column.count > 0)
            {
                let x = canvas.left + number as f64 * pixel;
                let (high, low) = (y(column.max), y(column.min));
                let style = format_args!("fill=\"{}\" fill-opacity=\"0.45\"", self.colour);
                canvas.rect(x, high - 0.8, pixel.max(1.0), low - high + 1.6, style);
                let mean = column.mean().unwrap_or_default() - least as f64;
                canvas.rect(
                    x,
                    height(mean) - 0.8,
                    pixel.max(1.0),
                    1.6,
                    format_args!("fill=\"{}\"", self.colour),
                );
            }
        }
        for point in &self.points {
            let (x, y) = (canvas.x(point.tsc), y(point.value));
            if self.view.meaning == Meaning::Block {
                canvas.rect(
                    x - 1.2,
                    y - 2.4,
                    2.4,
                    4.8,
                    format_args!("fill=\"{}\"", self.colour),
                );
            } else {
                let style = format_args!("fill=\"{}\" fill-opacity=\"0.75\"", self.colour);
                canvas.put(format_args!(
                    "<circle cx=\"{x:.2}\" cy=\"{y:.2}\" r=\"2.2\" {style}/>\n"
                ));
            }
        }
        self.scale_label(canvas, greatest, y(greatest));
        if !flat {
            self.scale_label(canvas, least, base);
        }
    }

    /// Returns the position at which the instrument was removed, or of the last sample if that is
    /// later.
    fn end(&self, canvas: &Canvas<'_>) -> f64 {
        let right = canvas.left + canvas.width;
        self.view
            .times
            .map_or(right, |(_, splash)| canvas.x_of_seconds(splash))
            .min(right)
    }

    /// Labels a height with the value that it represents, to the right of the lane.
    fn scale_label(&self, canvas: &mut Canvas<'_>, value: u64, y: f64) {
        let words = match self.view.meaning {
            Meaning::Block => format!("block {value}"),
            _ => scale::value(value, self.view.unit, canvas.chart.clock()),
        };
        let right = canvas.left + canvas.width;
        canvas.line(
            (right, y),
            (right + 4.0, y),
            format_args!("stroke=\"{}\"", self.colour),
        );
        canvas.text(right + 8.0, y + 3.5, 10.5, self.colour, "start", &words);
    }
}
