//! Files that a process maps for its code cache.

use super::super::record::Client;
use super::super::remote::Remote;
use crate::Result;

/// Creates a file in a process, with a name by which its mappings are known as ours; returns its number there.
pub(super) fn create_file(remote: &Remote<'_>) -> Result<u64> {
    let name = remote.put(&Client::current()?.file_name())?;
    let arguments = [name, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0];
    remote.call("create a file of tables", libc::SYS_memfd_create, arguments)
}

pub(super) fn close_file(remote: &Remote<'_>, number: u64) -> Result<()> {
    let arguments = [number, 0, 0, 0, 0, 0];
    let closed = remote.call("close the file of tables", libc::SYS_close, arguments);
    closed.map(drop)
}
