//! A function as segments: what may be displaced, and from where control comes to each instruction.

use std::borrow::Cow;
use std::cell::OnceCell;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind, padding_after};
use crate::code::{Fixed, FunctionId, Why};
use crate::isa::relocate::{faults_alike, movable};
use crate::liveness::{Analysis, Liveness};
use crate::{Addr, Image, Refusal, Rule, Span};

/// Index of an instruction among those of an outline, in order of address.
pub(super) type Number = u32;

/// Index of a block among those of an outline, in order of address.
pub(super) type BlockNumber = u32;

/// In no segment.
const NONE: u32 = u32::MAX;

/// What placement has to know of an instruction; the rest is in the graph.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// From the start of the first graph.
    offset: u32,
    /// Index of its segment.
    segment: u32,
    len: u8,
    /// Why it may not be displaced.
    stays: Option<Rule>,
}

/// Instructions in a row that may be displaced and are entered at the first of them alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) first: Number,
    /// One past the last.
    pub(super) behind: Number,
    /// Up to here nothing else is run: the end of the last, or of the padding behind it.
    pub(super) room: Addr,
}

/// The instructions of a function and of the parts of it that stand elsewhere, by segment.
pub(super) struct Outline<'a> {
    pub(super) image: &'a Image,
    analysis: Analysis<'a>,
    /// The graphs, by address, none of which refuses; or one that does.
    pub(super) graphs: Vec<Cow<'a, Cfg>>,
    /// The number of the first block of each graph.
    bases: Vec<BlockNumber>,
    /// Why no hook can be in it.
    pub(super) refused: Option<Refusal>,
    marks: Vec<Mark>,
    /// The first instruction of each block.
    firsts: Vec<Number>,
    pub(super) segments: Vec<Segment>,
    /// The function tracer's site.
    pub(super) tracer: Option<Number>,
    /// Bytes between and behind blocks that nobody runs, and that no segment has in its room.
    pub(super) padding: Vec<Span>,
    /// Of each graph.
    liveness: Vec<OnceCell<Liveness>>,
}

pub(super) fn is_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall
    )
}

fn span_of(instruction: &Instruction) -> Span {
    Span {
        start: Addr(instruction.ip()),
        end: Addr(instruction.next_ip()),
    }
}

fn number(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(NONE)
}

/// Whether a copy of the instruction does as well at the kernel's site. One that goes on at the same place
/// whether it faults or not stays: its copy may run on into another, and a fault leads to the text.
fn may_move(site: &Fixed, instruction: &Instruction) -> bool {
    match site.why {
        Why::Exception { handler } => {
            site.span.start.0 == instruction.ip()
                && site.target != Some(Addr(instruction.next_ip()))
                && faults_alike(handler, instruction)
        }
        _ => false,
    }
}

/// The rule that keeps an instruction where a site of the kernel's is.
fn rule_of(kind: Why) -> Rule {
    match kind {
        Why::StaticKey => Rule::StaticKey,
        Why::StaticCall => Rule::StaticCall,
        Why::Alternative => Rule::Alternative,
        Why::Tracer => Rule::FtraceSite,
        Why::Exception { .. } => Rule::MayFault,
        Why::Bug { .. } => Rule::Trap,
        Why::Forbidden => Rule::Blacklisted,
    }
}

/// Why it is so, for a person.
fn why(rule: Rule) -> &'static str {
    match rule {
        Rule::StaticKey => "the kernel rewrites this jump label when its static key changes",
        Rule::StaticCall => "the kernel rewrites this static call when its target changes",
        Rule::Alternative => "the kernel may rewrite this instruction itself",
        Rule::FtraceSite => "the function tracer rewrites these bytes",
        Rule::MayFault => {
            "a fault of this instruction may wait for a page of a process, and a thread may not sleep in a patch; or it leads to where the instruction runs on, which a copy does not do"
        }
        Rule::Trap => "the kernel knows this ud2 (BUG or WARN) by its address",
        Rule::Blacklisted => "the kernel forbids probes here",
        Rule::Endbr => "endbr64 must stay where indirect branches land",
        _ => "it may not be moved",
    }
}

