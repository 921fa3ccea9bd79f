//! The effects of direct calls on their callers: whether one ever returns, and the registers that it does not change.
//!
//! Compilers know both of the functions of a file, and rely on it: nothing valid follows a call that never returns, and
//! a register that the convention gives to the callee keeps its value across one that does not use it (`-fipa-ra`).

use std::cell::RefCell;

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::decoded;
use crate::Addr;
use crate::code::{Function, FunctionId, KnownFunctions, Memory};
use crate::ids::Id;
use crate::isa::RegisterSet;
use crate::isa::abi::{CALLER_SAVED, CHANGED_BY_SYSTEM_CALL};
use crate::isa::decode::branch_target;
use crate::isa::effect::{is_opaque, is_write};

/// The effects that all calls of a function have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallEffect {
    /// False if none of them ever returns.
    pub(super) returns: bool,
    /// Registers that may have other values afterwards, of those that the convention does not keep.
    pub(super) changed: RegisterSet,
}

impl CallEffect {
    /// Returns those of a function of which nothing is known but its calling convention.
    fn unknown() -> Self {
        Self {
            returns: true,
            changed: RegisterSet::of(&CALLER_SAVED),
        }
    }

    /// Those of a function without instructions.
    const NONE: Self = Self {
        returns: false,
        changed: RegisterSet::EMPTY,
    };

    /// Adds the changes of a call on some way.
    fn add(&mut self, other: Self) {
        self.changed = self.changed.union(other.changed);
    }
}

/// The effects of calls of an object's functions, each found when it is first needed.
pub(in crate::elf) struct Callees<'c> {
    memory: &'c Memory,
    functions: &'c [Function],
    known: &'c KnownFunctions,
    /// Functions that control enters in ways that their instructions do not show: an exception continues in a landing
    /// pad of theirs, which may be in another function.
    caught_in: FxHashSet<FunctionId>,
    found: RefCell<FxHashMap<FunctionId, CallEffect>>,
}

impl<'c> Callees<'c> {
    pub(in crate::elf) fn new(
        memory: &'c Memory,
        functions: &'c [Function],
        known: &'c KnownFunctions,
        caught_in: FxHashSet<FunctionId>,
    ) -> Self {
        Self {
            memory,
            functions,
            known,
            caught_in,
            found: RefCell::default(),
        }
    }

    /// Returns the effect of a call; of one to no function of the object, what the convention permits.
    pub(super) fn effect(&self, to: Option<Addr>) -> CallEffect {
        match to.and_then(|to| self.of(to)) {
            Some(Callee::Known(effect)) => effect,
            Some(Callee::Function(function)) => self.follow(function),
            None => CallEffect::unknown(),
        }
    }

    fn of(&self, to: Addr) -> Option<Callee> {
        if self.known.never_returns(to) {
            return Some(Callee::Known(CallEffect::NONE));
        }
        let order = |function: &Function| function.span.start.cmp(&to);
        let index = self.functions.binary_search_by(order).ok()?;
        let function = self.functions.get(index)?.id;
        let found = self.found.borrow().get(&function).copied();
        Some(found.map_or(Callee::Function(function), Callee::Known))
    }

    /// Finds the effects of a function and of all that it calls: the least, so that functions which only call each other
    /// never return, and change what one of them changes.
    fn follow(&self, function: FunctionId) -> CallEffect {
        let mut callers: FxHashMap<FunctionId, Vec<FunctionId>> = FxHashMap::default();
        let mut all = vec![function];
        let mut known: FxHashSet<FunctionId> = FxHashSet::from_iter([function]);
        let mut next = 0;
        while let Some(&caller) = all.get(next) {
            next += 1;
            let mut callees = Vec::new();
            self.read(caller, &mut callees);
            for callee in callees {
                callers.entry(callee).or_default().push(caller);
                if known.insert(callee) {
                    all.push(callee);
                }
            }
        }
        let least = all.iter().map(|&one| (one, CallEffect::NONE));
        self.found.borrow_mut().extend(least);
        // Those that were found last call the fewest others.
        let mut worklist = all;
        let mut waiting = known;
        while let Some(function) = worklist.pop() {
            waiting.remove(&function);
            let effect = self.read(function, &mut Vec::new());
            let before = self.found.borrow_mut().insert(function, effect);
            if before == Some(effect) {
                continue;
            }
            let further = callers.get(&function).into_iter().flatten();
            worklist.extend(further.filter(|caller| waiting.insert(**caller)));
        }
        let found = self.found.borrow().get(&function).copied();
        debug_assert!(found.is_some(), "{function:?} was followed");
        found.unwrap_or_else(CallEffect::unknown)
    }

