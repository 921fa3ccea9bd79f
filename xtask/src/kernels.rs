//! Stock kernels for tests on files: what the engine wants to know of each, saved from the lab.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::fail::{Fail, Result};
use crate::tool;

/// The series after Debian 12's own, from the same archive.
pub(crate) const LATER: &str = "6.12";

/// A kernel on files.
pub(crate) struct Kernel {
    /// What `ilk dump` saved of it while it ran.
    pub(crate) dump: PathBuf,
    /// The file that was booted.
    pub(crate) vmlinuz: PathBuf,
}

impl Kernel {
    /// What `uname -r` says of it: the ending of its file's name.
    pub(crate) fn release(&self) -> String {
        let name = self.vmlinuz.file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        name.trim_start_matches("vmlinuz-").to_owned()
    }

    /// Names it to a program.
    pub(crate) fn name_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("GILK_IMAGE", &self.dump)
            .env("GILK_VMLINUZ", &self.vmlinuz)
    }
}

/// Gets and builds what the lab is made of.
pub(crate) fn prepare_lab() -> Result<()> {
    tool::run(tool::program("ilk").args(["lab", "--prepare"]))
}

/// The kernel of the lab. It is booted once to save it, and again when `ilk` or the kernel has changed.
pub(crate) fn saved() -> Result<Kernel> {
    let choice = tool::cache().join("kernel/current");
    save(None, &choice, "stock")
}

/// The kernel of the later series, if this machine's archive has one.
pub(crate) fn saved_later() -> Result<Option<Kernel>> {
    let package = format!("linux-image-{LATER}-cloud-amd64");
    let choice = tool::cache().join(format!("kernel/current-{LATER}"));
    let known = choice.is_file()
        || tool::output(Command::new("apt-cache").args(["show", &package])).is_some();
    if !known {
        println!("  skipped: apt knows no package {package} here");
        return Ok(None);
    }
    tool::run(tool::program("ilk").args(["lab", "--prepare", "--series", LATER]))?;
    save(Some(LATER), &choice, LATER).map(Some)
}

fn save(series: Option<&str>, choice: &Path, name: &str) -> Result<Kernel> {
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
        tool::run(ilk.args(["dump", "--lab", "-o"]).arg(&part))?;
        fs::rename(&part, &dump)
            .map_err(|error| Fail::new(format!("cannot rename {}: {error}", part.display())))?;
    }
    Ok(Kernel {
        dump,
        vmlinuz: vmlinuz(choice)?,
    })
}

/// When a file was last written; `None`, which is before every time, if it is not there.
fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).ok()?.modified().ok()
}

/// The boot file of the kernel that the lab chose.
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
