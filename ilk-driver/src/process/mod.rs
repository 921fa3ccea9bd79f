//! Processes as targets: what a process has mapped, plans for one of its objects, and the agent that writes them.
//!
//! Nothing is loaded into the process but arenas of patches near the objects, a file of counters and rings in its
//! lower 2 GiB, and object files whose functions replace others ([`replaced`]), and nothing is attached to it between two changes: counters are incremented, and samples delivered, by
//! restartable sequences (`engine::layout::Sequences`), which threads need not be followed for. All threads are stopped for a change of the
//! text ([`stopped`]), and none executes, or will return to, bytes that change.
//!
//! [`Subject::read`] reads objects as a process has them, and [`Subject::reserve`] finds addresses for patches and
//! words. The [image](Subject::image) and the [layout](Reserved::layout) are planned for and verified as those of a
//! kernel are; [`Attached::attach`] takes nothing but the verified plan.

mod announced;
mod attached;
mod cached;
mod called;
mod child;
mod children;
mod choices;
mod clone;
mod code_lines;
mod ended;
mod every;
mod every_target;
mod executing;
mod executions;
mod followed;
mod followed_recording;
mod forks;
mod frame;
mod generated;
mod guarded;
mod guards;
mod instrumented;
mod launched;
mod library;
mod lines;
mod linker;
mod listed;
mod listener;
mod loads;
mod mapped;
pub(crate) mod maps;
mod monotonic;
pub(crate) mod names;
mod objects;
mod opened;
mod pages;
mod parts;
mod places;
mod planning;
mod ptrace;
mod record;
mod recorder;
mod registered;
mod remote;
mod removal;
mod replaced;
mod reserved;
mod ring_words;
mod rings;
mod runs;
mod same_clock;
mod shared;
mod shared_ring;
mod stacks;
mod stopped;
mod subject;
mod supervisor;
mod target;
mod types;
mod waits;
mod watch;
mod words;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use gilk_engine::Addr;

pub use announced::Announced;
pub use attached::{Attached, Removed};
pub use cached::CachedRun;
pub use called::CalledFunctions;
pub use children::{Children, with_children};
pub use choices::{CachedChildren, CachedWork, ProcessChoices};
pub use clone::{
    AccessOptions, AgentProcess, CHILD_LEFT, CacheInstrumentation, CachePlanner, CacheRecording,
    CloneEnd, CloneInstruments, CloneNews, CloneOptions, CloneReport, CloneThreads, DynamicBlock,
    LaterInstruments, LiveDescription, LiveInstruments, OUTSIDE, ReadImages, blocks_path,
    check_condition, execute_in_cache, live_pause, ready, recorded_so_far, replace_live,
};
pub use every::{EveryEnd, EveryNews, in_every};
pub use every_target::EveryTarget;
pub use executing::ProgramFile;
pub use executions::{Exec, LOOK, PATIENCE, executions, process_label, write_beside};
pub use followed::{FollowedEnd, FollowedLoads, FollowedProcess, LaterPlanner, LoadNews};
pub use forks::{ForkWatch, ForkedChildren};
pub use instrumented::Instrumented;
pub use launched::{HeldProcess, StartedProgram, StoppedProgram};
pub use lines::ObjectLines;
pub use listed::ListedProcess;
pub use names::ProcessNames;
pub use names::hint_of_libraries;
pub use objects::{Object, ObjectChoice, objects, program_of};
pub use parts::{LaterPlan, LoadedPart};
pub use planning::Scope;
pub use record::Client;
pub use recorder::Recorder;
pub use removal::{Cleaned, clean_leftovers};
pub use replaced::replacements;
pub use reserved::Reserved;
pub use rings::{Drained, SampleRings};
pub use runs::ProcessRun;
pub use same_clock::check_same_clock;
pub use subject::Subject;
pub use supervisor::{Supervisor, supervise};
pub use target::{ProcessLayouts, ProcessTarget};
pub use watch::EarlyWatch;

use crate::protocol::Started;
use crate::{Error, Result};

/// Reads the clock of this machine, for recordings.
#[must_use]
pub fn clock() -> Started {
    crate::agent::started()
}

/// Begins to measure the rate of the time-stamp counter, which [`clock`] waits for: a tenth of a second from the first call
/// of either. A program calls it at its start, so that no process is stopped meanwhile.
pub fn begin_calibration() {
    crate::agent::begin_calibration();
}

/// Reads the time-stamp counter.
#[must_use]
pub fn tsc() -> u64 {
    crate::processor::tsc()
}

/// Builds the error of a process that cannot be instrumented.
fn refused(pid: u32, reason: impl Into<String>) -> Error {
    Error::Process {
        pid,
        reason: reason.into(),
    }
}

/// Writes to the memory of a process, whatever its protection.
fn write_memory(pid: u32, memory: &File, bytes: &[u8], at: Addr) -> Result<()> {
    let written = memory.write_all_at(bytes, at.0);
    written.map_err(|error| refused(pid, format!("its memory cannot be written ({error})")))
}

/// The path of a file of a process in `/proc`.
fn proc(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// Returns the root folder of a process, as this process sees it; its own of one that has ended, or is another user's.
fn root_of(pid: u32) -> PathBuf {
    let root = proc(pid, "root");
    match root.exists() {
        true => root,
        false => PathBuf::from("/"),
    }
}

/// Returns the numbers of a field of a status file in `/proc`.
fn numbers(status: &str, field: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let numbers = line.split_whitespace().map(str::parse);
    numbers.collect::<std::result::Result<_, _>>().ok()
}

/// Returns the number of a process or thread in its own namespace, by its status.
fn inner_number(status: &str) -> Option<u32> {
    numbers(status, "NSpid:")?.pop()
}

/// Reads a text file of a process in `/proc`.
fn text(pid: u32, name: &str) -> Result<String> {
    std::fs::read_to_string(proc(pid, name)).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => refused(pid, "there is no such process"),
        std::io::ErrorKind::PermissionDenied => refused(
            pid,
            "it belongs to another user, or it is not dumpable; use root's rights",
        ),
        _ => refused(pid, format!("/proc/{pid}/{name} cannot be read ({error})")),
    })
}
