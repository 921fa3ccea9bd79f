//! A flame graph (Gregg, 2011): callees are drawn on their callers, with a width proportional to
//! their time.

use std::io::{self, Write};

use crate::calls::{CallId, CallTree, ROOT};
use crate::chart::{escaped, scale};

/// Width of the picture in pixels.
const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 10.0;
const HEAD: f64 = 40.0;
const ROW: f64 = 18.0;
/// Average width of a character in pixels.
const CHARACTER: f64 = 6.8;
/// Frames narrower than this, in pixels, are not drawn.
const NARROW: f64 = 0.1;

/// Change of the share of the time that has the full colour.
const FULL: f64 = 0.2;

/// A call and its position.
struct Frame {
    call: CallId,
    depth: usize,
    /// Nanoseconds from the left.
    from: u64,
}

/// The meaning of the widths.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amounts {
    /// Time, in nanoseconds.
    Time,
    /// Counts or sums.
    Number,
}

impl Amounts {
    fn text(self, amount: u64) -> String {
        match self {
            Self::Time => scale::duration(amount as f64 / 1e9),
            Self::Number => scale::grouped(amount),
        }
    }
}

/// Returns the flame graph of calls as SVG; a tooltip shows each frame's time and calls. With the calls
/// of an earlier recording, colours show the change of each call's share of the time: red for a larger
/// share, blue for a smaller one.
#[must_use]
pub fn flame_graph(calls: &CallTree, earlier: Option<&CallTree>) -> String {
    let mut out = Vec::new();
    let drawn = draw(&mut out, calls, Amounts::Time, earlier);
    debug_assert!(drawn.is_ok(), "writing to memory does not fail");
    String::from_utf8_lossy(&out).into_owned()
}

/// Writes [`flame_graph`].
pub(super) fn draw(
    out: &mut impl Write,
    calls: &CallTree,
    amounts: Amounts,
    earlier: Option<&CallTree>,
) -> io::Result<()> {
    let all = calls[ROOT].total_ns;
    let wide = |ns: u64| (WIDTH - 2.0 * MARGIN) * ns as f64 / all.max(1) as f64;
    let mut frames = Vec::new();
    let mut open = vec![Frame {
        call: ROOT,
        depth: 0,
        from: 0,
    }];
    while let Some(frame) = open.pop() {
        let mut from = frame.from;
        for &call in &calls[frame.call].callees {
            let total = calls[call].total_ns;
            if wide(total) >= NARROW {
                let depth = frame.depth + 1;
                open.push(Frame { call, depth, from });
            }
            from += total;
        }
        frames.push(frame);
    }
    let depth = frames.iter().map(|frame| frame.depth).max().unwrap_or(0);
    let height = HEAD + ROW * (depth + 1) as f64 + MARGIN;
    let legend = match earlier {
        None => "",
        Some(_) => "; red takes a larger share of the time than before, blue a smaller one",
    };
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="Ubuntu, sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<text x="{MARGIN}" y="24" font-size="15">{}, {} in all; wide is {}{legend}</text>"##,
        match amounts {
            Amounts::Time => "Calls",
            Amounts::Number => "Stacks",
        },
        amounts.text(all),
        match amounts {
            Amounts::Time => "long",
            Amounts::Number => "many",
        },
    )?;
    let earlier = earlier.map(|earlier| (calls.counterparts(earlier), earlier));
    for frame in &frames {
        let node = &calls[frame.call];
        let name = escaped(&node.name);
        let count = match (frame.call, amounts) {
            (ROOT, _) | (_, Amounts::Number) => String::new(),
            (_, Amounts::Time) => format!(", {}", scale::counted(node.count, "call")),
        };
        let (x, width) = (MARGIN + wide(frame.from), wide(node.total_ns));
        let y = height - MARGIN - ROW * (frame.depth + 1) as f64;
        let share = calls.share(frame.call);
        let shown = scale::shortened(&name, ((width - 6.0) / CHARACTER).max(0.0) as usize);
        let time = amounts.text(node.total_ns);
        let (fill, change) = match &earlier {
            None => (colour(&name), String::new()),
            Some((counterparts, earlier)) => {
                let before = counterparts[frame.call].map_or(0.0, |call| earlier.share(call));
                let words = format!(", {:.2} % before", 100.0 * before);
                (changed(share - before), words)
            }
        };
        writeln!(
            out,
            r##"<g><title>{name}: {time} ({:.2} %{change}){count}</title><rect x="{x:.2}" y="{y}" width="{width:.2}" height="{}" rx="2" fill="{fill}"/>"##,
            100.0 * share,
            ROW - 1.0,
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

/// Returns the colour of a change of the share of the time: red for more, blue for less, and grey for no
/// change.
fn changed(by: f64) -> String {
    const SAME: [f64; 3] = [232.0, 232.0, 232.0];
    const MORE: [f64; 3] = [240.0, 100.0, 80.0];
    const LESS: [f64; 3] = [100.0, 150.0, 240.0];
    let to = if by > 0.0 { MORE } else { LESS };
    let far = (by.abs() / FULL).min(1.0).sqrt();
    let mut text = String::from("#");
    for (same, to) in SAME.iter().zip(to) {
        text += &format!("{:02x}", (same + far * (to - same)) as u8);
    }
    text
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
