//! Jump tables: the targets of indirect jumps within a function, proven by data flow.
//!
//! Compilers translate a `switch` of position-independent code into `lea base, [rip + table]; movsxd
//! entry, [base + 4 * index]; add entry, base; jmp entry`. Abstract interpretation over the function
//! finds the numbers that the jump's operand may have: conditional branches bound the index, the entries are read
//! from data that nothing writes. A jump through a value that was read or passed whole needs no proof: all
//! pointers to code are known to the reader. A table whose index nothing bounds ends where its entries do, if it has the
//! form in which compilers write tables. Any other jump is refused.
//!
//! Most jumps are explained by the few blocks before them; where one is not, the whole function is followed, which takes
//! ten times as long.
//!
//! What is believed of the code: callees keep the registers that the convention names (those that they do not
//! use are found), and an object on the stack is written at or above the lowest address of the stack that the function computes.

mod blocks;
mod calls;
mod carried;
mod condition;
mod explained;
mod facts;
mod labelled;
mod machine;
mod slots;
mod sorted;
mod state;
mod step;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use rustc_hash::FxHashMap;

use crate::code::{Entries, Function, Memory};
use crate::isa::decode::{branch_target, is_padding};
use crate::{Addr, Refusal, Rule, Span};

pub(super) use calls::Callees;
pub(super) use labelled::DataLabels;
use labelled::LabelledTable;
use machine::{AbstractMachine, general};
use state::{Apart, MachineState};
use value::{Expressions, MOST};

/// The functions of an object, and the memory that has their jump tables.
pub(super) struct ObjectCode<'c> {
    pub(super) memory: &'c Memory,
    pub(super) labels: DataLabels,
    pub(super) functions: &'c [Function],
    pub(super) entries: &'c Entries,
    pub(super) callees: Callees<'c>,
}

/// Targets, sorted, by the address of the jump.
pub(super) type JumpTargets = BTreeMap<Addr, Box<[Addr]>>;

/// Instructions that are interpreted for one function at most.
const LONGEST: usize = 4_000_000;

/// Changes of the state at an instruction until numbers that grow are given up.
const PATIENCE: u32 = 12;

/// Rounds, of which each finds new targets, or stack that pointers reach.
const ROUNDS: usize = 64;

impl ObjectCode<'_> {
    /// Finds all targets, sorted, of the jumps through tables in a function, by the address of the jump.
    ///
    /// # Errors
    /// The refusal of the function, if one of the jumps has unknown targets.
    pub(super) fn targets(&self, function: &Function) -> Result<JumpTargets, Refusal> {
        let Some(mut flow) = Flow::new(self, function) else {
            // The graph refuses it: its bytes are no instructions.
            return Ok(JumpTargets::new());
        };
        match flow.explained_targets(self) {
            Some(jumps) => Ok(jumps),
            None => flow.followed_targets(self),
        }
    }

    /// Returns whether control never continues after an instruction, or also elsewhere.
    fn ends_block(&self, instruction: &Instruction) -> bool {
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::IndirectCall | FlowControl::Interrupt => false,
            FlowControl::Call if instruction.code() == Code::Syscall => false,
            FlowControl::Call => !self.callees.effect(branch_target(instruction)).returns,
            _ => true,
        }
    }

    /// Returns whether a jump table of `function` may target `at`: in the function, or a part of one.
    fn may_target(&self, function: &Function, at: Addr) -> bool {
        let after = self
            .functions
            .partition_point(|other| other.span.start <= at);
        let owner = after
            .checked_sub(1)
            .and_then(|last| self.functions.get(last));
        owner.is_some_and(|owner| {
            owner.span.contains(at) && (owner.id == function.id || owner.is_part())
        })
    }
}

/// The result of interpreting a function with the targets known so far.
enum RoundOutcome {
    /// Something was found that earlier results do not know of.
    More,
    Done,
}

/// The knowledge about a jump through a register.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Jump {
    /// Through a pointer that is known whole.
    Pointer,
    /// To one of these.
    Table(Vec<Addr>),
    Unknown,
}

/// The treatment of tables whose index nothing bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unbounded {
    /// They end where their entries do.
    Labelled,
    Unknown,
}

/// A way to an instruction: the leader that it comes from, and its number among the ways from there; `None`
/// from unknown code.
type Way = Option<(usize, usize)>;

/// An instruction at which control arrives.
#[derive(Default)]
struct Leader {
    arrived: BTreeMap<Way, Rc<MachineState>>,
    state: Option<Rc<MachineState>>,
    apart: Apart,
    changes: u32,
}

