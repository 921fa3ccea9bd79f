//! How an instrument is reached, in words: what is written for it, and what that depends on.

use std::collections::BTreeSet;

use super::{Plan, PlannedInstrument};
use crate::placement::{SiteIndex, Slot, Splice};

impl Plan {
    /// A line for everything that is written so that the instrument runs: first where it runs, then
    /// what must be there with it, down to what depends on nothing.
    #[must_use]
    pub fn way(&self, instrument: &PlannedInstrument) -> Vec<String> {
        let mut lines = Vec::new();
        let mut known = BTreeSet::new();
        let own = instrument.points.iter().map(|&(site, _)| site);
        let mut left: Vec<SiteIndex> = own.chain(instrument.needs.iter().copied()).collect();
        left.reverse();
        while let Some(index) = left.pop() {
            let Some(site) = self.sites.get(index.0 as usize) else {
                continue;
            };
            if !known.insert(index) {
                continue;
            }
            let at = site.displaced.start;
            let displaced = site.displaced.len();
            lines.push(match site.splice {
                Splice::Jump => format!("jump at {at}, {displaced} bytes displaced"),
                Splice::Tracer => format!("called by the kernel's function tracer at {at}"),
                Splice::Trap => format!("int3 at {at}, {displaced} bytes displaced"),
                Splice::Short(bounce) => {
                    let slot = self.bounces.get(bounce.0 as usize).map(|bounce| {
                        let bytes = match bounce.slot {
                            Slot::Padding => "in padding".to_owned(),
                            Slot::Exposed(host) => {
                                left.push(host);
                                self.sites.get(host.0 as usize).map_or_else(
                                    || "in bytes that a splice exposes".to_owned(),
                                    |host| {
                                        format!(
                                            "in bytes that the splice at {} exposes",
                                            host.displaced.start
                                        )
                                    },
                                )
                            }
                        };
                        format!(" to a bounce at {} {bytes}", bounce.at)
                    });
                    let slot = slot.unwrap_or_default();
                    format!("short jump at {at}{slot}, {displaced} bytes displaced")
                }
            });
        }
        lines
    }
}
