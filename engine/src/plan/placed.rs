//! The sites and bounces of a solution as tables, whose references are checked once.

use std::ops::{Index, IndexMut};

use super::error::internal;
use super::model::Part;
use crate::ids::Ids;
use crate::placement::{Bounce, BounceIndex, Reached, Site, SiteIndex, Slot};
use crate::{Refusal, Result};

/// Sites and bounces. Every index in them, and in the points that were checked with them, is in its table.
pub(super) struct PlacedParts {
    pub(super) sites: Ids<SiteIndex, Site>,
    pub(super) bounces: Ids<BounceIndex, Bounce>,
}

impl PlacedParts {
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if a splice, a bounce or a hook names a site or bounce that the
    /// solution lacks.
    pub(super) fn new(
        sites: Vec<Site>,
        bounces: Vec<Bounce>,
        hooks: &[std::result::Result<Reached, Refusal>],
    ) -> Result<Self> {
        let placed = Self {
            sites: sites.into(),
            bounces: bounces.into(),
        };
        let site = |index: SiteIndex| match placed.sites.find(index) {
            Some(_) => Ok(()),
            None => Err(internal("a point or bounce names no site of the solution")),
        };
        for splice in placed.sites.values().iter().map(|site| site.splice) {
            if let Some(bounce) = splice.bounce()
                && placed.bounces.find(bounce).is_none()
            {
                return Err(internal("a short splice names no bounce of the solution"));
            }
        }
        for bounce in placed.bounces.values() {
            site(bounce.site)?;
            if let Slot::Exposed(host) = bounce.slot {
                site(host)?;
            }
        }
        for reached in hooks.iter().flatten() {
            let points = reached.points.iter().map(|&(site, _)| site);
            points
                .chain(reached.needs.iter().copied())
                .try_for_each(site)?;
        }
        Ok(placed)
    }

    /// The site that exposes the bounce of a short splice, if it has one.
    pub(super) fn host(&self, site: SiteIndex) -> Option<SiteIndex> {
        let bounce = self.sites[site].splice.bounce()?;
        match self.bounces[bounce].slot {
            Slot::Exposed(host) => Some(host),
            Slot::Padding => None,
        }
    }

    /// All parts: sites, then bounces, each by address.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let bounces = self.bounces.keys().map(Part::Bounce);
        self.sites.keys().map(Part::Site).chain(bounces)
    }
}

/// A value for each site and each bounce.
pub(super) struct PerPart<T> {
    sites: Ids<SiteIndex, T>,
    bounces: Ids<BounceIndex, T>,
}

impl<T: Clone> PerPart<T> {
    /// One clone of `value` for each part.
    pub(super) fn new(placed: &PlacedParts, value: T) -> Self {
        Self {
            sites: Ids::like(&placed.sites, value.clone()),
            bounces: Ids::like(&placed.bounces, value),
        }
    }
}

impl<T> Index<Part> for PerPart<T> {
    type Output = T;

    fn index(&self, part: Part) -> &T {
        match part {
            Part::Site(site) => &self.sites[site],
            Part::Bounce(bounce) => &self.bounces[bounce],
        }
    }
}

impl<T> IndexMut<Part> for PerPart<T> {
    fn index_mut(&mut self, part: Part) -> &mut T {
        match part {
            Part::Site(site) => &mut self.sites[site],
            Part::Bounce(bounce) => &mut self.bounces[bounce],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Point, Splice, Tactic};
    use crate::{Addr, Error, Few, Span};

    fn site(splice: Splice) -> Site {
        Site {
            splice,
            displaced: Span::new(Addr(0x1000), 5),
            overwritten: 1,
            filled: 0,
            continuations: Box::default(),
        }
    }

    fn bounce(slot: Slot, site: u32) -> Bounce {
        Bounce {
            at: Addr(0x1010),
            slot,
            site: SiteIndex(site),
        }
    }

    fn reached(point: u32, need: u32) -> std::result::Result<Reached, Refusal> {
        Ok(Reached {
            tactic: Tactic::DirectSplice,
            points: Few::from(vec![(SiteIndex(point), Point::Entry)]),
            needs: Few::from(vec![SiteIndex(need)]),
        })
    }

    #[test]
    fn a_reference_to_nothing_is_an_internal_error() {
        let short = || site(Splice::Short(BounceIndex(0)));
        let good = PlacedParts::new(
            vec![short()],
            vec![bounce(Slot::Exposed(SiteIndex(0)), 0)],
            &[reached(0, 0)],
        );
        assert!(good.is_ok());
        let bad = [
            PlacedParts::new(vec![short()], Vec::new(), &[]),
            PlacedParts::new(vec![short()], vec![bounce(Slot::Padding, 1)], &[]),
            PlacedParts::new(
                vec![short()],
                vec![bounce(Slot::Exposed(SiteIndex(1)), 0)],
                &[],
            ),
            PlacedParts::new(vec![site(Splice::Jump)], Vec::new(), &[reached(1, 0)]),
            PlacedParts::new(vec![site(Splice::Jump)], Vec::new(), &[reached(0, 1)]),
        ];
        for bad in bad {
            assert!(matches!(bad.err(), Some(Error::Internal { .. })));
        }
    }
}
