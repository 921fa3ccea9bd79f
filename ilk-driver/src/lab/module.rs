//! Builds modules for the lab's kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use super::cache::{Fingerprint, is_fresh, mark_fresh};
use super::host::{StepResult, failed, on, run};
use super::kernel::LabKernel;
use super::options::Options;
use super::steps::{At, Reporter};

/// Builds the module `name` if its sources or the headers have changed.
///
/// It is built in the cache, so that the source tree stays clean and modules for several kernels
/// can coexist.
pub(super) fn build(
    options: &Options,
    kernel: &LabKernel,
    source: &Path,
    name: &str,
    reporter: &mut Reporter<'_>,
) -> StepResult<PathBuf> {
    let sources = sources(source)?;
    let folder = if name == "ilk" {
        kernel.release.clone()
    } else {
        format!("{}-{name}", kernel.release)
    };
    let home = options.cache.join("module").join(folder);
    let product = home.join(format!("{name}.ko"));
    let fingerprint = fingerprint(&sources, kernel)?;
    if is_fresh(&product, &fingerprint) {
        return Ok(product);
    }
    for folder in [&home, &kernel.headers] {
        if folder.to_string_lossy().contains([' ', ':', '\t']) {
            return Err(failed(format!(
                "the kernel's makefiles cannot work in {}, whose path has a space or a colon; name another cache with GILK_CACHE",
                folder.display()
            )));
        }
    }
    if home.exists() {
        fs::remove_dir_all(&home).map_err(on("empty", &home))?;
    }
    fs::create_dir_all(&home).map_err(on("create", &home))?;
    for source in &sources {
        let copy = home.join(source.file_name().unwrap_or_default());
        fs::copy(source, &copy).map_err(on("copy", source))?;
    }
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let mut assignment = std::ffi::OsString::from("HEADERS=");
    assignment.push(&kernel.headers);
    let mut make = Command::new("make");
    // This build ignores the job server and the flags of an outer make.
    make.env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("MAKELEVEL")
        .env("LC_ALL", "C");
    make.arg("-C")
        .arg(&home)
        .arg(format!("-j{jobs}"))
        .arg(assignment)
        .arg("modules");
    run(&mut make, &mut |line| {
        reporter.report(At::Module, line.trim(), None);
    })?;
    if !product.is_file() {
        return Err(failed(format!(
            "make succeeded but did not create {}",
            product.display()
        )));
    }
    mark_fresh(&product, &fingerprint)?;
    Ok(product)
}

fn sources(directory: &Path) -> StepResult<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .map_err(on("find the module's sources in", directory))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && is_source(path))
        .collect();
    files.sort();
    Ok(files)
}

fn is_source(path: &Path) -> bool {
    let named = |name: &str| path.file_name().is_some_and(|file| file == name);
    let ends = |extension: &str| path.extension().is_some_and(|actual| actual == extension);
    // kbuild creates NAME.mod.c in a source tree that was built in place.
    let generated = path.to_string_lossy().ends_with(".mod.c");
    (named("Makefile") || named("Kbuild") || ends("c") || ends("h") || ends("S")) && !generated
}

fn fingerprint(sources: &[PathBuf], kernel: &LabKernel) -> StepResult<String> {
    let mut fingerprint = Fingerprint::default();
    fingerprint
        .text(&kernel.release)
        .text(&kernel.headers.to_string_lossy());
    for source in sources {
        fingerprint.contents_of(source)?;
    }
    for name in [".config", "Module.symvers"] {
        let file = kernel.headers.join(name);
        if file.is_file() {
            fingerprint.state_of(&file)?;
        }
    }
    Ok(fingerprint.finish())
}
