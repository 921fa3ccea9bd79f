//! The timeline as SVG text: heading, lanes, strip of losses, axis.

use super::canvas::Canvas;
use super::lane;
use super::scale::{self, shortened};
use super::{Chart, LaneView, Lanes};
use crate::Meaning;
use crate::recording::MarkKind;

/// Width of the labels at the left.
const LABELS: f64 = 300.0;
/// Margin at the right, where the lanes' values are written.
const RIGHT: f64 = 122.0;
/// Right margin where no lane has values.
const NARROW_RIGHT: f64 = 30.0;
/// Height of the heading.
const HEADING: f64 = 74.0;
/// Height of the strip of losses.
const LOSSES: f64 = 44.0;
/// Height of the axis and of the lines below it.
const AXIS: f64 = 50.0;
/// White above and below a lane.
const INSET: f64 = 4.0;

/// Height of a line of notes, and the size of its letters.
const NOTE: f64 = 15.0;
const NOTE_SIZE: f64 = 11.0;
/// Lines of notes that are drawn; the others are counted in a line.
const NOTES: usize = 400;

const INK: &str = "#1f2933";
const QUIET: &str = "#667482";
const GRID: &str = "#e6eaee";
const LOST: &str = "#c8102e";
/// Colours of lanes that most eyes can distinguish, dark enough on white (after Okabe and Ito).
const COLOURS: [&str; 8] = [
    "#0b6bb3", "#c4561a", "#12876b", "#a23b8f", "#8a6a00", "#5a4fcf", "#0d8ba3", "#b3364a",
];

/// Writes the chart as SVG.
#[must_use]
pub fn svg(chart: &Chart<'_>) -> String {
    let (t0, t1) = chart.span();
    let Lanes {
        drawn: lanes,
        left_out,
    } = chart.lanes();
    let tall = if lanes.len() > 16 { 40.0 } else { 62.0 };
    let width = f64::from(chart.width.clamp(480, 16_000));
    let lost = chart.lost();
    let bottom = HEADING + tall * lanes.len() as f64 + if lost.is_some() { LOSSES } else { 0.0 };
    let notes = notes(&chart.notes);
    let below = bottom + AXIS + if left_out.is_empty() { 0.0 } else { 18.0 };
    let height = below
        + match notes.len() {
            0 => 0.0,
            lines => NOTE * (lines + 1) as f64,
        };
    let has_values = lanes
        .iter()
        .any(|lane| lane.meaning != Meaning::Event && lane.total.count > 0);
    let right = if has_values { RIGHT } else { NARROW_RIGHT };
    let mut canvas = Canvas {
        chart,
        out: String::new(),
        t0,
        t1,
        left: LABELS,
        width: width - LABELS - right,
    };
    canvas.put(format_args!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Ubuntu, 'Segoe UI', 'Helvetica Neue', sans-serif\" font-size=\"12\" fill=\"{INK}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    ));
    canvas.heading(&lanes);
    let placed = || {
        let tops = (0..).map(|number: u32| HEADING + f64::from(number) * tall);
        lanes.iter().zip(tops).zip(COLOURS.iter().cycle())
    };
    for ((view, top), colour) in placed() {
        canvas.lane(view, top, tall, colour);
    }
    canvas.axis(HEADING, bottom);
    for ((view, top), colour) in placed() {
        lane::draw(&mut canvas, view, top + INSET, tall - 2.0 * INSET, colour);
    }
    if let Some(lost) = lost {
        canvas.losses(&lost, bottom - LOSSES);
    }
    canvas.users_marks(HEADING, bottom);
    if !left_out.is_empty() {
        canvas.text(24.0, bottom + AXIS, 11.0, QUIET, "start", &left_out);
    }
    for (note, line) in notes.iter().zip(1u32..) {
        let y = below + NOTE * f64::from(line);
        canvas.code(24.0, y, NOTE_SIZE, INK, note, width - 48.0);
    }
    canvas.out.push_str("</svg>\n");
    canvas.out
}

/// Returns the lines of notes that are drawn; a space that SVG would drop is one that it keeps.
fn notes(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| line.trim_end().replace(' ', "\u{a0}"))
        .collect();
    let beyond = lines.len().saturating_sub(NOTES);
    if beyond > 0 {
        lines.truncate(NOTES);
        lines.push(format!(
            "{} further lines, which `ilk show` prints",
            scale::grouped(beyond as u64)
        ));
    }
    lines
}

