//! A function as segments: the instructions that may be displaced, by where control enters them.

use std::borrow::Cow;
use std::cell::OnceCell;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use super::ids::{BlockId, InsnId, InsnRange, SegmentId};
use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind, padding_after};
use crate::code::{Fixed, FunctionId, Origin, Why};
use crate::ids::{Id, Ids};
use crate::isa::relocate::{faults_alike, movable};
use crate::layout::Abi;
use crate::liveness::{Analysis, Liveness};
use crate::{Addr, Image, Refusal, Rule, Span};

/// Facts about an instruction that placement keeps; the rest is in the graph.
#[derive(Clone, Copy, Debug)]
struct InsnFacts {
    /// Bytes from the start of the first graph.
    offset: u32,
    /// The segment that may displace it, or [`SegmentId::NONE`].
    segment: SegmentId,
    len: u8,
    /// The rule that forbids displacing it.
    stays: Option<Rule>,
}

/// Instructions in a row that may be displaced and are entered at the first of them alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) range: InsnRange,
    /// End of the bytes that the segment alone may execute: the end of the last instruction, or of the
    /// padding after it.
    pub(super) limit: Addr,
}

/// The instructions of a function and of its parts elsewhere (`.cold`), divided into segments.
pub(super) struct Body<'a> {
    pub(super) image: &'a Image,
    analysis: Analysis<'a>,
    /// The graphs, by address, none of which refuses; or one that does.
    pub(super) graphs: Vec<Cow<'a, Cfg>>,
    /// The first block of each graph.
    bases: Vec<BlockId>,
    /// The reason why no hook can be in the function.
    pub(super) refusal: Option<Refusal>,
    insns: Ids<InsnId, InsnFacts>,
    /// The first instruction of each block.
    firsts: Ids<BlockId, InsnId>,
    pub(super) segments: Ids<SegmentId, Segment>,
    /// The function tracer's site.
    pub(super) tracer: Option<InsnId>,
    /// Bytes between and after blocks that are never executed and belong to no segment, by address.
    pub(super) padding: Vec<Span>,
    /// Liveness of each graph, computed at the first use.
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

/// Returns whether a copy of the instruction may replace it at a fixed site. An instruction that continues
/// at the same address whether it faults or not stays: a patch may continue after its copy, while its
/// fault continues in the original code.
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

/// The rule that keeps an instruction at a fixed site.
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

/// The reason for a rule, as a sentence.
fn why(rule: Rule) -> &'static str {
    match rule {
        Rule::StaticKey => "the kernel rewrites this jump label when its static key changes",
        Rule::StaticCall => "the kernel rewrites this static call when its target changes",
        Rule::Alternative => "the kernel may rewrite this instruction itself",
        Rule::FtraceSite => "the function tracer rewrites these bytes",
        Rule::MayFault => {
            "a fault of this instruction may wait for a page of a process, and a thread may not sleep in a patch; or its fixup is the next instruction, where a copy does not continue"
        }
        Rule::Trap => "the kernel finds this ud2 (BUG or WARN) by its address",
        Rule::Blacklisted => "the kernel forbids probes here",
        Rule::SkippedPrefix => {
            "a branch skips the lock prefix of this instruction, which therefore executes in two ways"
        }
        Rule::Endbr => "endbr64 must stay where indirect branches land",
        _ => "it may not be moved",
    }
}

/// Returns whether control may fall through the end of the block.
fn falls_through(block: &Block) -> bool {
    matches!(block.end, BlockEnd::FallThrough | BlockEnd::Conditional)
}

/// Divides instructions into segments, in order of address.
struct SegmentBuilder<'m> {
    insns: &'m mut Ids<InsnId, InsnFacts>,
    segments: &'m mut Ids<SegmentId, Segment>,
    /// True if the next instruction may join the last segment.
    open: bool,
}

impl SegmentBuilder<'_> {
    fn add(&mut self, mut facts: InsnFacts, instruction: &Instruction) {
        let at = InsnId::new(self.insns.len());
        if facts.stays.is_some() {
            self.open = false;
        } else {
            let limit = Addr(instruction.next_ip());
            let last = self.segments.keys().next_back();
            let segment = match last.filter(|_| self.open) {
                Some(last) => {
                    let segment = &mut self.segments[last];
                    segment.range.end = at.next();
                    segment.limit = limit;
                    last
                }
                None => self.segments.push(Segment {
                    range: InsnRange::one(at),
                    limit,
                }),
            };
            facts.segment = segment;
            self.open = !matches!(
                instruction.flow_control(),
                FlowControl::Call
                    | FlowControl::IndirectCall
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
            );
        }
        self.insns.push(facts);
    }
}

