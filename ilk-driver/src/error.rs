use std::path::PathBuf;

use thiserror::Error;

/// What can go wrong between a person and a target. Every message is one sentence, or two, that
/// name the thing and say what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or device could not be used.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do next.
        hint: &'static str,
    },
    /// What came over the wire is not what this version says.
    #[error(
        "The other end of the connection sent {what}; both ends must be the same version of ilk, \
         so rebuild the lab or install the same version on both."
    )]
    Protocol {
        /// What was wrong with it.
        what: String,
    },
    /// The two ends are of different versions.
    #[error(
        "The agent speaks version {agent} of the protocol and this program version {own}; \
         rebuild the lab, or install the same version of ilk on both machines."
    )]
    Version {
        /// The agent's version.
        agent: u32,
        /// This program's version.
        own: u32,
    },
    /// Somebody else is connected to the agent.
    #[error(
        "Another program is using the target at {target} ({by}); close it, or boot a lab of your \
         own with --lab."
    )]
    Busy {
        /// The socket.
        target: String,
        /// Who, as far as is known.
        by: String,
    },
    /// The agent answered with a refusal.
    #[error("{0}")]
    Refused(crate::protocol::Refusal),
    /// The module is not there or could not be opened.
    #[error("{0}")]
    Module(String),
    /// The kernel or the machine is not one the agent can serve.
    #[error("{0}")]
    Target(String),
    /// Nothing listens at the socket.
    #[cfg(feature = "client")]
    #[error(
        "No agent listens at {target} ({source}); start one with `ilk lab`, or with `sudo ilk \
         agent --socket {target}` on the machine itself."
    )]
    NoAgent {
        /// The socket.
        target: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The agent accepted the connection and then said nothing.
    #[cfg(feature = "client")]
    #[error(
        "The target at {target} did not answer within {seconds} s; it may still be booting or \
         have stopped, so look at its console and connect again."
    )]
    Silent {
        /// The socket.
        target: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The target went away.
    #[cfg(feature = "client")]
    #[error("The target was lost {doing}: {reason}. Start it again and connect again.")]
    Lost {
        /// What was being done.
        doing: String,
        /// How it showed.
        reason: String,
    },
    /// The target went away in the middle of a recording.
    #[cfg(feature = "client")]
    #[error(
        "The target was lost in the middle of the session ({reason}); {path} holds the {samples} \
         samples that arrived before that."
    )]
    LostRecording {
        /// The recording.
        path: PathBuf,
        /// Samples in it.
        samples: u64,
        /// How it showed.
        reason: String,
    },
    /// A recording is not one of a session that may go on.
    #[cfg(feature = "client")]
    #[error(
        "The session of {path} cannot be resumed ({reason}): it was over, or had no grace (`collection: \
         (grace: …)`)."
    )]
    NothingToResume {
        /// The recording.
        path: PathBuf,
        /// What was looked for.
        reason: String,
    },
    /// The recording could not be written on; the session was stopped, or not begun.
    #[cfg(feature = "client")]
    #[error("The recording could not be written, so no instrument is in place any more: {source}")]
    Recording {
        /// What the writer said.
        source: gilk_samples::Error,
    },
    /// A session was not started, because another machine of it could not.
    #[cfg(feature = "client")]
    #[error("Nothing was started here, because another machine could not start; see what it says.")]
    NotTogether,
    /// A session was stopped before it was started.
    #[cfg(feature = "client")]
    #[error("The session was stopped before it began; nothing was written.")]
    NotBegun,
    /// The way to another machine could not be made.
    #[cfg(feature = "client")]
    #[error(
        "The machine {host} could not be reached: {reason}. Check that `ssh {host}` works without a \
         password and that `sudo ilk agent` runs there."
    )]
    Ssh {
        /// As ssh knows it.
        host: String,
        /// What ssh said.
        reason: String,
    },
    /// A plan was made for another target.
    #[cfg(feature = "client")]
    #[error(
        "The plan does not fit the target: {reason}. Plan the session again with this target's \
         image."
    )]
    Plan {
        /// What differs.
        reason: String,
    },
    /// A file is not one that a kernel can be read from.
    #[cfg(feature = "client")]
    #[error("{path}: {reason}")]
    Saved {
        /// The file.
        path: PathBuf,
        /// What it is instead, or what is wrong with it.
        reason: String,
    },
    /// A file has no debug information of the kernel at hand.
    #[cfg(feature = "client")]
    #[error("{path} does not tell this kernel's source lines. {reason}")]
    Sources {
        /// The file.
        path: PathBuf,
        /// What it is instead, as whole sentences.
        reason: String,
    },
    /// The lab could not be prepared or booted.
    #[cfg(feature = "client")]
    #[error("The lab could not {step}: {reason}")]
    Lab {
        /// What it was at: `build the module`.
        step: String,
        /// Why, and what to do, as a whole sentence.
        reason: String,
    },
    /// From the engine.
    #[cfg(feature = "client")]
    #[error(transparent)]
    Engine(#[from] gilk_engine::Error),
    /// From recordings.
    #[error(transparent)]
    Samples(#[from] gilk_samples::Error),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err` on something done to the file at `path`.
    pub fn io(path: impl Into<PathBuf>, hint: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source, hint }
    }
}
