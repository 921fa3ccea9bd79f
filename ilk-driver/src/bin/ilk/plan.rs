//! `ilk plan`: the writes of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use gilk_engine::code::Origin;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::{LeftOut, Watch};
use gilk_engine::verify::verify_watched;
use gilk_engine::{Image, Plan, Refusal, Rule, Session, VerifiedPlan, plan};
use gilk_instruments::{Definition, Library};
use gilk_samples::input;
use ilk_driver::note;
use ilk_driver::{interrupt, memory};

use crate::target::ImageArgs;

/// Largest object file of native instruments, in bytes.
const LARGEST_OBJECT: u64 = 64 << 20;

/// Show the writes of a session: every site, every patch, every batch.
#[derive(Args)]
pub(crate) struct PlanCommand {
    /// The session's file.
    session: PathBuf,
    #[command(flatten)]
    natives: Natives,
    #[command(flatten)]
    strict: Strict,
    #[command(flatten)]
    image: ImageArgs,
}

/// The switch for object code, which is not verified.
#[derive(Args)]
pub(crate) struct Natives {
    /// An object file with native instruments (instruments/native/gilk.h). It executes inside the kernel, or in the
    /// process, without verification: an error in it can crash the machine, or the process.
    #[arg(long = "native", value_name = "FILE.o")]
    files: Vec<PathBuf>,
}

impl Natives {
    /// Returns the object files.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the library with these instruments.
    pub(crate) fn library(&self) -> anyhow::Result<Library> {
        let mut library = Library::builtin()?;
        for file in &self.files {
            let name = file.display().to_string();
            let bytes = input::read(file, LARGEST_OBJECT)?;
            for definition in Definition::natives(&name, &bytes)? {
                library.add(definition)?;
            }
        }
        Ok(library)
    }
}

impl PlanCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let session = open(&self.session)?;
        let (image, layout) = self.image.image()?;
        let session = match (image.origin(), session.of_kernel()) {
            (_, None) => session,
            (Origin::Kernel, Some(kernel)) => {
                note!(
                    "The session is of a process and its kernel: this is the kernel's part, for all processes."
                );
                kernel
            }
            (Origin::Object, Some(_)) => {
                note!("The session is of a process and its kernel: this is the process's part.");
                session
            }
        };
        let library = self.natives.library()?;
        let Planned { plan, left_out, .. } =
            self.strict.planned(&image, &session, &library, &layout)?;
        if self.image.is_saved() {
            note!("No target is connected: the arena's address is an assumption.");
        }
        let mut out = std::io::stdout().lock();
        out.write_all(plan::report::report(&image, plan.plan()).as_bytes())?;
        out.write_all(left_out.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// Reads a session's file.
pub(crate) fn open(file: &Path) -> anyhow::Result<Session> {
    Session::from_ron(&input::text(file)?).with_context(|| file.display().to_string())
}

/// The switch for sessions that must be placed completely.
#[derive(Args, Clone, Copy)]
pub(crate) struct Strict {
    /// Refuse the whole session if a placement of it is refused, instead of leaving that out.
    #[arg(long)]
    strict: bool,
    /// Permit reads of memory and splices in assembly on a kernel that the lists of functions were not compared with.
    #[arg(long)]
    unknown_kernel: bool,
}

impl Strict {
    /// Leaves out all that a rule refuses.
    pub(crate) const LENIENT: Self = Self {
        strict: false,
        unknown_kernel: false,
    };
}

/// A verified plan of all placements that no rule refuses.
pub(crate) struct Planned {
    pub(crate) plan: VerifiedPlan,
    /// The session of the plan.
    pub(crate) session: Session,
    /// Indexes of the plan's placements in the original session.
    pub(crate) kept: Vec<usize>,
    /// A line for each rule that left placements out, with their names.
    pub(crate) left_out: String,
}

impl Strict {
    /// The switch as set.
    pub(crate) const ON: Self = Self {
        strict: true,
        unknown_kernel: false,
    };

    /// Returns whether nothing may be left out.
    pub(crate) const fn is_on(self) -> bool {
        self.strict
    }

    /// Returns whether reads of memory are permitted on a kernel that was not checked.
    pub(crate) const fn unknown_kernel(self) -> bool {
        self.unknown_kernel
    }

    /// Plans a session and verifies the plan. Placements that are refused are left out, unless that is ruled out.
    pub(crate) fn planned(
        self,
        image: &Image,
        session: &Session,
        library: &Library,
        layout: &RuntimeLayout,
    ) -> anyhow::Result<Planned> {
        let insisted =
            (self.unknown_kernel && !image.is_known()).then(|| image.clone().taken_as_known());
        let image = insisted.as_ref().unwrap_or(image);
        let mut give_back = memory::between_stages();
        let watch = &mut |stage| match interrupt::arrived() {
            true => ControlFlow::Break(()),
            false => give_back(stage),
        };
        let possible = plan::plan_possible(image, session, library, layout, watch)?;
        let left_out = left_out(session, &possible.left_out);
        if self.strict && !possible.left_out.is_empty() {
            bail!("Placements are refused:\n{}", left_out.trim_end());
        }
        if possible.session.placements.is_empty() && !session.placements.is_empty() {
            bail!("Every placement is refused:\n{}", left_out.trim_end());
        }
        let refused: BTreeSet<usize> = possible.left_out.iter().map(|one| one.placement).collect();
        let kept = (0..session.placements.len()).filter(|index| !refused.contains(index));
        Ok(Planned {
            plan: verified(image, possible.plan, watch)?,
            session: possible.session,
            kept: kept.collect(),
            left_out,
        })
    }
}

/// Names in a line of refused placements.
const NAMED: usize = 8;

/// Returns a line for each rule, with the number and the names of the functions that it refuses.
fn left_out(session: &Session, refused: &[LeftOut]) -> String {
    let functions = refused.iter().filter_map(|one| {
        let placement = session.placements.get(one.placement)?;
        let Refusal { rule, why, .. } = &one.refusal;
        let reason = match rule {
            Rule::NotReplaceable => format!("{rule} ({why})"),
            _ => rule.to_string(),
        };
        Some((reason, placement.function.to_string()))
    });
    grouped(functions, "Left out", NAMED)
}

/// Returns a line for each reason: `Left out, 12 functions: blacklisted: a, b, c and 9 others`.
pub(crate) fn grouped(
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

fn verified(image: &Image, plan: Plan, watch: &mut Watch<'_>) -> anyhow::Result<VerifiedPlan> {
    match verify_watched(image, plan, watch)? {
        Ok(verified) => Ok(verified),
        Err(violations) => {
            let list: Vec<String> = violations
                .iter()
                .map(|violation| format!("  {violation}"))
                .collect();
            bail!(
                "The plan failed its verification, which is a bug in gilk; nothing was \
                 sent:\n{}",
                list.join("\n")
            )
        }
    }
}
