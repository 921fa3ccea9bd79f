//! Refusals of placements, collected while a stage of planning goes through all of them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::error::refused;
use crate::session::Session;
use crate::{Error, Refusal, Result};

/// Collector of refusals: a stage of planning refuses all that it can before planning fails with the first.
#[derive(Debug, Default)]
pub(super) struct Refusals(RefCell<BTreeMap<usize, Refusal>>);

impl Refusals {
    /// Returns the refusal of each refused placement.
    pub(super) fn into_inner(self) -> BTreeMap<usize, Refusal> {
        self.0.into_inner()
    }

    /// Records the refusal of a placement; of several, the first.
    pub(super) fn add(&self, placement: usize, refusal: Refusal) {
        self.0.borrow_mut().entry(placement).or_insert(refusal);
    }

    /// Records the refusal in a result and returns `None` for it; passes everything else on.
    ///
    /// # Errors
    /// The error of the result, unless it is [`Error::Refused`].
    pub(super) fn collect<T>(&self, placement: usize, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Refused { refusal, .. }) => {
                self.add(placement, refusal);
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// # Errors
    /// The recorded refusal of the first placement.
    pub(super) fn check(&self, session: &Session) -> Result<()> {
        match self.0.borrow().first_key_value() {
            Some((&placement, refusal)) => Err(refused(session, placement, refusal.clone())),
            None => Ok(()),
        }
    }
}
