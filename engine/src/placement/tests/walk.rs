//! Solutions against the original program: along any path through a function each hit of a hook passes
//! exactly one of its points.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use iced_x86::{FlowControl, Instruction};

use super::super::*;
use super::{Wrong, check};
use crate::cfg::{Block, BlockEnd, Cfg, EdgeKind};
use crate::code::{Decision, Why};
use crate::{Addr, HookType, Image, Span};

/// One successor of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WalkStep {
    to: u64,
    /// True after a call that returns: control reaches the original code.
    returns: bool,
}

/// Event of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hit {
    Pre,
    Post,
    /// The end of a block that branches, known by the successor.
    Left,
    Taken,
    Untaken,
    /// The entry's first instruction, or its branch if that is the only one, known by the tracer's site.
    Traced,
}

/// A function and its parts, to be walked through. A block's key is its start.
pub(super) struct Walks<'a> {
    instructions: HashMap<u64, (Instruction, &'a Block, &'a Cfg)>,
    /// Targets of static keys.
    keys: HashMap<u64, u64>,
    body: HashMap<u64, u64>,
    tracer: Option<u64>,
    key: BTreeSet<u64>,
    /// Start addresses of walks.
    pub(super) entries: Vec<u64>,
}

impl<'a> Walks<'a> {
    pub(super) fn of(image: &Image, graphs: &[&'a Cfg]) -> Self {
        let mut walks = Self {
            instructions: HashMap::new(),
            keys: HashMap::new(),
            body: HashMap::new(),
            tracer: None,
            key: BTreeSet::new(),
            entries: Vec::new(),
        };
        for cfg in graphs {
            let kinds = |why: Why| {
                let sites = image.fixed().overlapping(cfg.span);
                sites
                    .filter(move |site| site.why == why)
                    .map(|site| site.span.start)
            };
            let tracer = kinds(Why::Tracer).next().map(|at| at.0);
            walks.tracer = walks.tracer.or(tracer);
            walks.key.extend(kinds(Why::StaticKey).map(|key| key.0));
            for key in kinds(Why::StaticKey) {
                if let Some(Decision::StaticKey { target, .. }) =
                    image.decided(key).map(|site| site.by)
                {
                    walks.keys.insert(key.0, target.0);
                }
            }
            for block in &cfg.blocks {
                for instruction in &block.instructions {
                    walks
                        .instructions
                        .insert(instruction.ip(), (instruction, block, cfg));
                }
                let following = block.instructions.iter().find(|instruction| match tracer {
                    Some(tracer) if block.index.0 == 0 => instruction.ip() > tracer,
                    _ => instruction.mnemonic() != iced_x86::Mnemonic::Endbr64,
                });
                let first = following.map_or(tracer.unwrap_or(0), |first| first.ip());
                walks.body.insert(block.span.start.0, first);
            }
        }
        for block in graphs.iter().flat_map(|cfg| &cfg.blocks) {
            let branches = image.branches_into(Span::new(block.span.start, 1));
            let elsewhere = |branch: &crate::code::Branch| {
                let source = walks.instructions.get(&branch.source.0);
                source.is_none_or(|(instruction, ..)| {
                    matches!(
                        instruction.flow_control(),
                        FlowControl::Call | FlowControl::IndirectCall
                    )
                })
            };
            if block.open || branches.iter().any(elsewhere) {
                walks.entries.push(block.span.start.0);
            }
        }
        walks
    }

    /// All successors, outside the function too.
    pub(super) fn steps(&self, at: u64) -> Vec<WalkStep> {
        let Some(&(instruction, block, cfg)) = self.instructions.get(&at) else {
            return Vec::new();
        };
        let returns = matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::IndirectCall
        );
        if instruction.next_ip() != block.span.end.0 {
            return vec![WalkStep {
                to: instruction.next_ip(),
                returns,
            }];
        }
        let edges = cfg
            .successors(block.index)
            .filter(|edge| edge.kind != EdgeKind::Fixup);
        let mut steps: Vec<WalkStep> = edges
            .filter_map(|edge| cfg.block(edge.to))
            .map(|to| WalkStep {
                to: to.span.start.0,
                returns,
            })
            .collect();
        let branch = Some(instruction.near_branch_target()).filter(|_| !returns);
        let target = self.keys.get(&at).copied().or(branch).unwrap_or(0);
        if target != 0 {
            steps.push(WalkStep {
                to: target,
                returns,
            });
        }
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Returns whether a block ends with a branch.
    fn branches(&self, block: &Block) -> bool {
        let Some(last) = block.instructions.last() else {
            return false;
        };
        match last.flow_control() {
            FlowControl::Next | FlowControl::Interrupt => self.key.contains(&last.ip()),
            FlowControl::Call | FlowControl::IndirectCall => block.end == BlockEnd::NoReturn,
            FlowControl::Exception => block.end == BlockEnd::NoReturn,
            _ => true,
        }
    }

    /// The hooks hit when control transfers from one instruction (if any) to another (if any).
    fn hits(&self, from: Option<u64>, to: Option<u64>) -> Vec<(u64, Hit)> {
        let mut hits = Vec::new();
        if let Some((_, block, _)) = from.and_then(|from| self.instructions.get(&from))
            && block
                .instructions
                .last()
                .is_some_and(|last| Some(last.ip()) == from)
            && self.branches(block)
            && to.is_some()
        {
            hits.push((block.span.start.0, Hit::Left));
        }
        if let Some((instruction, block, _)) = from.and_then(|from| self.instructions.get(&from))
            && instruction.next_ip() == block.span.end.0
            && block.end == BlockEnd::Conditional
            && let Some(to) = to
        {
            let hit = if to == instruction.next_ip() {
                Hit::Untaken
            } else {
                Hit::Taken
            };
            hits.push((block.span.start.0, hit));
        }
        if let Some((_, block, _)) = from.and_then(|from| self.instructions.get(&from))
            && block
                .instructions
                .last()
                .is_some_and(|last| Some(last.ip()) == from)
            && !self.branches(block)
            && to.is_some()
        {
            hits.push((block.span.start.0, Hit::Post));
        }
        if let Some((at, block, _)) = to.and_then(|to| self.instructions.get(&to)) {
            let index = block.span.start.0;
            if self.body.get(&index) == Some(&at.ip()) {
                hits.push((index, Hit::Pre));
            }
            if block
                .instructions
                .last()
                .is_some_and(|last| last.ip() == at.ip())
                && self.branches(block)
            {
                hits.push((index, Hit::Post));
            }
            if self.tracer == Some(at.ip()) {
                hits.push((index, Hit::Traced));
            }
        }
        hits
    }
}

/// Location of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WalkPlace {
    Text,
    /// In the patch of a site, in the copy of these bytes.
    Patch(usize, Span),
}

