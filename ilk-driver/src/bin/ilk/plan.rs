//! `ilk plan`: the writes of a session.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use gilk_engine::code::Origin;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::plan::Stage;
use gilk_engine::{Image, Session, plan};
use gilk_instruments::{Definition, Library};
use gilk_samples::input;
use ilk_driver::note;
use ilk_driver::possible::PossiblePlan;
use ilk_driver::process::{Reserved, Subject};
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
        let PossiblePlan { plan, left_out, .. } =
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

/// Refuses a session of a process that runs a program, as a kernel's agent does during a session.
pub(crate) fn without_program(session: &Session, file: &Path) -> anyhow::Result<()> {
    if let Some(workload) = &session.workload {
        bail!(
            "{} runs {} during the session, which is for a kernel: take it out of the session, or start it with `ilk run \
             SESSION -- {}`, which measures the program itself.",
            file.display(),
            workload.program,
            workload.program,
        );
    }
    Ok(())
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
    ) -> ilk_driver::Result<PossiblePlan> {
        let insisted =
            (self.unknown_kernel && !image.is_known()).then(|| image.clone().taken_as_known());
        let image = insisted.as_ref().unwrap_or(image);
        PossiblePlan::of(
            (image, layout),
            (session, library),
            self.strict,
            &mut watch(),
        )
    }

    /// The same for objects of a process, with as many words as the plan needs.
    pub(crate) fn planned_in(
        self,
        subject: &Subject,
        work: (&Session, &Library),
    ) -> ilk_driver::Result<(Reserved, PossiblePlan)> {
        subject.planned(work, self.strict, &mut watch())
    }
}

/// Ends a plan at Ctrl-C, and gives memory back between its stages.
fn watch() -> impl FnMut(Stage) -> ControlFlow<()> {
    let mut give_back = memory::between_stages();
    move |stage| match interrupt::arrived() {
        true => ControlFlow::Break(()),
        false => give_back(stage),
    }
}
