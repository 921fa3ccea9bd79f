//! The state of a run in a process and its kernel, and its recording.

use std::path::{Path, PathBuf};

use gilk_samples::beside::Beside;
use gilk_samples::recording::{self, Recording};
use ilk_driver::client::Summary;

use crate::Error;
use crate::document::EditedSession;
use crate::run::SharedStatus;

/// A session that runs in a process and its kernel.
#[derive(Debug)]
pub(crate) struct PairRun {
    /// The kernel and the process.
    pub(super) sides: [PairMember; 2],
    /// The folder of their recordings, until they are one.
    pub(super) parts: PathBuf,
    /// The recording of both.
    pub(super) recording: PathBuf,
    pub(super) session: EditedSession,
}

#[derive(Debug)]
pub(super) struct PairMember {
    /// The number of its thread.
    pub(super) number: u64,
    /// Its name in labels.
    pub(super) name: String,
    /// The file of its recording.
    pub(super) recording: PathBuf,
    pub(super) status: SharedStatus,
    pub(super) ended: Option<Result<Box<Summary>, String>>,
}

/// Writes the recordings of both sides as one, and removes them.
pub(super) fn merge(pair: &PairRun) -> Result<recording::Summary, Error> {
    let mut recordings = Vec::new();
    for side in &pair.sides {
        recordings.push((side.name.clone(), Recording::open(&side.recording)?));
    }
    let session = pair.session.to_session().to_ron()?;
    let written = Beside::new(recordings)?
        .of_session(session)
        .write(&pair.recording)?;
    remove(&pair.parts)?;
    Ok(written)
}

/// Removes the folder of a run of which nothing was recorded; returns the error if it stays.
pub(super) fn remove_empty(folder: &Path) -> Option<std::io::Error> {
    let error = std::fs::remove_dir(folder).err()?;
    (error.kind() != std::io::ErrorKind::NotFound).then_some(error)
}

fn remove(folder: &Path) -> Result<(), Error> {
    std::fs::remove_dir_all(folder).map_err(|source| Error::Io {
        path: folder.to_path_buf(),
        source,
        hint: "The recording of both sides is whole; remove this folder.",
    })
}
