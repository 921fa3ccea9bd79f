//! The few calls of the operating system that the standard library does not have.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::events::Place;

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

/// Has a CPU count an event of its processor (by its number in `enum perf_hw_id`) while the kernel runs, in a
/// counter that no other takes from it.
pub(super) fn open_event(event: u8, cpu: u32) -> io::Result<File> {
    /// `PERF_ATTR_SIZE_VER0`
    const SIZE: u32 = 64;
    /// `pinned`, `exclude_user`, `exclude_hv`
    const FLAGS: u64 = 1 << 2 | 1 << 4 | 1 << 6;
    /// `PERF_FLAG_FD_CLOEXEC`
    const CLOEXEC: u64 = 1 << 3;
    // struct perf_event_attr of include/uapi/linux/perf_event.h: type `PERF_TYPE_HARDWARE` (0) and size; config;
    // sample_period, sample_type, read_format; flags; what nobody needs.
    let attributes: [u64; 8] = [u64::from(SIZE) << 32, event.into(), 0, 0, 0, FLAGS, 0, 0];
    let cpu = i32::try_from(cpu).map_err(io::Error::other)?;
    // SAFETY: the kernel reads as many bytes as the structure says it has, and they are there.
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
        // SAFETY: it was just opened, and nobody else has it.
        #[allow(unsafe_code, reason = "a descriptor becomes a file")]
        Ok(number @ 0..) => Ok(unsafe { File::from_raw_fd(number) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Which counter an event has where it is counted now, by the page that perf keeps of it.
pub(super) fn event_place(event: &File) -> io::Result<Place> {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping anywhere, of which one page is read and which is taken away again.
    #[allow(unsafe_code, reason = "mmap(2)")]
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            event.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let page = page.cast::<u8>();
    // SAFETY: struct perf_event_mmap_page is 1,088 bytes and aligned as a page is; the kernel writes it at
    // any time, so each field is read once and not by reference. Nobody has the page behind the last line.
    #[allow(unsafe_code, reason = "memory that the kernel shares")]
    let (index, width) = unsafe {
        let index = page.add(12).cast::<u32>().read_volatile();
        let abilities = page.add(40).cast::<u64>().read_volatile();
        let width = page.add(48).cast::<u16>().read_volatile();
        libc::munmap(page.cast(), PAGE);
        // `cap_user_rdpmc`
        (if abilities & 1 << 2 == 0 { 0 } else { index }, width)
    };
    Ok(Place { index, width })
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
