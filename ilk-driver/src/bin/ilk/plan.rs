//! `ilk plan`: the writes of a session.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use gilk_engine::layout::RuntimeLayout;
use gilk_engine::verify::verify;
use gilk_engine::{Image, Session, VerifiedPlan, plan};
use gilk_instruments::{Definition, Library};
use ilk_driver::memory;

use crate::target::ImageArgs;

/// Show the writes of a session: every site, every patch, every batch.
#[derive(Args)]
pub(crate) struct PlanCommand {
    /// The session's file.
    session: PathBuf,
    #[command(flatten)]
    natives: Natives,
    #[command(flatten)]
    image: ImageArgs,
}

/// The switch for object code, which is not verified.
#[derive(Args)]
pub(crate) struct Natives {
    /// An object file with native instruments (instruments/native/gilk.h). It executes inside the
    /// kernel without verification: an error in it can crash the machine.
    #[arg(long = "native", value_name = "FILE.o")]
    files: Vec<PathBuf>,
}

impl Natives {
    /// Returns the library with these instruments.
    pub(crate) fn library(&self) -> anyhow::Result<Library> {
        let mut library = Library::builtin()?;
        for file in &self.files {
            let name = file.display().to_string();
            let bytes = std::fs::read(file).with_context(|| {
                format!("The object file {name} cannot be read; check the path")
            })?;
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
        let plan = planned(&image, &session, &self.natives.library()?, &layout)?;
        if self.image.is_saved() {
            eprintln!("No target is connected: the arena's address is an assumption.");
        }
        let mut out = std::io::stdout().lock();
        out.write_all(plan::report::report(&image, plan.plan()).as_bytes())?;
        Ok(out.flush()?)
    }
}

/// Reads a session's file.
pub(crate) fn open(file: &Path) -> anyhow::Result<Session> {
    let text = std::fs::read_to_string(file).with_context(|| {
        format!(
            "The session {} cannot be read; check the path",
            file.display()
        )
    })?;
    Session::from_ron(&text).with_context(|| file.display().to_string())
}

/// Plans a session and verifies the plan.
pub(crate) fn planned(
    image: &Image,
    session: &Session,
    library: &Library,
    layout: &RuntimeLayout,
) -> anyhow::Result<VerifiedPlan> {
    let watch = &mut memory::between_stages();
    let plan = plan::plan_watched(image, session, library, layout, watch)?;
    match verify(image, plan) {
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
