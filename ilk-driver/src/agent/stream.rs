//! The way to the client: a unix socket, or a virtio port whose other end comes and goes.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::sys;
use crate::{Error, Result};

/// How often a port is asked whether somebody has connected: it cannot be waited for.
const KNOCK: Duration = Duration::from_millis(20);

/// Bytes both ways, never blocking.
pub(super) struct Stream {
    pub(super) file: File,
}

/// What a read brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read1 {
    /// So many bytes.
    Bytes(usize),
    /// Nobody is at the other end.
    Nobody,
}

impl Stream {
    /// A virtio port.
    pub(super) fn port(path: &Path) -> Result<Self> {
        let hint = "Name the port's device with --port, for example /dev/vport0p1, and see that \
            the module virtio_console is loaded";
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(Error::io(path, hint))?;
        Ok(Self { file })
    }

    /// A client that was accepted.
    pub(super) fn socket(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            file: File::from(OwnedFd::from(stream)),
        })
    }

    /// Waits for bytes, or for the other end to go.
    pub(super) fn read(&self, buffer: &mut [u8]) -> std::io::Result<Read1> {
        loop {
            match (&self.file).read(buffer) {
                Ok(0) => return Ok(Read1::Nobody),
                Ok(bytes) => return Ok(Read1::Bytes(bytes)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let ready =
                        sys::poll(self.file.as_fd(), sys::READABLE, Duration::from_secs(60))?;
                    if ready != 0 && ready & sys::READABLE == 0 {
                        std::thread::sleep(KNOCK);
                    }
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) => {
                    return Ok(Read1::Nobody);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Between two looks at a port with nobody at the other end.
    pub(super) fn pause() {
        std::thread::sleep(KNOCK);
    }
}
