//! A graph in the language of Graphviz.

use std::fmt::Write;

use super::{BlockEnd, Cfg, EdgeKind, text};
use crate::Image;

/// The graph as a DOT digraph: a box a block with its instructions; dashed edges are ways that
/// control goes only when a static key is switched, dotted ones when an instruction faults.
#[must_use]
pub fn dot(image: &Image, cfg: &Cfg) -> String {
    let mut dot = format!("digraph \"{}\" {{\n", escaped(&cfg.name));
    dot.push_str("  node [shape=box, fontname=\"monospace\", fontsize=10];\n  edge [fontname=\"monospace\", fontsize=9];\n");
    for block in &cfg.blocks {
        let mut label = format!("{}\\l", escaped(&text::heading(cfg, block)));
        for line in text::lines(image, block) {
            // Writing to a string cannot fail.
            let _ = write!(label, "{:x}  {}\\l", line.at.0, escaped(&line.text));
        }
        let style = match block.end {
            _ if block.entered => ", penwidth=2",
            BlockEnd::Return | BlockEnd::TailCall | BlockEnd::Indirect => ", style=rounded",
            _ => "",
        };
        let _ = writeln!(dot, "  b{} [label=\"{label}\"{style}];", block.index.0);
    }
    for edge in cfg.edges.iter().chain(&cfg.tables) {
        let style = match edge.kind {
            EdgeKind::Fallthrough | EdgeKind::Jump => "",
            EdgeKind::Taken => " [label=\"taken\"]",
            EdgeKind::StaticKey => " [style=dashed, label=\"static key\"]",
            EdgeKind::Fixup => " [style=dotted, label=\"fixup\"]",
            EdgeKind::Table => " [label=\"table\"]",
        };
        let _ = writeln!(dot, "  b{} -> b{}{style};", edge.from.0, edge.to.0);
    }
    dot.push_str("}\n");
    dot
}

/// Text inside a quoted string of DOT.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
