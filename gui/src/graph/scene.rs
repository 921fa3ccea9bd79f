//! The data of one function that the window shows, prepared by a worker.

use std::collections::{BTreeMap, BTreeSet};

use egui::{Vec2, vec2};
use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, EdgeKind};
use gilk_engine::code::{FunctionId, name_and_address};
use gilk_engine::placement::{BlockOptions, Choice, options, ways_out};
use gilk_engine::remarks::Remarks;
use gilk_engine::{HookType, Image, Refusal, Span, listing};

use super::code::{TokenKind, parts};
use super::layout::{Layout, Link, layout};
use crate::catalogue::Catalogue;

/// Maximum number of characters of an instruction; longer ones are truncated with an ellipsis.
const WIDEST: usize = 64;
/// Maximum number of characters of a remark.
const REMARKED: usize = 44;
/// Number of characters of the offset to the left of each instruction.
const GUTTER: usize = 6;

/// Metrics of the code font, in points at zoom 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// Width of a character.
    pub letter: f32,
    /// Height of a line.
    pub line: f32,
}

/// Distances inside a block, in points at zoom 1.
pub(crate) mod inside {
    /// Height of a block's heading.
    pub(crate) const HEADING: f32 = 24.0;
    /// Around a block's text.
    pub(crate) const PADDING: f32 = 8.0;
    /// Minimum width of a block: its heading with both marks.
    pub(crate) const NARROWEST: f32 = 216.0;
}

/// A highlighted line of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    /// Offset from the function's start, in hexadecimal.
    pub offset: String,
    /// The instruction's tokens.
    pub parts: Vec<(TokenKind, String)>,
}

/// The contents of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Offset from the function's start, in bytes.
    pub offset: u64,
    /// Its instructions.
    pub lines: Vec<CodeLine>,
}

/// All hooks, in the order of menus and cards.
pub(crate) const HOOKS: [HookType; 4] = [
    HookType::Pre,
    HookType::Post,
    HookType::Taken,
    HookType::Untaken,
];

/// Appearance of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeLook {
    /// A conditional branch, taken.
    True,
    /// A conditional branch, not taken.
    False,
    /// An unconditional edge.
    Jump,
    /// An edge not taken now: a static key, or a fixup.
    Rare,
}

/// A function that was analysed, laid out and disassembled.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Name of the function in sessions.
    pub name: String,
    /// Its C declaration, if the kernel's types have it.
    pub prototype: Option<String>,
    /// Its control-flow graph.
    pub cfg: Cfg,
    /// The tactic or refusal of each hook, by block.
    pub options: Vec<BlockOptions>,
    /// The tactic or refusal of each way out of a conditional branch, by block: taken, untaken.
    pub ways: BTreeMap<BlockIndex, [Result<Choice, Refusal>; 2]>,
    /// Its text, by block.
    pub shown: Vec<Shown>,
    /// Positions of blocks and edges.
    pub layout: Layout,
    /// Appearance of each edge.
    pub looks: Vec<EdgeLook>,
    /// The folded blocks.
    pub folded: BTreeSet<BlockIndex>,
}

impl Scene {
    /// Analyses a function and lays its graph out. Returns `None` if the kernel has no such
    /// function.
    #[must_use]
    pub fn new(catalogue: &Catalogue, function: FunctionId, metrics: Metrics) -> Option<Self> {
        let image = catalogue.image();
        let name = catalogue.name(function)?.to_owned();
        let cfg = Cfg::of(image, function);
        let options = options(image, &cfg);
        let ways = ways_out(image, &cfg);
        let remarks = Remarks::of(image, &cfg);
        let start = cfg.span.start;
        let shown: Vec<Shown> = cfg
            .blocks
            .iter()
            .map(|block| Shown {
                offset: block.span.start.0.saturating_sub(start.0),
                lines: listing::disassemble(
                    Some(image),
                    block.span.start,
                    bytes_of(image, block.span),
                )
                .into_iter()
                .map(|line| CodeLine {
                    offset: format!("{:x}", line.at.0.saturating_sub(start.0)),
                    parts: shortened(&line.text, remarks.at(line.at)),
                })
                .collect(),
            })
            .collect();
        let layout = laid_out(&cfg, &shown, &BTreeSet::new(), metrics);
        let looks = cfg
            .edges
            .iter()
            .map(|edge| look(&cfg, edge.from, edge.kind))
            .collect();
        let (own, _) = name_and_address(&name);
        let prototype = image.types().and_then(|types| types.prototype(own));
        Some(Self {
            name,
            prototype,
            cfg,
            options,
            ways,
            shown,
            layout,
            looks,
            folded: BTreeSet::new(),
        })
    }

    /// Returns the scene with the blocks of `folded` reduced to their headings.
    #[must_use]
    pub fn folding(&self, folded: BTreeSet<BlockIndex>, metrics: Metrics) -> Self {
        Self {
            layout: laid_out(&self.cfg, &self.shown, &folded, metrics),
            folded,
            ..self.clone()
        }
    }

