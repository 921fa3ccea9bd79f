//! Snapshots of booted labs: a test that needs a lab restores one in half a second instead of booting for five.
//!
//! A snapshot is QEMU's migration stream in a file, with the console up to then. The stream has the memory, the
//! processors with their time stamp counters, the virtio port and the memory shared with the client, so that the
//! guest continues at the instruction where it was stopped, its agent waiting for a client. Two things differ from a
//! boot: labs restored from one snapshot have the same random numbers, addresses (KASLR) among them; and the guest's
//! wall clock, not its time stamp counter, is slow by the age of the snapshot. So only tests use snapshots, where
//! `GILK_LAB_SNAPSHOT` is set, and only of labs that run the agent and have no arguments of QEMU's of their own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::accelerator::Accelerator;
use super::cache::Fingerprint;
use super::host::{StepResult as Result, failed, on};
use super::prepare::Prepared;
use super::qemu::EmulatorProcess;

/// Limit for a command of the monitor, and for a restoration.
const LIMIT: Duration = Duration::from_secs(30);
/// Time from the last line of a boot until the agent waits for a client.
const SETTLED: Duration = Duration::from_millis(700);
/// Interval at which QEMU's state is polled.
const POLL: Duration = Duration::from_millis(10);
/// The file that a lab executes instead of the agent.
const RUN: &str = "lab/run";
/// The file with the TSC ticks per second of the machine that saved it.
const RATE: &str = "rate";
/// Snapshots that are kept, of about 300 MiB each.
const KEPT: usize = 10;

/// The snapshot of one kind of lab: a folder that exists once it is complete.
pub(super) struct Snapshot(PathBuf);

impl Snapshot {
    /// Returns the snapshot of this lab, or `None` where the lab has to boot.
    pub(super) fn of(prepared: &Prepared, accelerator: Accelerator) -> Result<Option<Self>> {
        let options = &prepared.options;
        let has_agent = options.files.iter().all(|(name, _)| name != RUN);
        let is_standard = has_agent && options.arguments.is_empty() && options.load_module;
        if !options.snapshot || !is_standard || accelerator != Accelerator::Emulate {
            return Ok(None);
        }
        let mut fingerprint = Fingerprint::default();
        fingerprint
            .state_of(&prepared.kernel.image)?
            .state_of(&prepared.initramfs)?;
        fingerprint.text(&format!(
            "{} {} {} {:?}",
            accelerator.processor(),
            options.cpus,
            options.memory_mib,
            options.append
        ));
        for (name, path) in &options.files {
            fingerprint.text(name).state_of(path)?;
        }
        let search = std::env::var_os("PATH").unwrap_or_default();
        let programs =
            std::env::split_paths(&search).map(|folder| folder.join("qemu-system-x86_64"));
        if let Some(qemu) = programs.into_iter().find(|path| path.is_file()) {
            fingerprint.state_of(&qemu)?;
        }
        Ok(Some(Self(
            options.cache.join("snapshot").join(fingerprint.finish()),
        )))
    }

    /// Returns whether there is one to restore.
    pub(super) fn exists(&self) -> bool {
        self.stream().is_file()
    }

    /// The console's text at the time of the snapshot.
    pub(super) fn console(&self) -> PathBuf {
        self.0.join("console")
    }

    fn stream(&self) -> PathBuf {
        self.0.join("stream")
    }

    /// Removes a snapshot that cannot be restored.
    pub(super) fn remove(&self) {
        // If it stays, the next restoration fails too, and boots.
        let _ = fs::remove_dir_all(&self.0);
    }

