//! Bar charts, as SVG and PNG.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use gilk_samples::chart::png;

const INK: &str = "#1f2933";
const QUIET: &str = "#667482";
const GRID: &str = "#e6eaee";
/// Distinguishable colours, dark enough on white (after Okabe and Ito).
const COLOURS: [&str; 4] = ["#0b6bb3", "#12876b", "#c4561a", "#a23b8f"];
const WIDTH: f64 = 900.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 84.0;
const BAR: f64 = 9.0;
const GAP: f64 = 8.0;

/// Groups of bars, one below the other, each with a bar per name.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Unit of the lengths.
    pub(crate) unit: &'static str,
    /// Names of the bars of each group, in order.
    pub(crate) names: Vec<&'static str>,
    pub(crate) groups: Vec<(String, Vec<f64>)>,
    /// The scale is logarithmic.
    pub(crate) logarithmic: bool,
}

impl Bars {
    /// Writes `FILE.svg` and `FILE.png`.
    pub(crate) fn draw(&self, file: &Path) -> anyhow::Result<()> {
        let drawn = self.svg();
        // Releases contain points, so the extension is appended, not replaced.
        let named = |ending: &str| format!("{}.{ending}", file.display());
        std::fs::write(named("png"), png(&drawn, 1.0)?)
            .with_context(|| format!("writing {}", named("png")))?;
        std::fs::write(named("svg"), drawn).with_context(|| format!("writing {}", named("svg")))
    }

    fn svg(&self) -> String {
        let tall = GAP + BAR * self.names.len() as f64;
        let bottom = TOP + tall * self.groups.len() as f64;
        let height = bottom + 46.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" font-family=\"Ubuntu, sans-serif\" fill=\"{INK}\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        text(&mut out, (24.0, 33.0), 19.0, INK, "start", &self.title);
        let mut x = LEFT;
        for (name, colour) in self.names.iter().zip(COLOURS) {
            rect(&mut out, (x, 54.0), (10.0, 10.0), colour);
            text(&mut out, (x + 15.0, 63.0), 12.0, INK, "start", name);
            x += 40.0 + 6.5 * name.len() as f64;
        }
        let most = self.most();
        for (at, label) in self.marks(most) {
            let x = LEFT + at * (WIDTH - LEFT - RIGHT);
            rect(&mut out, (x, TOP), (1.0, bottom - TOP), GRID);
            text(&mut out, (x, bottom + 18.0), 11.0, QUIET, "middle", &label);
        }
        text(
            &mut out,
            (LEFT, bottom + 38.0),
            12.0,
            QUIET,
            "start",
            self.unit,
        );
        for (number, (group, figures)) in self.groups.iter().enumerate() {
            let top = TOP + tall * number as f64 + GAP / 2.0;
            let middle = top + (tall - GAP) / 2.0 + 4.0;
            text(&mut out, (LEFT - 10.0, middle), 12.0, INK, "end", group);
            for (bar, (&figure, colour)) in figures.iter().zip(COLOURS).enumerate() {
                let long = self.share(figure, most) * (WIDTH - LEFT - RIGHT);
                let y = top + BAR * bar as f64;
                rect(&mut out, (LEFT, y), (long, BAR - 1.0), colour);
                let end = (LEFT + long + 4.0, y + BAR - 1.5);
                text(&mut out, end, 9.0, QUIET, "start", &short(figure));
            }
        }
        out.push_str("</svg>\n");
        out
    }

    fn most(&self) -> f64 {
        let all = self.groups.iter().flat_map(|(_, figures)| figures);
        let most = all.copied().fold(1.0, f64::max);
        if self.logarithmic {
            10_f64.powf(most.log10().ceil().max(1.0))
        } else {
            most
        }
    }

    /// Returns the share of the width for a figure, 0 to 1. A logarithmic scale begins at 1.
    fn share(&self, figure: f64, most: f64) -> f64 {
        if self.logarithmic {
            (figure.max(1.0).log10() / most.log10()).clamp(0.0, 1.0)
        } else {
            (figure / most).clamp(0.0, 1.0)
        }
    }

    fn marks(&self, most: f64) -> Vec<(f64, String)> {
        let figures: Vec<f64> = if self.logarithmic {
            (0..=most.log10() as i32)
                .map(|power| 10_f64.powi(power))
                .collect()
        } else {
            (0..=4).map(|part| most * f64::from(part) / 4.0).collect()
        };
        let marks = figures.into_iter();
        marks
            .map(|figure| (self.share(figure, most), short(figure)))
            .collect()
    }
}

fn short(figure: f64) -> String {
    let digits = usize::from(figure.fract() != 0.0 && figure.abs() < 10.0);
    format!("{figure:.digits$}")
}

fn rect(out: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), size: f64, fill: &str, anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{fill}\" text-anchor=\"{anchor}\">{text}</text>"
    );
}
