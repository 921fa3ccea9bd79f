//! Walks every path of a patch beside the original code, and proves what happens on it, from the
//! bytes alone.
//!
//! Which bytes are instrument code and which are copies is found out, not read from the plan:
//! instrument code runs until every instrument of the point has had its one hit and all that is live
//! has its value again; from there on the instruction must be the next original one, or leave for
//! where that stands. States of the same point and phase are joined, so loops end; the only loops
//! allowed are the original code's own, and those that go through a failed reservation, which fails
//! only if another one succeeded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::effects::{Mask, names};
use super::hit::{Expected, Progress};
use super::originals::Originals;
use super::shape;
use super::state::State;
use super::step::{Flow, Machine, Way};
use crate::placement::{Edge, Point, Site, Splice};
use crate::{Addr, Span};

/// Where the original code is while control is in the patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Goal {
    /// Its next instruction.
    pub(super) at: u64,
    pub(super) by: By,
}

/// What runs the next original instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum By {
    /// The patch has a copy: of what is displaced (0), or of the run-on of that number, from 1.
    Copy(usize),
    /// The text; control leaves the instruction at `from`.
    Text { from: u64 },
}

/// What part of the way control is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Instruments of a point run, and `done` of them have; `None` behind the last of them.
    Instruments {
        point: Option<Point>,
        done: usize,
        progress: Progress,
        goal: Goal,
    },
    /// Nothing stands between two original instructions.
    Straight(Goal),
    /// The count of the static key at the goal has been compared with zero.
    Keyed { at: u64, copy: usize },
    /// A return address is pushed; what is called is here.
    Called(u64),
}

pub(super) type Node = (u64, Phase);

/// What a walk has found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Edges of the original code that are taken, and whether the patch is left by them.
    pub(super) edges: BTreeSet<(Edge, bool)>,
    /// Calls that are moved: they return to the text.
    pub(super) calls: BTreeSet<u64>,
}

/// Instruments by point.
pub(super) type Lists = Vec<(Point, Vec<Expected>)>;

/// A walk over one patch.
pub(super) struct Walk<'a> {
    pub(super) machine: Machine<'a>,
    code: &'a [u8],
    pub(super) span: Span,
    pub(super) site: &'a Site,
    pub(super) originals: &'a Originals<'a>,
    /// Sorted.
    lists: &'a Lists,
    pub(super) facts: Facts,
    states: HashMap<Node, State>,
    to_do: Vec<Node>,
    /// Ways between nodes that are neither a failed reservation's nor the original code's.
    ways: Vec<(Node, Node)>,
    /// Instructions walked: start and length.
    walked: BTreeMap<u64, usize>,
    /// Why an instruction was not taken for the next original one.
    not_yet: Option<String>,
}

/// Where, and what is wrong there.
pub(super) type Wrong = (Addr, String);

/// More jumps in a row than any function has.
const MOST_JUMPS: usize = 64;

impl<'a> Walk<'a> {
    pub(super) fn new(
        machine: Machine<'a>,
        code: &'a [u8],
        at: Addr,
        site: &'a Site,
        originals: &'a Originals<'a>,
        lists: &'a Lists,
    ) -> Self {
        Self {
            machine,
            code,
            span: Span::new(at, code.len() as u64),
            site,
            originals,
            lists,
            facts: Facts::default(),
            states: HashMap::new(),
            to_do: Vec::new(),
            ways: Vec::new(),
            walked: BTreeMap::new(),
            not_yet: None,
        }
    }

