//! Walks every path of a patch and proves what happens on it, from the bytes alone.
//!
//! Which bytes are instrument code and which are the relocated sequence is found out, not read from
//! the plan: instrument code runs until every instrument of the hook has had its one hit and all
//! that is live has its value again; from there on each instruction must be the next original one.
//! States of the same point and phase are joined, so loops end; the only loops allowed are those
//! that go through a failed reservation, which fails only if another one succeeded.

use std::collections::{BTreeMap, HashMap};

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::effects::{Mask, names};
use super::hit::{Expected, Progress};
use super::routine::Decoded;
use super::same::same;
use super::shape;
use super::state::State;
use super::step::{Flow, Machine, Way};
use crate::{Addr, HookType, Span};

/// What the displaced instructions are, and what must be right around them.
pub(super) struct Displaced<'a> {
    pub(super) span: Span,
    /// In order.
    pub(super) originals: &'a [Decoded],
    /// Registers and flags that may be used from the first of them on.
    pub(super) live_at_start: Mask,
    /// The same from the block end on, or behind the last if no block end is displaced.
    pub(super) live_at_split: Mask,
}

impl Displaced<'_> {
    /// The branch, return or call that the displaced instructions end in.
    pub(super) fn block_end(&self) -> Option<&Decoded> {
        self.originals
            .last()
            .filter(|last| last.is_branch() || last.is_call())
    }

    /// How many instructions are before it.
    fn sequential(&self) -> usize {
        self.originals.len() - usize::from(self.block_end().is_some())
    }
}

/// What part of a hit's way control is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Instruments of a hook: so many are done.
    Instruments {
        hook: HookType,
        done: usize,
        progress: Progress,
    },
    /// So many of the displaced instructions have run.
    Relocated(usize),
    /// The return address of the call that ends the displaced instructions is pushed.
    Called,
    /// The block's end has been decided: to this address by jumps alone.
    Leaving(u64),
}

pub(super) type Node = (u64, Phase);

/// A walk over one patch.
pub(super) struct Walk<'a> {
    pub(super) machine: Machine<'a>,
    code: &'a [u8],
    pub(super) span: Span,
    pub(super) displaced: &'a Displaced<'a>,
    pre: &'a [Expected],
    post: &'a [Expected],
    states: HashMap<Node, State>,
    to_do: Vec<Node>,
    /// Ways between nodes that are not a failed reservation's.
    ways: Vec<(Node, Node)>,
    /// Instructions walked: start and length.
    walked: BTreeMap<u64, usize>,
    /// Why an instruction was not taken for the next original one.
    not_yet: Option<String>,
}

/// Where, and what is wrong there.
pub(super) type Wrong = (Addr, String);

