//! The few calls of the operating system that the standard library does not have.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
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
    fn the_counter_counts() {
        let before = tsc();
        std::thread::sleep(Duration::from_millis(1));
        assert!(tsc() > before);
    }
}
