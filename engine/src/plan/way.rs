//! The writes that an instrument requires, in words, down to those that depend on nothing.

use std::collections::BTreeSet;

use super::model::{Plan, PlannedInstrument};
use crate::placement::{SiteIndex, Slot};

impl Plan {
    /// Returns a line for each splice that the instrument requires: first those of its points, then their
    /// prerequisites.
    #[must_use]
    pub fn way(&self, instrument: &PlannedInstrument) -> Vec<String> {
        let mut lines = Vec::new();
        let mut visited = BTreeSet::new();
        let own = instrument.points.iter().map(|&(site, _)| site);
        let mut worklist: Vec<SiteIndex> = own.chain(instrument.needs.iter().copied()).collect();
        worklist.reverse();
        while let Some(index) = worklist.pop() {
            if !visited.insert(index) {
                continue;
            }
            let Some(site) = self.site(index) else {
                lines.push(format!("a splice that is not in the plan, {}", index.0));
                continue;
            };
            let at = site.displaced.start;
            let displaced = site.displaced.len();
            let words = site.splice.words();
            let slot = match site
                .splice
                .bounce()
                .map(|index| (index, self.bounce(index)))
            {
                None => String::new(),
                Some((index, None)) => format!(" to a bounce that is not in the plan, {}", index.0),
                Some((_, Some(bounce))) => {
                    let bytes = match bounce.slot {
                        Slot::Padding => "in padding".to_owned(),
                        Slot::Exposed(index) => {
                            worklist.push(index);
                            match self.site(index) {
                                Some(host) => {
                                    let at = host.displaced.start;
                                    format!("in bytes that the splice at {at} exposes")
                                }
                                None => "in bytes that a splice exposes".to_owned(),
                            }
                        }
                    };
                    format!(" to a bounce at {} {bytes}", bounce.at)
                }
            };
            lines.push(if site.splice.displaces() {
                let bytes = if displaced == 1 { "byte" } else { "bytes" };
                format!("{words} at {at}{slot}, {displaced} {bytes} displaced")
            } else {
                format!("{words} at {at}")
            });
        }
        lines
    }
}