impl Leader {
    /// Notes the state of a way; returns whether it differs from the one that the way brought before.
    fn arrive(&mut self, way: Way, state: Rc<MachineState>) -> bool {
        if self.arrived.get(&way) == Some(&state) {
            return false;
        }
        self.arrived.insert(way, state);
        true
    }

    /// Joins the states of all ways; returns the state at the instruction if that changes it.
    fn join(&mut self, all: &mut Expressions, at: u64) -> Option<Rc<MachineState>> {
        let ways: Vec<&MachineState> = self.arrived.values().map(Rc::as_ref).collect();
        let widen = self.changes > PATIENCE;
        let before = self.state.as_deref();
        let joined = MachineState::joined(&ways, before, &mut self.apart, all, at, widen);
        if joined.as_ref() == before {
            return None;
        }
        self.changes += 1;
        self.state = joined.map(Rc::new);
        self.state.clone()
    }
}

/// Returns targets by address, each once.
fn sorted(targets: &[Addr]) -> Box<[Addr]> {
    let targets: BTreeSet<Addr> = targets.iter().copied().collect();
    targets.into_iter().collect()
}

/// The states that have arrived at leaders, and the leaders that are to be interpreted.
#[derive(Default)]
struct Arrivals {
    leaders: BTreeMap<usize, Leader>,
    worklist: BTreeSet<usize>,
}

impl Arrivals {
    /// Begins at a leader, from code that is not interpreted.
    fn enter(&mut self, leader: usize, state: MachineState) {
        let at = self.leaders.entry(leader).or_default();
        at.arrive(None, Rc::new(state));
        self.worklist.insert(leader);
    }

    /// Notes the states of the ways from a leader; those that they change are interpreted again.
    fn arrive(&mut self, from: usize, ways: Vec<(usize, Rc<MachineState>)>) {
        for (number, (to, state)) in ways.into_iter().enumerate() {
            let leader = self.leaders.entry(to).or_default();
            if leader.arrive(Some((from, number)), state) {
                self.worklist.insert(to);
            }
        }
    }
}

/// The ways from a leader, the number of instructions to its last, and the state before that if it is a jump to a
/// computed address.
type Followed = (Vec<(usize, Rc<MachineState>)>, usize, Option<MachineState>);

/// Returns the instructions of a function; `None` if some of its bytes are none.
fn decoded(memory: &Memory, span: Span) -> Option<Vec<Instruction>> {
    let decoder = Decoder::with_ip(64, memory.bytes(span)?, span.start.0, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let is_valid = !all.iter().any(Instruction::is_invalid);
    is_valid.then_some(all)
}

/// Returns the number of instructions that a list begins with and that fill the space before a target.
fn padding(instructions: Option<&[Instruction]>) -> usize {
    let all = instructions.unwrap_or_default().iter();
    all.take_while(|instruction| is_padding(instruction))
        .count()
}

/// A function under analysis.
struct Flow<'c> {
    span: Span,
    instructions: Vec<Instruction>,
    /// Index of each instruction by its address.
    at: FxHashMap<u64, usize>,
    /// Instructions at which states are joined.
    leaders: BTreeSet<usize>,
    /// Those that control reaches from unknown code.
    entered: BTreeSet<usize>,
    machine: AbstractMachine<'c>,
    jumps: BTreeMap<usize, Jump>,
    function: &'c Function,
}

impl<'c> Flow<'c> {
    fn new(code: &'c ObjectCode<'c>, function: &'c Function) -> Option<Self> {
        let span = function.span;
        let instructions = decoded(code.memory, span)?;
        let at: FxHashMap<u64, usize> = (0..)
            .zip(&instructions)
            .map(|(index, instruction)| (instruction.ip(), index))
            .collect();
        let index = |address: &Addr| at.get(&address.0).copied();
        let endbr = (0..)
            .zip(&instructions)
            .filter(|(_, instruction)| instruction.code() == Code::Endbr64)
            .map(|(index, _)| index);
        let mut entered: BTreeSet<usize> = endbr.collect();
        entered.insert(0);
        entered.extend(code.entries.entered(span).iter().filter_map(index));
        let branched = instructions.iter().filter_map(branch_target);
        let mut leaders = entered.clone();
        let branches = (1..).zip(&instructions).filter(|(_, instruction)| {
            instruction.flow_control() != FlowControl::Next && branch_target(instruction).is_some()
        });
        leaders.extend(branches.map(|(next, _)| next));
        // What nothing passes control to is what tables target: leaders from the beginning spare most functions a round.
        let ends = (1..).zip(&instructions).filter(|(_, instruction)| {
            matches!(
                instruction.flow_control(),
                FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::UnconditionalBranch
            )
        });
        leaders.extend(ends.map(|(next, _)| next + padding(instructions.get(next..))));
        leaders.extend(branched.filter_map(|to| index(&to)));
        Some(Self {
            span,
            instructions,
            at,
            leaders,
            entered,
            machine: AbstractMachine::new(code.memory, &code.labels.read_only, true),
            jumps: BTreeMap::new(),
            function,
        })
    }

