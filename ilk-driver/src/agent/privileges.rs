//! The agent's privileges: those needed to open the device and to read the kernel, and no others.

use std::io;

use super::{filter, kernel, sys};

/// Capabilities for opening `/dev/ilk`, once per session (`CAP_SYS_MODULE`), `/proc/kcore`
/// (`CAP_SYS_RAWIO`), addresses in `/proc/kallsyms` (`CAP_SYSLOG`), counters of the processor's
/// events (`CAP_PERFMON`), and the mappings of processes with the files there (`CAP_SYS_PTRACE`,
/// `CAP_CHECKPOINT_RESTORE`); numbers of include/uapi/linux/capability.h. None of them permits more
/// than the first.
const NEEDED: u64 = 1 << 16 | 1 << 17 | 1 << 19 | 1 << 34 | 1 << 38 | 1 << 40;

/// Drops every other capability permanently. An agent that runs no programs also gives up regaining
/// them through exec, and applies a [filter] of system calls; a workload runs with root's
/// privileges, because `--allow-run` permits that.
///
/// Must be called before any other thread is started: capabilities are per thread.
pub(super) fn drop_all_but_needed(allow_run: bool) -> io::Result<()> {
    // The only step that needs another capability.
    kernel::open_debugfs();
    let have = permitted()?;
    if !allow_run {
        for capability in (0..64).filter(|bit| have & !NEEDED & (1 << bit) != 0) {
            sys::control(libc::PR_CAPBSET_DROP, capability)?;
        }
        sys::control(libc::PR_SET_NO_NEW_PRIVS, 1)?;
    }
    sys::set_capabilities(have & NEEDED)?;
    if allow_run {
        // A workload would inherit the filter.
        return Ok(());
    }
    filter::apply()
}

/// Returns the permitted capabilities of this thread.
fn permitted() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/thread-self/status")?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .ok_or_else(|| io::Error::other("the kernel does not report this process's capabilities"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The service of the package.
    const SERVICE: &str = include_str!("../../../xtask/package/ilk.service");

    #[test]
    fn the_service_grants_what_the_agent_keeps_and_nothing_else() {
        let number = |name: &str| match name {
            "CAP_SYS_MODULE" => 16,
            "CAP_SYS_RAWIO" => 17,
            "CAP_SYS_PTRACE" => 19,
            "CAP_SYSLOG" => 34,
            "CAP_PERFMON" => 38,
            "CAP_CHECKPOINT_RESTORE" => 40,
            _ => panic!("{name} is not a capability that the agent keeps"),
        };
        let mut bounds = SERVICE
            .lines()
            .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let names = bounds.next().expect("the service bounds capabilities");
        assert_eq!(bounds.next(), None);
        let granted = names
            .split(' ')
            .fold(0, |set: u64, name| set | 1 << number(name));
        assert_eq!(granted, NEEDED);
    }
}
