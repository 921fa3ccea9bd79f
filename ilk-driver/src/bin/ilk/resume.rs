//! `ilk resume`: continuation of a session whose client was killed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use gilk_engine::Session;
use gilk_samples::output::Contents;
use gilk_samples::recording::Recording;
use ilk_driver::{client, interrupt};

use crate::output::Force;
use crate::{run, show};

/// Continue a session whose `ilk run` ended early, and complete its recording. The session must
/// have a grace (`collection: (grace: …)`) that is not over yet.
#[derive(Args)]
pub(crate) struct Resume {
    /// The recording of the session.
    recording: PathBuf,
    /// The socket of the agent, if it has changed.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Write a picture of the recording to this file.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
    /// Show instruments without hits, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    force: Force,
}

impl Resume {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(png) = &self.png {
            let mut goals = self.force.goals().reads(&self.recording);
            goals.goal(png, Contents::Other)?;
        }
        let recording = Recording::open(&self.recording)?;
        let session = Session::from_ron(&recording.metadata().session)?;
        drop(recording);
        interrupt::watch();
        let (resumed, status) = run::run_watched(&session, &self.recording, |events, stop| {
            client::resume(&self.recording, self.socket.as_deref(), events, stop)
        })?;
        let paths = std::slice::from_ref(&self.recording);
        let metadata = show::draw(paths, self.png.as_deref(), self.all)?;
        run::print(&resumed, &metadata, self.all)?;
        Ok(status)
    }
}
