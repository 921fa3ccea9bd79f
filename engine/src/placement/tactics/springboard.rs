//! Springboard: a short splice branches to a bounce in another function's bytes (KernInst, OSDI 1999).
//!
//! - Applies where no function of the session has a slot in reach: then the functions around are added to
//!   the problem, and their padding and instructions are offered, at a higher cost than those of all others.
//! - Writes and waits as a [donor](super::donor).
//!
//! Without it, 95 of the 610,754 blocks of Linux 6.12 have only an `int3` for their pre-hook when it is alone
//! in a session.

use crate::placement::tactic::Tactic;

/// The switch for slots of a function, which may have no hooks itself.
pub(in crate::placement) fn switch(tactic: Tactic, is_foreign: bool) -> Tactic {
    match tactic {
        Tactic::Donor if is_foreign => Tactic::Springboard,
        _ => tactic,
    }
}
