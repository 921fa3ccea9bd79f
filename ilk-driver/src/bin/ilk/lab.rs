//! `ilk lab`: boots a lab and keeps it until Ctrl-C.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use ilk_driver::client::lab_link;
use ilk_driver::interrupt;
use ilk_driver::lab::{Options, prepare};

use crate::progress::Progress;
use crate::target::boot;

/// Boot a stock kernel in QEMU with the module and the agent in it, and keep it until Ctrl-C.
#[derive(Args)]
pub(crate) struct LabCommand {
    /// Only download and build the parts of a lab.
    #[arg(long)]
    prepare: bool,
    /// A kernel image to use instead of Debian's.
    #[arg(long, value_name = "FILE", requires = "headers")]
    kernel: Option<PathBuf>,
    /// The headers of that kernel.
    #[arg(long, value_name = "DIRECTORY", requires = "kernel")]
    headers: Option<PathBuf>,
    /// A suite of Debian whose kernel to use, like trixie-backports or sid.
    #[arg(long, value_name = "SUITE", conflicts_with = "kernel")]
    suite: Option<String>,
    /// Another series of Debian's kernels, like 6.12, if your release has several.
    #[arg(long, value_name = "VERSION", conflicts_with = "kernel")]
    series: Option<String>,
    /// The flavour: cloud (the default), full or rt.
    #[arg(long, value_name = "FLAVOUR", conflicts_with = "kernel")]
    flavour: Option<String>,
    /// CPUs of the lab.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Memory of the lab in MiB.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(128..))]
    memory: Option<u32>,
    /// A further module of the kernel to load, with its dependencies; may be repeated.
    #[arg(long = "load", value_name = "MODULE")]
    drivers: Vec<String>,
    /// Do not load the module, to test the behaviour without it.
    #[arg(long)]
    no_module: bool,
}

/// The link by which other commands find this lab; removed on drop.
struct Link(PathBuf);

impl LabCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let defaults = Options::default();
        let options = Options {
            kernel: self.kernel.or(defaults.kernel),
            headers: self.headers.or(defaults.headers),
            suite: self.suite.or(defaults.suite),
            series: self.series.or(defaults.series),
            flavour: self.flavour.or(defaults.flavour),
            cpus: self.cpus.unwrap_or(defaults.cpus),
            memory_mib: self.memory.unwrap_or(defaults.memory_mib),
            drivers: self.drivers,
            load_module: !self.no_module,
            ..defaults
        };
        if self.prepare {
            let mut progress = Progress::new();
            prepare(&options, &mut |step| progress.step(step))?;
            return Ok(());
        }
        interrupt::watch();
        let lab = boot(&options)?;
        let link = Link::create(&options.cache, lab.socket())?;
        println!("{}", lab.socket().display());
        match &link {
            Some(_) => {
                eprintln!("The lab runs; other commands find it automatically. Ctrl-C ends it.");
            }
            None => eprintln!(
                "The lab runs. Another one runs from {}, which other commands find; select this \
                 one with --socket {}. Ctrl-C ends it.",
                options.cache.display(),
                lab.socket().display()
            ),
        }
        while !interrupt::arrived() {
            if let Some(end) = lab.end() {
                let console = lab.console().unwrap_or_default();
                let lines: Vec<&str> = console.lines().collect();
                let tail = lines
                    .get(lines.len().saturating_sub(20)..)
                    .unwrap_or_default()
                    .join("\n");
                bail!("The lab ended by itself ({end}). Its console ends with:\n{tail}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(link);
        Ok(())
    }
}

impl Link {
    /// Returns `None` if the link is another lab's.
    fn create(cache: &Path, socket: &Path) -> anyhow::Result<Option<Self>> {
        let link = lab_link(cache);
        if link.exists() {
            return Ok(None);
        }
        if link.is_symlink() {
            std::fs::remove_file(&link)
                .with_context(|| format!("{} cannot be replaced; remove it", link.display()))?;
        }
        symlink(socket, &link).with_context(|| {
            format!(
                "{} cannot be created; set GILK_CACHE to a writable folder",
                link.display()
            )
        })?;
        Ok(Some(Self(link)))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The next lab replaces a dangling link.
        let _best_effort = std::fs::remove_file(&self.0);
    }
}
