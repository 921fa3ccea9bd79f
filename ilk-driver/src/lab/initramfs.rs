//! Packs the lab's file system: busybox, drivers, module, agent, workloads and the first process.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::agent::{Agent, GuestProgram};
use super::cpio::Archive;
use super::drivers;
use super::host::{StepResult, failed, on};
use super::kernel::LabKernel;
use super::options::Options;

const INIT: &str = include_str!("init.sh");

/// The contents of the file system, as files of the host.
pub(super) struct Contents<'a> {
    /// `ilk.ko`.
    pub(super) module: &'a Path,
    /// `rivals.ko`, if requested.
    pub(super) rivals: Option<&'a Path>,
    /// `ilk` and its libraries.
    pub(super) agent: &'a Agent,
    /// Static programs for sessions to run.
    pub(super) workloads: &'a [GuestProgram],
}

/// Packs the archive uncompressed: inflating it on an emulated CPU takes longer than loading it by
/// QEMU.
pub(super) fn pack(
    options: &Options,
    kernel: &LabKernel,
    contents: &Contents<'_>,
) -> StepResult<PathBuf> {
    let read = |path: &Path| fs::read(path).map_err(on("read", path));
    let mut archive = Archive::default();
    let libraries = &contents.agent.libraries;
    let folders = libraries
        .iter()
        .flat_map(|library| library.ancestors().skip(1));
    let folders: BTreeSet<&Path> = folders
        .chain(["/bin", "/dev", "/lab"].map(Path::new))
        .filter(|folder| folder.parent().is_some())
        .collect();
    // Parents are before their children.
    for folder in folders {
        archive.directory(&folder.to_string_lossy());
    }
    // The kernel opens this for the first process before devtmpfs is mounted.
    archive.character_device("dev/console", 5, 1);
    archive.program("init", INIT.as_bytes());
    archive.program("bin/busybox", &read(&busybox()?)?);
    archive.program("bin/ilk", &read(&contents.agent.program)?);
    for library in libraries {
        archive.program(&library.to_string_lossy(), &read(library)?);
    }
    for workload in contents.workloads {
        archive.program(&format!("bin/{}", workload.name), &read(&workload.path)?);
    }
    archive.file("lab/ilk.ko", &read(contents.module)?);
    if let Some(rivals) = contents.rivals {
        archive.file("lab/rivals.ko", &read(rivals)?);
    }
    let mut list = String::new();
    for driver in drivers::needed(kernel.modules.as_deref(), &kernel.release, &options.drivers)? {
        archive.file(&format!("lab/{}", driver.file), &driver.bytes);
        list.push_str(&driver.file);
        list.push('\n');
    }
    archive.file("lab/drivers", list.as_bytes());
    let home = options.cache.join("initramfs");
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    let rivals = contents.rivals.map(|_| "rivals");
    let further = options.drivers.iter().map(String::as_str);
    let suffixes = rivals.into_iter().chain(further);
    let kind: String = suffixes.map(|part| format!("-{part}")).collect();
    let product = home.join(format!("{}{kind}.cpio", kernel.release));
    let bytes = archive.finish();
    if fs::read(&product).is_ok_and(|old| old == bytes) {
        return Ok(product);
    }
    // Renamed into place, so that a lab that boots concurrently gets the old file or the new one.
    let part = product.with_extension("part");
    fs::write(&part, bytes).map_err(on("write", &part))?;
    fs::rename(&part, &product).map_err(on("rename", &part))?;
    Ok(product)
}

/// Finds a statically linked busybox.
fn busybox() -> StepResult<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let places = ["/bin", "/usr/bin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let program = places
        .into_iter()
        .chain(std::env::split_paths(&search))
        .flat_map(|folder| {
            [
                folder.join("busybox"),
                folder.join("busybox.static"),
                folder.join("busybox-static"),
            ]
        });
    program
        .filter(|path| path.is_file())
        .find(|path| fs::read(path).is_ok_and(|bytes| is_static(&bytes) == Some(true)))
        .ok_or_else(|| failed("there is no statically linked busybox on this machine; install the package busybox-static"))
}

/// Returns whether a 64-bit ELF file requests no interpreter (ELF specification, program header
/// type `PT_INTERP`); `None` if it is no such file.
fn is_static(elf: &[u8]) -> Option<bool> {
    const PT_INTERP: [u8; 4] = [3, 0, 0, 0];
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let table = usize::try_from(u64::from_le_bytes(*elf.get(0x20..0x28)?.first_chunk()?)).ok()?;
    let entry = usize::from(u16::from_le_bytes(*elf.get(0x36..0x38)?.first_chunk()?));
    let count = usize::from(u16::from_le_bytes(*elf.get(0x38..0x3a)?.first_chunk()?));
    let mut headers =
        (0..count).map(|index| elf.get(table.checked_add(index * entry)?..)?.get(..4));
    headers.try_fold(true, |all, kind| Some(all && kind? != PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::is_static;

    #[test]
    fn dynamic_static_and_invalid_files_are_distinguished() {
        let dynamic = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(is_static(&dynamic), Some(false));
        assert_eq!(is_static(b"#!/bin/sh\n"), None);
        assert_eq!(is_static(&dynamic[..0x38]), None);
    }
}
