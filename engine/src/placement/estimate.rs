//! What a pass through a function costs, roughly, by how the function looks.

use iced_x86::FlowControl;

use super::draft::{Draft, Kind};
use super::segments::{BlockNumber, Number, Outline};
use super::solve::Part;
use super::style::StyleCost;

/// Jumps between the text and the patches of a function's sites expected on one pass.
pub(super) fn jumps(part: &Part<'_>) -> f64 {
    if part.drafts.is_empty() {
        return 0.0;
    }
    let look = Look {
        part,
        outline: &part.outline,
        weights: weights(&part.outline),
        runs: part.runs.edges(),
    };
    let into = part.drafts.iter().map(|draft| {
        let jumps = match draft.kind {
            Kind::Jump => 1.0,
            Kind::Short => 2.0,
            Kind::Tracer => StyleCost::TRACER,
            Kind::Trap => StyleCost::TRAP,
        };
        jumps * look.arrivals(draft)
    });
    let out = (0..part.outline.len()).filter_map(|at| look.leaves(at));
    into.sum::<f64>() + out.sum::<f64>()
}

/// How often each block is expected to run on one pass: once, or more in a loop.
fn weights(outline: &Outline<'_>) -> Vec<f64> {
    let count = outline.blocks() as usize;
    let next = |block: usize| {
        let ways = block_ways(outline, u32::try_from(block).unwrap_or(u32::MAX));
        ways.into_iter().map(|to| outline.block_of(to) as usize)
    };
    // Strongly connected components (Tarjan, Depth-first search and linear graph algorithms, 1972).
    let mut number = vec![usize::MAX; count];
    let mut low = vec![usize::MAX; count];
    let mut open: Vec<usize> = Vec::new();
    let mut is_open = vec![false; count];
    let mut weights = vec![1.0; count];
    let mut numbers = 0;
    for root in 0..count {
        if number.get(root) != Some(&usize::MAX) {
            continue;
        }
        let mut way: Vec<(usize, Vec<usize>)> = vec![(root, next(root).collect())];
        let mut begin = Some(root);
        while let Some((block, left)) = way.last_mut() {
            let block = *block;
            if begin.take().is_some() {
                for list in [&mut number, &mut low] {
                    set(list, block, numbers);
                }
                numbers += 1;
                open.push(block);
                set(&mut is_open, block, true);
            }
            if let Some(to) = left.pop() {
                if number.get(to) == Some(&usize::MAX) {
                    way.push((to, next(to).collect()));
                    begin = Some(to);
                } else if is_open.get(to) == Some(&true) {
                    lower(&mut low, block, number.get(to).copied());
                }
                continue;
            }
            way.pop();
            let own = low.get(block).copied();
            if let Some((before, _)) = way.last() {
                lower(&mut low, *before, own);
            }
            if own == number.get(block).copied() {
                let first = open.iter().rposition(|&one| one == block).unwrap_or(0);
                let component = open.split_off(first.min(open.len()));
                let is_loop = component.len() > 1 || next(block).any(|to| to == block);
                for one in component {
                    set(&mut is_open, one, false);
                    if is_loop {
                        set(&mut weights, one, StyleCost::LOOP);
                    }
                }
            }
        }
    }
    weights
}

/// Where in the outline a block leads.
fn block_ways(outline: &Outline<'_>, block: BlockNumber) -> Vec<Number> {
    outline
        .body(block)
        .map(|(_, last)| outline.next(last))
        .unwrap_or_default()
}

fn set<T>(list: &mut [T], at: usize, value: T) {
    if let Some(place) = list.get_mut(at) {
        *place = value;
    }
}

fn lower(low: &mut [usize], at: usize, to: Option<usize>) {
    if let (Some(place), Some(to)) = (low.get_mut(at), to) {
        *place = to.min(*place);
    }
}

struct Look<'l, 'a> {
    part: &'l Part<'a>,
    outline: &'l Outline<'a>,
    /// By block.
    weights: Vec<f64>,
    /// Edges behind which patches run on: sorted.
    runs: Vec<(Number, Number)>,
}

impl Look<'_, '_> {
    fn weight(&self, block: BlockNumber) -> f64 {
        self.weights.get(block as usize).copied().unwrap_or(1.0)
    }

    /// How often control goes from one block to another.
    fn edge(&self, from: BlockNumber, to: BlockNumber) -> f64 {
        let ways = block_ways(self.outline, from).len();
        let leaves = self.outline.successors(from).is_none();
        #[expect(clippy::cast_precision_loss, reason = "blocks have few ways out")]
        let share = self.weight(from) / (ways + usize::from(leaves)).max(1) as f64;
        share.min(self.weight(to))
    }

    fn runs_on(&self, from: Number, to: Number) -> bool {
        self.runs.binary_search(&(from, to)).is_ok()
    }

    /// How often control comes to a site by the text.
    fn arrivals(&self, draft: &Draft) -> f64 {
        let outline = self.outline;
        let at = draft.first;
        let block = outline.block_of(at);
        if !outline.begins(at) {
            return if self.runs_on(at.saturating_sub(1), at) {
                0.0
            } else {
                self.weight(block)
            };
        }
        let known = outline.ways(at);
        let from_elsewhere = known.is_err();
        let ways = outline.from(block);
        let ways = ways.iter().filter(|&&from| !self.runs_on(from, at));
        let ways = ways.map(|&from| self.edge(outline.block_of(from), block));
        f64::from(u8::from(from_elsewhere)) + ways.sum::<f64>()
    }

    /// How often a patch leaves for the text by a jump behind the instruction.
    fn leaves(&self, at: Number) -> Option<f64> {
        let outline = self.outline;
        let drafts = &self.part.drafts;
        let behind = drafts.partition_point(|draft| draft.first <= at);
        let site = behind
            .checked_sub(1)
            .and_then(|draft| drafts.get(draft))
            .filter(|draft| draft.copies(at));
        let copied = self.part.runs.copying(at).next().is_some();
        if site.is_none() && !copied {
            return None;
        }
        let flow = outline.instruction(at)?.flow_control();
        let runs_on = matches!(
            flow,
            FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Interrupt
        );
        let next = at + 1;
        let same = next < outline.len() && !outline.begins(next);
        let straight = site.is_some_and(|site| site.copies(next))
            || self.runs_on(at, next)
            || same && copied && self.part.runs.copying(next).next().is_some();
        let block = outline.block_of(at);
        (runs_on && !straight).then(|| {
            if same {
                self.weight(block)
            } else {
                self.edge(block, outline.block_of(next.min(outline.len() - 1)))
            }
        })
    }
}
