//! Proof of a patch: a walk over every path of the patch in parallel with the original code.
//!
//! The distinction of instrument code and copies is derived, not read from the plan: instrument
//! code executes until each instrument of the point has had its one hit and each live register has
//! its value again; from there the instruction must be the next original one, or the jump to its
//! address. States of the same point and phase are joined, so that loops reach a fixpoint. The only
//! permitted loops are the original code's own, those through a failed reservation, which fails
//! only if another one succeeded, and those through the restart of a sequence whose thread lost its CPU.

use crate::verify::reason::Reason;
use iced_x86::Instruction;

use super::descriptor::{self, Descriptor};
use super::hit::{HitStage, Progress};
use super::joins::{Joins, NodeId};
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::phase::{Aim, BrokenRule, By, Facts, Lists, Node, Phase};
use super::scan::Scan;
use super::state::AbstractState;
use super::unwind;
use crate::layout::RuntimeLayout;
use crate::placement::{Point, Site};
use crate::plan::{Patch, PatchFault};
use crate::unwind::Row;
use crate::verify::symbolic::value::SymValues;
use crate::verify::text::effects::{Mask, names};
use crate::verify::text::originals::OriginalCode;
use crate::{Addr, InstrumentId, Span};

/// Allocations of walks, reused from patch to patch.
#[derive(Debug)]
pub(crate) struct WalkBuffers {
    values: SymValues,
    scan: Scan,
    joins: Joins,
}

impl WalkBuffers {
    pub(crate) fn new() -> Self {
        Self {
            values: SymValues::new(),
            scan: Scan::default(),
            joins: Joins::default(),
        }
    }
}

/// A walk over one patch.
pub(crate) struct Walk<'a> {
    pub(crate) machine: InstrumentMachine<'a>,
    pub(crate) scan: Scan,
    joins: Joins,
    code: &'a [u8],
    rows: &'a [Row],
    pub(crate) span: Span,
    pub(crate) site: &'a Site,
    pub(crate) originals: &'a OriginalCode<'a>,
    /// The instruments of each point, sorted.
    pub(crate) lists: &'a Lists,
    pub(crate) facts: Facts,
    /// Instruments that replace the original function, and the addresses at which they call it.
    pub(crate) replaced: Vec<(InstrumentId, Addr)>,
    /// Successors with a single predecessor.
    ahead: Vec<Ahead>,
    /// The reason why an instruction is not the next original one.
    pub(crate) not_yet: Option<Reason>,
}

/// A successor of the node `since`, before control meets another node.
struct Ahead {
    since: Option<NodeId>,
    node: Node,
    state: AbstractState,
}

impl<'a> Walk<'a> {
    /// Begins a walk.
    pub(crate) fn new(
        tools: WalkBuffers,
        (layout, planned_faults): (&'a RuntimeLayout, &'a [PatchFault]),
        (patch, code, descriptors): (&'a Patch, &'a [u8], Vec<Descriptor>),
        site: &'a Site,
        originals: &'a OriginalCode<'a>,
        lists: &'a Lists,
    ) -> Self {
        let WalkBuffers {
            mut values,
            mut scan,
            mut joins,
        } = tools;
        values.clear();
        let restarts = descriptors.iter().map(Descriptor::abort);
        scan.read(code, patch.address, restarts);
        joins.clear();
        Self {
            machine: InstrumentMachine {
                layout,
                entered: unwind::pushed_by(site),
                values,
                entries: Vec::new(),
                rows: Vec::new(),
                expected: None,
                descriptors,
                planned_faults,
                unwind_rows: (&patch.rows, patch.address),
                faults: Vec::new(),
                reader_stack: 0,
            },
            scan,
            joins,
            code,
            rows: &patch.rows,
            span: Span::new(patch.address, code.len() as u64),
            site,
            originals,
            lists,
            facts: Facts::default(),
            replaced: Vec::new(),
            ahead: Vec::new(),
            not_yet: None,
        }
    }

    /// Returns the allocations for the next walk.
    pub(crate) fn into_tools(self) -> WalkBuffers {
        WalkBuffers {
            values: self.machine.values,
            scan: self.scan,
            joins: self.joins,
        }
    }

    /// Walks the patch.
    ///
    /// # Errors
    /// The first broken rule and its place.
    pub(crate) fn run(&mut self) -> Result<(), BrokenRule> {
        self.run_by(By::Copy(0))
    }

