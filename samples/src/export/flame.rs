//! A flame graph (Gregg, 2011): callees are drawn on their callers, with a width proportional to
//! their time.

use std::io::{self, Write};

use crate::calls::{CallId, Calls, ROOT};
use crate::chart::{escaped, scale};
use crate::metadata::Clock;

/// Width of the picture in pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const HEAD: f64 = 40.0;
const ROW: f64 = 18.0;
/// Average width of a character in pixels.
const CHARACTER: f64 = 6.8;
/// Frames narrower than this, in pixels, are not drawn.
const NARROW: f64 = 0.1;

/// A call and its position.
struct Frame {
    call: CallId,
    depth: usize,
    /// Ticks from the left.
    from: u64,
}

/// The meaning of the widths.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amounts {
    /// Time, in ticks of the clock.
    Ticks(Clock),
    /// Counts or sums.
    Number,
}

impl Amounts {
    fn text(self, amount: u64) -> String {
        match self {
            Self::Ticks(clock) => scale::duration(amount as f64 / clock.hz.max(1) as f64),
            Self::Number => scale::grouped(amount),
        }
    }
}

/// Writes the picture as SVG; a tooltip shows each frame's amount, and the number of its calls if it is known.
pub(super) fn draw(out: &mut impl Write, calls: &Calls, amounts: Amounts) -> io::Result<()> {
    let totals = calls.totals();
    let all = totals[ROOT];
    let wide = |ticks: u64| (WIDTH - 2.0 * MARGIN) * ticks as f64 / all.max(1) as f64;
    let mut frames = Vec::new();
    let mut open = vec![Frame {
        call: ROOT,
        depth: 0,
        from: 0,
    }];
    while let Some(frame) = open.pop() {
        let mut from = frame.from;
        for &call in calls.all[frame.call].calls.values() {
            if wide(totals[call]) >= NARROW {
                let depth = frame.depth + 1;
                open.push(Frame { call, depth, from });
            }
            from += totals[call];
        }
        frames.push(frame);
    }
    let depth = frames.iter().map(|frame| frame.depth).max().unwrap_or(0);
    let height = HEAD + ROW * (depth + 1) as f64 + MARGIN;
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="Ubuntu, sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{MARGIN}" y="24" font-size="15">{}, {} in all; wide is {}</text>"##,
        match amounts {
            Amounts::Ticks(_) => "Calls",
            Amounts::Number => "Stacks",
        },
        amounts.text(all),
        match amounts {
            Amounts::Ticks(_) => "long",
            Amounts::Number => "many",
        },
    )?;
    for frame in &frames {
        let (call, total) = (&calls.all[frame.call], totals[frame.call]);
        let (name, count) = match frame.call {
            ROOT => ("all".to_owned(), String::new()),
            _ => {
                let count = match amounts {
                    Amounts::Ticks(_) => format!(", {} calls", scale::grouped(call.count)),
                    Amounts::Number => String::new(),
                };
                (escaped(&calls.name(call.major)), count)
            }
        };
        let (x, width) = (MARGIN + wide(frame.from), wide(total));
        let y = height - MARGIN - ROW * (frame.depth + 1) as f64;
        let share = 100.0 * total as f64 / all.max(1) as f64;
        let shown = scale::shortened(&name, ((width - 6.0) / CHARACTER).max(0.0) as usize);
        let time = amounts.text(total);
        writeln!(
            out,
            r##"<g><title>{name}: {time} ({share:.2} %){count}</title><rect x="{x:.2}" y="{y}" width="{width:.2}" height="{}" rx="2" fill="{}"/>"##,
            ROW - 1.0,
            colour(&name)
        )?;
        if width > 3.0 * CHARACTER {
            writeln!(
                out,
                r#"<text x="{:.2}" y="{}">{shown}</text>"#,
                x + 3.0,
                y + ROW - 5.0
            )?;
        }
        writeln!(out, "</g>")?;
    }
    writeln!(out, "</svg>")
}

/// Returns a warm colour that depends only on the name.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(2_166_136_261_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let part = |shift: u32, of: u32| (hash >> shift) % of;
    format!(
        "#{:02x}{:02x}{:02x}",
        215 + part(0, 40),
        120 + part(8, 90),
        60 + part(16, 40)
    )
}
