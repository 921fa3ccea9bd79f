//! The error of a command, a whole sentence.

use std::fmt;

/// Reason for which a command stopped.
#[derive(Debug)]
pub(crate) struct Fail(String);

/// The crate's result.
pub(crate) type Result<T> = std::result::Result<T, Fail>;

impl Fail {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
