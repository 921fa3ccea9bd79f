//! Plans of all placements of a session that no rule refuses.

use std::collections::BTreeMap;

use gilk_instruments::Library;

use super::build::plan_collecting;
use super::error::internal;
use super::model::Plan;
use super::refusals::Refusals;
use super::stage::Watch;
use crate::layout::RuntimeLayout;
use crate::session::Session;
use crate::{Error, Image, Refusal, Result};

/// A plan of the placements that no rule refuses.
#[derive(Clone, Debug, PartialEq)]
pub struct Possible {
    /// The plan of [`session`](Self::session).
    pub plan: Plan,
    /// The session without the placements that are left out: placements of the plan are indexes into it.
    pub session: Session,
    /// Placements that are left out, in the order of the session.
    pub left_out: Vec<LeftOut>,
}

/// A placement that a rule refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Index in the session as it was passed.
    pub placement: usize,
    /// The rule and its reason.
    pub refusal: Refusal,
}

/// Plans a session without the placements that a rule refuses, and names these. A stage that refuses is repeated
/// without the refused placements, so a plan takes a few passes, not one for each refusal.
///
/// # Errors
/// As [`plan_watched`](super::plan_watched), but never [`Error::Refused`]: a plan may be left without any placement.
pub fn plan_possible(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
    watch: &mut Watch<'_>,
) -> Result<Possible> {
    let mut reduced = session.clone();
    // Indexes in the original session of the placements that remain.
    let mut remaining: Vec<usize> = (0..session.placements.len()).collect();
    let mut left_out = Vec::new();
    loop {
        let refusals = Refusals::default();
        let planned = plan_collecting(image, &reduced, library, layout, watch, &refusals);
        let mut refused = refusals.into_inner();
        match planned {
            Ok(plan) if refused.is_empty() => {
                left_out.sort_unstable_by_key(|one: &LeftOut| one.placement);
                return Ok(Possible {
                    plan,
                    session: reduced,
                    left_out,
                });
            }
            Ok(_) => return Err(internal("a plan was made although placements were refused")),
            Err(error) => {
                if refused.is_empty() {
                    refused = alone(&reduced, &error);
                }
                if refused.is_empty() {
                    return Err(error);
                }
            }
        }
        let mut kept = Vec::with_capacity(remaining.len() - refused.len());
        let placements = std::mem::take(&mut reduced.placements).into_iter();
        for (index, (placement, original)) in placements.zip(remaining).enumerate() {
            match refused.remove(&index) {
                Some(refusal) => left_out.push(LeftOut {
                    placement: original,
                    refusal,
                }),
                None => {
                    kept.push(original);
                    reduced.placements.push(placement);
                }
            }
        }
        remaining = kept;
    }
}

/// Returns the placements that an error refuses which was not collected: all that are equal to the one it names.
fn alone(session: &Session, error: &Error) -> BTreeMap<usize, Refusal> {
    let Error::Refused {
        instrument,
        hook,
        function,
        block,
        refusal,
    } = error
    else {
        return BTreeMap::new();
    };
    let placements = session.placements.iter().enumerate();
    let same = placements.filter(|(_, placement)| {
        (&*placement.instrument, &*placement.function) == (instrument.as_str(), function.as_str())
            && (placement.hook, placement.block) == (*hook, *block)
    });
    same.map(|(index, _)| (index, refusal.clone())).collect()
}
