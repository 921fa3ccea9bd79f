//! Symbols of functions in the separate debug files of stripped objects.

use std::fs::File;
use std::io;
use std::path::Path;

use gilk_engine::elf::DebugSymbols;
use gilk_samples::input;
use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object as _};

use crate::sources::separate_paths;
use crate::{Error, Result};

/// Finds the symbols of functions of an object that has only those by which other objects are bound to it, in its separate
/// debug file. A process has the object at `path` below its root folder `root`. `None` if there is none of the same build
/// that this process may read.
///
/// # Errors
/// [`Error::Engine`], naming the debug file, if it is damaged; [`Error::Io`] or [`Error::Samples`] if it cannot be read.
pub(crate) fn find<'d, R: ReadRef<'d>>(
    object: &object::File<'d, R>,
    path: &Path,
    root: &Path,
) -> Result<Option<DebugSymbols>> {
    let is_stripped = object.symbols().next().is_none();
    if !is_stripped || !object.is_64() || object.architecture() != Architecture::X86_64 {
        return Ok(None);
    }
    let Ok(Some(build_id)) = object.build_id() else {
        return Ok(None);
    };
    let mut wrong = None;
    for path in separate_paths(object, path, root) {
        if !path.is_file() {
            continue;
        }
        match read(&path, build_id) {
            Ok(None) => {}
            Ok(Some(symbols)) => return Ok(Some(symbols)),
            // A later path may have a whole file.
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong.map_or(Ok(None), Err)
}

/// Finds the symbols of an object whose bytes these are. A damaged one has none, which the engine refuses.
///
/// # Errors
/// As [`find`].
pub(crate) fn of_file(bytes: &[u8], path: &Path, root: &Path) -> Result<Option<DebugSymbols>> {
    let Ok(object) = object::File::parse(bytes) else {
        return Ok(None);
    };
    find(&object, path, root)
}

/// Reads a debug file; `None` if it is not that of the build, or may not be read.
fn read(path: &Path, build_id: &[u8]) -> Result<Option<DebugSymbols>> {
    input::check(path)?;
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        file => file.map_err(Error::io(path, "Install the debug package again."))?,
    };
    Ok(DebugSymbols::read(
        path.display().to_string(),
        build_id,
        &ReadCache::new(file),
    )?)
}
