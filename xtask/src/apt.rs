//! Installs missing packages with apt-get, after printing their names.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::fail::{Fail, Result};
use crate::packages::{self, Missing, Purpose};
use crate::tool;

const LISTS: &str = "/var/lib/apt/lists";
/// Older lists name packages that mirrors no longer hold.
const STALE: Duration = Duration::from_secs(2 * 24 * 3600);

/// Installs the missing packages of a purpose, and updates apt's lists where the lab's kernel has to be found in them.
pub(crate) fn provide(purpose: Purpose, yes: bool, own_kernel: bool) -> Result<()> {
    permitted(purpose, yes, own_kernel)?.install(&mut tool::run)
}

/// Packages that may be installed.
#[derive(Default)]
pub(crate) struct Permitted {
    names: Vec<&'static str>,
    needs_lists: bool,
}

impl Permitted {
    /// Returns whether a build does not notice the installation: it replaces no compiler, and no password is requested.
    pub(crate) fn leaves_builds_alone(&self) -> bool {
        is_root() && !self.names.iter().any(|name| packages::compiles(name))
    }

    /// Installs it by commands that `run` runs.
    pub(crate) fn install(&self, run: &mut dyn FnMut(&mut Command) -> Result<()>) -> Result<()> {
        if self.needs_lists {
            run(&mut apt_get(&["update"])?)?;
        }
        if self.names.is_empty() {
            return Ok(());
        }
        let mut words = vec!["install", "--yes", "--no-install-recommends"];
        words.extend(&self.names);
        if run(&mut apt_get(&words)?).is_ok() {
            return Ok(());
        }
        // Mirrors may have moved on since the lists were made.
        run(&mut apt_get(&["update"])?)?;
        run(&mut apt_get(&words)?)
    }
}

/// Names what is missing, and requests permission to install it.
pub(crate) fn permitted(purpose: Purpose, yes: bool, own_kernel: bool) -> Result<Permitted> {
    let missing = packages::missing(purpose);
    let needs_kernel = !own_kernel && !tool::cache().join("kernel/current").is_file();
    let needs_lists =
        (needs_kernel || !missing.is_empty()) && lists_age().is_none_or(|age| age > STALE);
    if missing.is_empty() && !needs_lists {
        println!("  nothing is missing");
        return Ok(Permitted::default());
    }
    if !missing.is_empty() {
        println!("  Missing on this machine:");
        for Missing { package, reason } in &missing {
            println!("    {package:<22} {reason}");
        }
    }
    if !tool::exists("apt-get") {
        if missing.is_empty() {
            return Err(Fail::new(
                "the lab's kernel comes from Debian's packages, and there is no apt-get on this system; name a kernel of yours with --kernel FILE and --headers DIR",
            ));
        }
        return Err(Fail::new(
            "there is no apt-get on this system. Install the above (the names are Debian's) with its own package manager and start again",
        ));
    }
    let names: Vec<&str> = missing.iter().map(|missing| missing.package).collect();
    let what = if names.is_empty() {
        "bring apt's lists up to date (apt-get update)".to_owned()
    } else {
        format!("install these {} packages with apt-get", names.len())
    };
    allowed(&what, yes)?;
    Ok(Permitted { names, needs_lists })
}

fn apt_get(arguments: &[&str]) -> Result<Command> {
    let mut command = match (is_root(), tool::exists("sudo")) {
        (true, _) => Command::new("apt-get"),
        (false, true) => {
            let mut sudo = Command::new("sudo");
            sudo.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"]);
            sudo
        }
        (false, false) => {
            let whole = arguments.join(" ");
            return Err(Fail::new(format!(
                "only root may run apt-get, and there is no sudo on this machine; run this as root and start again: apt-get {whole}"
            )));
        }
    };
    command
        .args([
            "-qq",
            "-o",
            "Acquire::Retries=3",
            "-o",
            "Dpkg::Use-Pty=0",
            "-o",
            "DPkg::Lock::Timeout=300",
        ])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive");
    Ok(command)
}

/// Requests permission on the terminal, unless it was given before.
fn allowed(what: &str, yes: bool) -> Result<()> {
    if yes {
        println!("  Going to {what}.");
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Fail::new(format!(
            "this would {what}, and standard input is no terminal to confirm it on; give --yes to allow it"
        )));
    }
    print!("  May I {what}? [Y/n] ");
    let _ = io::stdout().flush();
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Fail::new(format!("cannot read the answer: {error}")))?;
    match answer.trim().to_lowercase().as_str() {
        "" | "y" | "yes" => Ok(()),
        _ => Err(Fail::new(
            "nothing was installed; install the packages named above yourself and start again",
        )),
    }
}

/// Returns the age of apt's lists; `None` if there are none.
fn lists_age() -> Option<Duration> {
    let lists = fs::read_dir(LISTS).ok()?.flatten();
    if !lists
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
    {
        return None;
    }
    // Lists keep the mirror's times; apt touches this directory at every update.
    let updated = ["/var/lib/apt/lists/partial", LISTS]
        .iter()
        .filter_map(|path| fs::metadata(path).ok()?.modified().ok())
        .max()?;
    SystemTime::now()
        .duration_since(updated)
        .ok()
        .or(Some(Duration::ZERO))
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1));
    effective == Some("0")
}