/// Whether control may come to what stands behind the block.
fn runs_on(block: &Block) -> bool {
    matches!(block.end, BlockEnd::FallThrough | BlockEnd::Conditional)
}

/// A cut: which instructions, and whether the segment so far goes on.
struct Cut<'m> {
    marks: &'m mut Vec<Mark>,
    segments: &'m mut Vec<Segment>,
    goes_on: bool,
}

impl Cut<'_> {
    fn add(&mut self, mut mark: Mark, instruction: &Instruction) {
        let at = number(self.marks.len());
        if mark.stays.is_some() {
            self.goes_on = false;
        } else {
            let room = Addr(instruction.next_ip());
            match self.segments.last_mut() {
                Some(segment) if self.goes_on => {
                    segment.behind = at + 1;
                    segment.room = room;
                }
                _ => self.segments.push(Segment {
                    first: at,
                    behind: at + 1,
                    room,
                }),
            }
            mark.segment = number(self.segments.len()) - 1;
            self.goes_on = !matches!(
                instruction.flow_control(),
                FlowControl::Call
                    | FlowControl::IndirectCall
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
            );
        }
        self.marks.push(mark);
    }
}

impl<'a> Outline<'a> {
    /// Finds the segments of a function and its parts. One that refuses has none, and stands alone.
    pub(super) fn of(image: &'a Image, mut graphs: Vec<Cow<'a, Cfg>>) -> Self {
        graphs.sort_unstable_by_key(|cfg| cfg.span.start);
        let refused = graphs.iter().find_map(|cfg| cfg.refusal.clone());
        let mut outline = Self {
            image,
            analysis: Analysis::new(image),
            bases: Vec::new(),
            marks: Vec::new(),
            firsts: Vec::new(),
            segments: Vec::new(),
            tracer: None,
            padding: Vec::new(),
            liveness: graphs.iter().map(|_| OnceCell::new()).collect(),
            graphs,
            refused,
        };
        if outline.refused.is_none() {
            outline.cut();
            outline.find_room();
        }
        outline
    }

    fn cut(&mut self) {
        let graphs = std::mem::take(&mut self.graphs);
        let blocks = graphs.iter().flat_map(|cfg| &cfg.blocks);
        self.firsts.reserve_exact(blocks.clone().count());
        self.marks
            .reserve_exact(blocks.map(|block| block.instructions.len()).sum());
        let start = graphs.first().map_or(Addr(0), |cfg| cfg.span.start);
        for cfg in &graphs {
            self.cut_graph(cfg, start);
        }
        self.segments.shrink_to_fit();
        self.graphs = graphs;
    }

    fn cut_graph(&mut self, cfg: &Cfg, start: Addr) {
        let sites: Vec<Fixed> = (self.image.fixed().overlapping(cfg.span).copied())
            .filter(|site| site.why != Why::Forbidden)
            .collect();
        let mut sites = sites.as_slice();
        let base = number(self.firsts.len());
        self.bases.push(base);
        let (first, segments) = (self.marks.len(), self.segments.len());
        let mut cut = Cut {
            marks: &mut self.marks,
            segments: &mut self.segments,
            goes_on: false,
        };
        let mut end = cfg.span.start;
        for block in &cfg.blocks {
            self.firsts.push(number(cut.marks.len()));
            cut.goes_on &= end == block.span.start && only_run_on_into(cfg, block);
            end = block.span.end;
            for instruction in &block.instructions {
                let span = span_of(&instruction);
                while let [site, rest @ ..] = sites
                    && site.span.end <= span.start
                {
                    sites = rest;
                }
                let sites = (sites.iter().take_while(|site| site.span.start < span.end))
                    .filter(|site| site.span.overlaps(span));
                let site = { sites }.find(|site| !may_move(site, &instruction));
                let mark = Mark {
                    offset: number(usize::try_from(span.start.0 - start.0).unwrap_or(usize::MAX)),
                    segment: NONE,
                    len: u8::try_from(span.len()).unwrap_or(u8::MAX),
                    stays: match site {
                        Some(site) => Some(rule_of(site.why)),
                        None => stays(cfg, &instruction),
                    },
                };
                if site.is_some_and(|site| site.why == Why::Tracer) {
                    // A sealed endbr64 is a nop, and stays too.
                    self.tracer = Some(number(cut.marks.len()));
                    for before in cut.marks.iter_mut().skip(first) {
                        before.segment = NONE;
                        before.stays = Some(Rule::Endbr);
                    }
                    cut.segments.truncate(segments);
                }
                cut.add(mark, &instruction);
            }
        }
    }

