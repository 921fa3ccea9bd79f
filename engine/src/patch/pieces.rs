//! The stretches of a patch, packed: there may be a million patches, with some six stretches each, which
//! are of the same lengths in many.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Piece, PieceKind};
use crate::InstrumentId;
use crate::ids::to_u32;

/// Packed stretches of a patch. Instruments are numbers in the patch's lists.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Pieces(Arc<[u8]>);

/// An interner of packed stretches.
#[derive(Debug, Default)]
pub struct Packed(HashSet<Arc<[u8]>>);

const SAVE: u8 = 0;
const INSTRUMENT: u8 = 1;
const RESTORE: u8 = 2;
const RELOCATED: u8 = 3;
const TERMINATING: u8 = 4;
const LOST: u8 = 5;
const DESCRIPTORS: u8 = 6;

impl Pieces {
    /// Stretches in order that cover a patch from its start. `ids` are the patch's instruments in the
    /// order of its lists; a stretch of another instrument is left without one, as [`PieceKind::Save`].
    /// `known` is for all patches that are packed together.
    #[must_use]
    pub fn pack(pieces: &[Piece], ids: &[InstrumentId], cache: &mut Packed) -> Self {
        let number = |id: InstrumentId| {
            let number = ids.iter().position(|other| *other == id);
            debug_assert!(
                number.is_some(),
                "a piece of {id:?}, which its patch does not list"
            );
            number
        };
        let mut packed = Vec::with_capacity(4 * pieces.len());
        for piece in pieces {
            let (kind, of) = match piece.kind {
                PieceKind::Save => (SAVE, None),
                PieceKind::Instrument(id) => (INSTRUMENT, number(id)),
                PieceKind::Restore => (RESTORE, None),
                PieceKind::Relocated => (RELOCATED, None),
                PieceKind::Terminating => (TERMINATING, None),
                PieceKind::Lost(id) => (LOST, number(id)),
                PieceKind::Descriptors => (DESCRIPTORS, None),
            };
            packed.push(match of {
                None if matches!(kind, INSTRUMENT | LOST) => SAVE,
                _ => kind,
            });
            if let Some(number) = of {
                put(&mut packed, to_u32(number));
            }
            put(
                &mut packed,
                piece.range.end.saturating_sub(piece.range.start),
            );
            put(&mut packed, piece.executed);
        }
        if let Some(shared) = cache.0.get(packed.as_slice()) {
            return Self(Arc::clone(shared));
        }
        let new: Arc<[u8]> = packed.into();
        cache.0.insert(Arc::clone(&new));
        Self(new)
    }

    /// The stretches again, with the same instruments.
    pub fn unpack(
        &self,
        ids: impl Fn(usize) -> Option<InstrumentId>,
    ) -> impl Iterator<Item = Piece> {
        let mut rest = &*self.0;
        let mut start = 0_u32;
        std::iter::from_fn(move || {
            let (&kind, tail) = rest.split_first()?;
            rest = tail;
            let mut of = || ids(take(&mut rest)? as usize);
            let kind = match kind {
                INSTRUMENT => PieceKind::Instrument(of()?),
                RESTORE => PieceKind::Restore,
                RELOCATED => PieceKind::Relocated,
                TERMINATING => PieceKind::Terminating,
                LOST => PieceKind::Lost(of()?),
                DESCRIPTORS => PieceKind::Descriptors,
                _ => PieceKind::Save,
            };
            let end = start.checked_add(take(&mut rest)?)?;
            let range = start..end;
            start = end;
            Some(Piece {
                kind,
                range,
                executed: take(&mut rest)?,
            })
        })
    }
}

impl std::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pieces({} bytes)", self.0.len())
    }
}

/// Seven bits a byte, the lowest first; the highest bit of a byte says that more follow.
fn put(packed: &mut Vec<u8>, mut number: u32) {
    while number > 0x7f {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn take(packed: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for place in (0..).step_by(7) {
        let (&byte, tail) = packed.split_first()?;
        *packed = tail;
        number |= u32::from(byte & 0x7f).checked_shl(place)?;
        if byte <= 0x7f {
            break;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::HookType;

    fn id(block: u32) -> InstrumentId {
        InstrumentId::new(7, HookType::Pre, block, 0).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_again(
            stretches in prop::collection::vec((0_usize..7, 0_u32..200, 0_u32..100_000, any::<u32>()), 0..20),
        ) {
            let ids: Vec<InstrumentId> = (0..200).map(id).collect();
            let mut start = 0;
            let pieces: Vec<Piece> = stretches
                .into_iter()
                .map(|(kind, of, length, executed)| {
                    let kinds = [
                        PieceKind::Save,
                        PieceKind::Instrument(id(of)),
                        PieceKind::Restore,
                        PieceKind::Relocated,
                        PieceKind::Terminating,
                        PieceKind::Lost(id(of)),
                        PieceKind::Descriptors,
                    ];
                    let range = start..start + length;
                    start = range.end;
                    Piece { kind: kinds[kind], range, executed }
                })
                .collect();
            let mut known = Packed::default();
            let packed = Pieces::pack(&pieces, &ids, &mut known);
            prop_assert!(Arc::ptr_eq(&packed.0, &Pieces::pack(&pieces, &ids, &mut known).0));
            let again: Vec<Piece> = packed.unpack(|number| ids.get(number).copied()).collect();
            prop_assert_eq!(again, pieces);
        }
    }
}
