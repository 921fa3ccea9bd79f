//! A graph as text, for terminals and files.

use std::fmt::Write;

use super::{Block, BlockEnd, Cfg, EdgeKind};
use crate::Image;
use crate::listing::{Line, Printer};

impl BlockEnd {
    /// In two or three words, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FallThrough => "falls through",
            Self::Jump => "jumps",
            Self::Conditional => "branches",
            Self::Return => "returns",
            Self::TailCall => "tail call",
            Self::Indirect => "jumps indirectly",
            Self::NoReturn => "never returns",
        }
    }
}

impl EdgeKind {
    /// In a word or two, for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fallthrough => "next",
            Self::Taken => "taken",
            Self::Jump => "jump",
            Self::StaticKey => "static key",
            Self::Fixup => "fixup",
            Self::Table => "table",
        }
    }
}

/// The instructions of a block, with names from the image.
#[must_use]
pub fn lines(image: &Image, block: &Block) -> Vec<Line> {
    let mut printer = Printer::new(Some(image));
    let bytes = image.bytes(block.span).unwrap_or_default();
    let mut rest = bytes;
    block
        .instructions
        .iter()
        .map(|instruction| {
            let (first, after) = rest
                .split_at_checked(instruction.len())
                .unwrap_or((rest, &[]));
            rest = after;
            Line {
                at: crate::Addr(instruction.ip()),
                bytes: first.to_vec(),
                text: printer.text(&instruction),
            }
        })
        .collect()
}

/// One line with a block's bytes, end and edges.
#[must_use]
pub fn heading(cfg: &Cfg, block: &Block) -> String {
    let mut text = format!(
        "block {}: {}, {} bytes, {}",
        block.index.0,
        block.span.start,
        block.span.len(),
        block.end.name()
    );
    let mut separator = " to ";
    for edge in cfg.successors(block.index) {
        let kind = match edge.kind {
            EdgeKind::Fallthrough | EdgeKind::Taken | EdgeKind::Jump => String::new(),
            EdgeKind::StaticKey | EdgeKind::Fixup | EdgeKind::Table => {
                format!(" ({})", edge.kind.name())
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{}{kind}", edge.to.0);
        separator = ", ";
    }
    let tables = || cfg.tables.iter();
    let mut beginning = " by its table to ";
    for edge in tables().filter(|edge| edge.from == block.index) {
        let _ = write!(text, "{beginning}{}", edge.to.0);
        beginning = ", ";
    }
    if cfg.exits(block.index) && matches!(block.end, BlockEnd::Conditional | BlockEnd::FallThrough)
    {
        let _ = write!(text, "{separator}another function");
    }
    let into = tables().filter(|edge| edge.to == block.index);
    let from: Vec<String> = into.map(|edge| edge.from.0.to_string()).collect();
    if block.index.0 == 0 {
        text.push_str("; entry");
    } else if !from.is_empty() {
        let _ = write!(text, "; in the table of {}", from.join(", "));
    } else if block.entered {
        text.push_str("; entered from elsewhere");
    } else if cfg.predecessors(block.index).next().is_none() {
        // Mostly code for processors that this one is not: the kernel patched the way to it at boot.
        text.push_str("; unreachable");
    }
    text
}

/// The whole graph: every block with its heading and instructions.
#[must_use]
pub fn listing(image: &Image, cfg: &Cfg) -> String {
    let mut text = format!(
        "{} at {}: {} bytes, {} blocks, {} edges\n",
        cfg.name,
        cfg.span.start,
        cfg.span.len(),
        cfg.blocks.len(),
        cfg.edges.len()
    );
    if let Some(refusal) = &cfg.refusal {
        let _ = writeln!(text, "no block of it can be hooked: {refusal}");
    }
    for block in &cfg.blocks {
        let _ = writeln!(text, "\n{}", heading(cfg, block));
        for line in lines(image, block) {
            let hex: Vec<String> = line
                .bytes
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let _ = writeln!(
                text,
                "  {:016x}  {:<30} {}",
                line.at.0,
                hex.join(" "),
                line.text
            );
        }
    }
    text
}
