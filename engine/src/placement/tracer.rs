//! The kernel's own function tracer, for what stands right behind its site and may not move.

use super::Tactic;
use super::cover::Needs;
use super::hooks::{Event, Way};

/// The function's entry.
pub(super) fn entry() -> Way {
    Way {
        tactic: Tactic::Tracer,
        event: Event::Traced,
        needs: Needs {
            tracer: true,
            ..Needs::default()
        },
    }
}
