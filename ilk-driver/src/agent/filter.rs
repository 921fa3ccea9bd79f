//! The seccomp filter of the agent. It permits reading and writing open files, opening existing
//! ones for reading, requests to the module, memory and threads; not running programs, creating files,
//! writing code, or reaching another machine. Every other system call fails with EPERM, permanently and
//! for every thread (`Documentation/userspace-api/seccomp_filter.rst`).
//!
//! Only the module's device may be opened for writing: the filter compares the address of the path, which is in memory
//! that the agent does not change. What else the agent writes to, its port and memory shared with its host, is open
//! before. No request names a file, so what is opened for reading is files of `/proc` and `/sys` that the agent names.
//!
//! It limits accidents. It is no boundary against code that has taken the agent over: that may open the module's
//! device, which writes kernel text, so rules for files (Landlock) would add nothing. The boundary is in front of it:
//! no request carries bytes to write.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::abi;
use super::device;

/// System calls allowed with any arguments.
const ALLOWED: &[i64] = &[
    // Open and existing files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_getdents64,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    // Clients.
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    // Memory and threads.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_prlimit64,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_tgkill,
    // Counters of the processor's events.
    libc::SYS_perf_event_open,
    // Time and identity.
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// Filters the system calls of this thread and of those it starts later.
pub(super) fn apply() -> io::Result<()> {
    // The flags of clone3 are in memory, which a filter cannot read; after ENOSYS the C library
    // uses clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, vec![])]);
    let no_such = SeccompAction::Errno(libc::ENOSYS as u32);
    load(clone3, SeccompAction::Allow, no_such)?;

    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let no_code = |prot| only(prot, libc::PROT_EXEC as u64, 0);
    let name = only(0, u64::from(u32::MAX), libc::PR_SET_NAME as u64)?;
    rules.extend([
        (libc::SYS_mmap, vec![no_code(2)?]),
        (libc::SYS_mprotect, vec![no_code(2)?]),
        (
            libc::SYS_clone,
            vec![only(
                0,
                libc::CLONE_THREAD as u64,
                libc::CLONE_THREAD as u64,
            )?],
        ),
        (
            libc::SYS_openat,
            vec![
                only(2, (libc::O_ACCMODE | CHANGES) as u64, libc::O_RDONLY as u64)?,
                device_only()?,
            ],
        ),
        (
            libc::SYS_ioctl,
            vec![
                only(1, 0xff00, u64::from(abi::IOC_TYPE) << 8)?,
                only(1, u64::from(u32::MAX), libc::FIONBIO)?,
            ],
        ),
        (libc::SYS_prctl, vec![name]),
    ]);
    load(
        rules,
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
    )
}

/// Flags by which open(2) changes files.
const CHANGES: i32 = libc::O_CREAT | libc::O_TRUNC;

/// Returns a rule that a file is opened by the path of the module's device, whether for writing or not.
fn device_only() -> io::Result<SeccompRule> {
    let path = device::PATH.as_ptr().addr() as u64;
    let (equal, qword) = (SeccompCmpOp::Eq, SeccompCmpArgLen::Qword);
    let masked = SeccompCmpOp::MaskedEq(CHANGES as u64);
    let conditions = [
        SeccompCondition::new(1, qword, equal, path),
        SeccompCondition::new(2, SeccompCmpArgLen::Dword, masked, 0),
    ];
    let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
    conditions
        .and_then(SeccompRule::new)
        .map_err(io::Error::other)
}

/// Returns a rule that the masked bits of an argument equal `bits`.
fn only(argument: u8, mask: u64, bits: u64) -> io::Result<SeccompRule> {
    let equal = SeccompCmpOp::MaskedEq(mask);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, equal, bits)
        .and_then(|condition| SeccompRule::new(vec![condition]))
        .map_err(io::Error::other)
}

fn load(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matching: SeccompAction,
) -> io::Result<()> {
    let filter = SeccompFilter::new(rules, otherwise, matching, TargetArch::x86_64);
    let program = filter.and_then(BpfProgram::try_from);
    apply_filter(&program.map_err(io::Error::other)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::agent::sys;

    #[test]
    fn unneeded_calls_are_refused_and_needed_ones_still_work() {
        let folder = tempfile::tempdir().unwrap();
        let existing = folder.path().join("existing");
        std::fs::write(&existing, "text").unwrap();
        // A filter is permanent, so it is applied to a thread that ends.
        let filtered = std::thread::spawn(move || {
            sys::control(libc::PR_SET_NO_NEW_PRIVS, 1).unwrap();
            apply().unwrap();
            let refused = |error: io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
            refused(Command::new("/bin/true").status().unwrap_err());
            refused(File::create("/tmp/made-by-an-agent").unwrap_err());
            // Files that exist, and that this process may otherwise write to.
            for path in [PathBuf::from("/dev/null"), existing] {
                refused(File::options().write(true).open(&path).unwrap_err());
                refused(
                    File::options()
                        .read(true)
                        .append(true)
                        .open(&path)
                        .unwrap_err(),
                );
                File::open(&path).unwrap();
            }
            // The device's path is compared by its address, so the same words elsewhere are not it.
            let device = device::PATH.to_str().unwrap();
            refused(File::options().write(true).open(device).unwrap_err());
            if let Err(error) = sys::open_to_change(device::PATH) {
                assert_ne!(error.raw_os_error(), Some(libc::EPERM), "{error}");
            }
            refused(
                std::net::TcpListener::bind("127.0.0.1:0")
                    .map(drop)
                    .unwrap_err(),
            );
            refused(std::fs::remove_file("/nothing").unwrap_err());
            refused(sys::detached(c"proc").unwrap_err());
            refused(sys::set_capabilities(0).unwrap_err());
            refused(sys::control(libc::PR_SET_DUMPABLE, 1).unwrap_err());
            let mut terminal = 0_u64;
            // SAFETY: the kernel writes at most an int, which fits.
            #[allow(unsafe_code, reason = "ioctl(2)")]
            let result = unsafe { libc::ioctl(0, libc::FIONREAD, &raw mut terminal) };
            assert_eq!(
                (result, io::Error::last_os_error().raw_os_error()),
                (-1, Some(libc::EPERM))
            );

            assert!(!std::fs::read("/proc/self/status").unwrap().is_empty());
            let named = std::thread::Builder::new().name(String::from("another"));
            let started = named.spawn(|| vec![1_u8; 1 << 24].len()).unwrap();
            assert_eq!(started.join().unwrap(), 1 << 24);
        });
        filtered.join().unwrap();
    }
}
