//! Loads of kernel memory and of event counters by programs: their permitted addresses, and the
//! recovery from failures.
//!
//! A load yields an atom of its own on every path: the value in memory, or 0. The path of a failed
//! load, which faulted or whose address was found unreadable, must first count the failure, and the
//! zero that it then puts into a register is that atom.

use crate::verify::reason::Reason;
use gilk_instruments::program::{ActionKind, Expr, Input};
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::hit::{HitRules, Progress};
use super::location;
use super::machine::{BranchWay, InstrumentMachine, MachineFlow};
use super::operands::not_allowed;
use super::program::{has_tests, known};
use super::state::{AbstractState, Fact, RAX, RCX, RDX};
use crate::layout::Guard;
use crate::patch::Recovery;
use crate::plan::PatchFault;
use crate::verify::symbolic::atom::{Atom, Source, SymValue};
use crate::verify::symbolic::value::SymValues;
use crate::verify::text::effects::number;

/// Returns the truth value of whether an address may be read.
fn is_readable(values: &mut SymValues, guard: Guard, address: SymValue) -> SymValue {
    match guard {
        Guard::Missing => values.constant(0),
        Guard::Everywhere => values.constant(1),
        Guard::Below(bound) => {
            let below = values.constant(bound.0);
            values.less(true, address, below)
        }
    }
}

impl InstrumentMachine<'_> {
    /// Returns the recovery of the plan for the instruction.
    pub(crate) fn fixup(&self, instruction: &Instruction) -> Option<u64> {
        let at = instruction.ip();
        let found = self
            .planned_faults
            .binary_search_by_key(&at, |fault| fault.at.0);
        match self.planned_faults.get(found.ok()?)?.recovery {
            Recovery::At(fixup) => Some(fixup.0),
            Recovery::Like(_) => None,
        }
    }

    /// Executes a load, with the path of its fault.
    pub(crate) fn read_memory(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
        fixup: u64,
    ) -> Result<MachineFlow, Reason> {
        let refused = || not_allowed(instruction);
        let expected = self.program().ok_or_else(refused)?;
        let segment = instruction.memory_segment();
        let plain = matches!(instruction.mnemonic(), Mnemonic::Mov | Mnemonic::Movzx)
            && instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Memory
            && ![Register::FS, Register::GS].contains(&segment)
            && instruction.memory_base() != Register::RSP;
        if !plain {
            return Err(refused());
        }
        let bytes = u8::try_from(instruction.memory_size().size()).map_err(|_| refused())?;
        let address = location::address(&mut self.values, instruction, state)?;
        let readable = is_readable(&mut self.values, self.layout.guard, address);
        if self.layout.guard == Guard::Missing {
            return Err(Reason::Unguarded);
        }
        if known(&mut self.values, readable, state) != Some(true) {
            return Err(Reason::UserMemory);
        }
        let source = Source::Memory { address, bytes };
        if !self.hit(expected).loads(progress, state).contains(&source) {
            return Err(Reason::OtherLoad);
        }
        let read = once(&mut self.values, source, bytes, state, progress)?;
        let mut faulted = state.clone();
        faulted.faulted = Some(read);
        if !self.set_whole(instruction, read, state) {
            return Err(refused());
        }
        Ok(self.may_fault(instruction, fixup, (faulted, state.clone()), progress))
    }

    /// Executes a read of an event counter, with the path of its absence.
    pub(crate) fn read_event(
        &mut self,
        instruction: &Instruction,
        state: &mut AbstractState,
        progress: Progress,
        fixup: u64,
    ) -> Result<MachineFlow, Reason> {
        let refused = || not_allowed(instruction);
        let expected = self.program().ok_or_else(refused)?;
        let chosen = self.values.as_constant(state.register(RCX));
        let mut counters = self.layout.events.counters.iter();
        let event = counters
            .find(|known| chosen == Some(known.index.into()))
            .map(|known| known.event)
            .ok_or(Reason::UnknownEvent)?;
        let inputs = self.hit(expected).inputs(progress, state);
        if !inputs.contains(&Input::Event(event)) {
            return Err(Reason::OtherEvent);
        }
        let read = once(&mut self.values, Source::Event(event), 8, state, progress)?;
        let mut faulted = state.clone();
        faulted.faulted = Some(read);
        let (low, high) = (
            self.values.mask(read, 0xffff_ffff),
            self.values.shr(read, 32),
        );
        state.set(RAX, low);
        state.set(RDX, high);
        Ok(self.may_fault(instruction, fixup, (faulted, state.clone()), progress))
    }

    /// Continues at `fixup` in the faulted state, or at the next instruction.
    fn may_fault(
        &mut self,
        instruction: &Instruction,
        fixup: u64,
        (faulted, state): (AbstractState, AbstractState),
        progress: Progress,
    ) -> MachineFlow {
        self.faults.push(PatchFault {
            at: crate::Addr(instruction.ip()),
            recovery: Recovery::At(crate::Addr(fixup)),
        });
        let way = |state| {
            Box::new(BranchWay {
                state,
                progress: Some(progress),
                failed: false,
                never: false,
            })
        };
        MachineFlow::Branch {
            to: fixup,
            taken: way(faulted),
            falls: way(state),
        }
    }

    /// Sets a register to a read value, if the instruction clears its upper bits.
    pub(crate) fn set_whole(
        &mut self,
        instruction: &Instruction,
        read: SymValue,
        state: &mut AbstractState,
    ) -> bool {
        let register = instruction.op0_register();
        let wide = register.is_gpr32() || register.is_gpr64();
        match number(register) {
            Some(number)
                if instruction.op0_kind() == OpKind::Register
                    && wide
                    && register.full_register() != Register::RSP =>
            {
                state.set(number, read);
                true
            }
            _ => false,
        }
    }

    /// Counts a failed load.
    pub(crate) fn failed(
        &mut self,
        state: &mut AbstractState,
        progress: Progress,
    ) -> Result<(), Reason> {
        if let Some(read) = state.faulted.take() {
            state.zero = Some(read);
            return Ok(());
        }
        let one = self.program().ok_or(Reason::UnhookedFailure)?;
        let mut loads = self.hit(one).loads(progress, state);
        // Repeated loads come first, in the order of two widths at one address.
        let all = loads.clone();
        loads.sort_by_key(|load| all.iter().filter(|&one| one == load).count() == 1);
        // The fact of the last branch precedes constant addresses.
        for by_branch in [true, false] {
            for &source in &loads {
                let Source::Memory { address, bytes } = source else {
                    continue;
                };
                let readable = is_readable(&mut self.values, self.layout.guard, address);
                let unreadable = self.values.not(readable);
                let known = if by_branch {
                    state.branch_fact == Some(unreadable) && state.knows(Fact::Holds(unreadable))
                } else {
                    self.values.as_constant(readable) == Some(0)
                };
                if known && state.clone().reads(source, progress.steps) {
                    let read = once(&mut self.values, source, bytes, state, progress)?;
                    state.zero = Some(read);
                    return Ok(());
                }
            }
        }
        Err(Reason::NotFailed)
    }
}

