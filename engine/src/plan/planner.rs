//! State of planning, before hooks have their sites.

use super::error::internal;
use super::notes::Note;
use super::numbered::FunctionTable;
use super::probes::Words;
use super::refusals::Refusals;
use crate::layout::RuntimeLayout;
use crate::session::{Placement, Session};
use crate::{Image, Result};

/// Functions, storage and notes while the names of a session are resolved.
pub(super) struct Planner<'a> {
    pub(super) image: &'a Image,
    pub(super) session: &'a Session,
    pub(super) layout: &'a RuntimeLayout,
    pub(super) functions: FunctionTable<'a>,
    pub(super) words: Words<'a>,
    pub(super) notes: Vec<Note>,
    pub(super) refusals: &'a Refusals,
}

impl Planner<'_> {
    /// The placement of the session that an instrument names.
    pub(super) fn placement(&self, index: usize) -> Result<&Placement> {
        let placement = self.session.placements.get(index);
        placement.ok_or_else(|| internal("an instrument names no placement of the session"))
    }
}
