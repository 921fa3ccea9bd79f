//! State of planning, before hooks have their sites.

use super::notes::Note;
use super::numbered::FunctionTable;
use super::probes::Words;
use super::refusals::Refusals;
use crate::Image;
use crate::layout::RuntimeLayout;
use crate::session::Session;

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
