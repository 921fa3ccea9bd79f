//! The branch written over a site: its bytes, its reach, and how it is installed.
//!
//! The planner derives all of this here. `verify` reads the bytes of splices by itself and shares
//! nothing but the types.

use serde::{Deserialize, Serialize};

use super::bytes::PokeBytes;
use super::ids::BounceIndex;
use crate::isa::encode::{INT3, call, jump};
use crate::{Addr, Span};

/// Bytes of a splice that reaches any patch: `jmp rel32`. A bounce is one too.
pub const SPLICE_BYTES: u64 = 5;
/// Bytes of a splice that reaches a bounce: `jmp rel8`.
pub const SHORT_SPLICE_BYTES: u64 = 2;

/// Opcode of `jmp rel8`.
const JUMP_SHORT: u8 = 0xeb;

/// The branch written at the start of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Splice {
    /// `jmp rel32` to the patch.
    Jump,
    /// `jmp rel8` to a bounce, which is a `jmp rel32` to the patch.
    Short(BounceIndex),
    /// No bytes: the function tracer's callback at its five bytes, which are the site's `displaced`,
    /// branches to the patch, and the patch returns to the address after them.
    Tracer,
    /// `int3`; the driver's handler branches to the patch.
    Trap,
    /// `call rel32` to the patch, over a `call rel32`: the patch has the original return address on the stack, and
    /// ends with a jump to the callee.
    Call,
}

/// A splice before its bounce is assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpliceForm {
    /// As [`Splice::Jump`].
    Jump,
    /// As [`Splice::Short`].
    Short,
    /// As [`Splice::Tracer`].
    Tracer,
    /// As [`Splice::Trap`].
    Trap,
    /// As [`Splice::Call`].
    Call,
}

impl SpliceForm {
    /// Returns how many bytes are written at the site.
    pub(super) const fn bytes(self) -> u64 {
        match self {
            Self::Jump | Self::Call => SPLICE_BYTES,
            Self::Short => SHORT_SPLICE_BYTES,
            Self::Tracer => 0,
            Self::Trap => 1,
        }
    }

    /// Returns the splice of this form, or `None` for a short one without a bounce.
    pub(super) fn with(self, bounce: Option<BounceIndex>) -> Option<Splice> {
        Some(match self {
            Self::Jump => Splice::Jump,
            Self::Short => Splice::Short(bounce?),
            Self::Tracer => Splice::Tracer,
            Self::Trap => Splice::Trap,
            Self::Call => Splice::Call,
        })
    }
}

impl Splice {
    const fn form(self) -> SpliceForm {
        match self {
            Self::Jump => SpliceForm::Jump,
            Self::Short(_) => SpliceForm::Short,
            Self::Tracer => SpliceForm::Tracer,
            Self::Trap => SpliceForm::Trap,
            Self::Call => SpliceForm::Call,
        }
    }

    /// Number of bytes written at the site.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.form().bytes()
    }

    /// The bounce that the splice branches to, if it is short.
    #[must_use]
    pub const fn bounce(self) -> Option<BounceIndex> {
        match self {
            Self::Short(bounce) => Some(bounce),
            Self::Jump | Self::Tracer | Self::Trap | Self::Call => None,
        }
    }

    /// Returns the bytes of the splice at `at` whose branch targets `to`: the patch, or the bounce of a
    /// short splice. `None` if `to` is out of reach.
    pub(crate) fn encode(self, at: Addr, to: Addr) -> Option<PokeBytes> {
        match self {
            Self::Jump => PokeBytes::new(&jump(at, to)?),
            Self::Short(_) => {
                let distance = at.add(SHORT_SPLICE_BYTES).to(to);
                let distance = i8::try_from(distance).ok()?;
                PokeBytes::new(&[JUMP_SHORT, distance.cast_unsigned()])
            }
            Self::Tracer => Some(PokeBytes::default()),
            Self::Trap => PokeBytes::new(&[INT3]),
            Self::Call => PokeBytes::new(&call(at, to)?),
        }
    }

    /// Returns whether other bytes are written when the site's patch changes to another version. A short
    /// splice stays, and its bounce is rewritten.
    pub(crate) const fn retargets(self) -> bool {
        self.bounce().is_none()
    }

    /// Returns whether an `int3` stands at the site before the rest of the batch is written: so that
    /// threads among the instructions to be overwritten can leave, or because the splice is one itself.
    pub(crate) const fn is_staged(self, overwritten: u32) -> bool {
        overwritten > 1 || matches!(self, Self::Trap)
    }

    /// Number of instructions that installing or removing the splice changes, of those that are
    /// `overwritten` at its site.
    pub(crate) const fn overwrites(self, overwritten: u32) -> u32 {
        if self.displaces() { overwritten } else { 0 }
    }

    /// Returns whether the patch executes copies of the displaced instructions: the function tracer's
    /// bytes do nothing that a copy would have to do.
    pub(crate) const fn displaces(self) -> bool {
        !matches!(self, Self::Tracer)
    }

    /// Bytes that the splice itself has pushed when control enters the patch.
    pub(crate) const fn pushes(self) -> u32 {
        if matches!(self, Self::Call) { 8 } else { 0 }
    }

    /// The address of the original code for which control enters the patch.
    pub(crate) const fn entered(self, displaced: Span) -> Addr {
        if self.displaces() {
            displaced.start
        } else {
            displaced.end
        }
    }

    /// The splice in words, as reports and windows show it.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Jump => "jump",
            Self::Short(_) => "short jump",
            Self::Tracer => "call by the function tracer",
            Self::Trap => "int3",
            Self::Call => "call",
        }
    }
}

/// Returns the lowest and highest address that `jmp rel8` at `splice` can target.
pub(super) const fn short_reach(splice: Addr) -> (Addr, Addr) {
    let next = splice.0.wrapping_add(SHORT_SPLICE_BYTES);
    (Addr(next.wrapping_sub(128)), Addr(next.wrapping_add(127)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_splice_encodes_exactly_what_is_in_its_reach() {
        let at = Addr(0x1000);
        let splice = Splice::Short(BounceIndex(0));
        let (low, high) = short_reach(at);
        assert_eq!(splice.encode(at, low).as_deref(), Some(&[0xeb, 0x80][..]));
        assert_eq!(splice.encode(at, high).as_deref(), Some(&[0xeb, 0x7f][..]));
        assert_eq!(splice.encode(at, Addr(low.0 - 1)), None);
        assert_eq!(splice.encode(at, high.add(1)), None);
    }

    #[test]
    fn encoded_splices_have_their_length() {
        let (at, to) = (Addr(0x1000), Addr(0x1020));
        for splice in [
            Splice::Jump,
            Splice::Short(BounceIndex(0)),
            Splice::Tracer,
            Splice::Trap,
            Splice::Call,
        ] {
            let bytes = splice.encode(at, to).unwrap();
            assert_eq!(bytes.len() as u64, splice.bytes(), "{splice:?}");
        }
        for far in [Splice::Jump, Splice::Call] {
            assert_eq!(far.encode(at, Addr(1 << 40)), None);
        }
    }
}
