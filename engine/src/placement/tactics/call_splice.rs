//! Call splice: the site is a call, and the splice is a call of the patch, which ends with a jump to the callee.
//!
//! - Applies to a direct call, those of thunks included, where no other site displaces its bytes: so a hook whose
//!   instruction is the call needs nothing before it, and no call is moved.
//! - Writes `call rel32` over `call rel32`: the return address is the original one, and the processor's stack of
//!   return addresses stays balanced.
//! - Waits for nothing: one instruction is overwritten by one of its length.
//!
//! In Debian's kernels it reaches blocks that begin with a call, since the block before them ends with another.

use iced_x86::{Code, Instruction};

use crate::placement::body::Body;
use crate::placement::draft::Draft;
use crate::placement::ids::{InsnId, InsnRange};
use crate::placement::splice::{SPLICE_BYTES, SpliceForm};

/// The site of a call that another call can replace; `None` of any other instruction.
pub(in crate::placement) fn site(body: &Body<'_>, at: InsnId) -> Option<Draft> {
    let is_plain = |instruction: &Instruction| {
        instruction.code() == Code::Call_rel32_64 && instruction.len() as u64 == SPLICE_BYTES
    };
    let instruction = body.instruction(at).filter(is_plain);
    instruction.map(|_| Draft::new(SpliceForm::Call, InsnRange::one(at)))
}
