//! Jumps that the few blocks before them explain, as most do: the comparison that bounds an index, the load of the
//! entry, the jump.
//!
//! A jump is followed in a *region*: its block, and blocks from which control comes to it by direct branches. Where
//! control comes into the region from elsewhere, only what registers bring from block to block is known, and nothing is
//! known of the stack. What they bring depends on the ways that the tables have, so the tables are found again until
//! they have no other ways than those that were assumed: then each instruction that is executed is one that was
//! followed. Where a jump is not explained, the whole function is followed.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Instruction, Mnemonic, Register};

use super::blocks::Blocks;
use super::carried::Carried;
use super::machine::AbstractMachine;
use super::state::MachineState;
use super::{Arrivals, Flow, Jump, JumpTargets, ObjectCode, Unbounded, sorted};
use crate::Addr;
use crate::isa::RegisterSet;

/// Blocks of a region at most.
const BLOCKS: usize = 24;
/// Blocks that are interpreted for one region at most.
const LONGEST: usize = 40 * BLOCKS;
/// Rounds, of which each finds new ways, at most.
const ROUNDS: usize = 8;

/// Blocks that are followed for one jump.
struct Region {
    blocks: BTreeSet<usize>,
    /// Those into which control also comes from elsewhere.
    open: BTreeSet<usize>,
    /// The registers that its instructions name.
    named: RegisterSet,
}

/// Knowledge of the registers where control comes into a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outside {
    /// None: most regions need none.
    Unknown,
    Followed,
}

/// Knowledge of a function while its jumps are explained.
struct FlowContext {
    blocks: Blocks,
    carried: Carried,
}

impl FlowContext {
    /// Returns the blocks of a function without the ways of its tables.
    fn of(flow: &Flow<'_>, code: &ObjectCode<'_>) -> Self {
        Self {
            blocks: Blocks::of(flow, code),
            carried: Carried::new(),
        }
    }
}

impl Region {
    fn new(within: BTreeSet<usize>, flow: &Flow<'_>, blocks: &Blocks) -> Self {
        let is_open = |leader: usize| {
            flow.entered.contains(&leader)
                || blocks.listing(leader).next().is_some()
                || blocks.before(leader).any(|from| !within.contains(&from))
        };
        let open = within.iter().copied().filter(|&leader| is_open(leader));
        let mut named = RegisterSet::EMPTY;
        for instruction in within
            .iter()
            .flat_map(|&leader| blocks.instructions(flow, leader))
        {
            let operands = (0..instruction.op_count()).map(|index| instruction.op_register(index));
            let memory = [instruction.memory_base(), instruction.memory_index()];
            for register in operands.chain(memory).filter(|register| register.is_gpr()) {
                named.insert(register);
            }
        }
        Self {
            open: open.collect(),
            blocks: within,
            named,
        }
    }

    /// Returns the region with the blocks before it; `None` if that is too large, or the same.
    fn grown(&self, flow: &Flow<'_>, blocks: &Blocks) -> Option<Self> {
        let mut within = self.blocks.clone();
        for &leader in &self.open {
            within.extend(blocks.before(leader));
        }
        let has_grown = within.len() > self.blocks.len() && within.len() <= BLOCKS;
        has_grown.then(|| Self::new(within, flow, blocks))
    }
}

impl<'c> Flow<'c> {
    /// Returns the targets of all jumps, if a few blocks explain each.
    pub(super) fn explained_targets(&mut self, code: &'c ObjectCode<'c>) -> Option<JumpTargets> {
        let leaders = self.leaders.clone();
        let machine = |follows_stack| {
            AbstractMachine::new(code.memory, &code.labels.read_only, follows_stack)
        };
        self.machine = machine(false);
        self.machine.has_frame =
            self.function.is_part() || self.instructions.iter().any(sets_frame);
        let jumps = self.explained_in_rounds(code);
        self.machine = machine(true);
        self.leaders = leaders;
        jumps
    }

    fn explained_in_rounds(&mut self, code: &ObjectCode<'_>) -> Option<JumpTargets> {
        let indices = self.through_registers();
        let mut assumed: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut context = FlowContext::of(self, code);
        for _ in 0..ROUNDS {
            for (jump, targets) in &assumed {
                context.blocks.add_table(self.leader_of(*jump)?, targets);
            }
            context.blocks.reach(&self.entered);
            let mut jumps = JumpTargets::new();
            let mut reaches_all = true;
            let mut has_more = false;
            for &index in &indices {
                if !context.blocks.is_reached(self.leader_of(index)?) {
                    reaches_all = false;
                    continue;
                }
                let Jump::Table(targets) = self.explained(code, index, &mut context)? else {
                    continue;
                };
                let inside = targets.iter().filter_map(|to| self.at.get(&to.0).copied());
                let known = assumed.entry(index).or_default();
                for to in inside {
                    has_more |= known.insert(to);
                }
                jumps.insert(Addr(self.ip(index)), sorted(&targets));
            }
            if !has_more {
                return reaches_all.then_some(jumps);
            }
            if !assumed
                .values()
                .flatten()
                .all(|to| self.leaders.contains(to))
            {
                self.leaders.extend(assumed.values().flatten());
                context = FlowContext::of(self, code);
            }
        }
        None
    }