    /// Walks the patch of a site, whose first displaced instruction is executed by the code that `by` names.
    ///
    /// # Errors
    /// The first broken rule and its place.
    pub(crate) fn run_by(&mut self, by: By) -> Result<(), BrokenRule> {
        unwind::order(self.machine.layout, self.rows).map_err(|why| (self.span.start, why))?;
        let start = AbstractState::original(Mask::NONE);
        let goal = Aim {
            at: self.site.displaced.start.0,
            by,
        };
        let phase = self
            .settled(Some(Point::Entry), 0, Progress::default(), goal)
            .map_err(|why| (self.span.start, why))?;
        self.go(None, self.span.start.0, phase, start)?;
        // A join only makes values unknown, so every node is visited a few times at most.
        let mut budget = 4096 + 64 * self.code.len();
        loop {
            let ahead = self.ahead.pop().or_else(|| {
                let (number, node, state) = self.joins.next()?;
                Some(Ahead {
                    since: Some(number),
                    node,
                    state,
                })
            });
            let Some(Ahead { since, node, state }) = ahead else {
                break;
            };
            budget = budget
                .checked_sub(1)
                .ok_or((Addr(node.0), Reason::TooComplex))?;
            let instruction = self.scan.walk(node.0)?;
            let unwound = if self.machine.layout.unwinds {
                unwind::check(
                    self.originals,
                    self.site,
                    self.rows,
                    self.span.start,
                    &instruction,
                    (node, &state),
                )
            } else {
                Ok(())
            };
            self.visit(since, node.1, &instruction, state)
                .and(unwound)
                .map_err(|why| (Addr(node.0), why))?;
        }
        self.joins.no_loops()?;
        self.scan.all_walked()?;
        descriptor::all_armed(&self.machine.descriptors)?;
        self.facts.sort();
        Ok(())
    }

