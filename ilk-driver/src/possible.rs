//! Verified plans of the placements of a session that no rule refuses, and lines about the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::{LeftOut, Watch, plan_possible};
use gilk_engine::verify::verify_watched;
use gilk_engine::{Image, Refusal, Rule, Session, VerifiedPlan};
use gilk_instruments::Library;

use crate::{Error, Result};

/// Names in a line of refused placements.
const NAMED: usize = 8;

/// A verified plan of all placements that no rule refuses.
#[derive(Clone, Debug)]
pub struct PossiblePlan {
    /// Writes that are proven for the image and the layout.
    pub plan: VerifiedPlan,
    /// The session of the plan.
    pub session: Session,
    /// Indexes of the plan's placements in the original session.
    pub kept: Vec<usize>,
    /// A line for each rule that left placements out, with their names.
    pub left_out: String,
}

impl PossiblePlan {
    /// Plans a session and verifies the plan. Placements that are refused are left out, unless `is_strict`.
    ///
    /// # Errors
    /// [`Error::Engine`] as [`plan_possible`]; [`Error::Target`] if every placement is refused, or one that may not be, or if
    /// the plan fails its verification.
    pub fn of(
        (image, layout): (&Image, &RuntimeLayout),
        (session, library): (&Session, &Library),
        is_strict: bool,
        watch: &mut Watch<'_>,
    ) -> Result<Self> {
        let possible = plan_possible(image, session, library, layout, watch)?;
        let left_out = left_out(session, &possible.left_out);
        let refused = |what: &str| Err(Error::Target(format!("{what}:\n{}", left_out.trim_end())));
        if is_strict && !possible.left_out.is_empty() {
            return refused("Placements are refused");
        }
        if possible.session.placements.is_empty() && !session.placements.is_empty() {
            return refused("Every placement is refused");
        }
        let indexes: BTreeSet<usize> = possible.left_out.iter().map(|one| one.placement).collect();
        let kept = (0..session.placements.len()).filter(|index| !indexes.contains(index));
        let kept = kept.collect();
        let plan = verify_watched(image, possible.plan, watch)?.map_err(|violations| {
            let list: Vec<String> = violations
                .iter()
                .map(|violation| format!("  {violation}"))
                .collect();
            Error::Target(format!(
                "The plan failed its verification, which is a bug in gilk; nothing was \
                 sent:\n{}",
                list.join("\n")
            ))
        })?;
        Ok(Self {
            plan,
            session: possible.session,
            kept,
            left_out,
        })
    }
}

/// Returns a line for each rule, with the number and the names of the functions that it refuses.
fn left_out(session: &Session, refused: &[LeftOut]) -> String {
    let functions = refused.iter().filter_map(|one| {
        let placement = session.placements.get(one.placement)?;
        let Refusal { rule, why, .. } = &one.refusal;
        let reason = match rule {
            Rule::NotReplaceable | Rule::ProgramUnsupported | Rule::RingOwner => {
                format!("{rule} ({why})")
            }
            _ => rule.to_string(),
        };
        Some((reason, placement.function.to_string()))
    });
    grouped(functions, "Left out", NAMED)
}

/// Returns a line for each reason: `Left out, 12 functions: blacklisted: a, b, c and 9 others`.
pub fn grouped(
    reasons: impl Iterator<Item = (String, String)>,
    begin: &str,
    named: usize,
) -> String {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (reason, function) in reasons {
        groups.entry(reason).or_default().insert(function);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, functions)| std::cmp::Reverse(functions.len()));
    let mut out = String::new();
    for (reason, functions) in groups {
        let count = functions.len();
        let noun = if count == 1 { "function" } else { "functions" };
        let names: Vec<&str> = functions.iter().take(named).map(String::as_str).collect();
        let others = match count.saturating_sub(named) {
            0 => String::new(),
            1 => " and 1 other".to_owned(),
            more => format!(" and {more} others"),
        };
        // Writing to a String cannot fail.
        let _infallible = writeln!(
            out,
            "{begin}, {count} {noun}: {reason}: {}{others}",
            names.join(", ")
        );
    }
    out
}