    fn leader_of(&self, index: usize) -> Option<usize> {
        self.leaders.range(..=index).next_back().copied()
    }

    /// Returns what is known of a jump, if that is enough.
    fn explained(
        &mut self,
        code: &ObjectCode<'_>,
        index: usize,
        context: &mut FlowContext,
    ) -> Option<Jump> {
        [Outside::Unknown, Outside::Followed]
            .into_iter()
            .find_map(|outside| self.explained_from(code, index, context, outside))
    }

    /// Returns as much of a jump as a region with the blocks before knows, too.
    fn explained_from(
        &mut self,
        code: &ObjectCode<'_>,
        index: usize,
        context: &mut FlowContext,
        outside: Outside,
    ) -> Option<Jump> {
        let leader = self.leader_of(index)?;
        let mut region = Region::new(BTreeSet::from([leader]), self, &context.blocks);
        let mut known = None;
        loop {
            let jump = self.in_region(code, index, &region, context, outside)?;
            if jump != Jump::Unknown {
                if known.as_ref() == Some(&jump) {
                    return known;
                }
                known = Some(jump);
            }
            match region.grown(self, &context.blocks) {
                Some(larger) => region = larger,
                None => return known,
            }
        }
    }

    /// Interprets a region to a fixpoint; returns what is then known of its jump.
    fn in_region(
        &mut self,
        code: &ObjectCode<'_>,
        jump: usize,
        region: &Region,
        context: &mut FlowContext,
        outside: Outside,
    ) -> Option<Jump> {
        let mut arrivals = Arrivals::default();
        for &index in &region.open {
            let FlowContext { blocks, carried } = context;
            let state = match outside {
                Outside::Unknown => {
                    let at = self.ip(index);
                    MachineState::unknown(&mut self.machine.all, at)
                }
                Outside::Followed => carried.state(self, code, blocks, (index, region.named)),
            };
            arrivals.enter(index, state);
        }
        let mut known = Some(Jump::Unknown);
        for _ in 0..LONGEST {
            let Some(&index) = arrivals.worklist.first() else {
                return known;
            };
            let Some((mut ways, executed, jumping)) = self.follow(code, &mut arrivals, index)
            else {
                continue;
            };
            if let Some(state) = jumping
                && index + executed - 1 == jump
            {
                known = self.destination(code, jump, &state, Unbounded::Unknown);
            }
            ways.retain(|(to, _)| region.blocks.contains(to));
            arrivals.arrive(index, ways);
        }
        None
    }
}

/// Returns whether an instruction gives the frame pointer an address of the stack.
fn sets_frame(instruction: &Instruction) -> bool {
    let from_stack = match instruction.mnemonic() {
        Mnemonic::Mov => instruction.op1_register() == Register::RSP,
        Mnemonic::Lea => instruction.memory_base() == Register::RSP,
        Mnemonic::Enter | Mnemonic::Leave => return true,
        _ => false,
    };
    from_stack && instruction.op0_register() == Register::RBP
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;

    use super::*;
    use crate::elf::ElfParts;
    use crate::elf::build::build_with;
    use crate::extent::number;

    /// Objects that this process has mapped, the program itself aside.
    fn libraries() -> Vec<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let own = std::env::current_exe().unwrap();
        let executable = maps.lines().filter(|line| line.contains(" r-xp "));
        let paths = executable.filter_map(|line| Some(line.get(line.find('/')?..)?.to_owned()));
        let paths: BTreeSet<String> = paths.filter(|path| own != **path).collect();
        paths.into_iter().collect()
    }

    #[test]
    fn explained_jumps_have_the_targets_that_the_whole_function_shows() {
        let longest = number("GILK_LONGEST_FOLLOWED", 6_000) as u64;
        let [explained, equal, all] = [0_u32; 3].map(RefCell::new);
        for path in libraries() {
            let file = fs::read(&path).unwrap();
            build_with(&ElfParts::of_file(&path, &file), &|code, function| {
                if function.span.len() > longest {
                    return Ok(JumpTargets::new());
                }
                let followed = Flow::new(code, function)
                    .map_or(Ok(JumpTargets::new()), |mut flow| {
                        flow.followed_targets(code)
                    });
                *all.borrow_mut() += 1;
                let flow = Flow::new(code, function);
                if let Some(jumps) = flow.and_then(|mut flow| flow.explained_targets(code)) {
                    let name = &function.name;
                    let followed = followed.as_ref().unwrap_or_else(|refusal| {
                        panic!("{path}: {name} is refused: {refusal}");
                    });
                    assert!(jumps.keys().eq(followed.keys()), "{path}: {name}");
                    for (at, targets) in followed {
                        let has = |to: &Addr| jumps[at].contains(to);
                        assert!(targets.iter().all(has), "{path}: {name}: {at}");
                    }
                    *explained.borrow_mut() += 1;
                    *equal.borrow_mut() += u32::from(jumps == *followed);
                }
                followed
            })
            .unwrap();
        }
        let [explained, equal, all] = [explained, equal, all].map(RefCell::into_inner);
        println!("{explained} of {all} explained, {equal} equal");
        assert!(all > 100 && explained * 3 > all * 2, "{explained} of {all}");
        assert!(equal * 50 > explained * 49, "{equal} of {explained}");
    }
}