    pub(crate) fn bytes_from(&self, at: u64) -> &'a [u8] {
        usize::try_from(at.wrapping_sub(self.span.start.0))
            .ok()
            .and_then(|offset| self.code.get(offset..))
            .unwrap_or_default()
    }

    /// Continues inside the patch. `from` is the node, unless the edge may be part of a loop.
    fn go(
        &mut self,
        from: Option<NodeId>,
        to: u64,
        phase: Phase,
        state: AbstractState,
    ) -> Result<(), BrokenRule> {
        if !self.span.contains(Addr(to)) {
            return Err((Addr(to), Reason::PastEnd));
        }
        let node = (to, phase);
        if self.scan.is_landing(to) {
            let values = &mut self.machine.values;
            return self.joins.enter(from, node, state, values);
        }
        self.ahead.push(Ahead {
            since: from,
            node,
            state,
        });
        Ok(())
    }

    fn visit(
        &mut self,
        since: Option<NodeId>,
        phase: Phase,
        instruction: &Instruction,
        state: AbstractState,
    ) -> Result<(), Reason> {
        match phase {
            Phase::HalfPushed { at, target } => self.upper_half(instruction, state, (at, target)),
            Phase::Called { target, .. } => self.called(instruction, target),
            Phase::Keyed { at, copy } => self.decide(instruction, state, at, copy),
            Phase::Straight(goal) => {
                if self.is_jump_inside(instruction) {
                    return self.on(since, instruction.near_branch_target(), phase, state);
                }
                if self.is_before_return(instruction, goal) {
                    return self.on(since, instruction.next_ip(), phase, state);
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
                self.instrument(since, instruction, state, (point, done, progress, goal))
            }
        }
    }

    pub(crate) fn is_jump_inside(&self, instruction: &Instruction) -> bool {
        instruction.is_jmp_short_or_near()
            && self.span.contains(Addr(instruction.near_branch_target()))
    }

    /// Continues without an original instruction in between.
    pub(crate) fn on(
        &mut self,
        since: Option<NodeId>,
        to: u64,
        phase: Phase,
        state: AbstractState,
    ) -> Result<(), Reason> {
        self.go(since, to, phase, state).map_err(|(_, why)| why)
    }

    /// Continues after an original instruction: a loop from here is one of the original code.
    pub(crate) fn continue_at(
        &mut self,
        to: u64,
        (point, goal): (Point, Aim),
        state: AbstractState,
    ) -> Result<(), Reason> {
        let phase = self.settled(Some(point), 0, Progress::default(), goal)?;
        self.go(None, to, phase, state).map_err(|(_, why)| why)
    }

    /// Continues after an original instruction in a given phase.
    pub(crate) fn reach(
        &mut self,
        to: u64,
        phase: Phase,
        state: AbstractState,
    ) -> Result<(), Reason> {
        self.go(None, to, phase, state).map_err(|(_, why)| why)
    }

    /// Returns whether no instrument is on the way to the goal, and the goal is the text at `to`.
    pub(crate) fn leads_out(&mut self, to: u64, way: (Point, Aim)) -> Result<bool, Reason> {
        let phase = self.settled(Some(way.0), 0, Progress::default(), way.1)?;
        Ok(matches!(phase, Phase::Straight(Aim { at, by: By::Text { .. } }) if at == to))
    }

    /// Returns whether every live register has its value of the original code.
    pub(crate) fn restored(&mut self, state: &AbstractState, live: Mask) -> bool {
        let wrong = Mask(state.spoilt().0 & live.0);
        self.not_yet = None;
        let balanced = state.depth() == 0;
        if !balanced {
            self.not_yet = Some(Reason::BytesPushed {
                bytes: state.depth(),
            });
        } else if !wrong.is_empty() {
            self.not_yet = Some(Reason::NotRestored {
                registers: names(wrong),
            });
        }
        balanced && wrong.is_empty()
    }

    fn instrument(
        &mut self,
        since: Option<NodeId>,
        instruction: &Instruction,
        mut state: AbstractState,
        at: (Option<Point>, usize, Progress, Aim),
    ) -> Result<(), Reason> {
        let (point, done, progress, goal) = at;
        let expected = point.and_then(|point| self.list(point).get(done));
        if self.branches_to_replacement(instruction, expected, progress) {
            return self.replace(since, instruction, &state, at);
        }
        if let Some((to, progress)) = progress.restart() {
            self.inside(
                since,
                to,
                state.clone(),
                (point, done, progress, goal),
                true,
            )?;
        }
        let flow = self
            .machine
            .step(instruction, &mut state, expected, progress);
        let flow = flow.map_err(|why| self.explain(why, at))?;
        match flow {
            MachineFlow::On(Some(progress)) => {
                let (done, progress) = self
                    .handed_on(point, done, progress, &mut state)
                    .map_err(|why| self.explain(why, at))?;
                let phase = self.kept(point, done, progress, goal)?;
                self.on(since, instruction.next_ip(), phase, state)
            }
            MachineFlow::On(None) => {
                state.settle(&self.machine.values, &[]);
                let phase = self.kept(point, done + 1, Progress::default(), goal)?;
                self.on(since, instruction.next_ip(), phase, state)
            }
            MachineFlow::Jump(to) => self.inside(since, to, state, at, false),
            MachineFlow::Branch { to, taken, falls } => {
                for (to, way) in [(to, taken), (instruction.next_ip(), falls)] {
                    let BranchWay {
                        mut state,
                        progress,
                        failed,
                        never,
                    } = *way;
                    let (done, progress) = match progress {
                        _ if never => continue,
                        Some(progress) => (done, progress),
                        None => {
                            state.settle(&self.machine.values, &[]);
                            (done + 1, Progress::default())
                        }
                    };
                    self.inside(since, to, state, (point, done, progress, goal), failed)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the number of complete instruments and the progress of the next one, after a step of a group of samples,
    /// whose next sample may be another instrument's.
    fn handed_on(
        &mut self,
        point: Option<Point>,
        mut done: usize,
        mut progress: Progress,
        state: &mut AbstractState,
    ) -> Result<(usize, Progress), Reason> {
        let list = point.map_or(&[][..], |point| self.list(point));
        loop {
            if list.get(done).is_some_and(|one| progress.passes(one)) {
                let machine = &mut self.machine;
                let begun = progress.begun(&mut machine.values, machine.layout);
                state.settle(&self.machine.values, &begun);
                done += 1;
                progress.steps = 0;
            }
            let HitStage::Losing { further } = progress.stage else {
                return Ok((done, progress));
            };
            let one = list.get(done).ok_or(Reason::CountsLoss)?;
            let Some(next) = self.machine.hit(one).lose(progress, further)? else {
                state.settle(&self.machine.values, &[]);
                return Ok((done + 1, Progress::default()));
            };
            progress = next;
        }
    }

    /// Returns the phase among or after instruments; never one in which no instrument code may
    /// execute.
    pub(crate) fn kept(
        &mut self,
        point: Option<Point>,
        done: usize,
        progress: Progress,
        goal: Aim,
    ) -> Result<Phase, Reason> {
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
        since: Option<NodeId>,
        to: u64,
        state: AbstractState,
        at: (Option<Point>, usize, Progress, Aim),
        failed: bool,
    ) -> Result<(), Reason> {
        if !self.span.contains(Addr(to)) {
            return Err(self.explain(Reason::Leaves { to: Addr(to) }, at));
        }
        let (point, done, progress, goal) = at;
        let phase = self.kept(point, done, progress, goal)?;
        self.on(since.filter(|_| !failed), to, phase, state)
    }
}