    /// Follows the whole function; returns the targets of all its jumps.
    fn followed_targets(&mut self, code: &ObjectCode<'_>) -> Result<JumpTargets, Refusal> {
        for _ in 0..ROUNDS {
            match self.round(code)? {
                RoundOutcome::More => {}
                RoundOutcome::Done => return self.result(code),
            }
        }
        let why = "the targets of its jump tables reach more tables than can be followed";
        Err(Refusal::new(Rule::JumpUnknown, self.span.start, why))
    }

    /// Interprets the function to a fixpoint, with the targets known from earlier rounds.
    fn round(&mut self, code: &ObjectCode<'_>) -> Result<RoundOutcome, Refusal> {
        let (starts, entered) = (self.leaders.clone(), self.entered.clone());
        let holds = |flow: &Self| {
            let is_known = flow.leaders == starts && flow.entered == entered;
            is_known && !flow.machine.has_kept_too_much()
        };
        self.machine.begin();
        self.jumps.clear();
        let mut arrivals = Arrivals::default();
        for &index in &entered {
            let at = self.ip(index);
            let state = MachineState::entered(&mut self.machine.all, at);
            arrivals.enter(index, state);
        }
        let mut steps = 0_usize;
        let mut last = 0;
        // Sweeps in order of address, so that most ways have arrived at an instruction when their states are joined: at
        // each instruction of an interpreter arrive as many as it has.
        while let Some(&first) = arrivals.worklist.first() {
            let next = arrivals.worklist.range(last..).next().copied();
            let index = next.unwrap_or(first);
            // After a sweep most is found that this result would not know of.
            if index < last && !holds(self) {
                return Ok(RoundOutcome::More);
            }
            last = index;
            let Some((mut ways, executed, jumping)) = self.follow(code, &mut arrivals, index)
            else {
                continue;
            };
            steps += executed;
            if let Some(state) = jumping {
                self.jump(code, index + executed - 1, state, &mut ways);
            }
            if steps > LONGEST {
                let why = "the flow of data to its jump tables takes too long to follow";
                return Err(Refusal::new(Rule::JumpUnknown, self.span.start, why));
            }
            arrivals.arrive(index, ways);
        }
        if holds(self) {
            self.enter_unreached();
        }
        Ok(match holds(self) {
            true => RoundOutcome::Done,
            false => RoundOutcome::More,
        })
    }

    /// Interprets from a leader of the worklist; `None` if nothing has arrived there that was not known.
    fn follow(
        &mut self,
        code: &ObjectCode<'_>,
        arrivals: &mut Arrivals,
        index: usize,
    ) -> Option<Followed> {
        arrivals.worklist.remove(&index);
        let at = self.ip(index);
        let leader = arrivals.leaders.entry(index).or_default();
        let state = leader.join(&mut self.machine.all, at)?;
        let mut ways = Vec::new();
        let (executed, jumping) = self.run(code, index, (*state).clone(), &mut ways);
        Some((ways, executed, jumping))
    }

    /// Returns the jumps through registers.
    fn through_registers(&self) -> Vec<usize> {
        let all = (0..).zip(&self.instructions).filter(|(_, instruction)| {
            instruction.flow_control() == FlowControl::IndirectBranch
                && instruction.op0_register() != iced_x86::Register::None
        });
        all.map(|(index, _)| index).collect()
    }

    fn ip(&self, index: usize) -> u64 {
        self.instructions
            .get(index)
            .map_or(self.span.end.0, Instruction::ip)
    }

    /// Jumps that nothing is known to reach are interpreted from unknown states.
    fn enter_unreached(&mut self) {
        let mut unreached = self.through_registers();
        unreached.retain(|index| !self.jumps.contains_key(index));
        for index in unreached {
            let leader = self.leaders.range(..=index).next_back().copied();
            let leader = leader.filter(|leader| !self.entered.contains(leader));
            let first = leader.unwrap_or(index);
            self.entered.insert(first);
            self.leaders.insert(first);
            // As it is, unless the next round, which the new entry causes, finds more.
            self.jumps.insert(index, Jump::Unknown);
        }
    }

