//! System calls that the standard library lacks.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use crate::mapping::{Mapping, MappingAccess};

/// Poll event: bytes to read.
pub(super) const READABLE: i16 = libc::POLLIN;
/// Poll event: space to write.
pub(super) const WRITABLE: i16 = libc::POLLOUT;

/// Waits until `file` is ready for one of `events`, is hung up or broken, or `wait` is over.
pub(super) fn poll(file: BorrowedFd<'_>, events: i16, wait: Duration) -> io::Result<i16> {
    let mut entry = libc::pollfd {
        fd: file.as_raw_fd(),
        events,
        revents: 0,
    };
    let milliseconds = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `entry` is one pollfd, and lives until the call returns.
    #[allow(unsafe_code, reason = "poll(2)")]
    let ready = unsafe { libc::poll(&raw mut entry, 1, milliseconds) };
    match ready {
        0.. => Ok(entry.revents),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// Waits for the next change of a device that is readable all the time while its other end is disconnected, by
/// edge-triggered epoll(7). A thread that slept between polls would be counted by sessions on the calls of sleeping.
pub(super) struct Changes(OwnedFd);

impl Changes {
    /// Begins to watch a device.
    pub(super) fn of(device: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: the call takes no pointer, and a result that is no error is a new descriptor.
        #[allow(unsafe_code, reason = "epoll_create1(2)")]
        let changes = unsafe {
            match libc::epoll_create1(libc::EPOLL_CLOEXEC) {
                new @ 0.. => Self(OwnedFd::from_raw_fd(new)),
                _ => return Err(io::Error::last_os_error()),
            }
        };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET).cast_unsigned(),
            u64: 0,
        };
        let (set, device) = (changes.0.as_raw_fd(), device.as_raw_fd());
        // SAFETY: `event` lives until the call returns.
        #[allow(unsafe_code, reason = "epoll_ctl(2)")]
        let result = unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, device, &raw mut event) };
        match result {
            0 => Ok(changes),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Waits for a change since the last return; the first call returns at once.
    pub(super) fn wait(&self) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` is one event, and lives until the call returns.
        #[allow(unsafe_code, reason = "epoll_wait(2)")]
        let ready = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, -1) };
        match ready {
            0.. => Ok(()),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                error => Err(error),
            },
        }
    }
}

/// Returns the time since the machine started, that of its sleep included.
pub(super) fn boot_time() -> Duration {
    time_of(libc::CLOCK_BOOTTIME)
}

/// Returns the time of a clock of the kernel's that every Linux has.
pub(super) fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is one timespec, which the call writes.
    #[allow(unsafe_code, reason = "clock_gettime(2)")]
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "every Linux since 2.6.39 has this clock");
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) user: u32,
    pub(super) process: u32,
}

/// Returns the user and process at the other end of a unix socket at connection time, and the
/// process's own group (`SO_PEERCRED`).
pub(super) fn peer(stream: &UnixStream) -> io::Result<(Peer, u32)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is valid for writes of `length` bytes, and both live until the call returns.
    #[allow(unsafe_code, reason = "getsockopt(2)")]
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        let own = Peer {
            user: peer.uid,
            process: peer.pid.cast_unsigned(),
        };
        Ok((own, peer.gid))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Returns the supplementary groups of the process at the other end of a unix socket at connection
/// time (`SO_PEERGROUPS`).
pub(super) fn peer_groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    /// Limit of groups of a process (`NGROUPS_MAX` of include/uapi/linux/limits.h).
    const MOST: usize = 65_536;
    let mut groups = vec![0_u32; MOST];
    let mut length = (MOST * size_of::<u32>()) as libc::socklen_t;
    // SAFETY: `groups` is valid for writes of `length` bytes, and both live until the call returns.
    #[allow(unsafe_code, reason = "getsockopt(2)")]
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        groups.truncate(length as usize / size_of::<u32>());
        Ok(groups)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Takes descriptor 3, the first that a service manager passes (`SD_LISTEN_FDS_START`), as a unix socket
/// that listens for streams. It is closed in programs that this process starts.
pub(super) fn passed_listener() -> io::Result<UnixListener> {
    const FIRST: i32 = 3;
    let option = |name| {
        let mut value: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `value` is valid for writes of `length` bytes, and both live until the call returns.
        #[allow(unsafe_code, reason = "getsockopt(2)")]
        let result = unsafe {
            libc::getsockopt(
                FIRST,
                libc::SOL_SOCKET,
                name,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        if result == 0 {
            Ok(value)
        } else {
            Err(io::Error::last_os_error())
        }
    };
    let listens = option(libc::SO_DOMAIN)? == libc::AF_UNIX
        && option(libc::SO_TYPE)? == libc::SOCK_STREAM
        && option(libc::SO_ACCEPTCONN)? == 1;
    if !listens {
        return Err(io::Error::other(
            "the socket that was passed is no unix socket that listens for streams",
        ));
    }
    // SAFETY: fcntl(2) with F_SETFD takes a number.
    #[allow(unsafe_code, reason = "fcntl(2)")]
    let result = unsafe { libc::fcntl(FIRST, libc::F_SETFD, libc::FD_CLOEXEC) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the service manager has passed the descriptor to this process, which opens none by
    // number and takes it once.
    #[allow(unsafe_code, reason = "a descriptor becomes a listener")]
    Ok(unsafe { UnixListener::from_raw_fd(FIRST) })
}

/// Returns the effective user of this process.
pub(super) fn own_user() -> u32 {
    // SAFETY: geteuid(2) takes nothing and never fails.
    #[allow(unsafe_code, reason = "geteuid(2)")]
    unsafe {
        libc::geteuid()
    }
}

/// Limits the capabilities of this thread, and of those it starts later, to `keep`; clears the
/// inheritable set.
pub(super) fn set_capabilities(keep: u64) -> io::Result<()> {
    // struct __user_cap_header_struct and __user_cap_data_struct of include/uapi/linux/capability.h
    let header: [u32; 2] = [0x2008_0522, 0];
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let data: [u32; 6] = [low, low, 0, high, high, 0];
    // SAFETY: version 3 of capset(2) reads a header of two words and two entries of three words.
    #[allow(unsafe_code, reason = "capset(2)")]
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Calls prctl(2) with a request that takes a number or nothing.
pub(super) fn control(request: i32, number: u64) -> io::Result<()> {
    // SAFETY: all callers pass requests that take numbers only.
    #[allow(unsafe_code, reason = "prctl(2)")]
    let result = unsafe { libc::prctl(request, number, 0_u64, 0_u64, 0_u64) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The counter of an event on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PerfCounter {
    /// Operand of `rdpmc` plus 1; 0 if `rdpmc` cannot read it.
    pub(super) index: u32,
    /// Number of its bits.
    pub(super) width: u16,
}
/// Makes a CPU count an event of its processor (by its number in `enum perf_hw_id`) while the
/// kernel executes, in a counter that perf does not multiplex.
pub(super) fn open_event(event: u8, cpu: u32) -> io::Result<File> {
    /// `PERF_ATTR_SIZE_VER0`
    const SIZE: u32 = 64;
    /// `pinned`, `exclude_user`, `exclude_hv`
    const FLAGS: u64 = 1 << 2 | 1 << 4 | 1 << 6;
    /// `PERF_FLAG_FD_CLOEXEC`
    const CLOEXEC: u64 = 1 << 3;
    // struct perf_event_attr of include/uapi/linux/perf_event.h: type `PERF_TYPE_HARDWARE` (0) and
    // size; config; sample_period, sample_type, read_format; flags; unused fields.
    let attributes: [u64; 8] = [u64::from(SIZE) << 32, event.into(), 0, 0, 0, FLAGS, 0, 0];
    let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: the kernel reads the number of bytes that the structure states, which is its size.
    #[allow(unsafe_code, reason = "perf_event_open(2)")]
    let opened = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            -1_i32,
            cpu,
            -1_i32,
            CLOEXEC,
        )
    };
    match i32::try_from(opened) {
        // SAFETY: the descriptor was just opened and has no other owner.
        #[allow(unsafe_code, reason = "a descriptor becomes a file")]
        Ok(number @ 0..) => Ok(unsafe { File::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns the counter that an event currently has, read from perf's mapped page.
pub(super) fn perf_counter(event: &File) -> io::Result<PerfCounter> {
    const PAGE: usize = 4096;
    let mapping = Mapping::new(event, 0, PAGE, MappingAccess::Read)?;
    let page = mapping.base();
    // SAFETY: struct perf_event_mmap_page is 1,088 bytes, aligned to a page; the kernel writes it
    // at any time, so each field is read once and not by reference.
    #[allow(unsafe_code, reason = "memory that the kernel shares")]
    let (index, width) = unsafe {
        let index = page.add(12).cast::<u32>().read_volatile();
        let abilities = page.add(40).cast::<u64>().read_volatile();
        let width = page.add(48).cast::<u16>().read_volatile();
        // `cap_user_rdpmc`
        (if abilities & 1 << 2 == 0 { 0 } else { index }, width)
    };
    Ok(PerfCounter { index, width })
}

/// Returns the root of a file system without a device, mounted read-only at no place: no other process sees it.
pub(super) fn detached(kind: &CStr) -> io::Result<File> {
    const CREATE: libc::c_uint = 6; // FSCONFIG_CMD_CREATE of include/uapi/linux/mount.h, as the next
    const CLOEXEC: libc::c_uint = 1; // FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC
    const ATTRIBUTES: libc::c_uint = 1 | 2 | 4 | 8; // MOUNT_ATTR_RDONLY, _NOSUID, _NODEV, _NOEXEC
    // SAFETY: the name is zero-terminated.
    #[allow(unsafe_code, reason = "fsopen(2)")]
    let context = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), CLOEXEC) };
    let context = opened(context)?;
    let nothing = std::ptr::null::<libc::c_char>();
    // SAFETY: the command takes neither a key nor a value.
    #[allow(unsafe_code, reason = "fsconfig(2)")]
    let created = unsafe {
        let context = context.as_raw_fd();
        libc::syscall(libc::SYS_fsconfig, context, CREATE, nothing, nothing, 0)
    };
    if created < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the arguments are numbers.
    #[allow(unsafe_code, reason = "fsmount(2)")]
    let root = unsafe {
        let context = context.as_raw_fd();
        libc::syscall(libc::SYS_fsmount, context, CLOEXEC, ATTRIBUTES)
    };
    opened(root)
}

/// Opens an existing file for reading and writing, by the address of its path.
pub(super) fn open_to_change(path: &'static CStr) -> io::Result<File> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path is zero-terminated.
    #[allow(unsafe_code, reason = "openat(2)")]
    let file = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), flags) };
    opened(file.into())
}

/// Opens a file below a folder for reading.
pub(super) fn open_in(folder: &File, path: &CStr) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is zero-terminated.
    #[allow(unsafe_code, reason = "openat(2)")]
    let file = unsafe { libc::openat(folder.as_raw_fd(), path.as_ptr(), flags) };
    opened(file.into())
}

/// Returns the file of a descriptor that a system call has returned.
fn opened(descriptor: libc::c_long) -> io::Result<File> {
    match i32::try_from(descriptor) {
        // SAFETY: the descriptor is new, and no other value owns it.
        #[allow(unsafe_code, reason = "the descriptor of a system call")]
        Ok(descriptor @ 0..) => Ok(unsafe { File::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn poll_sees_data_and_time_passing() {
        let (mut sender, receiver) = UnixStream::pair().unwrap();
        assert_eq!(poll(receiver.as_fd(), READABLE, Duration::ZERO).unwrap(), 0);
        sender.write_all(b"x").unwrap();
        assert_eq!(
            poll(receiver.as_fd(), READABLE, Duration::from_secs(5)).unwrap(),
            READABLE
        );
    }

    #[test]
    fn the_peer_of_an_own_socket_is_this_user() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        let (peer, _) = peer(&socket).unwrap();
        let own = (own_user(), std::process::id());
        assert_eq!((peer.user, peer.process), own);
    }
}
