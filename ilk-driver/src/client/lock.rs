//! Mutual exclusion of clients by a lock on a file next to the socket, so that a second client is
//! refused at once. (A virtio port offers no way to refuse it.)

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result};

/// A lock held while the connection lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// Takes the lock of `socket`, or reports its holder.
    pub(super) fn take(socket: &Path) -> Result<Self> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".lock");
        // If the folder belongs to another user, the agent itself is at the socket and refuses a
        // second client.
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&name);
        let Ok(mut file) = opened else {
            return Ok(Self { _file: None });
        };
        match file.try_lock() {
            Ok(()) => {
                let program = std::env::current_exe()
                    .ok()
                    .and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
                let program = program.unwrap_or_else(|| String::from("a program"));
                let holder = format!("{program}, process {}", std::process::id());
                // A failure only makes a message less exact.
                let _note = file
                    .set_len(0)
                    .and_then(|()| file.write_all(holder.as_bytes()));
                Ok(Self { _file: Some(file) })
            }
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                let _best_effort = (&mut file).take(200).read_to_string(&mut by);
                let by = if by.is_empty() {
                    String::from("another program")
                } else {
                    by
                };
                Err(Error::Busy {
                    target: socket.display().to_string(),
                    by,
                })
            }
            Err(TryLockError::Error(_)) => Ok(Self { _file: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_client_is_refused_with_the_first_ones_process() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        let first = Lock::take(&socket).unwrap();
        let refused = Lock::take(&socket).unwrap_err().to_string();
        assert!(
            refused.contains(&std::process::id().to_string()) && refused.contains("close it"),
            "{refused}"
        );
        drop(first);
        Lock::take(&socket).unwrap();
    }
}
