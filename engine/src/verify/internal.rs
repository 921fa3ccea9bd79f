//! Entries that must exist: where one is absent, the verifier is defective, and refuses the plan.

use std::cell::Cell;

use super::reason::Reason;

/// Records the absence of entries whose existence earlier checks have established.
#[derive(Debug, Default)]
pub(crate) struct Required(Cell<Option<&'static str>>);

impl Required {
    /// Passes the entry through. Its absence makes the verdict an internal error.
    pub(crate) fn entry<T>(&self, entry: Option<T>, name: &'static str) -> Option<T> {
        if entry.is_none() {
            self.0.set(Some(name));
        }
        entry
    }

    /// Returns the internal error, if an entry was absent.
    pub(crate) fn error(&self) -> Option<Reason> {
        let missing = self.0.get()?;
        Some(Reason::Internal { missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_entry_is_an_internal_error_that_names_it() {
        let required = Required::default();
        assert_eq!(required.entry(Some(1), "one"), Some(1));
        assert_eq!(required.error(), None);
        assert_eq!(required.entry(None::<u8>, "the other"), None);
        let error = required.error().unwrap();
        assert!(error.is_internal() && error.to_string().contains("the other"));
    }
}
