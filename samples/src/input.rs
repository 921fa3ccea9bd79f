//! Reading of files that people name, which may be anything: a device that never ends included.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use crate::{Error, Result};

/// Largest text: sessions with every block of a kernel are some tens of megabytes.
const LARGEST_TEXT: u64 = 256 << 20;

/// Returns the contents of a regular file or a pipe.
///
/// # Errors
/// [`Error::Io`] if it cannot be read; [`Error::Unreadable`] if it is a device, which may never
/// end, or longer than `max_bytes`.
///
/// # Examples
/// ```
/// let error = gilk_samples::input::read("/dev/zero".as_ref(), 100).unwrap_err();
/// assert_eq!(error.to_string(), "/dev/zero cannot be read: it is a device; name a file.");
/// ```
pub fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>> {
    check(path)?;
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| {
            file.take(max_bytes.saturating_add(1))
                .read_to_end(&mut bytes)
        })
        .map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(Error::Unreadable {
            path: path.to_path_buf(),
            reason: format!("it is longer than {} MiB", max_bytes >> 20),
        });
    }
    Ok(bytes)
}

/// Returns the text of a regular file or a pipe, of at most 256 MiB.
///
/// # Errors
/// As [`read`], and [`Error::Unreadable`] if it is not UTF-8.
pub fn text(path: &Path) -> Result<String> {
    String::from_utf8(read(path, LARGEST_TEXT)?).map_err(|error| Error::Unreadable {
        path: path.to_path_buf(),
        reason: format!(
            "it is no text: byte {} is not UTF-8",
            error.utf8_error().valid_up_to()
        ),
    })
}

/// Checks that a path names something that is read from its beginning to its end.
///
/// # Errors
/// [`Error::Io`] if there is nothing; [`Error::Unreadable`] if it is a device.
pub fn check(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let kind = metadata.file_type();
    if kind.is_char_device() || kind.is_block_device() {
        return Err(Error::Unreadable {
            path: path.to_path_buf(),
            reason: String::from("it is a device; name a file"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_a_reasonable_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, 4).unwrap(), b"four");
        assert_eq!(text(&path).unwrap(), "four");
        let refused = |error: Error| {
            assert!(matches!(error, Error::Unreadable { .. }), "{error}");
            error.to_string()
        };
        assert!(refused(read(&path, 3).unwrap_err()).contains("longer than 0 MiB"));
        for device in ["/dev/zero", "/dev/null"] {
            assert!(refused(text(device.as_ref()).unwrap_err()).contains("device"));
        }
        fs::write(&path, b"ab\xff").unwrap();
        assert!(refused(text(&path).unwrap_err()).contains("byte 2 is not UTF-8"));
        assert!(matches!(text(folder.path()), Err(Error::Io { .. })));
    }
}
