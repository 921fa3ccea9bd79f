use std::path::PathBuf;

use thiserror::Error;

/// Failures between a user and a target. Every message is one or two sentences that name the object
/// and state what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or device could not be used.
    #[error("{path}: {source}. {hint}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
        /// Advice to the user.
        hint: &'static str,
    },
    /// Bytes received over the connection are invalid in this version of the protocol.
    #[error(
        "The other end of the connection sent {what}; both ends must be the same version of ilk, \
         so rebuild the lab or install the same version on both."
    )]
    Protocol {
        /// The invalid part.
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
    /// Another client is connected to the agent.
    #[error(
        "Another program is using the target at {target} ({by}); close it, or boot a lab of your \
         own with --lab."
    )]
    Busy {
        /// The socket.
        target: String,
        /// The other client, as far as the system reports it.
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
    /// No agent listens at the socket.
    #[error(
        "No agent listens at {target} ({source}); start one with `ilk lab`, or with `sudo ilk \
         agent --socket {target}` on the machine itself."
    )]
    NoAgent {
        /// The socket.
        target: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// This user may not connect to the socket.
    #[error("You may not connect to the agent at {target}; {remedy}.")]
    Forbidden {
        /// The socket.
        target: String,
        /// Actions that permit it, as the end of the sentence.
        remedy: String,
    },
    /// The agent accepted the connection but sent no answer.
    #[error(
        "The target at {target} did not answer within {seconds} s; it may still be booting or \
         have stopped, so look at its console and reconnect."
    )]
    Silent {
        /// The socket.
        target: String,
        /// Length of the wait.
        seconds: u64,
    },
    /// The connection to the target broke.
    #[error("The target was lost {doing}: {reason}. Start it again and reconnect.")]
    Lost {
        /// The interrupted operation, as in `while reading`.
        doing: String,
        /// The symptom.
        reason: String,
    },
    /// The connection to the target broke during a recording.
    #[error(
        "The target was lost in the middle of the session ({reason}); {path} holds the {samples} \
         samples that arrived before that."
    )]
    LostRecording {
        /// The recording.
        path: PathBuf,
        /// Samples that were written before.
        samples: u64,
        /// The symptom.
        reason: String,
    },
    /// A recording belongs to no session that can be resumed.
    #[error(
        "The session of {path} cannot be resumed ({reason}): it was over, or had no grace (`collection: \
         (grace: …)`)."
    )]
    NothingToResume {
        /// The recording.
        path: PathBuf,
        /// The failed condition.
        reason: String,
    },
    /// Writing to the recording failed; the session was stopped or not begun.
    #[error("The recording could not be written, so all instruments were removed: {source}")]
    Recording {
        /// The writer's error.
        source: gilk_samples::Error,
    },
    /// A session was not started because it could not start on another of its machines.
    #[error("Nothing was started here, because another machine could not start; see its message.")]
    NotTogether,
    /// A session was stopped before it was started.
    #[error("The session was stopped before it began; nothing was written.")]
    NotBegun,
    /// The ssh tunnel to another machine could not be opened.
    #[error(
        "The machine {host} could not be reached: {reason}. Check that `ssh {host}` works without a \
         password and that `sudo ilk agent` runs there."
    )]
    Ssh {
        /// Host name as given to ssh.
        host: String,
        /// ssh's error output.
        reason: String,
    },
    /// A plan was made for another target.
    #[error(
        "The plan does not fit the target: {reason}. Plan the session again with this target's \
         image."
    )]
    Plan {
        /// The difference.
        reason: String,
    },
    /// A file holds no kernel that can be read.
    #[error("{path}: {reason}")]
    Saved {
        /// The file.
        path: PathBuf,
        /// The file's actual kind, or the damage.
        reason: String,
    },
    /// A file has no debug information of the kernel or the object that it is wanted for.
    #[error("{path} has no source lines of this build. {reason}")]
    Sources {
        /// The file.
        path: PathBuf,
        /// The file's actual kind, as whole sentences.
        reason: String,
    },
    /// The lab could not be prepared or booted.
    #[error("The lab could not {step}: {reason}")]
    Lab {
        /// The failed step: `build the module`.
        step: String,
        /// The cause and advice, as a whole sentence.
        reason: String,
    },
    /// A process cannot be instrumented.
    #[error("Process {pid} cannot be instrumented: {reason}.")]
    Process {
        /// Its number.
        pid: u32,
        /// The reason, and what to do about it.
        reason: String,
    },
    /// The processor lacks an instruction of patches.
    #[error(
        "This processor does not execute `lahf` in 64-bit mode (lahf_lm among the flags of \
         /proc/cpuinfo), which instruments save the flags with: nothing can be instrumented on it."
    )]
    Processor,
    /// From the engine.
    #[error(transparent)]
    Engine(#[from] gilk_engine::Error),
    /// From recordings.
    #[error(transparent)]
    Samples(#[from] gilk_samples::Error),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns a converter for `map_err` on an operation on the file at `path`.
    pub fn io(path: impl Into<PathBuf>, hint: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source, hint }
    }
}
