//! A static estimate of the jumps and of the time that a pass through a function costs.

use iced_x86::FlowControl;

use super::body::Body;
use super::continuations::displacing;
use super::draft::Draft;
use super::ids::{BlockId, InsnId};
use super::solve::ProblemPart;
use super::splice::SpliceForm;
use crate::ids::Ids;
use crate::nanoseconds;

/// Assumed executions of a block in a loop on one pass.
pub(super) const LOOP: f64 = 8.0;
/// Expected transfers of control on one pass between the original code and the patches of a function's sites.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Transfers {
    /// Jumps; calls of the tracer and traps are one each.
    pub(super) jumps: f64,
    /// Their time in nanoseconds, with that of moved calls.
    pub(super) ns: f64,
}

impl Transfers {
    fn add(&mut self, times: f64, jumps: f64, ns: f64) {
        self.jumps += times * jumps;
        self.ns += times * ns;
    }
}

/// Returns the expected transfers on one pass.
pub(super) fn transfers(part: &ProblemPart<'_>) -> Transfers {
    let mut transfers = Transfers::default();
    if part.drafts.is_empty() {
        return transfers;
    }
    let estimate = Estimate {
        part,
        body: &part.body,
        weights: weights(&part.body),
        continued: part.continuations.edges(),
    };
    for draft in part.drafts.values() {
        let (jumps, ns) = match draft.form {
            SpliceForm::Jump | SpliceForm::Call => (1.0, nanoseconds::CLOSE_JUMP),
            SpliceForm::Short => (2.0, 2.0 * nanoseconds::CLOSE_JUMP),
            SpliceForm::Tracer => (1.0, nanoseconds::TRACER),
            SpliceForm::Trap => (1.0, nanoseconds::TRAP),
        };
        transfers.add(estimate.arrivals(draft), jumps, ns);
    }
    for at in part.body.insns().iter() {
        if let Some(times) = estimate.leaves(at) {
            transfers.add(times, 1.0, nanoseconds::CLOSE_JUMP);
        }
        if part.body.is_call(at) {
            transfers.add(estimate.moved(at), 0.0, nanoseconds::MOVED);
        }
    }
    transfers
}

/// Number of calls in patches, each as often as it is copied.
pub(super) fn moved_calls(part: &ProblemPart<'_>) -> usize {
    let drafts = part.drafts.values().iter();
    let drafts = drafts.filter(|draft| draft.form != SpliceForm::Call);
    let displaced = drafts.filter(|draft| part.body.is_call(draft.range.last()));
    let insns = part.body.insns().iter();
    let calls = insns.filter(|&at| part.body.is_call(at));
    let copied = calls.map(|at| part.continuations.copying(at).count());
    displaced.count() + copied.sum::<usize>()
}

/// State of a block in Tarjan's algorithm.
#[derive(Clone, Copy, Default)]
struct Visit {
    /// The order of its visit, once it was visited.
    number: Option<usize>,
    /// The least number of a block that is reachable from it and in its component.
    low: usize,
    /// True until its component is complete.
    open: bool,
}

/// Expected executions of each block on one pass: one, or more in a loop.
fn weights(body: &Body<'_>) -> Ids<BlockId, f64> {
    let next = |block: BlockId| {
        let targets = targets(body, block).into_iter();
        targets.map(|to| body.block_of(to)).collect::<Vec<_>>()
    };
    // Strongly connected components (Tarjan, Depth-first search and linear graph algorithms, 1972).
    let mut visits: Ids<BlockId, Visit> = body.blocks().map(|_| Visit::default()).collect();
    let mut weights = Ids::like(&visits, 1.0);
    let mut open: Vec<BlockId> = Vec::new();
    let mut count = 0;
    let mut visit = |visits: &mut Ids<BlockId, Visit>, open: &mut Vec<BlockId>, block| {
        visits[block] = Visit {
            number: Some(count),
            low: count,
            open: true,
        };
        count += 1;
        open.push(block);
    };
    for root in body.blocks() {
        if visits[root].number.is_some() {
            continue;
        }
        visit(&mut visits, &mut open, root);
        let mut path: Vec<(BlockId, Vec<BlockId>)> = vec![(root, next(root))];
        while let Some((block, rest)) = path.last_mut() {
            let block = *block;
            if let Some(to) = rest.pop() {
                match visits[to].number {
                    None => {
                        visit(&mut visits, &mut open, to);
                        path.push((to, next(to)));
                    }
                    Some(number) if visits[to].open => {
                        visits[block].low = visits[block].low.min(number);
                    }
                    Some(_) => {}
                }
                continue;
            }
            path.pop();
            let low = visits[block].low;
            if let Some((before, _)) = path.last() {
                visits[*before].low = visits[*before].low.min(low);
            }
            if visits[block].number == Some(low) {
                let first = open.iter().rposition(|&entry| entry == block);
                debug_assert!(first.is_some(), "{block:?} is open");
                let component = open.split_off(first.unwrap_or(open.len()));
                let is_loop = component.len() > 1 || next(block).contains(&block);
                for member in component {
                    visits[member].open = false;
                    if is_loop {
                        weights[member] = LOOP;
                    }
                }
            }
        }
    }
    weights
}

