//! The way to the client: a unix socket, or a virtio port whose other end comes and goes. What goes
//! to the client may go by memory that is shared with it.

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

/// How often a port is asked whether somebody has connected: it cannot be waited for.
const KNOCK: Duration = Duration::from_millis(20);

/// Bytes both ways, never blocking.
pub(super) struct Stream {
    pub(super) file: File,
    /// Where bytes for the client go instead.
    shared: Mutex<Option<Shared>>,
}

/// How soon memory that is full is looked at again.
const SOON: Duration = Duration::from_micros(200);
/// Vendor and device of shared memory (QEMU's `PCI_DEVICE_ID_IVSHMEM`), and its second region's file.
const IVSHMEM: (&str, &str) = ("0x1af4", "0x1110");
const DEVICES: &str = "/sys/bus/pci/devices";

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
        Ok(Self {
            file,
            shared: Mutex::default(),
        })
    }

    /// A client that was accepted.
    pub(super) fn socket(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            file: File::from(OwnedFd::from(stream)),
            shared: Mutex::default(),
        })
    }

    /// The memory that the client with this number shares, if it is this machine's.
    pub(super) fn find_shared(number: u64) -> Option<Shared> {
        let devices = std::fs::read_dir(DEVICES).ok()?.flatten();
        let mut found = devices.filter_map(|device| shared_of(&device.path()));
        found.find(|shared| shared.has(number))
    }

    /// From now on what goes to the client goes by there; or by the stream again.
    pub(super) fn share(&self, shared: Option<Shared>) {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = shared;
    }

    /// Writes what there is room for now; as `write(2)` on a stream that does not block.
    pub(super) fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shared) = &*shared else {
            return (&self.file).write(bytes);
        };
        match shared.write(bytes) {
            0 => {
                std::thread::sleep(SOON);
                // By which the caller looks whether it still has anything to write.
                Err(std::io::Error::from(std::io::ErrorKind::Interrupted))
            }
            count => Ok(count),
        }
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

/// The memory of a PCI device, if it is one that has memory to share.
fn shared_of(device: &Path) -> Option<Shared> {
    let is = |name: &str, what: &str| {
        std::fs::read_to_string(device.join(name)).is_ok_and(|read| read.trim() == what)
    };
    if !is("vendor", IVSHMEM.0) || !is("device", IVSHMEM.1) {
        return None;
    }
    // Written together where the machine has that for it, else each byte by itself.
    let regions: [PathBuf; 2] = ["resource2_wc", "resource2"].map(|name| device.join(name));
    let region = regions.iter().find(|region| region.exists())?;
    let file = File::options().read(true).write(true).open(region).ok()?;
    Shared::map(&file).ok()
}
