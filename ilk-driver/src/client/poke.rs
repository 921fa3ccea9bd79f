//! Planned pokes as the module takes them.

use gilk_engine::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot, Splice};
use gilk_engine::plan::{Part, PatchIndex, PokeKind};
use gilk_engine::{Addr, Plan};

use crate::protocol::{Poke, Way};
use crate::{Error, Result};

/// How a part of the plan leads where it leads.
struct Leads {
    way: Way,
    /// Where to, if that is not the code patch.
    bounce: Option<Addr>,
    host: Option<Addr>,
}

/// A poke of the plan as a message.
///
/// # Errors
/// [`Error::Plan`] if it names what the plan does not have, or is longer than a message can tell.
pub(super) fn poke(plan: &Plan, poke: &gilk_engine::plan::Poke) -> Result<Poke> {
    let wrong = |what: &str| Error::Plan {
        reason: format!("its poke at {} {what}", poke.at),
    };
    let code = |index: PatchIndex| {
        plan.patch(index)
            .map(|patch| patch.address.0)
            .ok_or_else(|| wrong("leads to no patch"))
    };
    let leads = leads(plan, poke.part)
        .ok_or_else(|| wrong("is of a site or a bounce that the plan does not have"))?;
    let length = u8::try_from(poke.write.len())
        .ok()
        .filter(|_| poke.expect.len() == poke.write.len())
        .ok_or_else(|| wrong("writes more or fewer bytes than it expects"))?;
    // Nobody is between the instructions under a bounce, nor within one.
    let between = matches!(leads.way, Way::Jump | Way::Short);
    let patch = code(poke.patch)?;
    Ok(Poke {
        address: poke.at.0,
        detour: code(poke.detour)?,
        target: leads.bounce.map_or(patch, |bounce| bounce.0),
        host: leads.host.map_or(0, |host| host.0),
        way: leads.way,
        rank: poke.rank,
        length,
        multi: between && poke.overwritten > 1 && poke.kind != PokeKind::Retarget,
        remove: poke.kind == PokeKind::Remove,
        expect: poke.expect.padded(),
        write: poke.write.padded(),
    })
}

fn leads(plan: &Plan, part: Part) -> Option<Leads> {
    let (way, bounce, host) = match part {
        Part::Site(index) => match site(plan, index)?.splice {
            Splice::Jump => (Way::Jump, None, None),
            Splice::Short(over) => (Way::Short, Some(bounce(plan, over)?.at), None),
            Splice::Trap => (Way::Trap, None, None),
            Splice::Tracer => (Way::Tracer, None, None),
            _ => return None,
        },
        Part::Bounce(index) => match bounce(plan, index)?.slot {
            Slot::Padding => (Way::Bounce, None, None),
            Slot::Exposed(host) => (Way::Bounce, None, Some(site(plan, host)?.displaced.start)),
        },
    };
    Some(Leads { way, bounce, host })
}

fn site(plan: &Plan, index: SiteIndex) -> Option<&Site> {
    plan.sites.get(usize::try_from(index.0).ok()?)
}

fn bounce(plan: &Plan, index: BounceIndex) -> Option<&Bounce> {
    plan.bounces.get(usize::try_from(index.0).ok()?)
}