impl Canvas<'_> {
    fn heading(&mut self, lanes: &[LaneView<'_>]) {
        let title = self.chart.title.clone();
        self.text(24.0, 33.0, 20.0, INK, "start", &title);
        let metadata = self.chart.metadata;
        let hits = |counted: bool| -> u64 {
            let lanes = lanes.iter();
            let lanes = lanes.filter(|lane| (lane.meaning == Meaning::Count) == counted);
            lanes.map(|lane| lane.hits).sum()
        };
        let (samples, counted) = (hits(false), hits(true));
        let cpus = format!(
            "{} CPU{}",
            metadata.cpus,
            if metadata.cpus == 1 { "" } else { "s" }
        );
        let parts = [
            if metadata.kernel.is_empty() {
                String::new()
            } else {
                format!("Linux {}", metadata.kernel)
            },
            if metadata.cpus == 0 {
                String::new()
            } else {
                cpus
            },
            if samples == 0 && counted > 0 {
                String::new()
            } else {
                scale::counted(samples, "sample")
            },
            if counted == 0 {
                String::new()
            } else {
                scale::counted(counted, "counted hit")
            },
            scale::date(metadata.clock.start_unix_ns),
        ];
        let parts: Vec<&str> = parts
            .iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        self.text(24.0, 54.0, 12.0, QUIET, "start", &parts.join("  ·  "));
    }

    /// Draws the axis under the lanes, and its lines across them.
    fn axis(&mut self, top: f64, bottom: f64) {
        let clock = *self.chart.clock();
        let (from, to) = (clock.seconds(self.t0), clock.seconds(self.t1));
        let (ticks, step) = scale::ticks(from, to, (self.width / 90.0) as usize);
        for tick in ticks {
            let x = self.x_of_seconds(tick);
            self.line(
                (x, top),
                (x, bottom),
                format_args!("stroke=\"{QUIET}\" stroke-opacity=\"0.16\""),
            );
            self.line(
                (x, bottom),
                (x, bottom + 5.0),
                format_args!("stroke=\"{QUIET}\""),
            );
            self.text(
                x,
                bottom + 19.0,
                11.0,
                QUIET,
                "middle",
                &scale::axis_time(tick, step),
            );
        }
        let right = self.left + self.width;
        self.line(
            (self.left, bottom),
            (right, bottom),
            format_args!("stroke=\"{QUIET}\""),
        );
        self.text(
            right,
            bottom + 36.0,
            10.5,
            QUIET,
            "end",
            "seconds since the start of the instrumentation",
        );
    }

    /// Draws a lane: label, launch to splash, samples.
    fn lane(&mut self, view: &LaneView<'_>, top: f64, tall: f64, colour: &str) {
        let (left, right) = (self.left, self.left + self.width);
        self.line((24.0, top), (right, top), format_args!("stroke=\"{GRID}\""));
        self.rect(
            24.0,
            top + 9.0,
            4.0,
            tall - 18.0,
            format_args!("rx=\"2\" fill=\"{colour}\""),
        );
        let count = match view.hits {
            0 => "no hits".to_owned(),
            1 => "1 hit".to_owned(),
            hits => format!("{}  ·  {}", scale::counted(hits, "hit"), view.rate),
        };
        if tall > 50.0 {
            self.text(38.0, top + 21.0, 13.0, INK, "start", view.name);
            let place = format!("{}{}", view.owner, view.place);
            self.code(38.0, top + 36.0, 10.5, QUIET, &place, LABELS - 60.0);
            self.text(38.0, top + 51.0, 11.0, colour, "start", &count);
        } else {
            self.code(
                38.0,
                top + 17.0,
                10.5,
                INK,
                &format!("{}{} {}", view.owner, view.name, view.place),
                LABELS - 60.0,
            );
            self.text(38.0, top + 32.0, 10.5, colour, "start", &count);
        }
        // The lane is tinted from launch to splash: no sample may be outside.
        let (from, to) = view.times.map_or((left, right), |(launch, splash)| {
            (self.x_of_seconds(launch), self.x_of_seconds(splash))
        });
        let (inner, high) = (top + INSET, tall - 2.0 * INSET);
        self.rect(
            left,
            inner,
            self.width,
            high,
            format_args!("fill=\"#f6f8fa\""),
        );
        self.rect(
            from,
            inner,
            to - from,
            high,
            format_args!("fill=\"{colour}\" fill-opacity=\"0.09\""),
        );
        if view.times.is_some() {
            for x in [from, to].into_iter().filter(|x| *x < right - 0.5) {
                let style = format_args!(
                    "stroke=\"{colour}\" stroke-opacity=\"0.55\" stroke-dasharray=\"3 3\""
                );
                self.line((x, inner), (x, inner + high), style);
            }
        }
    }

    /// Draws the strip of losses.
    fn losses(&mut self, words: &str, top: f64) {
        let right = self.left + self.width;
        self.line((24.0, top), (right, top), format_args!("stroke=\"{GRID}\""));
        let total: u64 = self.chart.losses.iter().map(|loss| loss.count).sum();
        self.text(
            38.0,
            top + 19.0,
            12.0,
            LOST,
            "start",
            &format!("{} lost", scale::counted(total, "sample")),
        );
        self.text(
            38.0,
            top + 34.0,
            10.5,
            QUIET,
            "start",
            &shortened(words, 52),
        );
        self.rect(
            24.0,
            top + 8.0,
            4.0,
            LOSSES - 16.0,
            format_args!("rx=\"2\" fill=\"{LOST}\""),
        );
        let (chart, span) = (self.chart, self.t0..self.t1);
        for loss in chart.losses.iter().filter(|loss| span.contains(&loss.tsc)) {
            let x = self.x(loss.tsc);
            self.rect(
                x - 1.5,
                top + 10.0,
                3.0,
                LOSSES - 20.0,
                format_args!("fill=\"{LOST}\""),
            );
        }
    }

    /// Draws the user's marks across all lanes.
    fn users_marks(&mut self, top: f64, bottom: f64) {
        let (chart, span) = (self.chart, self.t0..self.t1);
        let marks = chart
            .marks
            .iter()
            .filter(|mark| mark.kind == MarkKind::User);
        for mark in marks.filter(|mark| span.contains(&mark.tsc)) {
            let x = self.x(mark.tsc);
            self.line(
                (x, top - 4.0),
                (x, bottom),
                format_args!("stroke=\"{INK}\" stroke-dasharray=\"6 3\""),
            );
            self.text(x, top - 7.0, 10.5, INK, "middle", &mark.value.to_string());
        }
    }
}