/// The instructions of the body that a block targets.
fn targets(body: &Body<'_>, block: BlockId) -> Vec<InsnId> {
    let ends = body.ends_of(block);
    debug_assert!(ends.is_some(), "{block:?} has instructions");
    ends.map(|(_, last)| body.next(last)).unwrap_or_default()
}

struct Estimate<'l, 'a> {
    part: &'l ProblemPart<'a>,
    body: &'l Body<'a>,
    weights: Ids<BlockId, f64>,
    /// Edges after which patches continue: sorted.
    continued: Vec<(InsnId, InsnId)>,
}

impl Estimate<'_, '_> {
    /// Expected transfers from one block to another.
    fn edge(&self, from: BlockId, to: BlockId) -> f64 {
        let targets = targets(self.body, from).len();
        let leaves = self.body.successors(from).is_none();
        #[expect(clippy::cast_precision_loss, reason = "blocks have few targets")]
        let share = self.weights[from] / (targets + usize::from(leaves)).max(1) as f64;
        share.min(self.weights[to])
    }

    fn continues(&self, from: InsnId, to: InsnId) -> bool {
        self.continued.binary_search(&(from, to)).is_ok()
    }

    /// Expected entries of control into a site from the original code.
    fn arrivals(&self, draft: &Draft) -> f64 {
        let body = self.body;
        let at = draft.range.first;
        let block = body.block_of(at);
        if !body.begins_block(at) {
            let previous = at.previous();
            let continues = previous.is_some_and(|previous| self.continues(previous, at));
            return if continues { 0.0 } else { self.weights[block] };
        }
        let from_elsewhere = body.predecessors(at).is_err();
        let sources = body.sources(block);
        let sources = sources.iter().filter(|&&from| !self.continues(from, at));
        let edges = sources.map(|&from| self.edge(body.block_of(from), block));
        f64::from(u8::from(from_elsewhere)) + edges.sum::<f64>()
    }

    /// Expected executions of a call by patches that push its return address.
    fn moved(&self, at: InsnId) -> f64 {
        let (body, drafts) = (self.body, &self.part.drafts);
        let block = body.block_of(at);
        let site = displacing(drafts, at);
        if site.is_some_and(|site| drafts[site].form != SpliceForm::Call) {
            return self.weights[block];
        }
        if self.part.continuations.copying(at).next().is_none() {
            return 0.0;
        }
        if !body.begins_block(at) {
            return self.weights[block];
        }
        let sources = body.sources(block);
        let sources = sources.iter().filter(|&&from| self.continues(from, at));
        sources
            .map(|&from| self.edge(body.block_of(from), block))
            .sum()
    }

    /// Expected exits of patches by a jump after the instruction; `None` if none has a copy of it.
    fn leaves(&self, at: InsnId) -> Option<f64> {
        let body = self.body;
        let continuations = &self.part.continuations;
        let drafts = &self.part.drafts;
        let site = displacing(drafts, at);
        let is_copied = continuations.copying(at).next().is_some();
        if site.is_none() && !is_copied {
            return None;
        }
        let flow = body.instruction(at)?.flow_control();
        let falls_through = matches!(
            flow,
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Interrupt
        );
        let next = at.next();
        let exists = body.insns().contains(next);
        let is_same_block = exists && !body.begins_block(next);
        let is_straight = site.is_some_and(|site| drafts[site].copies(next))
            || self.continues(at, next)
            || is_same_block && is_copied && continuations.copying(next).next().is_some();
        let block = body.block_of(at);
        (falls_through && !is_straight).then(|| {
            if is_same_block {
                self.weights[block]
            } else {
                self.edge(block, body.block_of(if exists { next } else { at }))
            }
        })
    }
}