/// A walk through the original code and through its patched double in lockstep.
pub(super) struct Double<'a, 'p> {
    walks: &'a Walks<'a>,
    placement: &'p Solution,
    /// Sites in place.
    in_place: BTreeSet<usize>,
    by_start: HashMap<u64, usize>,
    /// Hooks under test, at each point.
    at_point: HashMap<(usize, Point), Vec<usize>>,
    /// By block: pre, post, and post by the edges out of it.
    by_hook: HashMap<(u64, Hit), Vec<usize>>,
    place: WalkPlace,
    from: Option<u64>,
    /// Points passed minus hits.
    balance: HashMap<usize, i64>,
}

impl<'a, 'p> Double<'a, 'p> {
    /// A double with the `active` hooks (by index) of `graphs`, and the sites that they need.
    pub(super) fn new(
        walks: &'a Walks<'a>,
        graphs: &BTreeMap<usize, &Cfg>,
        wanted: &[Wanted],
        placement: &'p Solution,
        active: impl Fn(usize) -> bool,
    ) -> Self {
        let mut double = Self {
            walks,
            placement,
            in_place: BTreeSet::new(),
            by_start: HashMap::new(),
            at_point: HashMap::new(),
            by_hook: HashMap::new(),
            place: WalkPlace::Text,
            from: None,
            balance: HashMap::new(),
        };
        for (number, (wanted, hook)) in wanted.iter().zip(&placement.hooks).enumerate() {
            let Ok(reached) = hook else { continue };
            if !active(number) {
                continue;
            }
            for &(site, point) in &reached.points {
                double.in_place.insert(site.0 as usize);
                if graphs.contains_key(&wanted.graph) {
                    double
                        .at_point
                        .entry((site.0 as usize, point))
                        .or_default()
                        .push(number);
                }
            }
            double
                .in_place
                .extend(reached.needs.iter().map(|site| site.0 as usize));
            if let Some(cfg) = graphs.get(&wanted.graph) {
                let block = cfg.block(wanted.block).unwrap();
                let last = block.instructions.last().unwrap().ip();
                let elsewhere = |(site, point): &(SiteIndex, Point)| {
                    let site = &placement.sites[site.0 as usize];
                    *point == Point::Entry
                        && site.displaced.start.0 != last
                        && site.splice != Splice::Tracer
                };
                let traced = |(site, point): &(SiteIndex, Point)| {
                    *point == Point::Entry
                        && placement.sites[site.0 as usize].splice == Splice::Tracer
                };
                let hit = match wanted.hook {
                    _ if reached.points.iter().any(traced) => Hit::Traced,
                    HookType::Pre => Hit::Pre,
                    HookType::Post
                        if walks.branches(block) && reached.points.iter().all(elsewhere) =>
                    {
                        Hit::Left
                    }
                    HookType::Post => Hit::Post,
                    HookType::Taken => Hit::Taken,
                    HookType::Untaken => Hit::Untaken,
                };
                double
                    .by_hook
                    .entry((block.span.start.0, hit))
                    .or_default()
                    .push(number);
            }
        }
        // Sites whose bytes hold a bounce that is needed.
        for bounce in &placement.bounces {
            if let (Slot::Exposed(host), true) = (
                bounce.slot,
                double.in_place.contains(&(bounce.site.0 as usize)),
            ) {
                double.in_place.insert(host.0 as usize);
            }
        }
        double.by_start = double
            .in_place
            .iter()
            .map(|&site| (placement.sites[site].displaced.start.0, site))
            .collect();
        double
    }

