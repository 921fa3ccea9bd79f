//! `ilk lab`: boots a lab and keeps it until Ctrl-C, or runs one session in Bochs.

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use gilk_engine::Session;
use gilk_samples::output::{self, Contents};
use ilk_driver::client::lab_link;
use ilk_driver::interrupt;
use ilk_driver::lab::{Options, prepare, session_in_bochs};
use ilk_driver::note;

use crate::output::Force;
use crate::progress::Progress;
use crate::target::boot;

/// Time limit of a session in Bochs beside its own duration: the boot takes some minutes.
const BOCHS_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Slowness of Bochs, at most: seconds of the host for one of the guest.
const BOCHS_SECONDS: f64 = 60.0;

/// An emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Machine {
    /// QEMU: the agent is kept until Ctrl-C.
    Qemu,
    /// Bochs, which has indirect branch tracking: runs one session.
    Bochs,
}

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
    /// The emulator. Bochs has indirect branch tracking and no connection to the agent: it runs one session, and ends.
    #[arg(long, value_enum, default_value_t = Machine::Qemu)]
    machine: Machine,
    /// The session that Bochs runs.
    #[arg(long, value_name = "FILE", required_if_eq("machine", "bochs"))]
    session: Option<PathBuf>,
    /// The recording of Bochs' session.
    #[arg(short, long, value_name = "FILE", required_if_eq("machine", "bochs"))]
    output: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
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
        match (self.machine, &self.session, &self.output) {
            (Machine::Qemu, None, None) => {}
            (Machine::Qemu, ..) => bail!(
                "--session and --output are for --machine bochs; in QEMU, start `ilk lab` and then `ilk run`."
            ),
            (Machine::Bochs, Some(session), Some(output)) => {
                self.force
                    .goals()
                    .reads(session)
                    .goal(output, Contents::Recording)?;
                return in_bochs(&options, session, output);
            }
            (Machine::Bochs, ..) => bail!("--machine bochs needs --session and --output."),
        }
        if self.prepare {
            let mut progress = Progress::new();
            prepare(&options, &mut |step| progress.step(step))?;
            return Ok(());
        }
        interrupt::watch();
        let lab = boot(&options)?;
        let link = Link::create(&options.cache, lab.socket())?;
        writeln!(std::io::stdout(), "{}", lab.socket().display())?;
        match &link {
            Some(_) => {
                note!("The lab runs; other commands find it automatically. Ctrl-C ends it.");
            }
            None => note!(
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

/// Runs a session in Bochs and writes its recording.
fn in_bochs(options: &Options, session: &Path, goal: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(session)
        .with_context(|| format!("{} cannot be read", session.display()))?;
    // A mistake is found here, not after the boot.
    let parsed =
        Session::from_ron(&text).with_context(|| format!("{} is no session", session.display()))?;
    let limit = BOCHS_LIMIT + Duration::from_secs_f64(parsed.duration * BOCHS_SECONDS);
    let mut progress = Progress::new();
    let prepared = prepare(options, &mut |step| progress.step(step))?;
    let ran = session_in_bochs(&prepared, &text, limit, &mut |line| progress.draw(line));
    drop(progress);
    let ran = ran?;
    for line in &ran.said {
        writeln!(std::io::stdout(), "{line}")?;
    }
    if let Some(recording) = &ran.recording {
        output::write(goal, recording)?;
    }
    if ran.status != 0 {
        bail!("`ilk run` in the guest ended with status {}.", ran.status);
    }
    Ok(())
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
