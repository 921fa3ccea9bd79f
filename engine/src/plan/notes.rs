//! What a plan does that a person might not expect.

use std::fmt;

use crate::Addr;

/// One thing to know before a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Index of the placement.
    pub placement: usize,
    /// What it is about.
    pub at: Addr,
    /// A sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
