//! Contents of registers that blocks leave to those after them: the address of a table that a compiler has moved out of a
//! loop, or a pointer that was read before a call.

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHashSet};

use super::blocks::Blocks;
use super::facts::ValueFact;
use super::state::MachineState;
use super::value::{Expression, Which};
use super::{Flow, ObjectCode};
use crate::isa::RegisterSet;
use crate::isa::abi::{CALLER_SAVED, CHANGED_BY_SYSTEM_CALL};
use crate::isa::decode::branch_target;
use crate::isa::effect::is_write;

/// The content of a register where a block begins, whatever way control took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Constant(u64),
    /// A value that was read or passed whole.
    Whole,
    Unknown,
}

/// The content of a register at the end of a block.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// That of the register of this number where it begins.
    Same(usize),
    New(Content),
}

/// Blocks, and what they leave in registers, as far as that was needed.
pub(super) struct Carried {
    written: FxHashMap<usize, RegisterSet>,
    left: FxHashMap<usize, [Left; 16]>,
    factory: InstructionInfoFactory,
}

impl Carried {
    pub(super) fn new() -> Self {
        Self {
            written: FxHashMap::default(),
            left: FxHashMap::default(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Returns the state where a block begins, of which these registers are known.
    pub(super) fn state(
        &mut self,
        flow: &mut Flow<'_>,
        code: &ObjectCode<'_>,
        blocks: &Blocks,
        (leader, registers): (usize, RegisterSet),
    ) -> MachineState {
        let at = flow.ip(leader);
        let mut state = MachineState::unknown(&mut flow.machine.all, at);
        for register in registers.iter() {
            let number = register.number();
            match self.content(flow, code, blocks, (leader, number)) {
                Content::Constant(value) => {
                    let value = flow.machine.all.constant(value);
                    state.set(number, value);
                }
                Content::Whole => {
                    let value = flow.machine.all.produced(at, Which::Joined(number));
                    state.learn(value, ValueFact::WHOLE);
                }
                Content::Unknown => {}
            }
        }
        state
    }

    /// Returns what a register has where a block begins: one content that all blocks before it leave.
    fn content(
        &mut self,
        flow: &mut Flow<'_>,
        code: &ObjectCode<'_>,
        blocks: &Blocks,
        wanted: (usize, usize),
    ) -> Content {
        let mut visited = FxHashSet::from_iter([wanted]);
        let mut worklist = vec![wanted];
        let mut found = None;
        let mut is_one = |content| *found.get_or_insert(content) == content;
        while let Some((leader, number)) = worklist.pop() {
            if flow.entered.contains(&leader) && !is_one(Content::Whole) {
                return Content::Unknown;
            }
            let before = blocks.before(leader).chain(blocks.listing(leader));
            for from in before.filter(|&from| blocks.is_reached(from)) {
                match self.left(flow, code, blocks, (from, number)) {
                    Left::New(content) if content == Content::Unknown || !is_one(content) => {
                        return Content::Unknown;
                    }
                    Left::New(_) => {}
                    Left::Same(number) => {
                        if visited.insert((from, number)) {
                            worklist.push((from, number));
                        }
                    }
                }
            }
        }
        found.unwrap_or(Content::Unknown)
    }

    fn left(
        &mut self,
        flow: &mut Flow<'_>,
        code: &ObjectCode<'_>,
        blocks: &Blocks,
        (leader, number): (usize, usize),
    ) -> Left {
        let factory = &mut self.factory;
        let written = self.written.entry(leader);
        let written =
            written.or_insert_with(|| written_by(factory, code, blocks.instructions(flow, leader)));
        let is_written = RegisterSet::numbered(number).is_none_or(|own| written.contains(own));
        if !is_written {
            return Left::Same(number);
        }
        let left = self.left.entry(leader);
        let left = left.or_insert_with(|| left_by(flow, code, leader));
        left.get(number)
            .copied()
            .unwrap_or(Left::New(Content::Unknown))
    }
}

/// Returns the general-purpose registers that a block may change.
fn written_by(
    factory: &mut InstructionInfoFactory,
    code: &ObjectCode<'_>,
    block: &[Instruction],
) -> RegisterSet {
    let mut written = RegisterSet::EMPTY;
    for instruction in block {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Interrupt => return RegisterSet::ALL,
            FlowControl::Call if instruction.code() == Code::Syscall => {
                written = written.union(RegisterSet::of(&CHANGED_BY_SYSTEM_CALL));
            }
            FlowControl::Call => {
                let effect = code.callees.effect(branch_target(instruction));
                written = written.union(effect.changed);
                continue;
            }
            FlowControl::IndirectCall => {
                written = written.union(RegisterSet::of(&CALLER_SAVED));
                continue;
            }
            _ => {}
        }
        for used in factory.info(instruction).used_registers() {
            if is_write(used.access()) {
                written.insert(used.register());
            }
        }
    }
    written
}

/// Executes a block; returns what it leaves in each register.
fn left_by(flow: &mut Flow<'_>, code: &ObjectCode<'_>, leader: usize) -> [Left; 16] {
    let at = flow.ip(leader);
    let state = MachineState::unknown(&mut flow.machine.all, at);
    let before = state.registers;
    let mut ways = Vec::new();
    let (_, jumping) = flow.run(code, leader, state, &mut ways);
    // The registers are the same on both ways of a branch.
    let first = ways.first().map(|(_, state)| state.as_ref());
    let Some(after) = jumping.as_ref().or(first) else {
        return [Left::New(Content::Unknown); 16];
    };
    let all = &flow.machine.all;
    after.registers.map(|value| {
        if let Some(number) = before.iter().position(|own| *own == value) {
            return Left::Same(number);
        }
        Left::New(match all.form(value) {
            Expression::Constant(number) => Content::Constant(number),
            _ if after.fact(all, value).whole => Content::Whole,
            _ => Content::Unknown,
        })
    })
}