    /// Follows all ways through a function. Callees whose effects are not known yet are noted.
    fn read(&self, function: FunctionId, awaited: &mut Vec<FunctionId>) -> CallEffect {
        let function = self.functions.get(function.index());
        let Some(function) = function.filter(|one| !self.caught_in.contains(&one.id)) else {
            return CallEffect::unknown();
        };
        let Some(all) = decoded(self.memory, function.span) else {
            return CallEffect::unknown();
        };
        let code = FunctionCode { all };
        let mut call = |to: Option<Addr>| match to.and_then(|to| self.of(to)) {
            Some(Callee::Known(effect)) => effect,
            Some(Callee::Function(callee)) => {
                awaited.push(callee);
                CallEffect::unknown()
            }
            None => CallEffect::unknown(),
        };
        let mut factory = InstructionInfoFactory::new();
        let mut effect = CallEffect::NONE;
        let convention = RegisterSet::of(&CALLER_SAVED);
        let mut seen: FxHashSet<Addr> = FxHashSet::default();
        let mut worklist = vec![function.span.start];
        while let Some(at) = worklist.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(instruction) = code.at(at) else {
                // Control leaves it: to the start of a function, which then returns for this one, or anywhere.
                let tail = call(Some(at).filter(|at| !function.span.contains(*at)));
                effect.add(tail);
                effect.returns |= tail.returns;
                continue;
            };
            let next = Addr(instruction.next_ip());
            let target = branch_target(&instruction);
            match instruction.flow_control() {
                FlowControl::Return if code.follows_store_to_stack(at) => {
                    // It may be a jump to what was stored.
                    return CallEffect::unknown();
                }
                FlowControl::Return => effect.returns = true,
                FlowControl::Exception => {}
                FlowControl::UnconditionalBranch if target.is_some() => worklist.extend(target),
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    worklist.extend(target);
                    worklist.push(next);
                }
                FlowControl::Call if instruction.code() == Code::Syscall => {
                    let changed = RegisterSet::of(&CHANGED_BY_SYSTEM_CALL);
                    effect.changed = effect.changed.union(changed);
                    worklist.push(next);
                }
                FlowControl::Call => {
                    let callee = call(target);
                    effect.add(callee);
                    if callee.returns {
                        worklist.push(next);
                    }
                }
                FlowControl::Next if is_opaque(&instruction) => {
                    effect.add(CallEffect::unknown());
                    worklist.push(next);
                }
                FlowControl::Next => {
                    let info = factory.info(&instruction);
                    let used = info.used_registers().iter();
                    for used in used.filter(|used| is_write(used.access())) {
                        effect.changed.insert(used.register());
                    }
                    worklist.push(next);
                }
                FlowControl::IndirectCall | FlowControl::Interrupt => {
                    effect.add(CallEffect::unknown());
                    worklist.push(next);
                }
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {
                    return CallEffect::unknown();
                }
            }
        }
        effect.changed = effect.changed.intersection(convention);
        effect
    }
}

/// The target of a call.
enum Callee {
    Known(CallEffect),
    /// A function whose effect is not known yet.
    Function(FunctionId),
}

/// The instructions of a function, by address.
struct FunctionCode {
    all: Vec<Instruction>,
}

impl FunctionCode {
    fn index(&self, at: Addr) -> Option<usize> {
        let order = |instruction: &Instruction| instruction.ip().cmp(&at.0);
        self.all.binary_search_by(order).ok()
    }

    fn at(&self, at: Addr) -> Option<Instruction> {
        self.all.get(self.index(at)?).copied()
    }

    /// Returns whether the instruction before one writes the top of the stack, from where a return would take it.
    fn follows_store_to_stack(&self, at: Addr) -> bool {
        let before = self.index(at).and_then(|index| index.checked_sub(1));
        let before = before.and_then(|index| self.all.get(index));
        before.is_some_and(|before| {
            let stores = before.op0_kind() == OpKind::Memory || before.mnemonic() == Mnemonic::Xchg;
            before.mnemonic() == Mnemonic::Push || stores && before.memory_base() == Register::RSP
        })
    }
}
