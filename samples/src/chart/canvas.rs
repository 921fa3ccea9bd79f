//! SVG text under construction, and the scale from time to pixels.

use std::fmt::Write as _;

use super::Chart;
use super::scale::shortened;

/// A drawing area for lanes: appends SVG elements to a text.
pub(super) struct Canvas<'a> {
    pub(super) chart: &'a Chart<'a>,
    pub(super) out: String,
    pub(super) t0: u64,
    pub(super) t1: u64,
    /// Left end and width of the lanes, in pixels.
    pub(super) left: f64,
    pub(super) width: f64,
}

impl Canvas<'_> {
    /// Appends formatted text.
    pub(super) fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(arguments);
    }

    /// Returns the position of a time in pixels.
    pub(super) fn x(&self, tsc: u64) -> f64 {
        let share = (tsc as f64 - self.t0 as f64) / (self.t1 - self.t0) as f64;
        // A difference of floats loses the low bits of a late TSC; a difference of integers does not.
        let exact = tsc
            .checked_sub(self.t0)
            .map(|ticks| ticks as f64 / (self.t1 - self.t0) as f64);
        self.left + exact.unwrap_or(share) * self.width
    }

    /// Returns the position in pixels, clamped to the lanes, of a number of seconds from the start.
    pub(super) fn x_of_seconds(&self, seconds: f64) -> f64 {
        let clock = self.chart.clock();
        let (from, to) = (clock.seconds(self.t0), clock.seconds(self.t1));
        let share = if to > from {
            (seconds - from) / (to - from)
        } else {
            0.0
        };
        self.left + share.clamp(0.0, 1.0) * self.width
    }

    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, fill: &str, anchor: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\" text-anchor=\"{anchor}\">{}</text>\n",
            escaped(text)
        ));
    }

    /// Writes text in the typeface of code, cut in the middle to fit `width` pixels.
    pub(super) fn code(&mut self, x: f64, y: f64, size: f64, fill: &str, text: &str, width: f64) {
        // Every glyph of Hack is 0.602 of its size wide.
        let text = shortened(text, (width / (size * 0.602)) as usize);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\" \
             font-family=\"Hack, 'DejaVu Sans Mono', monospace\">{}</text>\n",
            escaped(&text)
        ));
    }

    pub(super) fn rect(
        &mut self,
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        style: std::fmt::Arguments<'_>,
    ) {
        self.put(format_args!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{:.2}\" height=\"{:.2}\" {style}/>\n",
            width.max(0.0),
            height.max(0.0)
        ));
    }

    pub(super) fn line(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        style: std::fmt::Arguments<'_>,
    ) {
        self.put(format_args!(
            "<line x1=\"{x1:.2}\" y1=\"{y1:.2}\" x2=\"{x2:.2}\" y2=\"{y2:.2}\" {style}/>\n"
        ));
    }
}

/// Escapes text for use between tags of an SVG or another XML file; characters that XML forbids are left out.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}