    /// Walks it.
    ///
    /// # Errors
    /// The first thing found wrong, and where.
    pub(super) fn run(&mut self) -> Result<(), Wrong> {
        let start = State::original(&mut self.machine.values, Mask::NONE);
        let goal = Goal {
            at: self.site.displaced.start.0,
            by: By::Copy(0),
        };
        let phase = self
            .settled(Some(Point::Entry), 0, Progress::default(), goal)
            .map_err(|why| (self.span.start, why))?;
        self.go(None, self.span.start.0, phase, start)?;
        // Values only ever become unknown, so every node is walked a few times at most.
        let mut budget = 4096 + 64 * self.code.len();
        while let Some(node) = self.to_do.pop() {
            budget = budget.checked_sub(1).ok_or((
                Addr(node.0),
                String::from("the code is too entangled to be proven"),
            ))?;
            let Some(state) = self.states.get(&node).cloned() else {
                continue;
            };
            let instruction = self.decode(node.0)?;
            self.visit(node, &instruction, state)
                .map_err(|why| (Addr(node.0), why))?;
        }
        shape::no_loops(self.states.keys().copied(), &self.ways)?;
        shape::all_walked(self.span, self.code, &self.walked)
    }

    fn decode(&mut self, at: u64) -> Result<Instruction, Wrong> {
        let bytes = self.bytes_from(at);
        let mut decoder = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return Err((
                Addr(at),
                "control comes to bytes that are not an instruction of the patch".into(),
            ));
        }
        self.walked.insert(at, instruction.len());
        Ok(instruction)
    }

    pub(super) fn bytes_from(&self, at: u64) -> &'a [u8] {
        usize::try_from(at.wrapping_sub(self.span.start.0))
            .ok()
            .and_then(|offset| self.code.get(offset..))
            .unwrap_or_default()
    }

    fn list(&self, point: Point) -> &'a [Expected] {
        let known = self.lists.binary_search_by_key(&point, |(point, _)| *point);
        known
            .ok()
            .and_then(|index| self.lists.get(index))
            .map_or(&[], |(_, list)| list)
    }

    /// The stretch of original code that is copied as this number.
    fn copied(&self, copy: usize) -> Option<Span> {
        match copy.checked_sub(1) {
            None => Some(self.site.displaced),
            Some(number) => self.site.run_ons.get(number).map(|run_on| run_on.copied),
        }
    }

    /// The original code goes from one instruction of a copy to another: where that is, and the
    /// point on the way. `next` if it merely runs on.
    pub(super) fn cross(&mut self, from: u64, to: u64, copy: usize, next: bool) -> (Point, Goal) {
        let edge = Edge {
            from: Addr(from),
            to: Addr(to),
        };
        let run_on = || {
            let number = self
                .site
                .run_ons
                .iter()
                .position(|run_on| run_on.edge == edge)?;
            Some(By::Copy(number + 1))
        };
        let inside = next
            && self
                .copied(copy)
                .is_some_and(|span| span.contains(Addr(to)));
        let by = if inside {
            Some(By::Copy(copy))
        } else {
            run_on()
        };
        let by = by.unwrap_or(By::Text { from });
        self.facts
            .edges
            .insert((edge, matches!(by, By::Text { .. })));
        (Point::On(edge), Goal { at: to, by })
    }

    /// The phase after so many instruments of a point: perhaps that of the next point. What is not a
    /// step of its own in a patch, a jump or the tracer's bytes, is passed.
    fn settled(
        &mut self,
        mut point: Option<Point>,
        mut done: usize,
        progress: Progress,
        mut goal: Goal,
    ) -> Result<Phase, String> {
        let any = |point| !self.list(point).is_empty();
        let mut straight = !point.is_some_and(any);
        for _ in 0..MOST_JUMPS {
            match point {
                Some(at) if done < self.list(at).len() || !progress.is_nothing() => {
                    return Ok(Phase::Instruments {
                        point,
                        done,
                        progress,
                        goal,
                    });
                }
                Some(Point::On(_)) if matches!(goal.by, By::Copy(_)) => {
                    point = Some(Point::Before(Addr(goal.at)));
                }
                Some(_) => point = None,
                None => match self.passed(goal) {
                    Some((on, next)) => (point, goal) = (Some(on), next),
                    None if straight => return Ok(Phase::Straight(goal)),
                    None => {
                        return Ok(Phase::Instruments {
                            point,
                            done: 0,
                            progress,
                            goal,
                        });
                    }
                },
            }
            done = 0;
            straight &= point.is_none_or(|point| self.list(point).is_empty());
        }
        Err("the original code jumps in a circle".into())
    }

    /// Where a jump, or the tracer's bytes in its site, lead: they do nothing else.
    fn passed(&mut self, goal: Goal) -> Option<(Point, Goal)> {
        let By::Copy(copy) = goal.by else { return None };
        if self.site.splice == Splice::Tracer && copy == 0 && goal.at == self.site.displaced.start.0
        {
            return Some(self.cross(goal.at, self.site.displaced.end.0, copy, true));
        }
        let (routine, original) = self.originals.instruction(goal.at)?;
        let jumps = original.instruction.is_jmp_short_or_near()
            && routine.sites_in(original.span()).next().is_none();
        let target = original.instruction.near_branch_target();
        jumps.then(|| self.cross(goal.at, target, copy, false))
    }

    /// Control goes on inside the patch.
    fn go(&mut self, from: Option<Node>, to: u64, phase: Phase, state: State) -> Result<(), Wrong> {
        if !self.span.contains(Addr(to)) {
            return Err((Addr(to), "control runs off the end of the patch".into()));
        }
        let node = (to, phase);
        if let Some(from) = from {
            self.ways.push((from, node));
        }
        self.enter(node, state)
    }

    fn enter(&mut self, node: Node, state: State) -> Result<(), Wrong> {
        let joined = match self.states.get(&node) {
            None => state,
            Some(known) => {
                let joined = known.join(&state, &mut self.machine.values, node.0);
                let joined = joined.ok_or((
                    Addr(node.0),
                    String::from("ways meet here with different words on the stack"),
                ))?;
                if joined == *known {
                    return Ok(());
                }
                joined
            }
        };
        self.states.insert(node, joined);
        self.to_do.push(node);
        Ok(())
    }

    fn visit(&mut self, node: Node, instruction: &Instruction, state: State) -> Result<(), String> {
        match node.1 {
            Phase::Called(target) => self.called(instruction, target),
            Phase::Keyed { at, copy } => self.decide(instruction, state, at, copy),
            Phase::Straight(goal) => {
                if self.is_jump_inside(instruction) {
                    return self.on(node, instruction.near_branch_target(), node.1, state);
                }
                match self.original(instruction, &state, goal)? {
                    true => Ok(()),
                    false => Err(self.should(instruction, goal)),
                }
            }
            Phase::Instruments {
                point,
                done,
                progress,
                goal,
            } => {
                if point.is_none() && self.original(instruction, &state, goal)? {
                    return Ok(());
                }
                self.instrument(node, instruction, state, (point, done, progress, goal))
            }
        }
    }

    fn is_jump_inside(&self, instruction: &Instruction) -> bool {
        instruction.is_jmp_short_or_near()
            && self.span.contains(Addr(instruction.near_branch_target()))
    }

    /// Control goes on, without having run an original instruction.
    fn on(&mut self, from: Node, to: u64, phase: Phase, state: State) -> Result<(), String> {
        self.go(Some(from), to, phase, state)
            .map_err(|(_, why)| why)
    }

    /// Control goes on behind an original instruction: a loop here is one of the original code's.
    pub(super) fn behind(
        &mut self,
        to: u64,
        (point, goal): (Point, Goal),
        state: State,
    ) -> Result<(), String> {
        let phase = self.settled(Some(point), 0, Progress::default(), goal)?;
        self.go(None, to, phase, state).map_err(|(_, why)| why)
    }

    /// The same, to a phase that is known.
    pub(super) fn reach(&mut self, to: u64, phase: Phase, state: State) -> Result<(), String> {
        self.go(None, to, phase, state).map_err(|(_, why)| why)
    }

    /// Whether nothing stands on the way to the goal, and the goal is the text at `to`.
    pub(super) fn leads_out(&mut self, to: u64, way: (Point, Goal)) -> Result<bool, String> {
        let phase = self.settled(Some(way.0), 0, Progress::default(), way.1)?;
        Ok(matches!(phase, Phase::Straight(Goal { at, by: By::Text { .. } }) if at == to))
    }

    /// Whether everything that may be used from here on is as the original code has it.
    pub(super) fn restored(&mut self, state: &State, live: Mask) -> bool {
        let wrong = Mask(state.spoilt(&self.machine.values).0 & live.0);
        self.not_yet = None;
        if !state.stack.is_empty() {
            self.not_yet = Some(format!(
                "{} words are still on the stack",
                state.stack.len()
            ));
        } else if !wrong.is_empty() {
            self.not_yet = Some(format!(
                "{} may be used later and does not have its value",
                names(wrong)
            ));
        }
        state.stack.is_empty() && wrong.is_empty()
    }

    fn instrument(
        &mut self,
        node: Node,
        instruction: &Instruction,
        mut state: State,
        at: (Option<Point>, usize, Progress, Goal),
    ) -> Result<(), String> {
        let (point, done, progress, goal) = at;
        let expected = point.and_then(|point| self.list(point).get(done));
        let flow = self
            .machine
            .step(instruction, &mut state, expected, progress);
        let flow = flow.map_err(|why| self.explain(&why, at))?;
        match flow {
            Flow::On(Some(progress)) => {
                let phase = self.kept(point, done, progress, goal)?;
                self.on(node, instruction.next_ip(), phase, state)
            }
            Flow::On(None) => {
                state.settle(&self.machine.values);
                let phase = self.kept(point, done + 1, Progress::default(), goal)?;
                self.on(node, instruction.next_ip(), phase, state)
            }
            Flow::Jump(to) => self.inside(node, to, state, at, false),
            Flow::Branch { to, taken, falls } => {
                for (to, way) in [(to, taken), (instruction.next_ip(), falls)] {
                    let Way {
                        state,
                        progress,
                        failed,
                    } = *way;
                    self.inside(node, to, state, (point, done, progress, goal), failed)?;
                }
                Ok(())
            }
        }
    }

    /// The phase among or behind instruments; never one where nothing may stand in between.
    fn kept(
        &mut self,
        point: Option<Point>,
        done: usize,
        progress: Progress,
        goal: Goal,
    ) -> Result<Phase, String> {
        Ok(match self.settled(point, done, progress, goal)? {
            Phase::Straight(goal) => Phase::Instruments {
                point: None,
                done: 0,
                progress,
                goal,
            },
            phase => phase,
        })
    }

    fn inside(
        &mut self,
        node: Node,
        to: u64,
        state: State,
        at: (Option<Point>, usize, Progress, Goal),
        failed: bool,
    ) -> Result<(), String> {
        if !self.span.contains(Addr(to)) {
            let why = format!("control leaves for {}", Addr(to));
            return Err(self.explain(&why, at));
        }
        let (point, done, progress, goal) = at;
        let phase = self.kept(point, done, progress, goal)?;
        if failed {
            self.enter((to, phase), state).map_err(|(_, why)| why)
        } else {
            self.on(node, to, phase, state)
        }
    }

    /// Adds what should have come instead.
    fn explain(&self, why: &str, at: (Option<Point>, usize, Progress, Goal)) -> String {
        let (point, done, progress, goal) = at;
        if let Some(expected) = point.and_then(|point| self.list(point).get(done)) {
            return format!(
                "{why}; instrument {} is not done here: {}",
                expected.id,
                progress.missing()
            );
        }
        let reason = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!(", and {reason}"));
        format!("{why}; {} should come next{reason}", self.awaited(goal))
    }

    /// What an original instruction should have stood for.
    fn should(&self, instruction: &Instruction, goal: Goal) -> String {
        let reason = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!("; {reason}"));
        format!(
            "it is `{instruction}` where {} should stand{reason}",
            self.awaited(goal)
        )
    }

    /// Why what may be used is not as the original code has it.
    pub(super) fn not_restored(&self) -> String {
        self.not_yet.clone().unwrap_or_default()
    }

    fn awaited(&self, goal: Goal) -> String {
        match (goal.by, self.originals.instruction(goal.at)) {
            (By::Text { .. }, _) => format!("the jump to {}", Addr(goal.at)),
            (By::Copy(_), Some((_, original))) => {
                format!("`{}` of {}", original.instruction, Addr(goal.at))
            }
            (By::Copy(_), None) => format!("the instruction of {}", Addr(goal.at)),
        }
    }
}
