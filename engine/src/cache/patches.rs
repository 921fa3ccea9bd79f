//! Patches of instruments, and the branches to them. Patches are after all other code of a translation.

use iced_x86::{Code as Op, Decoder, DecoderOptions, Instruction, Register};

use super::instruments::missing;
use super::pending::{PendingPatch, PendingWay};
use super::rows::RowState;
use super::translate::TranslationWork;
use super::translation::{BlockPatch, PatchMoment};
use crate::ids::part;
use crate::patch::{Code, PieceKind};
use crate::{Addr, Refusal, Span};

impl TranslationWork<'_> {
    /// Emits the branch to the patch of an instruction. Where its instruments read memory, a write finds out before it
    /// whether the stack has the space. If the instruction may not be executed again, `next` is the one that executes after
    /// the patch.
    pub(super) fn branch_to_patch(
        &mut self,
        (original, moment): (Addr, PatchMoment),
        next: Option<Addr>,
    ) {
        self.out.row(next.unwrap_or(original), RowState::Exact);
        let begin = self.out.here();
        let instruments = self.translator.instruments((original, moment));
        if let Some(space) = instruments.and_then(|all| all.space_at((original, moment))) {
            self.out.with(&[0x48, 0x89, 0xa4, 0x24], -space); // mov [rsp-space], rsp
        }
        let field = self.out.later(&[0xe9]);
        self.patched.push(PendingPatch {
            field,
            original,
            moment,
            next,
            begin,
            exit: self.out.here(),
        });
    }

    /// Emits a conditional branch; one with instruments on the way that it takes targets code after all blocks.
    pub(super) fn conditional_branch(&mut self, opcode: &[u8], original: Addr, target: Addr) {
        if !self.is_instrumented(original, PatchMoment::Taken) {
            return self.branch(opcode, target);
        }
        let field = self.out.later(opcode);
        self.ways.push(PendingWay {
            field,
            original,
            target,
        });
    }

    /// Emits `loop` or `jrcxz`, which have no near form, and both of its ways. It may not be executed again on these.
    pub(super) fn short_conditional(&mut self, instruction: &Instruction, target: Addr) {
        let (original, next) = (Addr(instruction.ip()), Addr(instruction.next_ip()));
        let bytes = self.code.code_from(original).unwrap_or_default();
        let opcode = instruction.len().saturating_sub(1);
        self.out.push(part(bytes, 0..opcode));
        self.out.push(&[0]);
        let taken = self.out.bytes.len();
        self.way((original, PatchMoment::Untaken), next);
        self.out.push(&[0xeb, 0]);
        let over = self.out.bytes.len();
        self.short_to_here(taken);
        self.way((original, PatchMoment::Taken), target);
        self.branch(&[0xe9], target);
        self.short_to_here(over);
    }

    /// Begins what executes after an instruction that may not be executed again, with the instruments there.
    pub(super) fn way(&mut self, after: (Addr, PatchMoment), next: Addr) {
        if self.is_instrumented(after.0, after.1) {
            self.branch_to_patch(after, Some(next));
        }
        self.out.row(next, RowState::Exact);
    }

    /// Emits the ways of conditional branches with instruments on them.
    pub(super) fn instrumented_ways(&mut self) -> Result<(), Refusal> {
        for PendingWay {
            field,
            original,
            target,
        } in std::mem::take(&mut self.ways)
        {
            let at = self.out.here();
            self.out.resolve(field, at)?;
            self.branch_to_patch((original, PatchMoment::Taken), None);
            self.out.row(target, RowState::Exact);
            self.branch(&[0xe9], target);
        }
        Ok(())
    }

    /// Returns whether instruments run at an instruction.
    pub(super) fn is_instrumented(&self, original: Addr, moment: PatchMoment) -> bool {
        self.translator.is_instrumented(self.code, original, moment)
    }

    /// Emits the patches.
    pub(super) fn patches(&mut self) -> Result<(), Refusal> {
        for PendingPatch {
            field,
            original,
            moment,
            next,
            begin,
            exit,
        } in std::mem::take(&mut self.patched)
        {
            let instruments = self.translator.instruments((original, moment));
            let instruments = instruments.ok_or_else(|| missing(original))?;
            self.out.align(instruments.patch_align());
            let at = self.out.here();
            let patch = instruments.assemble(at, (original, moment), exit)?;
            self.out.resolve(field, at)?;
            self.saves(next.unwrap_or(original), &patch);
            self.out.push(&patch.bytes);
            self.done.patches.push(BlockPatch {
                original,
                moment,
                next,
                begin,
                span: Span::new(at, patch.bytes.len() as u64),
                sequences: patch.sequences,
                rows: patch.rows,
                exit,
            });
        }
        Ok(())
    }

    /// Adds the rows of a patch: at each instruction that saves, and after these.
    fn saves(&mut self, original: Addr, patch: &Code) {
        let first = patch.pieces.first();
        let saves = first.filter(|piece| piece.kind == PieceKind::Save);
        let end = saves.map_or(0, |piece| piece.range.end as usize);
        let bytes = part(&patch.bytes, 0..end);
        let (mut pushed, mut kept, mut rax) = (0, None, None);
        for instruction in &mut Decoder::new(64, bytes, DecoderOptions::NONE) {
            let at = usize::try_from(instruction.ip()).unwrap_or(usize::MAX);
            self.out
                .row_at(at, original, RowState::Saving { pushed, rax });
            match instruction.code() {
                Op::Push_r64 => {
                    pushed += 8;
                    if instruction.op0_register() == Register::RAX && rax.is_none() {
                        kept = Some(pushed);
                    }
                }
                Op::Lahf => rax = kept,
                // The step over the red zone.
                Op::Lea_r64_m => {
                    let below = instruction.memory_displacement64().wrapping_neg();
                    pushed += u32::try_from(below).unwrap_or(u32::MAX);
                }
                _ => {}
            }
        }
        self.out.row_at(end, original, RowState::Instruments);
    }
}