    /// Gives segments the padding behind them, and notes all other padding.
    fn find_room(&mut self) {
        for (cfg, &base) in self.graphs.iter().zip(&self.bases) {
            let behind = padding_after(self.image, cfg.function);
            let nexts = cfg.blocks.iter().skip(1).map(|block| block.span.start);
            for (block, next) in cfg.blocks.iter().zip(nexts.chain([behind.end])) {
                let mut gap = Span {
                    start: block.span.end,
                    end: next,
                };
                if gap.is_empty() || runs_on(block) {
                    continue;
                }
                // A static call may be a return now, with padding behind it that is the kernel's.
                let taken = (self.image.fixed().overlapping(gap)).map(|site| site.span.end);
                let entry = self.image.entry_in(gap).map(|entry| entry.end);
                gap.start = taken.chain(entry).fold(gap.start, Addr::max);
                if gap.is_empty() {
                    continue;
                }
                let first = self.firsts.get((base + block.index.0) as usize);
                let at = first.map_or(0, |first| first + number(block.instructions.len()) - 1);
                let segment = (self.marks.get(at as usize))
                    .and_then(|mark| self.segments.get_mut(mark.segment as usize));
                match segment {
                    Some(segment) if gap.start == block.span.end => segment.room = gap.end,
                    _ => self.padding.push(gap),
                }
            }
        }
    }

    fn mark(&self, at: Number) -> Option<&Mark> {
        self.marks.get(at as usize)
    }

    /// How many instructions it has.
    pub(super) fn len(&self) -> Number {
        number(self.marks.len())
    }

    pub(super) fn start(&self, at: Number) -> Addr {
        let offset = self.mark(at).map_or(0, |mark| mark.offset);
        self.origin().add(u64::from(offset))
    }

    pub(super) fn end(&self, at: Number) -> Addr {
        let len = self.mark(at).map_or(0, |mark| mark.len);
        self.start(at).add(u64::from(len))
    }

    /// The instructions from `first` up to, not including, `behind`: no empty row.
    pub(super) fn span(&self, first: Number, behind: Number) -> Span {
        Span {
            start: self.start(first),
            end: self.end(behind.saturating_sub(1)),
        }
    }

    /// Whether a fault of the instruction leads to where it runs on too: then nothing tells the two apart.
    pub(super) fn faults_on(&self, at: Number) -> bool {
        let span = self.span(at, at + 1);
        let mut sites = self.image.fixed().overlapping(span);
        sites.any(|site| matches!(site.why, Why::Exception { .. }) && site.target == Some(span.end))
    }

    pub(super) fn instruction(&self, at: Number) -> Option<Instruction> {
        self.mark(at)?;
        let (_, block) = self.block(self.block_of(at))?;
        block.instructions.starting_at(self.start(at))
    }

    /// What the offsets count from.
    fn origin(&self) -> Addr {
        self.graphs.first().map_or(Addr(0), |cfg| cfg.span.start)
    }

    /// The index of the graph that a block is of.
    pub(super) fn graph_of(&self, block: BlockNumber) -> usize {
        let behind = self.bases.partition_point(|&base| base <= block);
        behind.saturating_sub(1)
    }

    /// A block, and its graph.
    pub(super) fn block(&self, block: BlockNumber) -> Option<(&Cfg, &Block)> {
        let graph = self.graph_of(block);
        let index = block - self.bases.get(graph)?;
        let cfg = self.graphs.get(graph)?;
        Some((cfg, cfg.block(BlockIndex(index))?))
    }

    /// The number of the first block of a function's graph.
    pub(super) fn base(&self, function: FunctionId) -> Option<BlockNumber> {
        let graph = (self.graphs.iter()).position(|cfg| cfg.function == function)?;
        self.bases.get(graph).copied()
    }

    /// How many blocks it has.
    pub(super) fn blocks(&self) -> BlockNumber {
        number(self.firsts.len())
    }

