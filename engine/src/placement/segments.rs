//! A function as segments: what may be displaced, and from where control comes to each instruction.

use std::borrow::Cow;
use std::cell::OnceCell;

use iced_x86::{FlowControl, Instruction, Mnemonic};

use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::image::{Decision, Site, SiteKind, Transfer};
use crate::liveness::Liveness;
use crate::relocate::{movable, refuse};
use crate::{Addr, Image, Refusal, Rule, Span};

/// Index of an instruction among those of a function, in order of address.
pub(super) type Number = u32;

/// In no segment.
const NONE: u32 = u32::MAX;

/// What placement has to know of an instruction; the rest is in the graph.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// From the function's start.
    offset: u32,
    block: u32,
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

/// A function's instructions, by segment.
pub(super) struct Outline<'a> {
    pub(super) image: &'a Image,
    pub(super) cfg: Cow<'a, Cfg>,
    marks: Vec<Mark>,
    /// The first instruction of each block.
    firsts: Vec<Number>,
    pub(super) segments: Vec<Segment>,
    /// The function tracer's site.
    pub(super) tracer: Option<Number>,
    /// Bytes between and behind blocks that nobody runs, and that no segment has in its room.
    pub(super) padding: Vec<Span>,
    liveness: OnceCell<Liveness>,
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

/// The rule that keeps an instruction where a site of the kernel's is.
fn rule_of(kind: SiteKind) -> Rule {
    match kind {
        SiteKind::StaticKey => Rule::StaticKey,
        SiteKind::StaticCall => Rule::StaticCall,
        SiteKind::Alternative => Rule::Alternative,
        SiteKind::Ftrace => Rule::FtraceSite,
        SiteKind::Exception => Rule::MayFault,
        SiteKind::Bug { .. } => Rule::Trap,
        SiteKind::Blacklist => Rule::Blacklisted,
    }
}

