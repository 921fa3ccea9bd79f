//! Remarks about a plan that a user might not expect.

use std::fmt;

use crate::Addr;

/// A remark for users before a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Index of the placement.
    pub placement: usize,
    /// Address that it is about.
    pub at: Addr,
    /// The remark, a sentence.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