impl<'a> Body<'a> {
    /// Divides a function and its parts into segments. A function that refuses has none, and is alone.
    pub(super) fn of(image: &'a Image, mut graphs: Vec<Cow<'a, Cfg>>) -> Self {
        graphs.sort_unstable_by_key(|cfg| cfg.span.start);
        let refusal = graphs.iter().find_map(|cfg| cfg.refusal.clone());
        let mut body = Self {
            image,
            analysis: Analysis::new(image),
            bases: Vec::new(),
            insns: Ids::new(),
            firsts: Ids::new(),
            segments: Ids::new(),
            tracer: None,
            padding: Vec::new(),
            liveness: graphs.iter().map(|_| OnceCell::new()).collect(),
            graphs,
            refusal,
        };
        if body.refusal.is_none() {
            body.divide();
            body.extend_into_padding();
        }
        body
    }

    fn divide(&mut self) {
        let graphs = std::mem::take(&mut self.graphs);
        let blocks = graphs.iter().flat_map(|cfg| &cfg.blocks);
        let count: usize = blocks.clone().map(|block| block.instructions.len()).sum();
        self.firsts = Vec::with_capacity(blocks.count()).into();
        self.insns = Vec::with_capacity(count).into();
        let start = graphs.first().map_or(Addr(0), |cfg| cfg.span.start);
        for cfg in &graphs {
            self.divide_graph(cfg, start);
        }
        self.graphs = graphs;
    }

    fn divide_graph(&mut self, cfg: &Cfg, start: Addr) {
        let sites: Vec<Fixed> = (self.image.fixed().overlapping(cfg.span).copied())
            .filter(|site| site.why != Why::Forbidden)
            .collect();
        let mut sites = sites.as_slice();
        self.bases.push(BlockId::new(self.firsts.len()));
        let (first, first_segment) = (self.insns.len(), self.segments.len());
        let abi = self.abi();
        let mut builder = SegmentBuilder {
            insns: &mut self.insns,
            segments: &mut self.segments,
            open: false,
        };
        let mut end = cfg.span.start;
        for block in &cfg.blocks {
            self.firsts.push(InsnId::new(builder.insns.len()));
            builder.open &= end == block.span.start && is_only_fallen_into(cfg, block);
            end = block.span.end;
            for instruction in &block.instructions {
                let span = span_of(&instruction);
                while let [site, rest @ ..] = sites
                    && site.span.end <= span.start
                {
                    sites = rest;
                }
                let site = sites
                    .iter()
                    .take_while(|site| site.span.start < span.end)
                    .find(|site| site.span.overlaps(span) && !may_move(site, &instruction));
                let offset = u32::try_from(start.to(span.start));
                let len = u8::try_from(span.len());
                debug_assert!(
                    offset.is_ok() && len.is_ok(),
                    "an instruction at {span:?}, of code from {start} on"
                );
                let facts = InsnFacts {
                    offset: offset.unwrap_or(u32::MAX),
                    segment: SegmentId::NONE,
                    len: len.unwrap_or(u8::MAX),
                    stays: match site {
                        Some(site) => Some(rule_of(site.why)),
                        None if block.skipped => Some(Rule::SkippedPrefix),
                        None => stays(abi, cfg, &instruction),
                    },
                };
                if site.is_some_and(|site| site.why == Why::Tracer) {
                    // A sealed endbr64 is a nop, and stays too.
                    self.tracer = Some(InsnId::new(builder.insns.len()));
                    for (_, before) in builder.insns.iter_mut().skip(first) {
                        before.segment = SegmentId::NONE;
                        before.stays = Some(Rule::Endbr);
                    }
                    builder.segments.truncate(first_segment);
                }
                builder.add(facts, &instruction);
            }
        }
    }

