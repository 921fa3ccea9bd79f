//! Plans of a session that continues after the code of its target has changed.

use std::collections::BTreeSet;

use super::major::Major;
use super::names::Named;
use super::numbered::FunctionTable;
use crate::ids::Ids;
use crate::session::{Placement, Session};

/// The continuation of a session that has begun.
pub struct Resumption<'a> {
    /// Seconds from the start at which the splices are in place again.
    pub at: f64,
    /// Returns whether a live patch replaces a function, by its name in the image: its old code does not execute.
    pub is_replaced: &'a dyn Fn(&str) -> bool,
}

impl Resumption<'_> {
    /// Returns the session with what is in place launched when the splices are.
    pub(super) fn rest(&self, session: &Session) -> Session {
        let mut rest = session.clone();
        for placement in &mut rest.placements {
            if !self.is_past(placement) {
                placement.launch = placement.launch.max(self.at);
            }
        }
        rest
    }

    fn is_past(&self, placement: &Placement) -> bool {
        placement.splash <= self.at
    }

    /// Returns the placements that are left out, by their index.
    pub(super) fn absent(
        &self,
        session: &Session,
        functions: &FunctionTable<'_>,
        named: &[Named],
    ) -> BTreeSet<usize> {
        let placements = session.placements.iter().enumerate();
        let past = placements.filter(|(_, placement)| self.is_past(placement));
        let mut absent: BTreeSet<usize> = past.map(|(index, _)| index).collect();
        let mut replaced = Ids::like(functions.graphs(), None);
        for one in named {
            let major = Major::of(one.id);
            let is_replaced = || (self.is_replaced)(&functions.graph(major).name);
            if *replaced[major].get_or_insert_with(is_replaced) {
                absent.insert(one.placement);
            }
        }
        absent
    }
}