/// Why it is so, for a person.
fn why(rule: Rule) -> &'static str {
    match rule {
        Rule::StaticKey => "the kernel rewrites this jump label when its static key changes",
        Rule::StaticCall => "the kernel rewrites this static call when its target changes",
        Rule::Alternative => "the kernel may rewrite this instruction itself",
        Rule::FtraceSite => "the function tracer rewrites these bytes",
        Rule::MayFault => "the kernel handles a fault of this instruction by its address",
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
    /// Finds the segments of a function. One that refuses has none.
    pub(super) fn of(image: &'a Image, cfg: Cow<'a, Cfg>) -> Self {
        let mut outline = Self {
            image,
            cfg,
            marks: Vec::new(),
            firsts: Vec::new(),
            segments: Vec::new(),
            tracer: None,
            padding: Vec::new(),
            liveness: OnceCell::new(),
        };
        if outline.cfg.refusal.is_none() {
            outline.cut();
            outline.find_room();
        }
        outline
    }

    fn cut(&mut self) {
        let cfg = self.cfg.as_ref();
        let sites: Vec<Site> = (self.image.sites().overlapping(cfg.span).copied())
            .filter(|site| site.kind != SiteKind::Blacklist)
            .collect();
        let mut sites = sites.as_slice();
        let count = cfg
            .blocks
            .iter()
            .map(|block| block.instructions.len())
            .sum();
        let mut marks = Vec::with_capacity(count);
        let mut cut = Cut {
            marks: &mut marks,
            segments: &mut self.segments,
            goes_on: false,
        };
        let mut end = cfg.span.start;
        for block in &cfg.blocks {
            self.firsts.push(number(cut.marks.len()));
            cut.goes_on &= end == block.span.start && only_run_on_into(cfg, block);
            end = block.span.end;
            for instruction in &block.instructions {
                let span = span_of(instruction);
                while let [site, rest @ ..] = sites
                    && site.span.end <= span.start
                {
                    sites = rest;
                }
                let site = (sites.iter().take_while(|site| site.span.start < span.end))
                    .find(|site| site.span.overlaps(span));
                let mark = Mark {
                    offset: number(usize::try_from(span.start.0 - cfg.span.start.0).unwrap_or(0)),
                    block: block.index.0,
                    segment: NONE,
                    len: u8::try_from(span.len()).unwrap_or(u8::MAX),
                    stays: match site {
                        Some(site) => Some(rule_of(site.kind)),
                        None => stays(cfg, instruction),
                    },
                };
                if site.is_some_and(|site| site.kind == SiteKind::Ftrace) {
                    // A sealed endbr64 is a nop, and stays too.
                    self.tracer = Some(number(cut.marks.len()));
                    for before in cut.marks.iter_mut() {
                        before.segment = NONE;
                        before.stays = Some(Rule::Endbr);
                    }
                    cut.segments.clear();
                }
                cut.add(mark, instruction);
            }
        }
        self.marks = marks;
    }

    /// Gives segments the padding behind them, and notes all other padding.
    fn find_room(&mut self) {
        let blocks = &self.cfg.blocks;
        let behind = self.image.padding_behind(self.cfg.function);
        let nexts = blocks.iter().skip(1).map(|block| block.span.start);
        for (block, next) in blocks.iter().zip(nexts.chain([behind.end])) {
            let mut gap = Span {
                start: block.span.end,
                end: next,
            };
            if gap.is_empty() || runs_on(block) {
                continue;
            }
            // A static call may be a return now, with padding behind it that is the kernel's.
            let taken = self
                .image
                .sites()
                .overlapping(gap)
                .map(|site| site.span.end);
            gap.start = taken.fold(gap.start, Addr::max);
            let at = (self.firsts.get(block.index.0 as usize))
                .map_or(0, |first| first + number(block.instructions.len()) - 1);
            let segment = self
                .segment_of(at)
                .and_then(|segment| self.segments.get_mut(segment as usize));
            match segment {
                Some(segment) if gap.start == block.span.end => segment.room = gap.end,
                _ => self.padding.push(gap),
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
        self.cfg.span.start.add(u64::from(offset))
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

    pub(super) fn instruction(&self, at: Number) -> Option<&Instruction> {
        let block = self.mark(at)?.block as usize;
        let first = *self.firsts.get(block)?;
        let block = self.cfg.blocks.get(block)?;
        block.instructions.get((at - first) as usize)
    }

    /// The instruction that begins at `at`.
    pub(super) fn number(&self, at: Addr) -> Option<Number> {
        let offset = u32::try_from(at.0.checked_sub(self.cfg.span.start.0)?).ok()?;
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

    pub(super) fn block_of(&self, at: Number) -> BlockIndex {
        BlockIndex(self.mark(at).map_or(0, |mark| mark.block))
    }

    /// The first and last instruction of a block, without what stands before and at the tracer's site; the
    /// last alone if there is no other.
    pub(super) fn body(&self, block: BlockIndex) -> Option<(Option<Number>, Number)> {
        let first = *self.firsts.get(block.0 as usize)?;
        let behind = (self.firsts.get(block.0 as usize + 1).copied()).unwrap_or(self.len());
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
            movable(instruction)
                .err()
                .filter(|refusal| refusal.rule == rule)
        };
        let why = match rule {
            Rule::Unrelocatable if is_call(instruction) => {
                "this call is for the processor's stack of return addresses, which a moved one does not fill".to_owned()
            }
            _ => own().map_or_else(|| why(rule).to_owned(), |refusal| refusal.why),
        };
        Some(Refusal {
            rule,
            at: self.start(at),
            why,
        })
    }

    /// Whether a patch may do what the instruction does: by a copy, or by the kernel's own means.
    pub(super) fn copyable(&self, at: Number) -> bool {
        let Some(instruction) = self.instruction(at) else {
            return false;
        };
        match self.mark(at).and_then(|mark| mark.stays) {
            None => !is_call(instruction),
            Some(Rule::StaticKey) => {
                let decided = self.image.decided(self.start(at));
                decided.is_some_and(|site| matches!(site.by, Decision::StaticKey { .. }))
                    && self.flags_are_dead(at)
            }
            Some(Rule::StaticCall) => {
                let decided = self.image.decided(self.start(at));
                let by = decided.map(|site| site.by);
                matches!(
                    by,
                    Some(Decision::StaticCall {
                        transfer: Transfer::Conditional(_),
                        ..
                    })
                )
            }
            Some(_) => false,
        }
    }

    fn flags_are_dead(&self, at: Number) -> bool {
        let liveness = self
            .liveness
            .get_or_init(|| Liveness::of(self.image, &self.cfg));
        !liveness.before(self.start(at)).flags
    }

    /// Whether the instruction returns control to what stands behind it by its address there.
    pub(super) fn returns(&self, at: Number) -> bool {
        self.instruction(at).is_some_and(is_call)
    }

    /// From where control comes to the instruction.
    ///
    /// # Errors
    /// The rule, if it may come from elsewhere than instructions of the function.
    pub(super) fn ways(&self, at: Number) -> Result<Vec<Number>, Refusal> {
        let block = self.block_of(at);
        if self.firsts.get(block.0 as usize) != Some(&at) {
            return Ok(vec![at - 1]);
        }
        let here = self.start(at);
        let Some(ways) = self
            .cfg
            .ways_in(self.image, block)
            .filter(|ways| ways.complete)
        else {
            return refuse(
                Rule::WaysUnknown,
                here,
                "control may come here from nobody knows where, so there are no edges to hook",
            );
        };
        if let Some(branch) = ways.branches.first() {
            return refuse(
                Rule::EnteredFromElsewhere,
                here,
                format!("another function branches here, from {}", branch.source),
            );
        }
        let mut from: Vec<Number> =
            (ways.edges.iter().filter_map(|edge| self.last_of(edge.from))).collect();
        from.sort_unstable();
        from.dedup();
        if from.is_empty() {
            return refuse(Rule::Unreached, here, "nothing leads here");
        }
        Ok(from)
    }

    fn last_of(&self, block: BlockIndex) -> Option<Number> {
        self.body(block).map(|(_, last)| last)
    }

    /// Where the block's edges lead, by instruction.
    pub(super) fn successors(&self, block: BlockIndex) -> Vec<Number> {
        let edges = self
            .cfg
            .successors(block)
            .filter(|edge| edge.kind != EdgeKind::Fixup);
        let mut to: Vec<Number> = edges
            .filter_map(|edge| self.firsts.get(edge.to.0 as usize).copied())
            .collect();
        to.dedup();
        to
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