    /// The first instruction of a block.
    pub(super) fn first_of(&self, block: BlockNumber) -> Option<Number> {
        self.firsts.get(block as usize).copied()
    }

    /// The instruction that begins at `at`.
    pub(super) fn number(&self, at: Addr) -> Option<Number> {
        let offset = u32::try_from(at.0.checked_sub(self.origin().0)?).ok()?;
        let found = self.marks.binary_search_by_key(&offset, |mark| mark.offset);
        Some(number(found.ok()?))
    }

    pub(super) fn segment_of(&self, at: Number) -> Option<u32> {
        let segment = self.mark(at)?.segment;
        (segment != NONE).then_some(segment)
    }

    pub(super) fn segment(&self, index: u32) -> Option<Segment> {
        self.segments.get(index as usize).copied()
    }

    /// Bytes of a segment and its room.
    pub(super) fn room(&self, segment: Segment) -> u64 {
        segment.room.0.saturating_sub(self.start(segment.first).0)
    }

    pub(super) fn block_of(&self, at: Number) -> BlockNumber {
        if at >= self.len() {
            return 0;
        }
        let behind = self.firsts.partition_point(|&first| first <= at);
        number(behind.saturating_sub(1))
    }

    /// Why the instruction may not be displaced.
    pub(super) fn stays(&self, at: Number) -> Option<Rule> {
        self.mark(at)?.stays
    }

    /// The registers and flags that are dead in the graph of an instruction.
    pub(super) fn liveness(&self, at: Number) -> Option<&Liveness> {
        let graph = self.graph_of(self.block_of(at));
        let cfg = self.graphs.get(graph)?;
        let liveness = self.liveness.get(graph)?;
        Some(liveness.get_or_init(|| Liveness::of(&self.analysis, cfg)))
    }

    /// The first and last instruction of a block, without what stands before and at the tracer's site; the
    /// last alone if there is no other.
    pub(super) fn body(&self, block: BlockNumber) -> Option<(Option<Number>, Number)> {
        let first = self.first_of(block)?;
        let behind = self.first_of(block + 1).unwrap_or(self.len());
        let last = behind.checked_sub(1)?;
        let endbr = self.mark(first)?.stays == Some(Rule::Endbr);
        let body = match self.tracer {
            Some(tracer) if (first..behind).contains(&tracer) => tracer + 1,
            _ => first + u32::from(endbr),
        };
        Some(((body < behind).then_some(body), last))
    }

    /// Why an instruction may not be displaced.
    pub(super) fn refusal(&self, at: Number) -> Option<Refusal> {
        let rule = self.mark(at)?.stays?;
        let instruction = self.instruction(at)?;
        let own = || {
            movable(&instruction)
                .err()
                .filter(|refusal| refusal.rule == rule)
        };
        let why = match rule {
            Rule::Unrelocatable if is_call(&instruction) => {
                "this call is for the processor's stack of return addresses, which a moved one does not fill".to_owned()
            }
            _ => own().map_or_else(|| why(rule).to_owned(), |refusal| refusal.why),
        };
        Some(Refusal::new(rule, self.start(at), why))
    }
}

/// Whether control comes to a block by running on from the one before it, and not otherwise.
fn only_run_on_into(cfg: &Cfg, block: &Block) -> bool {
    if block.entered || block.open {
        return false;
    }
    let mut edges = cfg.predecessors(block.index);
    let only = edges.next().filter(|_| edges.next().is_none());
    only.is_some_and(|edge| edge.kind == EdgeKind::Fallthrough && edge.from.0 + 1 == block.index.0)
}

/// The rule that keeps an instruction in its place by what it is.
fn stays(cfg: &Cfg, instruction: &Instruction) -> Option<Rule> {
    let target = Addr(instruction.near_branch_target());
    if is_call(instruction) && target != cfg.span.start && cfg.span.contains(target) {
        // FILL_RETURN_BUFFER, for example (arch/x86/include/asm/nospec-branch.h).
        return Some(Rule::Unrelocatable);
    }
    if instruction.mnemonic() == Mnemonic::Endbr64 {
        return Some(Rule::Endbr);
    }
    movable(instruction).err().map(|refusal| refusal.rule)
}