impl<'a> Walk<'a> {
    pub(super) fn new(
        machine: Machine<'a>,
        code: &'a [u8],
        at: Addr,
        displaced: &'a Displaced<'a>,
        pre: &'a [Expected],
        post: &'a [Expected],
    ) -> Self {
        Self {
            machine,
            code,
            span: Span::new(at, code.len() as u64),
            displaced,
            pre,
            post,
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
        let phase = self.phase(HookType::Pre, 0, Progress::default());
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

    fn list(&self, hook: HookType) -> &'a [Expected] {
        match hook {
            HookType::Pre => self.pre,
            HookType::Post => self.post,
        }
    }

    /// The phase of instruments; both hooks are one point where nothing sequential is displaced.
    fn phase(&self, hook: HookType, done: usize, progress: Progress) -> Phase {
        if hook == HookType::Pre && done == self.pre.len() && self.displaced.sequential() == 0 {
            return Phase::Instruments {
                hook: HookType::Post,
                done: 0,
                progress: Progress::default(),
            };
        }
        Phase::Instruments {
            hook,
            done,
            progress,
        }
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
        let (at, phase) = node;
        let next = instruction.next_ip();
        match phase {
            Phase::Leaving(to) => self.jump(node, instruction, state, to),
            Phase::Called => {
                let call = self
                    .displaced
                    .block_end()
                    .map(|call| call.instruction.near_branch_target());
                let leaves = instruction.is_jmp_short_or_near()
                    && Some(instruction.near_branch_target()) == call;
                if leaves {
                    self.check_behind(instruction)
                } else {
                    Err("the moved call does not lead to its target".into())
                }
            }
            Phase::Relocated(done) => {
                let original = self
                    .displaced
                    .originals
                    .get(done)
                    .ok_or("there is no instruction left to be relocated")?;
                if !same(&original.instruction, instruction) {
                    return Err(format!(
                        "it is `{instruction}` where `{}` of {} should stand",
                        original.instruction,
                        Addr(original.at())
                    ));
                }
                let state = self.relocated(original, &state)?;
                let phase = self.behind(done + 1);
                self.on(node, next, phase, state)
            }
            Phase::Instruments {
                hook,
                done,
                progress,
            } => {
                let all_done = done == self.list(hook).len() && progress.is_nothing();
                if all_done && hook == HookType::Pre && self.begins_sequence(instruction, &state) {
                    let original = self
                        .displaced
                        .originals
                        .first()
                        .ok_or("nothing is displaced")?;
                    let state = self.relocated(original, &state)?;
                    let phase = self.behind(1);
                    return self.on(node, next, phase, state);
                }
                if all_done && hook == HookType::Post && self.is_block_end(instruction, &state) {
                    return self.block_end(node, instruction, state);
                }
                self.instrument(at, node, instruction, state)
            }
        }
    }

    pub(super) fn on(
        &mut self,
        from: Node,
        to: u64,
        phase: Phase,
        state: State,
    ) -> Result<(), String> {
        self.go(Some(from), to, phase, state)
            .map_err(|(_, why)| why)
    }

    /// The phase behind so many relocated instructions.
    fn behind(&self, relocated: usize) -> Phase {
        if relocated < self.displaced.sequential() {
            Phase::Relocated(relocated)
        } else {
            self.phase(HookType::Post, 0, Progress::default())
        }
    }

    /// Whether everything that may be used from here on is as the original code has it.
    pub(super) fn restored(&mut self, state: &State, live: Mask) -> bool {
        let wrong = Mask(state.spoilt(&self.machine.values).0 & live.0);
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

    fn begins_sequence(&mut self, instruction: &Instruction, state: &State) -> bool {
        let first = self.displaced.originals.first();
        first.is_some_and(|first| same(&first.instruction, instruction))
            && self.restored(state, self.displaced.live_at_start)
    }

    /// What is known after a relocated instruction.
    fn relocated(&mut self, original: &Decoded, state: &State) -> Result<State, String> {
        let spoilt = state.spoilt(&self.machine.values);
        let used = Mask(spoilt.0 & original.reads.0);
        if !used.is_empty() {
            return Err(format!(
                "`{}` uses {}, which does not have its value",
                original.instruction,
                names(used)
            ));
        }
        Ok(State::original(
            &mut self.machine.values,
            spoilt.without(original.kills),
        ))
    }

    fn instrument(
        &mut self,
        at: u64,
        node: Node,
        instruction: &Instruction,
        mut state: State,
    ) -> Result<(), String> {
        let Phase::Instruments {
            hook,
            done,
            progress,
        } = node.1
        else {
            return Ok(());
        };
        let expected = self.list(hook).get(done);
        let flow = self
            .machine
            .step(instruction, &mut state, expected, progress);
        let flow = flow.map_err(|why| self.explain(&why, hook, done, progress))?;
        match flow {
            Flow::On(Some(progress)) => self.on(
                node,
                instruction.next_ip(),
                self.phase(hook, done, progress),
                state,
            ),
            Flow::On(None) => {
                state.settle(&self.machine.values);
                let phase = self.phase(hook, done + 1, Progress::default());
                self.on(node, instruction.next_ip(), phase, state)
            }
            Flow::Jump(to) => self.inside(node, to, state, hook, done, progress, false),
            Flow::Branch { to, taken, falls } => {
                for (to, way) in [
                    (to, taken),
                    (at.wrapping_add(instruction.len() as u64), falls),
                ] {
                    let Way {
                        state,
                        progress,
                        failed,
                    } = *way;
                    self.inside(node, to, state, hook, done, progress, failed)?;
                }
                Ok(())
            }
        }
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "a way has these parts, and is taken here only"
    )]
    fn inside(
        &mut self,
        node: Node,
        to: u64,
        state: State,
        hook: HookType,
        done: usize,
        progress: Progress,
        failed: bool,
    ) -> Result<(), String> {
        if !self.span.contains(Addr(to)) {
            let why = format!("control leaves for {}", Addr(to));
            return Err(self.explain(&why, hook, done, progress));
        }
        let phase = self.phase(hook, done, progress);
        if failed {
            self.enter((to, phase), state).map_err(|(_, why)| why)
        } else {
            self.on(node, to, phase, state)
        }
    }

    /// Adds what should have come instead.
    fn explain(&self, why: &str, hook: HookType, done: usize, progress: Progress) -> String {
        if let Some(expected) = self.list(hook).get(done) {
            return format!(
                "{why}; instrument {} is not done here: {}",
                expected.id,
                progress.missing()
            );
        }
        let next = match hook {
            HookType::Pre => self.displaced.originals.first(),
            HookType::Post => self.displaced.block_end(),
        };
        let awaited = next.map_or_else(
            || format!("the jump to {}", self.displaced.span.end),
            |next| format!("`{}` of {}", next.instruction, Addr(next.at())),
        );
        let reason = self
            .not_yet
            .as_ref()
            .map_or_else(String::new, |reason| format!(", and {reason}"));
        format!("{why}; {awaited} should come next{reason}")
    }
}
