//! What the agent may do: what it needs to open the device and to read the kernel, and no more.

use std::io;

use super::{filter, kernel, sys};

/// Opening `/dev/ilk`, which is done anew for each session (`CAP_SYS_MODULE`), `/proc/kcore`
/// (`CAP_SYS_RAWIO`), addresses in `/proc/kallsyms` (`CAP_SYSLOG`), and counters of the processor's events
/// (`CAP_PERFMON`); numbers of include/uapi/linux/capability.h.
const NEEDED: u64 = 1 << 16 | 1 << 17 | 1 << 34 | 1 << 38;

/// Gives up every capability but those, for good. Where the agent runs no programs, none can be had
/// again by starting one either, and whatever it has no use for is [refused](filter); a workload is started
/// as root is, for that is what was allowed.
///
/// To be called before any other thread is started: capabilities are each thread's own.
pub(super) fn drop_all_but_needed(allow_run: bool) -> io::Result<()> {
    // The one thing that takes another capability.
    kernel::mount_debugfs();
    let have = permitted()?;
    if !allow_run {
        for capability in (0..64).filter(|bit| have & !NEEDED & (1 << bit) != 0) {
            sys::control(libc::PR_CAPBSET_DROP, capability)?;
        }
        sys::control(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    }
    sys::set_capabilities(have & NEEDED)?;
    if allow_run {
        // It would be the workload's too.
        return Ok(());
    }
    filter::apply()
}

/// The capabilities that this thread has.
fn permitted() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .ok_or_else(|| io::Error::other("the kernel does not tell this process's capabilities"))
}
