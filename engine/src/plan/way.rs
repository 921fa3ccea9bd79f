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
            let Some(site) = self.sites.get(index.0 as usize) else {
                debug_assert!(false, "{index:?} is no site of the plan");
                continue;
            };
            if !visited.insert(index) {
                continue;
            }
            let at = site.displaced.start;
            let displaced = site.displaced.len();
            let words = site.splice.words();
            let slot = site.splice.bounce().map(|bounce| {
                let bounce = self.bounces.get(bounce.0 as usize);
                debug_assert!(bounce.is_some(), "a short splice has no bounce");
                bounce.map_or_else(String::new, |bounce| {
                    let bytes = match bounce.slot {
                        Slot::Padding => "in padding".to_owned(),
                        Slot::Exposed(host) => {
                            worklist.push(host);
                            let host = self.sites.get(host.0 as usize);
                            host.map_or_else(
                                || "in bytes that a splice exposes".to_owned(),
                                |host| {
                                    let at = host.displaced.start;
                                    format!("in bytes that the splice at {at} exposes")
                                },
                            )
                        }
                    };
                    format!(" to a bounce at {} {bytes}", bounce.at)
                })
            });
            let slot = slot.unwrap_or_default();
            lines.push(if site.splice.displaces() {
                format!("{words} at {at}{slot}, {displaced} bytes displaced")
            } else {
                format!("{words} at {at}")
            });
        }
        lines
    }
}
