//! A kernel for debugging, built from Debian's source with lockdep, KASAN and RCU debugging: no package has one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::fail::{Fail, Result};
use crate::log::Log;
use crate::tool;

/// The package with the source; the configuration was written for this series.
pub(crate) const SOURCE: &str = "linux-source-6.1";
/// Options that are set; all others have their default or are off.
const CONFIGURATION: &str = include_str!("../debug.config");

/// A built kernel.
pub(crate) struct Built {
    home: PathBuf,
}

impl Built {
    /// The kernel's place in the cache, whether it was built or not.
    pub(crate) fn at_its_place() -> Self {
        Self {
            home: tool::cache().join("kernel/debugging"),
        }
    }

    fn source(&self) -> PathBuf {
        self.home.join(SOURCE)
    }

    /// Variables by which tests boot it.
    pub(crate) fn variables(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("GILK_KERNEL", self.home.join("boot/vmlinuz")),
            ("GILK_HEADERS", self.source()),
        ]
    }

    /// The release that `uname -r` prints there.
    pub(crate) fn release(&self) -> Result<String> {
        let path = self.source().join("include/config/kernel.release");
        let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
        Ok(text.trim().to_owned())
    }

    /// Unpacks, configures and builds it. Steps that were done before take seconds.
    pub(crate) fn build(&self, log: &Log) -> Result<()> {
        let source = self.source();
        if !source.is_dir() {
            let part = self.home.join("part");
            fs::create_dir_all(&part).map_err(failed("create", &part))?;
            let archive = format!("/usr/src/{SOURCE}.tar.xz");
            log.run(
                Command::new("tar")
                    .args(["-xJf", &archive, "-C"])
                    .arg(&part),
            )?;
            fs::rename(part.join(SOURCE), &source).map_err(failed("create", &source))?;
        }
        let options = self.home.join("options");
        let are_new = fs::read_to_string(&options).ok().as_deref() != Some(CONFIGURATION);
        if are_new {
            let chosen = self.home.join("chosen");
            fs::write(&chosen, CONFIGURATION).map_err(failed("write", &chosen))?;
            log.run(
                self.make()
                    .arg(variable("KCONFIG_ALLCONFIG", &chosen))
                    .arg("allnoconfig"),
            )?;
            self.is_configured()?;
            fs::rename(&chosen, &options).map_err(failed("create", &options))?;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let jobs = format!("-j{cores}");
        log.run(self.make().args([&jobs, "bzImage", "modules"]))?;
        let goal = variable("INSTALL_MOD_PATH", &self.home);
        log.run(self.make().arg(goal).arg("modules_install"))?;
        let (image, boot) = (source.join("arch/x86/boot/bzImage"), self.home.join("boot"));
        fs::create_dir_all(&boot).map_err(failed("create", &boot))?;
        fs::copy(&image, boot.join("vmlinuz")).map_err(failed("copy", &image))?;
        Ok(())
    }

    fn make(&self) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(self.source());
        make
    }

    /// Fails if the kernel's configuration leaves out an option that was chosen, as one without its dependencies.
    fn is_configured(&self) -> Result<()> {
        let path = self.source().join(".config");
        let text = fs::read_to_string(&path).map_err(failed("read", &path))?;
        let missing = missing(&text);
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Fail::new(format!(
                "{SOURCE} does not take these options: {}",
                missing.join(", ")
            )))
        }
    }
}

/// A variable of make.
fn variable(name: &str, path: &Path) -> OsString {
    let mut text = OsString::from(format!("{name}="));
    text.push(path);
    text
}

/// Chosen options that a configuration does not have.
fn missing(configuration: &str) -> Vec<&'static str> {
    CONFIGURATION
        .lines()
        .filter(|line| line.starts_with("CONFIG_"))
        .filter(|wanted| match wanted.strip_suffix("=n") {
            Some(name) => configuration.lines().any(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('='))
            }),
            None => !configuration.lines().any(|line| line == *wanted),
        })
        .collect()
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Fail {
    move |error| Fail::new(format!("cannot {what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_without_a_chosen_option_or_with_one_that_is_off_is_noticed() {
        let whole: String = CONFIGURATION
            .lines()
            .filter(|line| line.starts_with("CONFIG_") && !line.ends_with("=n"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(missing(&whole), [""; 0]);
        let without = whole.replace(
            "CONFIG_PROVE_LOCKING=y\n",
            "# CONFIG_PROVE_LOCKING is not set\n",
        );
        assert_eq!(missing(&without), ["CONFIG_PROVE_LOCKING=y"]);
        assert_eq!(
            missing(&format!("{whole}CONFIG_WLAN=y\n")),
            ["CONFIG_WLAN=n"]
        );
    }
}
