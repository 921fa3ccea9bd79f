//! Errors of planning.

use crate::session::Session;
use crate::{Error, Refusal};

/// The error for a placement of the session that a rule forbids.
pub(super) fn refused(session: &Session, placement: usize, refusal: Refusal) -> Error {
    session.placements.get(placement).map_or_else(
        || internal("a refusal is of no placement of the session"),
        |placement| Error::Refused {
            instrument: placement.instrument.to_string(),
            hook: placement.hook,
            function: placement.function.to_string(),
            block: placement.block,
            refusal,
        },
    )
}

/// The error for a violated invariant of the planner, which names it. It is no panic: tests break solutions on
/// purpose, and then it is the answer that they expect.
pub(super) fn internal(what: &str) -> Error {
    Error::Internal {
        what: what.to_owned(),
    }
}
