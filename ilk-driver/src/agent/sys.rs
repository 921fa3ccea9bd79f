//! The few calls of the operating system that the standard library does not have.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Something to read.
pub(super) const READABLE: i16 = libc::POLLIN;
/// Room to write.
pub(super) const WRITABLE: i16 = libc::POLLOUT;

/// Waits until `file` is ready for one of `events`, hung up or broken, or `wait` is over.
pub(super) fn poll(file: BorrowedFd<'_>, events: i16, wait: Duration) -> io::Result<i16> {
    let mut ask = libc::pollfd {
        fd: file.as_raw_fd(),
        events,
        revents: 0,
    };
    let milliseconds = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `ask` is one pollfd, and lives until the call returns.
    #[allow(unsafe_code, reason = "poll(2)")]
    let ready = unsafe { libc::poll(&raw mut ask, 1, milliseconds) };
    match ready {
        0.. => Ok(ask.revents),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            error => Err(error),
        },
    }
}

/// The processor's time-stamp counter.
pub(super) fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has rdtsc, and Linux leaves it to everyone.
    #[allow(unsafe_code, unused_unsafe, reason = "rdtsc")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

/// The user at the other end of a unix socket, when it was connected (`SO_PEERCRED`).
pub(super) fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for `length` bytes, and both live until the call returns.
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
        Ok(peer.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The user that this process acts for.
pub(super) fn own_user() -> u32 {
    // SAFETY: geteuid(2) takes nothing and never fails.
    #[allow(unsafe_code, reason = "geteuid(2)")]
    unsafe {
        libc::geteuid()
    }
}

/// Lowers the capabilities of this thread, and of those it starts from now on, to these; gives up any
/// that programs might inherit.
pub(super) fn set_capabilities(keep: u64) -> io::Result<()> {
    // struct __user_cap_header_struct and __user_cap_data_struct of include/uapi/linux/capability.h
    let header: [u32; 2] = [0x2008_0522, 0];
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let data: [u32; 6] = [low, low, 0, high, high, 0];
    // SAFETY: version 3 of capset(2) reads a header of two words and twice three words.
    #[allow(unsafe_code, reason = "capset(2)")]
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// One of prctl(2)'s requests that take a number, or none.
pub(super) fn control(request: i32, number: u64) -> io::Result<()> {
    // SAFETY: the requests that this is called with take numbers only.
    #[allow(unsafe_code, reason = "prctl(2)")]
    let result = unsafe { libc::prctl(request, number, 0_u64, 0_u64, 0_u64) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ends every process of the group.
pub(super) fn kill_group(leader: u32) {
    let Ok(leader) = i32::try_from(leader) else {
        return;
    };
    if leader > 1 {
        // SAFETY: kill(2) takes numbers only; the group is one that this agent made for a workload.
        #[allow(unsafe_code, reason = "kill(2)")]
        let _gone_already = unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Mounts a file system that has no device.
pub(super) fn mount(kind: &CStr, at: &CStr) -> io::Result<()> {
    // SAFETY: three strings that end with a zero, and no data.
    #[allow(unsafe_code, reason = "mount(2)")]
    let result = unsafe {
        libc::mount(
            kind.as_ptr(),
            at.as_ptr(),
            kind.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
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
        let (mut one, other) = UnixStream::pair().unwrap();
        assert_eq!(poll(other.as_fd(), READABLE, Duration::ZERO).unwrap(), 0);
        one.write_all(b"x").unwrap();
        assert_eq!(
            poll(other.as_fd(), READABLE, Duration::from_secs(5)).unwrap(),
            READABLE
        );
    }

    #[test]
    fn the_other_end_is_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&one).unwrap(), own_user());
    }

    #[test]
    fn the_counter_counts() {
        let before = tsc();
        std::thread::sleep(Duration::from_millis(1));
        assert!(tsc() > before);
    }
}
