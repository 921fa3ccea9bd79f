//! One client at a time: a lock on a file beside the socket, so that a second one knows at once.
//! (Behind a virtio port there is nobody who could tell it.)

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::{Error, Result};

/// Held while the connection lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: Option<File>,
}

impl Lock {
    /// Takes the lock of `socket`, or says who has it.
    pub(super) fn take(socket: &Path) -> Result<Self> {
        let mut name = socket.as_os_str().to_owned();
        name.push(".lock");
        // Where the folder is another user's, the agent itself is at the socket and tells a second client.
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
                let own = std::env::current_exe()
                    .ok()
                    .and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
                let who = format!(
                    "{}, process {}",
                    own.unwrap_or_default(),
                    std::process::id()
                );
                // Only a message hangs on it.
                let _note = file
                    .set_len(0)
                    .and_then(|()| file.write_all(who.as_bytes()));
                Ok(Self { _file: Some(file) })
            }
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                let _read = (&mut file).take(200).read_to_string(&mut by);
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
    fn the_second_is_told_who_is_first() {
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
