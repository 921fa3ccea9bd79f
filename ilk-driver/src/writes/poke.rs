//! Conversion of planned pokes to the module's form.

use gilk_engine::placement::{Bounce, BounceIndex, Site, SiteIndex, Slot, Splice};
use gilk_engine::plan::{Part, PatchIndex, Quiesce};
use gilk_engine::{Addr, Plan};

use super::model::{Poke, SpliceKind, Wait};
use crate::{Error, Result};

/// The branch of a planned splice or bounce.
struct Branch {
    kind: SpliceKind,
    /// Its target, if that is not the patch.
    bounce: Option<Addr>,
    host: Option<Addr>,
    /// As [`Site::filled`]; 0 for a bounce.
    filled: u64,
}

/// Converts a poke of the plan.
///
/// # Errors
/// [`Error::Plan`] if it refers to parts that the plan lacks, or is too long.
pub(super) fn poke(plan: &Plan, poke: &gilk_engine::plan::Poke) -> Result<Poke> {
    let wrong = |what: &str| Error::Plan {
        reason: format!("its poke at {} {what}", poke.at),
    };
    let code = |index: PatchIndex| {
        plan.patch(index)
            .map(|patch| patch.address.0)
            .ok_or_else(|| wrong("branches to no patch"))
    };
    let branch = branch(plan, poke.part)
        .ok_or_else(|| wrong("belongs to a site or a bounce that the plan does not have"))?;
    let length = u8::try_from(poke.write.len())
        .ok()
        .filter(|_| poke.expect.len() == poke.write.len())
        .ok_or_else(|| wrong("writes more or fewer bytes than it expects"))?;
    let patch = code(poke.patch)?;
    Ok(Poke {
        address: poke.at.0,
        detour: code(poke.detour)?,
        target: branch.bounce.map_or(patch, |bounce| bounce.0),
        host: branch.host.map_or(0, |host| host.0),
        filled: branch.filled,
        kind: branch.kind,
        rank: poke.rank,
        length,
        wait: wait(poke.quiesce(), branch.kind),
        expect: poke.expect.padded(),
        write: poke.write.padded(),
    })
}

/// Maps the quiescence that a plan demands to the module's wait. Another kind of target would map it otherwise: a
/// process could be stopped.
pub(super) const fn wait(quiesce: Quiesce, kind: SpliceKind) -> Wait {
    match (quiesce, kind) {
        (Quiesce::None, _) => Wait::None,
        (Quiesce::Between, SpliceKind::Jump | SpliceKind::Short) => Wait::BeforeInstall,
        // A trap is an int3 itself, after which the module always waits; the tracer's site is not written; a call is
        // one instruction; and no thread executes the bytes of a bounce.
        (
            Quiesce::Between,
            SpliceKind::Trap | SpliceKind::Tracer | SpliceKind::Call | SpliceKind::Bounce,
        ) => Wait::None,
        (Quiesce::Inside, _) => Wait::AfterRemoval,
    }
}

fn branch(plan: &Plan, part: Part) -> Option<Branch> {
    let mut filled = 0;
    let (kind, bounce, host) = match part {
        Part::Site(index) => {
            let site = site(plan, index)?;
            filled = site.filled;
            match site.splice {
                Splice::Jump => (SpliceKind::Jump, None, None),
                Splice::Short(over) => (SpliceKind::Short, Some(bounce(plan, over)?.at), None),
                Splice::Trap => (SpliceKind::Trap, None, None),
                Splice::Tracer => (SpliceKind::Tracer, None, None),
                Splice::Call => (SpliceKind::Call, None, None),
                _ => return None,
            }
        }
        Part::Bounce(index) => match bounce(plan, index)?.slot {
            Slot::Padding => (SpliceKind::Bounce, None, None),
            Slot::Exposed(host) => {
                let host = site(plan, host)?.displaced.start;
                (SpliceKind::Bounce, None, Some(host))
            }
        },
    };
    Some(Branch {
        kind,
        bounce,
        host,
        filled,
    })
}

fn site(plan: &Plan, index: SiteIndex) -> Option<&Site> {
    plan.sites.get(usize::try_from(index.0).ok()?)
}

fn bounce(plan: &Plan, index: BounceIndex) -> Option<&Bounce> {
    plan.bounces.get(usize::try_from(index.0).ok()?)
}
