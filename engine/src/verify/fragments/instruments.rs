//! Instruments in the code cache: a block whose first instruction has some begins with a branch to a patch, which is
//! proved as one of a splice is, but that it displaces nothing and leaves for the rest of the block. So does what executes
//! after an instruction that has some there, and the way of a conditional branch that has some.

use iced_x86::{Code, Register};

use super::places::{ArenaProof, ProvedPlace};
use super::reader::SequenceReader;
use super::{FragmentRule, Proof};
use crate::Addr;
use crate::cache::{BlockPatch, PatchMoment, RowState};
use crate::verify::patch::state::RAX;

impl Proof<'_> {
    /// Proves the rows of a patch: while it saves, only the stack pointer and `rax` are others than the original code's.
    fn saves(&self, patch: &BlockPatch, place: &ProvedPlace) -> Result<(), FragmentRule> {
        let (original, end) = (patch.next.unwrap_or(patch.original), patch.span.end);
        let mut read = self.sequence(patch.span.start, FragmentRule::WrongRow);
        let (mut pushed, mut kept, mut rax) = (0_u32, None, None);
        while self
            .rows((read.at, end), original, RowState::Instruments)
            .is_err()
        {
            let at = read.at;
            let instruction = read.next()?;
            self.rows((at, read.at), original, RowState::Saving { pushed, rax })?;
            match instruction.code() {
                Code::Push_r64 => {
                    pushed += 8;
                    if instruction.op0_register() == Register::RAX && rax.is_none() {
                        kept = Some(pushed);
                    }
                }
                Code::Lahf => {
                    // Its value is lost if it was not pushed.
                    if kept.is_none() && place.live.has_register(RAX) {
                        return Err(FragmentRule::WrongRow);
                    }
                    rax = kept;
                }
                Code::Seto_rm8 if instruction.op0_register() == Register::AL => {}
                Code::Lea_r64_m
                    if instruction.op0_register() == Register::RSP
                        && instruction.memory_base() == Register::RSP
                        && instruction.memory_index() == Register::None =>
                {
                    let below = instruction.memory_displacement64().wrapping_neg();
                    pushed += u32::try_from(below).map_err(|_| FragmentRule::WrongRow)?;
                }
                _ => return Err(FragmentRule::WrongRow),
            }
        }
        Ok(())
    }

    /// Returns whether instruments must run at an instruction.
    pub(super) fn is_instrumented(&self, at: Addr, moment: PatchMoment) -> bool {
        self.instruments((at, moment)).is_some()
    }

    /// The instruments that must run at an instruction, and their part.
    fn instruments(&self, at: (Addr, PatchMoment)) -> Option<(&ArenaProof, &ProvedPlace)> {
        let mut parts = self.before.instruments.iter();
        parts.find_map(|part| Some((part, part.place(self.code, at)?)))
    }

    /// Returns whether instruments must run after an instruction, or on a way of a branch.
    pub(super) fn has_ways(&self, at: Addr) -> bool {
        let ways = [PatchMoment::Taken, PatchMoment::Untaken, PatchMoment::After];
        ways.into_iter()
            .any(|moment| self.is_instrumented(at, moment))
    }

    /// Proves the patch of an instruction that must have one, and the branch to it at a place; returns the place after
    /// the branch. A thread that leaves there before the patch has saved registers executes the instruction again, or
    /// `next`, which executes after it.
    pub(super) fn patched(
        &mut self,
        (original, moment): (Addr, PatchMoment),
        next: Option<Addr>,
        at: Addr,
    ) -> Result<Addr, FragmentRule> {
        let place = self.instruments((original, moment));
        let patch = self.patches.get(&(original, moment)).copied();
        let (Some((instruments, place)), Some(patch)) = (place, patch) else {
            return match (place, patch) {
                (None, None) => Ok(at),
                (None, Some(_)) => Err(FragmentRule::WrongPatch),
                (Some(_), _) => Err(FragmentRule::PatchMissing),
            };
        };
        let mut read = self.sequence(at, FragmentRule::PatchMissing);
        let tested = stack_test(self.sequence(at, FragmentRule::StackUntested));
        read.at = tested.map_or(read.at, |(after, _)| after);
        if read.jump()? != patch.span.start {
            return Err(FragmentRule::PatchMissing);
        }
        self.rows((at, read.at), next.unwrap_or(original), RowState::Exact)?;
        let code = self.bytes.span(patch.span);
        let is_stated = patch.exit == read.at && patch.begin == at && patch.next == next;
        let code = code.filter(|_| is_stated);
        let code = code.ok_or(FragmentRule::WrongPatch)?;
        self.saves(patch, place)?;
        let proved = instruments.prove(patch, place, code);
        let used = proved.map_err(|_| FragmentRule::WrongPatch)?;
        let deepest = patch.rows.iter().map(|row| u64::from(row.pushed)).max();
        let space = deepest.unwrap_or(0) + used;
        match tested {
            Some((_, tested)) if used > 0 && space > tested => Err(FragmentRule::StackUntested),
            None if used > 0 => Err(FragmentRule::StackUntested),
            Some(_) if used == 0 => Err(FragmentRule::WrongPatch),
            _ => {
                self.proved.insert((original, moment));
                Ok(read.at)
            }
        }
    }
}

/// Bytes below the stack pointer of the word that blocks write before instruments that read memory, or number stacks: all
/// words above it are in its page or in that of the stack pointer.
const TESTED: [u64; 2] = [400, 1700];

/// Reads the store of a word below the stack pointer by which a block finds out whether its stack has the space; returns
/// the place after it and the space, if it is there.
fn stack_test(read: SequenceReader<'_>) -> Option<(Addr, u64)> {
    TESTED.into_iter().find_map(|space| {
        let mut read = read;
        read.store(Register::RSP, space.cast_signed().wrapping_neg())
            .ok()?;
        Some((read.at, space))
    })
}
