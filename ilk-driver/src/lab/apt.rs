//! apt, for the host's own release or for another suite of Debian, whose lists are kept in the cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::{StepResult, failed, on, output, run};
use super::steps::{At, Reporter};

/// The archive of a suite that is not the host's.
const ARCHIVE: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The arguments with which apt's programs use one suite.
pub(super) struct Apt {
    arguments: Vec<OsString>,
    suite: Option<String>,
    /// The lists: if they are newer than a cached choice, it is made again.
    pub(super) lists: PathBuf,
}

impl Apt {
    /// Uses the host's release, or the lists of `suite` under `home`, which [`Apt::update`] fetches.
    pub(super) fn new(suite: Option<&str>, home: &Path) -> StepResult<Self> {
        let Some(suite) = suite else {
            return Ok(Self {
                arguments: Vec::new(),
                suite: None,
                lists: PathBuf::from("/var/lib/apt/lists"),
            });
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if suite.is_empty() || !suite.chars().all(is_plain) {
            return Err(failed(format!("{suite:?} is no name of a suite of Debian")));
        }
        let state = home.join(format!("apt-{suite}"));
        let lists = state.join("lists");
        for folder in [&lists.join("partial"), &state.join("archives/partial")] {
            fs::create_dir_all(folder).map_err(on("create", folder))?;
        }
        // Backports depend on their release.
        let release = suite.strip_suffix("-backports");
        let sources: String = [Some(suite), release]
            .into_iter()
            .flatten()
            .map(|suite| format!("deb [signed-by={KEYRING}] {ARCHIVE} {suite} main\n"))
            .collect();
        for (name, text) in [("sources.list", sources.as_str()), ("status", "")] {
            let file = state.join(name);
            fs::write(&file, text).map_err(on("write", &file))?;
        }
        let path = |name: &str| state.join(name).display().to_string();
        let options = [
            format!("Dir::State={}", state.display()),
            format!("Dir::State::Status={}", path("status")),
            format!("Dir::Cache={}", state.display()),
            format!("Dir::Etc::SourceList={}", path("sources.list")),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("APT::Default-Release={suite}"),
            "APT::Architecture=amd64".to_owned(),
        ];
        let arguments = options
            .into_iter()
            .flat_map(|option| ["-o".into(), option.into()]);
        Ok(Self {
            arguments: arguments.collect(),
            suite: Some(suite.to_owned()),
            lists,
        })
    }

    /// Returns whether the lists of a suite are older than a day; the host's own are the host's.
    pub(super) fn is_stale(&self) -> bool {
        const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
        let age = fs::metadata(self.fetched()).and_then(|about| about.modified());
        self.suite.is_some() && !age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < DAY))
    }

    /// The file whose time is that of the last update.
    fn fetched(&self) -> PathBuf {
        self.lists.join("fetched")
    }

    /// Fetches the lists of a suite if they are stale.
    pub(super) fn update(&self, reporter: &mut Reporter<'_>) -> StepResult<()> {
        let Some(suite) = self.suite.as_ref().filter(|_| self.is_stale()) else {
            return Ok(());
        };
        reporter.report(At::Kernel, format!("fetching apt's lists of {suite}"), None);
        run(self.command("apt-get").arg("update"), &mut |_| ())?;
        let fetched = self.fetched();
        fs::write(&fetched, "").map_err(on("write", &fetched))
    }

    /// Returns a command of apt for the suite.
    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        // As root, apt would download as the user `_apt`, which may not write to the cache, and print a
        // warning.
        command
            .args(["-o", "APT::Sandbox::User=root"])
            .args(&self.arguments)
            .env("LC_ALL", "C");
        command
    }

    /// Returns the packages that an installation of some on an empty system would take.
    pub(super) fn closure(&self, packages: &[String]) -> StepResult<Vec<String>> {
        let answer = output(
            self.command("apt-get")
                .args([
                    "install",
                    "--print-uris",
                    "-qq",
                    "-y",
                    "--no-install-recommends",
                ])
                .args(packages),
        )?;
        Ok(downloads(&String::from_utf8_lossy(&answer)))
    }
}

/// Parses the packages in the output of `apt-get --print-uris`: an address, a file, a size, a sum.
fn downloads(answer: &str) -> Vec<String> {
    let files = answer
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    files
        .filter_map(|file| Some(file.split_once('_')?.0.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::downloads;

    #[test]
    fn packages_are_parsed_from_the_addresses_that_apt_prints() {
        let answer = "'http://a/pool/m/make/make_4.4.1-2_amd64.deb' make_4.4.1-2_amd64.deb 463104 SHA256:1\n\n";
        assert_eq!(downloads(answer), ["make"]);
    }
}
