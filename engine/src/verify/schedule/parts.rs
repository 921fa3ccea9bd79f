//! The dependence graph of sites and bounces, and their ranks.

use crate::placement::{Slot, Splice};
use crate::plan::{Dependence, Part, Plan};
use crate::verify::hash::{Map, Set};
use crate::verify::reason::Reason;
use crate::verify::violation::Violation;
use crate::{Addr, Span};

/// The dependence graph.
pub(crate) struct Parts {
    /// Rank of each part with dependences.
    ranks: Map<Part, u8>,
    /// Parts that each part depends on, whatever it branches to.
    on: Map<Part, Vec<Part>>,
    /// Parts that depend on each part.
    of: Map<Part, Vec<Part>>,
}

impl Parts {
    /// Builds the graph from the plan's dependences, which must include all that follow from its
    /// sites and bounces.
    pub(crate) fn of(plan: &Plan, violations: &mut Vec<Violation>) -> Self {
        let mut wrong = |why: Reason| violations.push(Violation::Plan { why });
        if !plan.dependences.is_sorted_by(|a, b| a < b) {
            wrong(Reason::UnsortedDependences);
        }
        let listed: Set<Dependence> = plan.dependences.iter().copied().collect();
        let mut parts = Self {
            ranks: Map::default(),
            on: Map::default(),
            of: Map::default(),
        };
        for needed in required(plan) {
            if !listed.contains(&needed) {
                wrong(Reason::MissingDependence {
                    part: name(plan, needed.what),
                    on: name(plan, needed.on),
                });
            }
            parts.on.entry(needed.what).or_default().push(needed.on);
            parts.of.entry(needed.on).or_default().push(needed.what);
        }
        if let Err(part) = parts.rank(&plan.dependences) {
            wrong(Reason::CyclicDependence {
                part: name(plan, part),
            });
        }
        parts
    }

    /// Computes the length of the longest path from each part.
    fn rank(&mut self, dependences: &[Dependence]) -> Result<(), Part> {
        let mut waits: Map<Part, usize> = Map::default();
        let mut of: Map<Part, Vec<Part>> = Map::default();
        for dependence in dependences {
            *waits.entry(dependence.what).or_default() += 1;
            of.entry(dependence.on).or_default().push(dependence.what);
        }
        let mut free: Vec<Part> = of
            .keys()
            .filter(|part| !waits.contains_key(part))
            .copied()
            .collect();
        while let Some(part) = free.pop() {
            let deeper = self.rank_of(part).saturating_add(1);
            for &what in of.get(&part).into_iter().flatten() {
                let rank = self.ranks.entry(what).or_default();
                *rank = deeper.max(*rank);
                if let Some(left) = waits.get_mut(&what) {
                    *left -= 1;
                    if *left == 0 {
                        waits.remove(&what);
                        free.push(what);
                    }
                }
            }
        }
        waits.keys().next().map_or(Ok(()), |part| Err(*part))
    }

    pub(crate) fn rank_of(&self, part: Part) -> u8 {
        self.ranks.get(&part).copied().unwrap_or(0)
    }

    /// Returns the parts that must be in place while `part` is.
    pub(crate) fn on(&self, part: Part) -> &[Part] {
        self.on.get(&part).map_or(&[], Vec::as_slice)
    }

    /// Returns the parts that may not be in place without `part`.
    pub(crate) fn depending_on(&self, part: Part) -> &[Part] {
        self.of.get(&part).map_or(&[], Vec::as_slice)
    }
}

/// Iterates over the dependences of short splices on their bounces, and of bounces on the sites
/// that expose their bytes.
fn required(plan: &Plan) -> impl Iterator<Item = Dependence> {
    let short = plan
        .sites
        .iter()
        .zip(0..)
        .filter_map(|(site, number)| match site.splice {
            Splice::Short(bounce) => Some(Dependence {
                what: Part::Site(crate::placement::SiteIndex(number)),
                on: Part::Bounce(bounce),
            }),
            _ => None,
        });
    let exposed = plan
        .bounces
        .iter()
        .zip(0..)
        .filter_map(|(bounce, number)| match bounce.slot {
            Slot::Exposed(host) => Some(Dependence {
                what: Part::Bounce(crate::placement::BounceIndex(number)),
                on: Part::Site(host),
            }),
            Slot::Padding => None,
        });
    short.chain(exposed)
}

/// Returns the bytes that a part is written to.
pub(crate) fn span(plan: &Plan, part: Part) -> Option<Span> {
    match part {
        Part::Site(site) => plan
            .site(site)
            .map(|site| Span::new(site.displaced.start, site.splice.bytes())),
        Part::Bounce(bounce) => plan
            .bounce(bounce)
            .map(|bounce| Span::new(bounce.at, crate::placement::SPLICE_BYTES)),
    }
}

/// Describes a part in messages.
pub(crate) fn name(plan: &Plan, part: Part) -> String {
    let at = span(plan, part).map_or(Addr(0), |span| span.start);
    match part {
        Part::Site(site) => format!("site {} at {at}", site.0),
        Part::Bounce(bounce) => format!("bounce {} at {at}", bounce.0),
    }
}
