//! The connection to the client: a unix socket, or a virtio port whose other end can disconnect and
//! reconnect. Bytes for the client can go through memory shared with it instead.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::sys;
use crate::shared::Shared;
use crate::{Error, Result};

/// Interval at which a port is polled for a client: a connection cannot be waited for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A non-blocking byte stream in both directions.
pub(super) struct Stream {
    pub(super) file: File,
    /// Events of poll(2) by which a client that waits for an answer is gone: its own socket is closed, or the port
    /// has bytes of another client, which may have connected at once.
    gone: i16,
    /// Files of memory that this machine may share with the port's client. Open from the start, because the
    /// [filter](super::filter) permits opening no file for writing but the module's device.
    regions: Vec<File>,
    /// Replaces the stream for bytes to the client.
    shared: Mutex<Option<Shared>>,
}

/// Interval at which full shared memory is polled.
const FULL_POLL_INTERVAL: Duration = Duration::from_micros(200);
/// Vendor and device number of shared memory (QEMU's `PCI_DEVICE_ID_IVSHMEM`).
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");
const DEVICES: &str = "/sys/bus/pci/devices";

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The number of bytes read.
    Bytes(usize),
    /// No client is at the other end.
    Disconnected,
}

impl Stream {
    /// Opens a virtio port.
    pub(super) fn port(path: &Path) -> Result<Self> {
        let hint = "Name the port's device with --port, for example /dev/vport0p1, and check that \
            the module virtio_console is loaded";
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)
            .map_err(Error::io(path, hint))?;
        Ok(Self {
            file,
            gone: sys::READABLE,
            regions: open_regions(),
            shared: Mutex::default(),
        })
    }

    /// Wraps an accepted client.
    pub(super) fn socket(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            file: File::from(OwnedFd::from(stream)),
            gone: libc::POLLRDHUP,
            // The client of a socket is on this machine.
            regions: Vec::new(),
            shared: Mutex::default(),
        })
    }

    /// Returns the memory in which the client wrote this number, if this machine has it.
    pub(super) fn find_shared(&self, number: u64) -> Option<Shared> {
        let mut found = self
            .regions
            .iter()
            .filter_map(|file| Shared::map(file).ok());
        found.find(|shared| shared.has(number))
    }

    /// Directs bytes for the client into shared memory, or back to the stream.
    pub(super) fn share(&self, shared: Option<Shared>) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = shared;
    }

    /// Writes as much as fits now, like `write(2)` on a non-blocking stream.
    pub(super) fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shared) = &*shared else {
            return (&self.file).write(bytes);
        };
        match shared.write(bytes) {
            0 => {
                std::thread::sleep(FULL_POLL_INTERVAL);
                // Makes the caller check whether it still has something to write.
                Err(std::io::Error::from(std::io::ErrorKind::Interrupted))
            }
            count => Ok(count),
        }
    }

    /// Waits for bytes, or for the disconnection of the other end.
    pub(super) fn read(&self, buffer: &mut [u8]) -> std::io::Result<Received> {
        loop {
            match (&self.file).read(buffer) {
                Ok(0) => return Ok(Received::Disconnected),
                Ok(bytes) => return Ok(Received::Bytes(bytes)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let ready =
                        sys::poll(self.file.as_fd(), sys::READABLE, Duration::from_secs(60))?;
                    if ready != 0 && ready & sys::READABLE == 0 {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                }
                Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNRESET | libc::EPIPE)) => {
                    return Ok(Received::Disconnected);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Returns whether a client that waits for an answer, and sends nothing meanwhile, is gone. A write does not find
    /// that out at a port, where it waits for another client.
    pub(super) fn is_abandoned(&self) -> bool {
        // An error is found by the next read, too.
        sys::poll(self.file.as_fd(), self.gone, Duration::ZERO).is_ok_and(|ready| ready != 0)
    }

    /// Sleeps between two polls of a disconnected port.
    pub(super) fn pause() {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Opens the memory of every shared memory device; a machine without PCI has none.
fn open_regions() -> Vec<File> {
    let devices = std::fs::read_dir(DEVICES);
    let devices = devices.into_iter().flatten().flatten();
    devices
        .filter_map(|device| open_region(&device.path()))
        .collect()
}

/// Opens the memory of a PCI device if it is a shared memory device.
fn open_region(device: &Path) -> Option<File> {
    let is = |name: &str, expected: &str| {
        std::fs::read_to_string(device.join(name)).is_ok_and(|read| read.trim() == expected)
    };
    if !is("vendor", IVSHMEM.0) || !is("device", IVSHMEM.1) {
        return None;
    }
    // The write-combining mapping is preferred where the machine offers it.
    let regions: [PathBuf; 2] = ["resource2_wc", "resource2"].map(|name| device.join(name));
    let region = regions.iter().find(|region| region.exists())?;
    File::options().read(true).write(true).open(region).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_waits_is_gone_when_its_socket_closes() {
        let (agent, mut client) = UnixStream::pair().unwrap();
        let stream = Stream::socket(agent).unwrap();
        assert!(!stream.is_abandoned());
        client.write_all(b"more").unwrap();
        assert!(!stream.is_abandoned());
        drop(client);
        assert!(stream.is_abandoned());
    }

    #[test]
    fn a_client_that_waits_at_a_port_is_gone_when_another_one_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("port");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let stream = Stream::port(&path).unwrap();
        assert!(!stream.is_abandoned());
        let mut other = File::options().write(true).open(&path).unwrap();
        other.write_all(b"an opening").unwrap();
        assert!(stream.is_abandoned());
    }
}
