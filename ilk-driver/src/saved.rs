//! Targets in files: the output of `ilk dump`, a `vmlinux`, a `vmlinuz`; a program or a shared library.

use std::path::Path;

use gilk_engine::Image;
use gilk_engine::elf::{ElfParts, is_program};
use gilk_engine::kernel::{FileParts, LiveParts, ModuleParts};
use gilk_samples::{input, output};

use crate::{Error, Result, debug_symbols};

/// Writes the parts of a running kernel to a file for [`open`]: whole, or not at all.
///
/// # Errors
/// [`Error::Samples`] if the file cannot be written.
pub fn save(parts: &LiveParts, modules: &ModuleParts, path: &Path) -> Result<()> {
    // Modules follow the kernel: older versions ignore trailing bytes.
    let bytes = postcard::to_allocvec(&(parts, modules)).map_err(|error| Error::Saved {
        path: path.to_path_buf(),
        reason: format!("The kernel cannot be saved: {error}."),
    })?;
    Ok(output::write(path, &bytes)?)
}

/// Reads a kernel, a program or a library from a file of any supported kind, recognised by its first
/// bytes, not by its name. A stripped program or library has the symbols of its separate debug file, if there is one.
///
/// # Errors
/// [`Error::Io`], or [`Error::Saved`] if the file is of no such kind, damaged, or truncated.
pub fn open(path: &Path) -> Result<Image> {
    // A path without a file is named with the kinds of files that are read.
    if path.exists() {
        input::check(path)?;
    }
    let bytes = std::fs::read(path).map_err(|source| Error::Io {
        path: path.to_path_buf(),
        source,
        hint: "Name a vmlinuz, a vmlinux, what `ilk dump -o FILE` saved, or a program or library.",
    })?;
    let wrong = |reason: String| Error::Saved {
        path: path.to_path_buf(),
        reason,
    };
    if is_program(&bytes) {
        // Where the debug file is follows from the folder that the file is in.
        let real = path.canonicalize();
        let real = real.map_err(Error::io(path, "Was it removed?"))?;
        let debug = debug_symbols::of_file(&bytes, &real, Path::new("/"));
        let debug = debug.map_err(|error| wrong(error.to_string()))?;
        let parts = ElfParts {
            debug: debug.as_ref(),
            ..ElfParts::of_file(path.display().to_string(), &bytes)
        };
        return Image::from_elf(&parts).map_err(|error| wrong(error.to_string()));
    }
    if FileParts::knows(&bytes) {
        return Image::from_file(&bytes).map_err(|error| wrong(error.to_string()));
    }
    let unknown = |_: postcard::Error| {
        wrong(
            "It is neither a vmlinuz nor a vmlinux for x86-64, nor what `ilk dump` of this version \
             saved."
                .to_owned(),
        )
    };
    let (parts, rest) = postcard::take_from_bytes::<LiveParts>(&bytes).map_err(unknown)?;
    // Older versions saved nothing of modules.
    let modules = match rest {
        [] => ModuleParts::default(),
        rest => postcard::from_bytes(rest).map_err(unknown)?,
    };
    Image::with_modules(&parts, &modules).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_kernel_is_refused_with_its_kind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        assert!(open(&path).unwrap_err().to_string().contains("ilk dump"));
        for (bytes, expected) in [
            (&b""[..], "neither"),
            (b"hello, this is text", "neither"),
            (b"\x7fELF\x01", "64 bits"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let error = open(&path).unwrap_err().to_string();
            assert!(
                error.contains(expected) && error.contains("kernel"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_program_is_read_as_one() {
        let own = std::env::current_exe().unwrap();
        let image = open(&own).unwrap();
        assert_eq!(image.title(), own.display().to_string());
        assert!(!image.is_live() && image.function_named("main").is_ok());
    }

    #[test]
    fn a_saved_file_without_symbols_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        save(&LiveParts::default(), &ModuleParts::default(), &path).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains("kallsyms is empty"), "{error}");
    }
}
