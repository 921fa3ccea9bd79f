//! Examines a machine before anything is built or loaded on it: can `ilk.ko` and the agent work here, and if not,
//! which command mends it?
//!
//! Reads files of `/proc`, `/sys` and `/lib/modules` and changes nothing. It needs no privilege; a check that would
//! need one says so.
//!
//! ```
//! use ilk_driver::doctor::{Machine, examine};
//!
//! for finding in examine(&Machine::this()) {
//!     println!("{}: {}", finding.subject, finding.judgement.text());
//! }
//! ```

mod kernel;
mod machine;
mod module;
mod reach;
#[cfg(test)]
mod tests;

pub use machine::Machine;

/// A judgement of one part of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part: `headers`, `lockdown`, `clock`, ….
    pub subject: &'static str,
    /// Its state, and what mends it.
    pub judgement: Judgement,
}

/// The state of a part of a machine, compared with what GILK needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It is.
    Fine(String),
    /// GILK works, but less well.
    Warning {
        /// The state, and what it costs.
        what: String,
        /// Commands or steps that change it. May be empty.
        mend: Vec<String>,
    },
    /// GILK does not work until this is mended.
    Fault {
        /// The state, and why it matters.
        what: String,
        /// Commands or steps that mend it, in order.
        mend: Vec<String>,
    },
}

impl Judgement {
    /// Returns the sentence about the state.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Fine(what) | Self::Warning { what, .. } | Self::Fault { what, .. } => what,
        }
    }

    /// Returns the commands and steps that mend it; none where nothing is to be done.
    #[must_use]
    pub fn mend(&self) -> &[String] {
        match self {
            Self::Fine(_) => &[],
            Self::Warning { mend, .. } | Self::Fault { mend, .. } => mend,
        }
    }

    /// Returns whether GILK cannot work until this is mended.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        matches!(self, Self::Fault { .. })
    }

    fn fine(what: impl Into<String>) -> Self {
        Self::Fine(what.into())
    }

    fn warning(what: impl Into<String>, mend: &[&str]) -> Self {
        Self::Warning {
            what: what.into(),
            mend: mend.iter().map(ToString::to_string).collect(),
        }
    }

    fn fault(what: impl Into<String>, mend: &[&str]) -> Self {
        Self::Fault {
            what: what.into(),
            mend: mend.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A part and its check. A check of something that the machine does not have yields none.
type Check = (&'static str, fn(&Machine) -> Option<Judgement>);

/// The checks, in the order in which their faults are mended.
const CHECKS: [Check; 13] = [
    ("processor", kernel::processor),
    ("kernel", kernel::release),
    ("lockdown", kernel::lockdown),
    ("signatures", module::signatures),
    ("symbols", kernel::symbols),
    ("addresses", kernel::addresses),
    ("types", kernel::types),
    ("clock", kernel::clock),
    ("live patches", kernel::live_patches),
    ("headers", module::headers),
    ("module", module::module),
    ("agent", reach::agent),
    ("memory", kernel::memory),
];

/// Examines a machine.
#[must_use]
pub fn examine(machine: &Machine) -> Vec<Finding> {
    let finding = |&(subject, check): &Check| {
        Some(Finding {
            subject,
            judgement: check(machine)?,
        })
    };
    CHECKS.iter().filter_map(finding).collect()
}