    /// Returns the id of the function.
    #[must_use]
    pub const fn function(&self) -> FunctionId {
        self.cfg.function
    }

    /// Returns the tactic and cost of a block's hook, or the refusal; `None` if there is no such
    /// block, or it has no such hook.
    #[must_use]
    pub fn hook(&self, block: BlockIndex, hook: HookType) -> Option<&Result<Choice, Refusal>> {
        let options = self.options.get(block.0 as usize)?;
        let ways = || self.ways.get(&block);
        match hook {
            HookType::Pre => Some(&options.pre),
            HookType::Post => Some(&options.post),
            HookType::Taken => ways().map(|[taken, _]| taken),
            HookType::Untaken => ways().map(|[_, untaken]| untaken),
        }
    }

    /// Returns the hooks of a block: before it, after it, and the ways of its branch.
    pub fn hooks(&self, block: BlockIndex) -> impl Iterator<Item = HookType> {
        HOOKS
            .into_iter()
            .filter(move |&hook| self.hook(block, hook).is_some())
    }

    /// Returns the blocks that have the hook.
    pub fn hookable(&self, hook: HookType) -> impl Iterator<Item = BlockIndex> {
        self.cfg
            .blocks
            .iter()
            .map(|block| block.index)
            .filter(move |&block| self.hook(block, hook).is_some_and(Result::is_ok))
    }

    /// Returns the destination of a block's branch when taken or not taken.
    #[must_use]
    pub fn follow(&self, block: BlockIndex, taken: bool) -> Option<BlockIndex> {
        let wanted = |kind: EdgeKind| matches!(kind, EdgeKind::Taken | EdgeKind::Jump) == taken;
        let mut ways = self.cfg.edges.iter().filter(|edge| edge.from == block);
        let first = ways.clone().next()?;
        Some(ways.find(|edge| wanted(edge.kind)).unwrap_or(first).to)
    }
}

/// Returns the bytes of a block, which the image has because its graph was made from them.
fn bytes_of(image: &Image, span: Span) -> &[u8] {
    let bytes = image.bytes(span);
    debug_assert!(bytes.is_some(), "the image has no bytes at {}", span.start);
    bytes.unwrap_or_default()
}

fn laid_out(cfg: &Cfg, shown: &[Shown], folded: &BTreeSet<BlockIndex>, metrics: Metrics) -> Layout {
    let size = |(index, shown): (u32, &Shown)| {
        let whole = size(shown, metrics);
        if folded.contains(&BlockIndex(index)) {
            vec2(inside::NARROWEST, inside::HEADING + 2.0)
        } else {
            whole
        }
    };
    let sizes: Vec<Vec2> = (0..).zip(shown).map(size).collect();
    let links: Vec<Link> = cfg
        .edges
        .iter()
        .map(|edge| Link {
            from: edge.from.0 as usize,
            to: edge.to.0 as usize,
        })
        .collect();
    layout(&sizes, &links)
}

fn shortened(text: &str, remark: Option<&str>) -> Vec<(TokenKind, String)> {
    let mut room = WIDEST;
    let mut kept = Vec::new();
    for (part, piece) in parts(text) {
        let count = piece.chars().count();
        if count <= room {
            kept.push((part, piece.to_owned()));
            room -= count;
        } else {
            let mut cut: String = piece.chars().take(room.saturating_sub(1)).collect();
            cut.push('…');
            kept.push((part, cut));
            break;
        }
    }
    if let Some(remark) = remark {
        let mut shown: String = remark.chars().take(REMARKED).collect();
        if shown.len() < remark.len() {
            shown.push('…');
        }
        kept.push((TokenKind::Remark, format!("  ; {shown}")));
    }
    kept
}

fn size(shown: &Shown, metrics: Metrics) -> Vec2 {
    let letters = |line: &CodeLine| {
        GUTTER
            + line
                .parts
                .iter()
                .map(|(_, piece)| piece.chars().count())
                .sum::<usize>()
    };
    let widest = shown.lines.iter().map(letters).max().unwrap_or(0);
    let width = widest as f32 * metrics.letter + 2.0 * inside::PADDING;
    let height = inside::HEADING + shown.lines.len() as f32 * metrics.line + 1.5 * inside::PADDING;
    vec2(width.max(inside::NARROWEST).ceil(), height.ceil())
}

fn look(cfg: &Cfg, from: BlockIndex, kind: EdgeKind) -> EdgeLook {
    let conditional = cfg
        .block(from)
        .is_some_and(|block| block.end == BlockEnd::Conditional);
    match kind {
        EdgeKind::Taken => EdgeLook::True,
        EdgeKind::Fallthrough if conditional => EdgeLook::False,
        EdgeKind::Fallthrough | EdgeKind::Jump => EdgeLook::Jump,
        EdgeKind::StaticKey | EdgeKind::Fixup => EdgeLook::Rare,
    }
}
