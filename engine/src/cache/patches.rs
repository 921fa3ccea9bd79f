//! Patches of blocks with instruments: after all other code of a translation.

use std::sync::Arc;

use super::pending::PendingPatch;
use super::rows::RowState;
use super::translate::TranslationWork;
use super::translation::BlockPatch;
use crate::{Addr, Refusal, Span};

impl TranslationWork<'_> {
    /// Emits the branch with which a block with instruments begins.
    pub(super) fn branch_to_patch(&mut self, original: Addr) {
        self.out.row(original, RowState::Exact);
        let field = self.out.later(&[0xe9]);
        self.patched.push(PendingPatch {
            field,
            original,
            exit: self.out.here(),
        });
    }

    /// Emits the patches.
    pub(super) fn patches(&mut self) -> Result<(), Refusal> {
        let Some(instruments) = self.translator.instruments().map(Arc::clone) else {
            return Ok(());
        };
        for PendingPatch {
            field,
            original,
            exit,
        } in std::mem::take(&mut self.patched)
        {
            self.out.align(instruments.layout().patch_align());
            let at = self.out.here();
            let patch = instruments.assemble(at, original, exit)?;
            self.out.resolve(field, at)?;
            self.out.row(original, RowState::Instruments);
            self.out.push(&patch.bytes);
            self.done.patches.push(BlockPatch {
                original,
                span: Span::new(at, patch.bytes.len() as u64),
                sequences: patch.sequences,
                rows: patch.rows,
                exit,
            });
        }
        Ok(())
    }
}
