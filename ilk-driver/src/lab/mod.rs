//! The lab: a stock kernel in QEMU with the module, the agent and the workloads.
//!
//! [`prepare()`] downloads or builds the parts of a lab and caches them; [`Lab::boot`] boots it;
//! `client::Connection::connect` to [`Lab::socket`] connects to its agent. Nothing here needs root,
//! and nothing touches the host's own kernel.
//!
//! | file | task |
//! |---|---|
//! | `options`, `prepare` | the options; the parts in order |
//! | `debs`, `kernel` | the kernel with its headers and modules |
//! | `module`, `agent` | builds `ilk.ko`; builds the static `ilk` and the workloads |
//! | `drivers`, `cpio`, `initramfs`, `init.sh` | the lab's file system and its first process |
//! | `accelerator`, `trial`, `qemu`, `runtime`, `boot`, `snapshot` | KVM or emulation; the process; its files; from start to answer; a saved boot |
//! | `bochs` | a session in an emulator with indirect branch tracking |
//! | `cache`, `host`, `steps` | freshness of products; the host's tools; progress |

mod accelerator;
mod agent;
mod apt;
mod bochs;
mod boot;
mod cache;
mod cpio;
mod debs;
mod drivers;
mod host;
mod initramfs;
mod kernel;
mod module;
mod options;
mod prepare;
mod qemu;
mod runtime;
mod snapshot;
mod source;
mod steps;
mod trial;

pub use accelerator::Accelerator;
pub use bochs::{BochsSession, console_in_bochs, session_in_bochs};
pub use boot::Lab;
pub use options::Options;
pub use prepare::{Prepared, libraries, prepare};
pub use source::Source;
pub use steps::{STEPS, Step};