    fn pass(&mut self, site: usize, point: Point) {
        for &hook in self.at_point.get(&(site, point)).into_iter().flatten() {
            *self.balance.entry(hook).or_default() += 1;
        }
    }

    fn hit(&mut self, to: Option<u64>) {
        for hook in self.walks.hits(self.from, to) {
            for &number in self.by_hook.get(&hook).into_iter().flatten() {
                *self.balance.entry(number).or_default() -= 1;
            }
        }
    }

    /// Control reaches an instruction in the original code.
    fn text(&mut self, to: u64) -> Result<(), Wrong> {
        self.place = WalkPlace::Text;
        if let Some(&site) = self.by_start.get(&to) {
            self.pass(site, Point::Entry);
            self.place = WalkPlace::Patch(site, self.placement.sites[site].displaced);
            return Ok(());
        }
        let inside = self
            .in_place
            .iter()
            .map(|&site| &self.placement.sites[site])
            .find(|site| site.displaced.contains(Addr(to)));
        check!(
            inside.is_none(),
            "control comes to {to:#x} among what {inside:?} displaces"
        );
        Ok(())
    }

    /// Begins at an instruction.
    pub(super) fn begin(&mut self, at: u64) -> Result<(), Wrong> {
        self.from = None;
        self.hit(Some(at));
        self.text(at)?;
        self.from = Some(at);
        self.balanced()
    }

    /// Continues to a successor.
    pub(super) fn step(&mut self, step: WalkStep) -> Result<(), Wrong> {
        let from = self.from.ok_or("the walk has not begun")?;
        self.hit(Some(step.to));
        match self.place {
            WalkPlace::Patch(site, copy) if !step.returns => {
                let edge = InsnEdge {
                    from: Addr(from),
                    to: Addr(step.to),
                };
                self.pass(site, Point::On(edge));
                let runs_on = self.placement.sites[site]
                    .continuations
                    .iter()
                    .find(|run| run.edge == edge)
                    .map(|run| run.copied);
                let straight = self
                    .walks
                    .instructions
                    .get(&from)
                    .is_some_and(|(instruction, ..)| instruction.next_ip() == step.to)
                    && copy.contains(edge.to);
                match runs_on.or(straight.then_some(copy)) {
                    Some(copy) => {
                        check!(copy.contains(edge.to), "{edge:?} continues elsewhere");
                        self.pass(site, Point::Before(edge.to));
                        self.place = WalkPlace::Patch(site, copy);
                    }
                    None => self.text(step.to)?,
                }
            }
            _ => self.text(step.to)?,
        }
        self.from = Some(step.to);
        self.balanced()
    }

    /// Checks that each hit passed one point.
    fn balanced(&self) -> Result<(), Wrong> {
        let off = self.balance.iter().find(|(_, balance)| **balance != 0);
        check!(
            off.is_none(),
            "hook {off:?} {:?} at {:#x?} in {:?}",
            off.and_then(|(&hook, _)| self.placement.hooks.get(hook)),
            self.from,
            self.place
        );
        Ok(())
    }
}

/// Walks all paths: each instruction, in the original code and in each copy, with each successor.
pub(super) fn all_ways(double: &mut Double<'_, '_>) -> Result<(), Wrong> {
    let mut to_do = Vec::new();
    for entry in double.walks.entries.clone() {
        double.begin(entry)?;
        to_do.push((entry, double.place));
    }
    let mut seen: HashSet<(u64, WalkPlace)> = HashSet::new();
    while let Some((at, place)) = to_do.pop() {
        if !seen.insert((at, place)) {
            continue;
        }
        for step in double.walks.steps(at) {
            (double.from, double.place) = (Some(at), place);
            double.step(step)?;
            to_do.push((step.to, double.place));
        }
    }
    Ok(())
}

/// Returns whether each hit of a function's `active` hooks passes one of their points, on every path
/// through the function and its parts, with the sites in place that these hooks have and need.
pub(crate) fn counts_each_hit_once(
    image: &Image,
    cfg: &Cfg,
    wanted: &[Wanted],
    placement: &Solution,
    active: impl Fn(usize) -> bool,
) -> Result<(), String> {
    let family = super::super::family::families(image, &[cfg]).remove(0);
    let graphs: Vec<&Cfg> = family.graphs.iter().map(|cfg| &**cfg).collect();
    let walks = Walks::of(image, &graphs);
    let own = BTreeMap::from([(0, cfg)]);
    all_ways(&mut Double::new(&walks, &own, wanted, placement, active))
}
