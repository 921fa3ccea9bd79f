//! The graph of a function as a picture, without a window or Graphviz.
//!
//! Blocks are in rows: each below all of its predecessors, except for back edges, which are drawn
//! at the right. Within a row they are below the average position of their predecessors (Sugiyama
//! and others, 1981).

use std::fmt::Write as _;

use super::{Drawn, drawn};
use crate::chart::escaped;
use crate::ids::{Id as _, Ids, id};
use crate::metadata::{FunctionInfo, Metadata};
use crate::profile::Profile;

const LINE: f64 = 15.0;
/// Width of a character of the typeface.
const CHARACTER: f64 = 7.3;
const PADDING: f64 = 10.0;
/// Gaps between boxes of a row, and between rows.
const GAP: (f64, f64) = (26.0, 44.0);
const MARGIN: f64 = 24.0;
/// Number of ordering sweeps.
const SWEEPS: usize = 8;

id!(
    /// A block of the function.
    BlockNumber
);
id!(
    /// An edge between two of them.
    EdgeNumber
);
id!(
    /// A row of blocks, from the top.
    RowNumber
);

type DrawnEdges = Ids<EdgeNumber, (BlockNumber, BlockNumber)>;
type Places = Ids<BlockNumber, BlockBox>;

/// A block and its position.
#[derive(Clone, Copy, Debug, Default)]
struct BlockBox {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

impl BlockBox {
    fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }
}

