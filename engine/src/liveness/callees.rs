//! Effects of calls on registers, read from the code of callees that keep no convention.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use iced_x86::{InstructionInfoFactory, Register};

use super::RegisterSet;
use super::backward::{self, Returns};
use super::effect::{CalleeEffects, passed};
use crate::cfg::{Block, BlockEnd, BlockIndex, Cfg, EdgeKind};
use crate::code::{Contract, Function, FunctionId};
use crate::ids::Ids;
use crate::isa::effect::{Effect, Values, is_write};
use crate::isa::stack::stack_shift;
use crate::{Addr, Image};

/// The most instructions of a callee that is read: longer ones use most registers anyway.
const LONGEST: usize = 256;

/// An image under liveness analysis: caches the effects of calls of functions that keep no calling
/// convention, each read from the callee's code when a caller is first analysed.
#[derive(Debug)]
pub struct Analysis<'i> {
    image: &'i Image,
    /// By function and by how many levels of its own calls were followed. An effect depends only on
    /// effects of fewer levels, so the order of requests does not change it.
    effects: Mutex<HashMap<(FunctionId, usize), Effect>>,
}

impl<'i> Analysis<'i> {
    /// Begins with an empty cache, which costs nothing.
    #[must_use]
    pub fn new(image: &'i Image) -> Self {
        Self {
            image,
            effects: Mutex::default(),
        }
    }

    /// The image under analysis.
    #[must_use]
    pub fn image(&self) -> &'i Image {
        self.image
    }

    /// The cache; a panic of another thread leaves it whole, since entries are only inserted.
    fn cache(&self) -> MutexGuard<'_, HashMap<(FunctionId, usize), Effect>> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the effect of calling `function` from its code.
    ///
    /// Live before the call = reads ∪ (live after the call − kills), so two runs of the analysis give
    /// both: with nothing live at its returns, and with everything. All arguments count as read,
    /// since an instrument may sample them at the callee's entry.
    fn read(&self, function: &Function, depth: usize) -> Effect {
        // No instruction is shorter than a byte; the average one has four.
        if function.span.len() > 8 * LONGEST as u64 {
            return Effect::UNKNOWN;
        }
        let cfg = Cfg::of(self.image, function.id);
        let instructions = cfg.blocks.iter().map(|block| block.instructions.len());
        let count: usize = instructions.sum();
        if count == 0 || count > LONGEST || !returns_to_its_caller(&cfg) {
            return Effect::UNKNOWN;
        }
        let before =
            |after| backward::at_entry(self.image, self, &cfg, Returns::With { after, depth });
        Effect {
            reads: before(Values::NONE).union(passed()),
            kills: Values::ALL.without(before(Values::ALL)),
            writes: RegisterSet::ALL,
        }
    }
}

impl CalleeEffects for Analysis<'_> {
    fn effect(&self, to: Addr, depth: usize) -> Effect {
        let whole = |function: &&Function| {
            function.span.start == to && function.contract != Contract::Unknown
        };
        let function = self.image.function_at(to).filter(whole);
        let (Some(function), Some(depth)) = (function, depth.checked_sub(1)) else {
            return Effect::UNKNOWN;
        };
        let key = (function.id, depth);
        if let Some(&effect) = self.cache().get(&key) {
            return effect;
        }
        // Not under the lock: reading a callee reads its callees.
        let effect = self.read(function, depth);
        self.cache().insert(key, effect);
        effect
    }
}

/// Returns whether the function returns to its caller only: at its returns the stack pointer has the value
/// that it had at the entry, and no instruction overwrites the return address.
fn returns_to_its_caller(cfg: &Cfg) -> bool {
    let mut factory = InstructionInfoFactory::new();
    // The stack pointer at the start of each block, as a distance from the return address.
    let mut starts = Ids::<BlockIndex, Option<i64>>::from(vec![None; cfg.blocks.len()]);
    let mut worklist = vec![(BlockIndex(0), 0_i64)];
    while let Some((index, start)) = worklist.pop() {
        match starts[index].replace(start) {
            Some(known) if known == start => continue,
            Some(_) => return false,
            None => {}
        }
        let block = &cfg[index];
        let Some(end) = through(&mut factory, block, start) else {
            return false;
        };
        let leaves = matches!(block.end, BlockEnd::Return | BlockEnd::Indirect)
            || block.end != BlockEnd::NoReturn && cfg.exits(block.index);
        if leaves && end != 0 {
            return false;
        }
        for edge in cfg.successors(block.index) {
            if edge.kind == EdgeKind::Fixup && start != end {
                return false;
            }
            worklist.push((edge.to, end));
        }
    }
    true
}

/// Returns the stack pointer at the end of a block, before a return; `None` if it cannot be followed, or
/// the return address is written.
fn through(factory: &mut InstructionInfoFactory, block: &Block, start: i64) -> Option<i64> {
    let mut at = start;
    for instruction in &block.instructions {
        for memory in factory.info(&instruction).used_memory() {
            let first = at.wrapping_add(memory.displacement().cast_signed());
            let end_of_access =
                first.wrapping_add(i64::try_from(memory.memory_size().size()).ok()?);
            let own = memory.base() == Register::RSP && memory.index() == Register::None;
            if own && is_write(memory.access()) && first < 8 && end_of_access > 0 {
                return None;
            }
        }
        at = at.checked_add(stack_shift(factory, &instruction)?)?;
    }
    Some(at)
}