    /// Saves a lab that has just booted, and lets it continue.
    pub(super) fn save(&self, monitor: &Path, console: &Path) -> Result<()> {
        thread::sleep(SETTLED);
        let part = self.0.with_extension(std::process::id().to_string());
        fs::create_dir_all(&part).map_err(on("create", &part))?;
        let mut monitor = Monitor::connect(monitor)?;
        monitor.execute("stop", "")?;
        // A megabyte in a millisecond, more than any disk has.
        monitor.execute("migrate-set-parameters", r#""max-bandwidth":1000000000000"#)?;
        let command = format!("exec:cat > {}", quoted(&part.join("stream")));
        monitor.execute("migrate", &format!(r#""uri":"{}""#, escaped(&command)))?;
        monitor.wait("query-migrate", "completed", &["failed", "cancelled"])?;
        fs::copy(console, part.join("console")).map_err(on("copy", console))?;
        let rate = part.join(RATE);
        fs::write(&rate, crate::agent::tsc_hz().to_string()).map_err(on("write", &rate))?;
        monitor.execute("cont", "")?;
        if fs::rename(&part, &self.0).is_err() {
            // Another process has saved the same lab.
            fs::remove_dir_all(&part).map_err(on("remove", &part))?;
        }
        self.trim();
        Ok(())
    }

    /// Removes all but the newest snapshots.
    fn trim(&self) {
        let entries = self.0.parent().and_then(|home| fs::read_dir(home).ok());
        let mut all: Vec<_> = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        all.sort_by_key(|path| {
            std::cmp::Reverse(fs::metadata(path).and_then(|about| about.modified()).ok())
        });
        for old in all.iter().skip(KEPT) {
            // Disk space is all that an old one costs.
            let _ = fs::remove_dir_all(old);
        }
    }

    /// Checks that this machine's TSC, which the guest's is, has the rate that the guest knows.
    fn check_rate(&self) -> Result<()> {
        let path = self.0.join(RATE);
        let text = fs::read_to_string(&path).map_err(on("read", &path))?;
        let saved: u64 = text
            .parse()
            .map_err(|error| failed(format!("{}: {error}", path.display())))?;
        let here = crate::agent::tsc_hz();
        if saved.abs_diff(here) > here / 100 {
            return Err(failed(format!(
                "its time stamp counter had {saved} ticks a second, and this machine's has {here}"
            )));
        }
        Ok(())
    }

    /// Loads the snapshot into a QEMU that waits for one, and starts it.
    pub(super) fn restore(&self, monitor: &Path, running: &EmulatorProcess) -> Result<()> {
        self.check_rate()?;
        let begin = Instant::now();
        while !monitor.exists() {
            if let Some(end) = running.end() {
                return Err(failed(format!("QEMU ended ({end})")));
            }
            if begin.elapsed() > LIMIT {
                return Err(failed("QEMU opened no monitor"));
            }
            thread::sleep(POLL);
        }
        let mut monitor = Monitor::connect(monitor)?;
        let command = format!("exec:cat {}", quoted(&self.stream()));
        monitor.execute(
            "migrate-incoming",
            &format!(r#""uri":"{}""#, escaped(&command)),
        )?;
        monitor.wait(
            "query-status",
            r#""paused""#,
            &["internal-error", "shutdown"],
        )?;
        monitor.execute("cont", "")?;
        Ok(())
    }
}

/// A path as a word for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// Text within a JSON string.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"")
}

/// A connection to QEMU's monitor (docs/interop/qmp-spec of QEMU): a JSON object a line in each direction.
struct Monitor {
    lines: BufReader<UnixStream>,
}

impl Monitor {
    fn connect(path: &Path) -> Result<Self> {
        let failed_to = |action: &'static str| on(action, path);
        let stream = UnixStream::connect(path).map_err(failed_to("connect to"))?;
        stream
            .set_read_timeout(Some(LIMIT))
            .map_err(failed_to("read"))?;
        let mut monitor = Self {
            lines: BufReader::new(stream),
        };
        monitor.line()?;
        monitor.execute("qmp_capabilities", "")?;
        Ok(monitor)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(0) => Err(failed("QEMU closed its monitor")),
            Ok(_) => Ok(line),
            Err(error) => Err(failed(format!("QEMU's monitor cannot be read: {error}"))),
        }
    }

    /// Executes a command and returns its answer. Events are skipped.
    fn execute(&mut self, command: &str, arguments: &str) -> Result<String> {
        let request = format!("{{\"execute\":\"{command}\",\"arguments\":{{{arguments}}}}}\n");
        let sent = self.lines.get_mut().write_all(request.as_bytes());
        sent.map_err(|error| failed(format!("QEMU's monitor cannot be written: {error}")))?;
        loop {
            let line = self.line()?;
            if line.starts_with(r#"{"return""#) {
                return Ok(line);
            }
            if line.starts_with(r#"{"error""#) {
                return Err(failed(format!("QEMU refused {command}: {}", line.trim())));
            }
        }
    }

    /// Repeats a query until its answer has a word.
    fn wait(&mut self, query: &str, word: &str, failures: &[&str]) -> Result<()> {
        let begin = Instant::now();
        loop {
            let answer = self.execute(query, "")?;
            if answer.contains(word) {
                return Ok(());
            }
            if begin.elapsed() > LIMIT || failures.iter().any(|failure| answer.contains(failure)) {
                return Err(failed(format!(
                    "QEMU answered {query} with {}",
                    answer.trim()
                )));
            }
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn paths_are_one_word_of_the_shell_and_valid_in_json() {
        let path = Path::new("/a b/it's \"here\"");
        assert_eq!(quoted(path), r#"'/a b/it'\''s "here"'"#);
        assert_eq!(escaped(&quoted(path)), r#"'/a b/it'\\''s \"here\"'"#);
    }

    #[test]
    fn a_snapshot_of_a_machine_with_another_tsc_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let snapshot = Snapshot(folder.path().to_owned());
        let error = snapshot.check_rate().unwrap_err().to_string();
        assert!(error.contains(RATE), "{error}");
        let here = crate::agent::tsc_hz();
        for (rate, is_same) in [(here, true), (here / 4, false), (here + here / 50, false)] {
            fs::write(folder.path().join(RATE), rate.to_string()).unwrap();
            assert_eq!(
                snapshot.check_rate().is_ok(),
                is_same,
                "{rate}, {here} here"
            );
        }
    }

    #[test]
    fn the_monitor_skips_events_and_reports_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("monitor");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let answers = [
                "{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"STOP\"}\n",
                "{\"return\": {}}\n{\"error\": {}}\n",
            ];
            stream.write_all(answers.concat().as_bytes()).unwrap();
            stream
        });
        let mut monitor = Monitor::connect(&path).unwrap();
        assert!(monitor.execute("stop", "").is_ok());
        assert!(
            monitor
                .execute("cont", "")
                .unwrap_err()
                .to_string()
                .contains("refused cont")
        );
        drop(server.join().unwrap());
        assert!(monitor.execute("cont", "").is_err());
    }
}