/// Returns the value of a load that the step has not executed before.
fn once(
    values: &mut SymValues,
    source: Source,
    bytes: u8,
    state: &mut AbstractState,
    progress: Progress,
) -> Result<SymValue, Reason> {
    if !state.reads(source, progress.steps) {
        return Err(Reason::ReadsTwice);
    }
    Ok(values.field(Atom::Read(source, progress.steps), 0, 8 * bytes))
}

impl<'a> HitRules<'a> {
    /// Returns the expression of the current step.
    fn computed(&mut self, progress: Progress) -> Option<&'a Expr> {
        let probe = self.probe()?;
        if has_tests(probe) && progress.steps == 0 {
            return probe.predicate.as_ref();
        }
        self.action(progress).and_then(|action| match &action.kind {
            ActionKind::Update(_, value) => value.as_ref(),
            ActionKind::Sample(value) | ActionKind::Store(_, value) | ActionKind::Add(_, value) => {
                Some(value)
            }
        })
    }

    /// Returns the inputs that the program reads in the step.
    pub(crate) fn inputs(&mut self, progress: Progress, state: &AbstractState) -> Vec<Input> {
        if self.place(progress, state).is_none() {
            return Vec::new();
        }
        let computed = self.computed(progress);
        computed.map(Expr::inputs).unwrap_or_default()
    }

    /// Returns the loads of the current step, in order.
    pub(crate) fn loads(&mut self, progress: Progress, state: &AbstractState) -> Vec<Source> {
        let Some(place) = self.place(progress, state) else {
            return Vec::new();
        };
        let expr = self.computed(progress);
        let mut loads = Vec::new();
        // In reverse: the operands of an operator precede it, the left before the right.
        let mut nodes: Vec<&Expr> = expr.into_iter().collect();
        while let Some(node) = nodes.pop() {
            nodes.extend(node.operands());
            loads.extend(place.memory(self.values, node));
        }
        loads.reverse();
        loads
    }

    /// Returns the reads of the running process in the current step.
    pub(crate) fn user_reads(&mut self, progress: Progress, state: &AbstractState) -> Vec<Source> {
        let Some(place) = self.place(progress, state) else {
            return Vec::new();
        };
        let mut reads = Vec::new();
        if let Some(expr) = self.computed(progress) {
            expr.any(&mut |node| {
                reads.extend(place.user(self.values, node));
                false
            });
        }
        reads
    }

    /// Returns the counter of failed loads.
    pub(crate) fn failures(&self) -> Option<u64> {
        let slot = self.expected.probe.as_deref()?.homes.failed?;
        self.layout.counter(slot).map(|word| word.0)
    }
}
