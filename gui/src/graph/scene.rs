//! The data of one function that the window shows, prepared by a worker.

use std::collections::{BTreeMap, BTreeSet};

use egui::{Rect, Vec2, vec2};
use gilk_engine::cfg::{BlockEnd, BlockIndex, Cfg, Edge, EdgeKind};
use gilk_engine::code::{FunctionId, name_and_address};
use gilk_engine::placement::{BlockOptions, Choice, options, ways_out};
use gilk_engine::remarks::Remarks;
use gilk_engine::{HookType, Image, Refusal, Span, listing};

use super::code::{TokenKind, parts};
use super::layout::{Layout, Link, Route, layout};
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

/// The most edges of jump tables that are drawn: an interpreter has as many as the square of its instructions.
const MOST_OF_TABLES: usize = 512;

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
    /// Blocks whose branch leaves further to the right where it is taken.
    taken_to_the_right: BTreeSet<BlockIndex>,
    /// The folded blocks.
    pub folded: BTreeSet<BlockIndex>,
    /// The regions that are shown as one box each, with their blocks in order.
    pub regions: Vec<Vec<BlockIndex>>,
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
        let layout = laid_out(&cfg, &shown, &BTreeSet::new(), &[], metrics);
        let looks: Vec<EdgeLook> = drawn(&cfg)
            .map(|edge| look(&cfg, edge.from, edge.kind))
            .collect();
        let taken_to_the_right = taken_to_the_right(&cfg, &looks, &layout);
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
            taken_to_the_right,
            folded: BTreeSet::new(),
            regions: Vec::new(),
        })
    }

    /// Returns the scene with the blocks of `folded` reduced to their headings, and each of `regions`
    /// to one box.
    #[must_use]
    pub fn folding(
        &self,
        folded: BTreeSet<BlockIndex>,
        regions: Vec<Vec<BlockIndex>>,
        metrics: Metrics,
    ) -> Self {
        let layout = laid_out(&self.cfg, &self.shown, &folded, &regions, metrics);
        Self {
            taken_to_the_right: taken_to_the_right(&self.cfg, &self.looks, &layout),
            layout,
            folded,
            regions,
            ..self.clone()
        }
    }

    /// Returns the region whose box contains a block.
    #[must_use]
    pub fn region(&self, block: BlockIndex) -> Option<&[BlockIndex]> {
        let mut regions = self.regions.iter();
        let region = regions.find(|region| region.binary_search(&block).is_ok())?;
        Some(region)
    }

    /// Returns the blocks that have a box, each with the region that it stands for, if it is one.
    pub(crate) fn boxes(&self) -> impl Iterator<Item = (BlockIndex, Rect, Option<&[BlockIndex]>)> {
        let boxes = self.cfg.blocks.iter().zip(&self.layout.boxes);
        boxes.filter_map(|(block, &rect)| {
            let region = self.region(block.index);
            let is_first = region.is_none_or(|region| region.first() == Some(&block.index));
            is_first.then_some((block.index, rect, region))
        })
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

    /// Returns the edges that are drawn: those of `routes` of the layout, and of `looks`.
    pub fn edges(&self) -> impl Iterator<Item = &Edge> {
        drawn(&self.cfg)
    }

    /// Returns whether the edges of its jump tables are too many to be drawn.
    #[must_use]
    pub const fn has_hidden_tables(&self) -> bool {
        self.cfg.tables.len() > MOST_OF_TABLES
    }

    /// Returns whether the branch of a block leaves it further to the right where it is taken.
    #[must_use]
    pub fn is_taken_to_the_right(&self, block: BlockIndex) -> bool {
        self.taken_to_the_right.contains(&block)
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

/// Returns the edges of a graph that are drawn.
fn drawn(cfg: &Cfg) -> impl Iterator<Item = &Edge> {
    let tables = cfg.tables.len() <= MOST_OF_TABLES;
    cfg.edges
        .iter()
        .chain(cfg.tables.iter().filter(move |_| tables))
}

/// Returns the blocks whose branch leaves further to the right where it is taken.
fn taken_to_the_right(cfg: &Cfg, looks: &[EdgeLook], layout: &Layout) -> BTreeSet<BlockIndex> {
    let mut starts: [BTreeMap<BlockIndex, f32>; 2] = Default::default();
    let [taken, untaken] = &mut starts;
    for ((edge, route), look) in drawn(cfg).zip(&layout.routes).zip(looks) {
        // An edge within a region has none.
        let Some(start) = route.points.first() else {
            continue;
        };
        match look {
            EdgeLook::True => taken.insert(edge.from, start.x),
            EdgeLook::False => untaken.insert(edge.from, start.x),
            EdgeLook::Jump | EdgeLook::Rare => None,
        };
    }
    let is_right = |block: &BlockIndex, x: f32| untaken.get(block).is_some_and(|left| *left < x);
    let blocks = taken.iter().filter(|(block, x)| is_right(block, **x));
    blocks.map(|(block, _)| *block).collect()
}

/// Returns the bytes of a block, which the image has because its graph was made from them.
fn bytes_of(image: &Image, span: Span) -> &[u8] {
    let bytes = image.bytes(span);
    debug_assert!(bytes.is_some(), "the image has no bytes at {}", span.start);
    bytes.unwrap_or_default()
}

/// Lays a graph out: a node per region, and per block outside of all regions.
fn laid_out(
    cfg: &Cfg,
    shown: &[Shown],
    folded: &BTreeSet<BlockIndex>,
    regions: &[Vec<BlockIndex>],
    metrics: Metrics,
) -> Layout {
    let mut of_region: BTreeMap<BlockIndex, BlockIndex> = BTreeMap::new();
    for region in regions {
        if let Some(&first) = region.first() {
            of_region.extend(region.iter().map(|&block| (block, first)));
        }
    }
    let stands_for = |block: BlockIndex| of_region.get(&block).copied().unwrap_or(block);
    let mut sizes: Vec<Vec2> = Vec::new();
    let mut nodes: BTreeMap<BlockIndex, usize> = BTreeMap::new();
    for (index, shown) in (0..).map(BlockIndex).zip(shown) {
        if stands_for(index) != index {
            continue;
        }
        nodes.insert(index, sizes.len());
        sizes.push(if of_region.contains_key(&index) {
            vec2(inside::NARROWEST, 2.0 * inside::HEADING)
        } else if folded.contains(&index) {
            vec2(inside::NARROWEST, inside::HEADING + 2.0)
        } else {
            size(shown, metrics)
        });
    }
    let node = |block: BlockIndex| nodes.get(&stands_for(block)).copied().unwrap_or(usize::MAX);
    // Edges inside of a region have no route, and of several between two boxes one has.
    let mut links: Vec<Link> = Vec::new();
    let mut places: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut edge_hooks: Vec<Option<usize>> = Vec::with_capacity(cfg.edges.len());
    for edge in drawn(cfg) {
        let (from, to) = (node(edge.from), node(edge.to));
        let in_region = |block| of_region.contains_key(&block);
        let is_joined = in_region(edge.from) || in_region(edge.to);
        let is_hidden = is_joined && (from == to || places.contains_key(&(from, to)));
        edge_hooks.push((!is_hidden).then_some(links.len()));
        if !is_hidden {
            places.insert((from, to), links.len());
            links.push(Link { from, to });
        }
    }
    let laid = layout(&sizes, &links);
    let none = || Route {
        points: Vec::new(),
        back: false,
    };
    let boxes = (0..).map(BlockIndex).take(shown.len());
    Layout {
        boxes: boxes
            .map(|block| {
                laid.boxes
                    .get(node(block))
                    .copied()
                    .unwrap_or(Rect::NOTHING)
            })
            .collect(),
        routes: edge_hooks
            .into_iter()
            .map(|place| place.and_then(|place| laid.routes.get(place).cloned()))
            .map(|route| route.unwrap_or_else(none))
            .collect(),
        size: laid.size,
    }
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
        EdgeKind::Fallthrough | EdgeKind::Jump | EdgeKind::Table => EdgeLook::Jump,
        EdgeKind::StaticKey | EdgeKind::Fixup => EdgeLook::Rare,
    }
}
