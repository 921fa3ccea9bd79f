//! `ilk resume`: a session whose client was killed, gone on with.

use std::path::PathBuf;

use clap::Args;
use gilk_engine::Session;
use gilk_samples::recording::Recording;
use ilk_driver::{client, interrupt};

use crate::{run, show};

/// Go on with a session whose `ilk run` has ended in the midst of it, and complete its recording. It must have a
/// grace (`collection: (grace: …)`), and that not be over yet.
#[derive(Args)]
pub(crate) struct Resume {
    /// The recording.
    recording: PathBuf,
    /// The socket of the agent, if it is not where it was.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Write a picture of the recording there.
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

impl Resume {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let said = Recording::open(&self.recording)?;
        let session = Session::from_ron(&said.metadata().session)?;
        drop(said);
        interrupt::watch();
        let resumed = run::watched(&session, &self.recording, |events, stop| {
            client::resume(&self.recording, self.socket.as_deref(), events, stop)
        })?;
        show::draw(std::slice::from_ref(&self.recording), self.png.as_deref())?;
        run::print(&resumed);
        Ok(())
    }
}
