//! Names of tactics, and sets of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A way to reach a hook, in order of cost. A hook's tactic is the most expensive among those that it requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Tactic {
    /// A call of the patch over the hook's own call: one instruction over one, and no jump back.
    CallSplice,
    /// A splice over the hook's own instructions.
    DirectSplice,
    /// A splice before them, in the same segment: the instructions between are relocated too, or one patch
    /// serves several hooks.
    BlockRelocation,
    /// A two-byte splice to a bounce in padding within its reach.
    Padding,
    /// A two-byte splice to a bounce in bytes that another splice of the session exposes.
    LocalBounce,
    /// A two-byte splice to a bounce in bytes that are displaced only to provide slots.
    Donor,
    /// A two-byte splice to a bounce in another function's bytes.
    Springboard,
    /// The function is relocated whole: splices stand at its entrances, and their patches continue until
    /// control leaves the function.
    WholeFunction,
    /// Instruments on every edge into (pre-hook) or out of (post-hook) the block.
    Edges,
    /// A splice at the successor of a block that ends with a call or another instruction that stays: all
    /// other ways to it are diverted around the splice, so that control that reaches it from the original
    /// code comes from the block.
    Arrivals,
    /// A callback of the kernel's own function tracer at the function's entry.
    Tracer,
    /// An `int3` that stays: the last resort.
    Trap,
}

impl Tactic {
    /// All tactics, in order of cost.
    pub const ALL: [Self; 12] = [
        Self::CallSplice,
        Self::DirectSplice,
        Self::BlockRelocation,
        Self::Padding,
        Self::LocalBounce,
        Self::Donor,
        Self::Springboard,
        Self::WholeFunction,
        Self::Edges,
        Self::Arrivals,
        Self::Tracer,
        Self::Trap,
    ];

    /// The tactic's name in tables, reports and windows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallSplice => "call splice",
            Self::DirectSplice => "direct splice",
            Self::BlockRelocation => "block relocation",
            Self::Padding => "padding",
            Self::LocalBounce => "local bounce",
            Self::Donor => "donor",
            Self::Springboard => "springboard",
            Self::WholeFunction => "whole function",
            Self::Edges => "edges",
            Self::Arrivals => "arrivals",
            Self::Tracer => "tracer",
            Self::Trap => "int3",
        }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Tactic {
    type Err = String;

    /// Reads a name as [`Tactic::name`] has it, with spaces or hyphens.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.replace('-', " ");
        let tactic = Self::ALL.into_iter().find(|tactic| tactic.name() == name);
        tactic.ok_or_else(|| {
            let names = Self::ALL.map(|tactic| tactic.name().replace(' ', "-"));
            format!(
                "no tactic is called {text:?}; there are {}",
                names.join(", ")
            )
        })
    }
}

/// A set of tactics that placement may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tactics(u16);

impl Tactics {
    /// Every tactic.
    pub const ALL: Self = Self(u16::MAX);

    /// Returns the set without a tactic.
    #[must_use]
    pub const fn without(self, tactic: Tactic) -> Self {
        Self(self.0 & !(1 << tactic as u16))
    }

    /// Returns whether the set has the tactic.
    #[must_use]
    pub const fn has(self, tactic: Tactic) -> bool {
        self.0 & 1 << tactic as u16 != 0
    }
}

impl Default for Tactics {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_with_spaces_and_hyphens() {
        for tactic in Tactic::ALL {
            assert_eq!(tactic.name().parse(), Ok(tactic));
            assert_eq!(tactic.name().replace(' ', "-").parse(), Ok(tactic));
        }
        assert!("jump".parse::<Tactic>().is_err());
    }

    #[test]
    fn a_set_loses_one_tactic_at_a_time() {
        let some = Tactics::ALL.without(Tactic::Edges).without(Tactic::Trap);
        for tactic in Tactic::ALL {
            let is_removed = matches!(tactic, Tactic::Edges | Tactic::Trap);
            assert_eq!(some.has(tactic), !is_removed, "{tactic}");
        }
    }
}