    /// Interprets from a leader to the next branch or leader; returns the number of instructions, and the state
    /// before the last of them if that is a jump to a computed address.
    fn run(
        &mut self,
        code: &ObjectCode<'_>,
        leader: usize,
        mut state: MachineState,
        ways: &mut Vec<(usize, Rc<MachineState>)>,
    ) -> (usize, Option<MachineState>) {
        let mut index = leader;
        loop {
            let Some(instruction) = self.instructions.get(index).copied() else {
                return (index - leader, None);
            };
            let next = index + 1;
            let inside = |to: Addr| self.at.get(&to.0).copied();
            let target = branch_target(&instruction).and_then(inside);
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => {
                    ways.extend(target.map(|to| (to, self.leaving(state))));
                    return (next - leader, None);
                }
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend
                    if branch_target(&instruction).is_some() =>
                {
                    let condition = instruction.condition_code();
                    for (to, holds) in [(target, true), (Some(next), false)] {
                        let mut state = state.clone();
                        let possible = self.machine.assume(&mut state, condition, holds);
                        let to = to.filter(|_| possible);
                        ways.extend(to.map(|to| (to, self.leaving(state))));
                    }
                    return (next - leader, None);
                }
                FlowControl::IndirectBranch => {
                    return (next - leader, Some(state));
                }
                FlowControl::Return | FlowControl::Exception => return (next - leader, None),
                FlowControl::Call if instruction.code() == Code::Syscall => {
                    self.machine.system_call(&mut state, &instruction);
                }
                FlowControl::Call => {
                    let effect = code.callees.effect(branch_target(&instruction));
                    if !effect.returns {
                        return (next - leader, None);
                    }
                    self.machine.call(&mut state, &instruction, effect.changed);
                }
                _ => self.machine.execute(&mut state, &instruction),
            }
            if self.leaders.contains(&next) {
                ways.push((next, self.leaving(state)));
                return (next - leader, None);
            }
            index = next;
        }
    }

    /// Returns the state that the ways from a branch share.
    fn leaving(&self, mut state: MachineState) -> Rc<MachineState> {
        state.tidy(&self.machine.all);
        Rc::new(state)
    }

    /// Notes what is known of a jump, with the ways to its targets.
    fn jump(
        &mut self,
        code: &ObjectCode<'_>,
        index: usize,
        state: MachineState,
        ways: &mut Vec<(usize, Rc<MachineState>)>,
    ) {
        let Some(jump) = self.destination(code, index, &state, Unbounded::Labelled) else {
            return;
        };
        if let Jump::Table(targets) = &jump {
            let state = self.leaving(state);
            for to in targets {
                if let Some(&to) = self.at.get(&to.0) {
                    self.leaders.insert(to);
                    ways.push((to, Rc::clone(&state)));
                }
            }
        }
        self.jumps.insert(index, jump);
    }

    /// Returns what is known of a jump in a state; `None` of one through memory.
    fn destination(
        &self,
        code: &ObjectCode<'_>,
        index: usize,
        state: &MachineState,
        unbounded: Unbounded,
    ) -> Option<Jump> {
        let instruction = self.instructions.get(index)?;
        let fact = self.machine.branch(state, instruction)?;
        let listed = fact.numbers.listed(MOST);
        let targets: Option<Vec<Addr>> = listed.map(|all| all.into_iter().map(Addr).collect());
        let is_target = |to: Addr| match self.span.contains(to) {
            true => self.at.contains_key(&to.0),
            false => code.may_target(self.function, to),
        };
        let valid = |targets: &Vec<Addr>| targets.iter().all(|&to| is_target(to));
        let labelled = || {
            let (number, _) = general(instruction.op0_register())?;
            let value = state.register(number)?;
            let table = LabelledTable::of(&self.machine.all, state, value)?;
            table.targets(&code.labels, code.memory, self.span.end, is_target)
        };
        let targets = targets.filter(valid).or_else(|| match unbounded {
            Unbounded::Labelled => labelled(),
            Unbounded::Unknown => None,
        });
        Some(match targets {
            Some(targets) => Jump::Table(targets),
            None if fact.whole => Jump::Pointer,
            None => Jump::Unknown,
        })
    }

    fn result(&self, code: &ObjectCode<'_>) -> Result<JumpTargets, Refusal> {
        debug_assert_eq!(
            code.functions.get(self.function.id.0 as usize),
            Some(self.function)
        );
        let mut jumps = JumpTargets::new();
        for (&index, jump) in &self.jumps {
            match jump {
                Jump::Pointer => {}
                Jump::Table(all) => {
                    jumps.insert(Addr(self.ip(index)), sorted(all));
                }
                Jump::Unknown => {
                    let why = "it jumps to a computed address, and the table of its targets, if \
                               there is one, is not proven";
                    let at = Addr(self.ip(index));
                    return Err(Refusal::new(Rule::JumpUnknown, at, why));
                }
            }
        }
        Ok(jumps)
    }
}