    /// Extends segments by the padding that follows them, and collects all other padding.
    fn extend_into_padding(&mut self) {
        for (cfg, &base) in self.graphs.iter().zip(&self.bases) {
            let after = padding_after(self.image, cfg.function);
            let nexts = cfg.blocks.iter().skip(1).map(|block| block.span.start);
            for (block, next) in cfg.blocks.iter().zip(nexts.chain([after.end])) {
                let mut gap = Span {
                    start: block.span.end,
                    end: next,
                };
                if gap.is_empty() || falls_through(block) {
                    continue;
                }
                // A static call may be a return now, and the padding after it is the kernel's.
                let taken = (self.image.fixed().overlapping(gap)).map(|site| site.span.end);
                let entry = self.image.entry_in(gap).map(|entry| entry.end);
                gap.start = taken.chain(entry).fold(gap.start, Addr::max);
                if gap.is_empty() {
                    continue;
                }
                let first = self.firsts[base.after(block.index.0)];
                let last = InsnId::new(first.index() + block.instructions.len() - 1);
                match self.segment_of(last) {
                    Some(segment) if gap.start == block.span.end => {
                        self.segments[segment].limit = gap.end;
                    }
                    _ => self.padding.push(gap),
                }
            }
        }
    }

    /// Conventions of the code.
    fn abi(&self) -> &'static Abi {
        match self.image.origin() {
            Origin::Kernel => &Abi::KERNEL,
            Origin::Object => &Abi::PROCESS,
        }
    }

    /// All instructions.
    pub(super) fn insns(&self) -> InsnRange {
        InsnRange {
            first: InsnId::new(0),
            end: InsnId::new(self.insns.len()),
        }
    }

    pub(super) fn start(&self, at: InsnId) -> Addr {
        self.origin().add(u64::from(self.insns[at].offset))
    }

    pub(super) fn end(&self, at: InsnId) -> Addr {
        self.start(at).add(u64::from(self.insns[at].len))
    }

    /// The bytes of instructions; the range is not empty.
    pub(super) fn span(&self, range: InsnRange) -> Span {
        debug_assert!(!range.is_empty(), "{range:?}");
        Span {
            start: self.start(range.first),
            end: self.end(range.last()),
        }
    }

    /// Returns whether a fault of the instruction also continues at the next one: then arrival there does
    /// not distinguish the two.
    pub(super) fn faults_to_next(&self, at: InsnId) -> bool {
        let span = self.span(InsnRange::one(at));
        let mut sites = self.image.fixed().overlapping(span);
        sites.any(|site| matches!(site.why, Why::Exception { .. }) && site.target == Some(span.end))
    }

    /// Decodes an instruction.
    pub(super) fn instruction(&self, at: InsnId) -> Option<Instruction> {
        let (_, block) = self.block(self.block_of(at))?;
        block.instructions.starting_at(self.start(at))
    }

    /// The address that offsets count from.
    fn origin(&self) -> Addr {
        self.graphs.first().map_or(Addr(0), |cfg| cfg.span.start)
    }

    /// The index of the graph that a block belongs to.
    pub(super) fn graph_of(&self, block: BlockId) -> usize {
        let end = self.bases.partition_point(|&base| base <= block);
        end.saturating_sub(1)
    }

    /// A block, and its graph; `None` for a number past the last block.
    pub(super) fn block(&self, block: BlockId) -> Option<(&Cfg, &Block)> {
        let graph = self.graph_of(block);
        let index = block.since(*self.bases.get(graph)?);
        let cfg = self.graphs.get(graph)?;
        Some((cfg, cfg.block(BlockIndex(index))?))
    }

    /// The number of the first block of a function's graph; `None` if the body refuses or has no such graph.
    pub(super) fn base(&self, function: FunctionId) -> Option<BlockId> {
        let graph = (self.graphs.iter()).position(|cfg| cfg.function == function)?;
        self.bases.get(graph).copied()
    }

    /// All blocks.
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        self.firsts.keys()
    }

    /// The first instruction of a block; `None` past the last block.
    pub(super) fn first_of(&self, block: BlockId) -> Option<InsnId> {
        self.firsts.find(block).copied()
    }

    /// The instruction that begins at `at`.
    pub(super) fn starting_at(&self, at: Addr) -> Option<InsnId> {
        let offset = u32::try_from(at.0.checked_sub(self.origin().0)?).ok()?;
        let insns = self.insns.values();
        let position = insns.binary_search_by_key(&offset, |insn| insn.offset);
        Some(InsnId::new(position.ok()?))
    }

    pub(super) fn segment_of(&self, at: InsnId) -> Option<SegmentId> {
        let segment = self.insns[at].segment;
        (segment != SegmentId::NONE).then_some(segment)
    }

    /// Number of bytes that a segment alone may execute: its instructions and the padding after them.
    pub(super) fn capacity(&self, segment: Segment) -> u64 {
        let start = self.start(segment.range.first);
        segment.limit.0.saturating_sub(start.0)
    }

    pub(super) fn block_of(&self, at: InsnId) -> BlockId {
        let firsts = self.firsts.values();
        let end = firsts.partition_point(|&first| first <= at);
        debug_assert!(end > 0, "{at:?} is in no block");
        BlockId::new(end.saturating_sub(1))
    }

    /// The rule that forbids displacing the instruction.
    pub(super) fn stays(&self, at: InsnId) -> Option<Rule> {
        self.insns[at].stays
    }

    /// Checks that an instruction executes in one way.
    ///
    /// # Errors
    /// [`Rule::SkippedPrefix`].
    pub(super) fn is_whole(&self, at: InsnId) -> Result<(), Refusal> {
        match self.stays(at) {
            Some(rule @ Rule::SkippedPrefix) => Err(Refusal::new(rule, self.start(at), why(rule))),
            _ => Ok(()),
        }
    }

    /// The registers and flags that are dead in the graph of an instruction.
    pub(super) fn liveness(&self, at: InsnId) -> Option<&Liveness> {
        let graph = self.graph_of(self.block_of(at));
        let cfg = self.graphs.get(graph)?;
        let liveness = self.liveness.get(graph)?;
        Some(liveness.get_or_init(|| Liveness::of(&self.analysis, cfg)))
    }

    /// The first and last instruction of a block, without those before and at the tracer's site; the last
    /// alone if there is no other. `None` past the last block.
    pub(super) fn ends_of(&self, block: BlockId) -> Option<(Option<InsnId>, InsnId)> {
        let first = self.first_of(block)?;
        let end = self.first_of(block.after(1));
        let range = InsnRange {
            first,
            end: end.unwrap_or(self.insns().end),
        };
        let begin = match self.tracer {
            Some(tracer) if range.contains(tracer) => tracer.next(),
            _ if self.stays(first) == Some(Rule::Endbr) => first.next(),
            _ => first,
        };
        Some((range.contains(begin).then_some(begin), range.last()))
    }

    /// The reason why an instruction may not be displaced, if it may not.
    pub(super) fn refusal_of(&self, at: InsnId) -> Option<Refusal> {
        let rule = self.stays(at)?;
        let instruction = self.instruction(at)?;
        let own = || {
            movable(&instruction, self.abi())
                .err()
                .filter(|refusal| refusal.rule == rule)
        };
        let why = match rule {
            Rule::Unrelocatable if is_call(&instruction) => {
                "this call fills the processor's return stack buffer, which a moved one does not"
                    .to_owned()
            }
            _ => own().map_or_else(|| why(rule).to_owned(), |refusal| refusal.why),
        };
        Some(Refusal::new(rule, self.start(at), why))
    }
}

/// Returns whether control enters a block by falling through from the one before it, and not otherwise.
fn is_only_fallen_into(cfg: &Cfg, block: &Block) -> bool {
    if block.entered || block.open {
        return false;
    }
    let mut edges = cfg.predecessors(block.index);
    let only = edges.next().filter(|_| edges.next().is_none());
    only.is_some_and(|edge| edge.kind == EdgeKind::Fallthrough && edge.from.0 + 1 == block.index.0)
}

/// The rule that keeps an instruction in its place by its kind.
fn stays(abi: &Abi, cfg: &Cfg, instruction: &Instruction) -> Option<Rule> {
    let target = Addr(instruction.near_branch_target());
    if is_call(instruction) && target != cfg.span.start && cfg.span.contains(target) {
        // FILL_RETURN_BUFFER, for example (arch/x86/include/asm/nospec-branch.h).
        return Some(Rule::Unrelocatable);
    }
    if instruction.mnemonic() == Mnemonic::Endbr64 {
        return Some(Rule::Endbr);
    }
    movable(instruction, abi).err().map(|refusal| refusal.rule)
}
