//! Images of stock kernels, saved from the lab, for tests and benchmarks that run no kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::tool;

/// The series after Debian 12's own, from the same archive.
pub(crate) const LATER: &str = "6.12";

/// The suite that has the newest kernel.
const NEWEST: &str = "trixie-backports";

/// The newest kernel, in the lab's cache.
#[derive(Debug)]
pub(crate) struct Newest {
    suite: PathBuf,
}

impl Newest {
    /// The variable by which tests boot this kernel.
    pub(crate) fn variable(&self) -> (&'static str, PathBuf) {
        ("GILK_SUITE", self.suite.clone())
    }
}

/// Files of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// The image that `ilk dump` saved while the kernel ran.
    pub(crate) dump: PathBuf,
    /// The file that was booted.
    pub(crate) vmlinuz: PathBuf,
}

impl Kernel {
    /// The release that `uname -r` prints: the ending of the file's name.
    pub(crate) fn release(&self) -> String {
        let name = self.vmlinuz.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        name.trim_start_matches("vmlinuz-").to_owned()
    }

    /// Variables by which tests and benchmarks find the files.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("GILK_IMAGE", self.dump.clone()),
            ("GILK_VMLINUZ", self.vmlinuz.clone()),
        ]
    }
}

/// Downloads and builds the parts of the lab.
pub(crate) fn prepare_lab(log: &Log) -> Result<()> {
    log.run(tool::program("ilk").args(["lab", "--prepare"]))
}

/// Returns the boot file of the lab's kernel, which has its headers beside it; downloads them if they are missing.
pub(crate) fn boot_file(log: &Log) -> Result<PathBuf> {
    let choice = tool::cache().join("kernel/current");
    if !choice.is_file() {
        tool::build(&["ilk"])?;
        prepare_lab(log)?;
    }
    vmlinuz(&choice)
}

/// Saves an image of the lab's kernel; boots it only if `ilk` or the kernel has changed since the last time.
pub(crate) fn saved(log: &Log) -> Result<Kernel> {
    let choice = tool::cache().join("kernel/current");
    save(None, &choice, "stock", log)
}

/// Saves an image of the later series' kernel, if this machine's archive has one.
pub(crate) fn saved_later(log: &Log) -> Result<Option<Kernel>> {
    let package = format!("linux-image-{LATER}-cloud-amd64");
    let choice = tool::cache().join(format!("kernel/current-{LATER}"));
    let is_available = choice.is_file()
        || tool::output(Command::new("apt-cache").args(["show", &package])).is_some();
    if !is_available {
        log.say(&format!("  skipped: apt knows no package {package} here"));
        return Ok(None);
    }
    log.run(tool::program("ilk").args(["lab", "--prepare", "--series", LATER]))?;
    save(Some(LATER), &choice, LATER, log).map(Some)
}

/// Downloads the newest kernel and builds the lab for it, unless Debian's archive does not deliver it to this machine.
pub(crate) fn prepared_newest(log: &Log) -> Result<Option<Newest>> {
    let prepared = log.run(tool::program("ilk").args(["lab", "--prepare", "--suite", NEWEST]));
    let choice = tool::cache().join(format!("kernel/current-{NEWEST}"));
    match prepared {
        Ok(()) => Ok(Some(Newest {
            suite: NEWEST.into(),
        })),
        // The choice is written once the packages are unpacked: what fails then is not the archive's fault.
        Err(fail) if choice.is_file() => Err(fail),
        Err(fail) => {
            log.say(&format!("  skipped: no kernel of {NEWEST} ({fail})"));
            Ok(None)
        }
    }
}

fn save(series: Option<&str>, choice: &Path, name: &str, log: &Log) -> Result<Kernel> {
    let images = tool::cache().join("image");
    fs::create_dir_all(&images)
        .map_err(|error| Fail::new(format!("cannot create {}: {error}", images.display())))?;
    let dump = images.join(format!("{name}.bin"));
    let mut ilk = tool::program("ilk");
    let made = changed(&dump);
    let fresh = [choice, Path::new(ilk.get_program())]
        .iter()
        .all(|input| made > changed(input));
    if !fresh {
        if let Some(series) = series {
            ilk.env("GILK_SERIES", series);
        }
        let part = images.join(format!("{name}.part"));
        ilk.env("GILK_LAB_SNAPSHOT", "1");
        // A run that was interrupted has left its part.
        log.run(ilk.args(["dump", "--lab", "--force", "-o"]).arg(&part))?;
        fs::rename(&part, &dump)
            .map_err(|error| Fail::new(format!("cannot rename {}: {error}", part.display())))?;
    }
    Ok(Kernel {
        dump,
        vmlinuz: vmlinuz(choice)?,
    })
}

/// Returns the time of a file's last change; `None`, which sorts before every time, if there is no file.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// Finds the boot file of the kernel that the lab chose.
fn vmlinuz(choice: &Path) -> Result<PathBuf> {
    let find = || {
        let name = fs::read_to_string(choice).ok()?;
        let boot = choice.parent()?.join(name.trim()).join("boot");
        fs::read_dir(boot)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
            })
    };
    find().ok_or_else(|| {
        Fail::new(format!(
            "{} names no kernel with a vmlinuz; delete the file and start again",
            choice.display()
        ))
    })
}