/// Draws the graph with hits and durations of its blocks, darker where it was reached more often.
#[must_use]
pub fn svg(metadata: &Metadata, function: &FunctionInfo, profiles: &[Profile]) -> String {
    let blocks = drawn(metadata, function, profiles);
    // A file may name blocks that it does not have.
    let edges: DrawnEdges = function
        .edges
        .iter()
        .filter(|(from, to)| (*from.max(to) as usize) < blocks.len())
        .map(|&(from, to)| (BlockNumber(from), BlockNumber(to)))
        .collect();
    let (rows, is_back) = rows(blocks.len(), &edges);
    let places = places(&blocks, &rows, &edges);
    let right = places.values().iter().map(|at| at.x + at.width);
    let right = right.fold(0.0, f64::max);
    let bottom = places.values().iter().map(|at| at.y + at.height);
    let bottom = bottom.fold(0.0, f64::max);
    let loops = is_back.values().iter().filter(|back| **back).count();
    let (width, height) = (right + MARGIN + 12.0 * loops as f64, bottom + MARGIN);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="Hack, monospace" font-size="12">
<rect width="100%" height="100%" fill="#ffffff"/>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#555555"/></marker></defs>
<text x="{MARGIN}" y="{MARGIN}" font-size="15" font-family="Ubuntu, sans-serif">{}</text>"##,
        escaped(&function.name)
    );
    let mut lane = right;
    for (edge, &(from, to)) in edges.iter() {
        let (from, to, back) = (places[from], places[to], is_back[edge]);
        let path = if back {
            lane += 12.0;
            let (y0, y1) = (from.y + from.height / 2.0, to.y + to.height / 2.0);
            let (x0, x1) = (from.x + from.width, to.x + to.width);
            format!("M{x0:.1} {y0:.1}C{lane:.1} {y0:.1} {lane:.1} {y1:.1} {x1:.1} {y1:.1}")
        } else {
            let (x0, y0, x1, y1) = (from.middle(), from.y + from.height, to.middle(), to.y);
            let bend = (y1 - y0) / 2.0;
            let (c0, c1) = (y0 + bend, y1 - bend);
            format!("M{x0:.1} {y0:.1}C{x0:.1} {c0:.1} {x1:.1} {c1:.1} {x1:.1} {y1:.1}")
        };
        let dash = if back {
            r#" stroke-dasharray="5 3""#
        } else {
            ""
        };
        let _ = writeln!(
            out,
            r##"<path d="{path}" fill="none" stroke="#555555"{dash} marker-end="url(#tip)"/>"##
        );
    }
    for (block, at) in blocks.iter().zip(places.values()) {
        let _ = writeln!(
            out,
            r##"<rect x="{:.1}" y="{:.1}" width="{:.1}" height="{:.1}" rx="4" fill="{}" stroke="#333333"/>"##,
            at.x, at.y, at.width, at.height, block.colour
        );
        for (line, number) in block.lines.iter().zip(1u32..) {
            let _ = writeln!(
                out,
                r#"<text x="{:.1}" y="{:.1}">{}</text>"#,
                at.x + PADDING,
                at.y + LINE * f64::from(number) + PADDING / 4.0,
                escaped(line)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the row of each block, and which edges are back edges.
fn rows(blocks: usize, edges: &DrawnEdges) -> (Ids<BlockNumber, RowNumber>, Ids<EdgeNumber, bool>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Never,
        Open,
        Finished,
    }
    let mut successors: Ids<BlockNumber, Vec<EdgeNumber>> = vec![Vec::new(); blocks].into();
    for (edge, &(from, _)) in edges.iter() {
        successors[from].push(edge);
    }
    let mut is_back = Ids::like(edges, false);
    let mut visits = Ids::like(&successors, Visit::Never);
    let mut order = Vec::new();
    for root in successors.keys() {
        let mut open = vec![(root, 0)];
        while let Some((block, next)) = open.pop() {
            if next == 0 {
                if visits[block] != Visit::Never {
                    continue;
                }
                visits[block] = Visit::Open;
            }
            let Some(&edge) = successors[block].get(next) else {
                visits[block] = Visit::Finished;
                order.push(block);
                continue;
            };
            open.push((block, next + 1));
            let (_, to) = edges[edge];
            match visits[to] {
                Visit::Never => open.push((to, 0)),
                Visit::Open => is_back[edge] = true,
                Visit::Finished => {}
            }
        }
    }
    let mut rows = Ids::like(&successors, RowNumber(0));
    for &block in order.iter().rev() {
        let below = RowNumber(rows[block].0 + 1);
        for &edge in &successors[block] {
            let (_, to) = edges[edge];
            if !is_back[edge] {
                rows[to] = rows[to].max(below);
            }
        }
    }
    (rows, is_back)
}

fn places(blocks: &[Drawn], rows: &Ids<BlockNumber, RowNumber>, edges: &DrawnEdges) -> Places {
    let mut places: Places = blocks
        .iter()
        .map(|block| {
            let longest = block.lines.iter().map(|line| line.chars().count()).max();
            BlockBox {
                width: longest.unwrap_or(0) as f64 * CHARACTER + 2.0 * PADDING,
                height: block.lines.len() as f64 * LINE + PADDING,
                ..BlockBox::default()
            }
        })
        .collect();
    let last = rows.values().iter().max().map_or(0, |row| row.index() + 1);
    let mut by_row: Ids<RowNumber, Vec<BlockNumber>> = vec![Vec::new(); last].into();
    for (block, &row) in rows.iter() {
        by_row[row].push(block);
    }
    let mut top = 2.0 * MARGIN;
    for row in by_row.values() {
        let mut highest: f64 = 0.0;
        for &block in row {
            places[block].y = top;
            highest = highest.max(places[block].height);
        }
        top += highest + GAP.1;
    }
    for sweep in 0..SWEEPS {
        let downwards = sweep % 2 == 0;
        let mut each: Vec<RowNumber> = by_row.keys().collect();
        if !downwards {
            each.reverse();
        }
        for row in each {
            let wanted = |block: BlockNumber| {
                let neighbours = edges
                    .values()
                    .iter()
                    .filter_map(|&(from, to)| match downwards {
                        true => (to == block).then_some(from),
                        false => (from == block).then_some(to),
                    });
                let middles: Vec<f64> = neighbours.map(|other| places[other].middle()).collect();
                if middles.is_empty() {
                    places[block].middle()
                } else {
                    middles.iter().sum::<f64>() / middles.len() as f64
                }
            };
            let blocks = by_row[row].iter();
            let mut wishes: Vec<(f64, BlockNumber)> =
                blocks.map(|&block| (wanted(block), block)).collect();
            wishes.sort_by(|one, other| one.0.total_cmp(&other.0));
            by_row[row] = wishes.iter().map(|(_, block)| *block).collect();
            set(&mut places, &wishes);
        }
    }
    let left = places.values().iter().map(|at| at.x);
    let left = left.fold(f64::INFINITY, f64::min);
    for (_, at) in places.iter_mut() {
        at.x += MARGIN - left;
    }
    places
}

/// Positions a row without overlaps, centred on the wishes of its blocks.
fn set(places: &mut Places, wishes: &[(f64, BlockNumber)]) {
    let widths = wishes.iter().map(|(_, block)| places[*block].width + GAP.0);
    let all: f64 = widths.sum();
    let mean = wishes.iter().map(|(wish, _)| wish).sum::<f64>() / wishes.len().max(1) as f64;
    let mut x = mean - (all - GAP.0) / 2.0;
    for &(_, block) in wishes {
        places[block].x = x;
        x += places[block].width + GAP.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_are_below_their_predecessors_without_overlaps(
            blocks in 1usize..30, edges in prop::collection::vec((0u32..30, 0u32..30), 0..60),
        ) {
            let edges: DrawnEdges = edges
                .into_iter()
                .filter(|(from, to)| (*from.max(to) as usize) < blocks)
                .map(|(from, to)| (BlockNumber(from), BlockNumber(to)))
                .collect();
            let (rows, is_back) = rows(blocks, &edges);
            for (edge, &(from, to)) in edges.iter() {
                prop_assert!(is_back[edge] || rows[to] > rows[from]);
            }
            let drawn: Vec<Drawn> = (0..blocks)
                .map(|n| Drawn { lines: vec!["x".repeat(1 + n % 7); 1 + n % 3], colour: String::new() })
                .collect();
            let places = places(&drawn, &rows, &edges).into_values();
            for (n, one) in places.iter().enumerate() {
                for other in &places[n + 1..] {
                    let apart = one.x + one.width <= other.x || other.x + other.width <= one.x
                        || one.y + one.height <= other.y || other.y + other.height <= one.y;
                    prop_assert!(apart, "{:?} and {:?}", one, other);
                }
                prop_assert!(one.x >= MARGIN - 0.01 && one.y >= MARGIN);
            }
        }
    }

    #[test]
    fn a_back_edge_is_drawn_at_the_right() {
        let function = FunctionInfo {
            major: 0,
            name: "a<b>".into(),
            address: 0,
            blocks: vec![(0, 4), (4, 8), (8, 12)],
            edges: vec![(0, 1), (1, 1), (1, 2), (9, 9)],
        };
        let text = svg(&Metadata::default(), &function, &[]);
        assert_eq!(
            text.matches("<path d=\"M").count() - 1,
            3,
            "the arrow's head and three edges"
        );
        assert_eq!(text.matches("stroke-dasharray").count(), 1);
        assert!(text.contains("a&lt;b&gt;") && text.contains("2  +0x8..+0xc"));
        crate::chart::png(&text, 1.0).unwrap();
    }
}
