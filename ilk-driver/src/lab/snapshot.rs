//! Snapshots of booted labs: a test that needs a lab restores one at once instead of booting for five seconds.
//!
//! A snapshot is the file of the guest's memory, QEMU's migration stream without it, the memory shared with the client,
//! and the console up to then. The stream has the processors with their time stamp counters and the devices, so that the
//! guest continues at the instruction where it was stopped, its agent waiting for a client. Labs that are restored from
//! it have its memory in common until they write, page by page, so nothing is read that they do not use. Two things
//! differ from a boot: labs restored from one snapshot have the same random numbers, addresses (KASLR) among them; and
//! the guest's wall clock, not its time stamp counter, is slow by the age of the snapshot. So only tests use snapshots,
//! where `GILK_LAB_SNAPSHOT` is set, and only of labs that run the agent and have no arguments of QEMU's of their own.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
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
/// The file with the guest's memory.
const MEMORY: &str = "memory";
/// The file with the state of processors and devices.
const STREAM: &str = "stream";
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

    /// The file of the guest's memory.
    pub(super) fn memory(&self) -> PathBuf {
        self.0.join(MEMORY)
    }

    fn stream(&self) -> PathBuf {
        self.0.join(STREAM)
    }

    /// Gives a lab that is to be restored its console and its shared memory.
    pub(super) fn copy_to(&self, files: &LabFiles) -> Result<()> {
        for (name, path) in files.named() {
            let saved = self.0.join(name);
            fs::copy(&saved, path).map_err(on("copy", &saved))?;
        }
        Ok(())
    }

    /// Begins a snapshot of a lab that is about to boot.
    pub(super) fn begin(&self) -> Result<SnapshotDraft> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = self
            .0
            .with_extension(format!("{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).map_err(on("create", &folder))?;
        Ok(SnapshotDraft {
            folder,
            goal: self.0.clone(),
        })
    }

    /// Removes a snapshot that cannot be restored.
    pub(super) fn remove(&self) {
        // If it stays, the next restoration fails too, and boots.
        let _ = fs::remove_dir_all(&self.0);
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
        self.load(monitor).map_err(|failure| match running.end() {
            Some(end) => failed(format!("{failure}; QEMU ended ({end})")),
            None => failure,
        })
    }

    fn load(&self, monitor: &Path) -> Result<()> {
        let mut monitor = Monitor::connect(monitor)?;
        monitor.leave_memory()?;
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

/// Files of a running lab that a snapshot has, too.
pub(super) struct LabFiles {
    /// The console's text.
    pub(super) console: PathBuf,
    /// The memory that the lab shares with its client.
    pub(super) shared: PathBuf,
}

impl LabFiles {
    /// Each with its name in a snapshot.
    fn named(&self) -> [(&str, &Path); 2] {
        [("console", &self.console), ("shared", &self.shared)]
    }
}

/// A snapshot that is being made. Its folder is removed with it, unless it was saved.
pub(super) struct SnapshotDraft {
    folder: PathBuf,
    goal: PathBuf,
}

impl SnapshotDraft {
    /// The file for the memory of the lab, from its boot on.
    pub(super) fn memory(&self) -> PathBuf {
        self.folder.join(MEMORY)
    }

    /// Saves a lab that has just booted. It is stopped then, and may not continue, since its memory is the snapshot's.
    pub(super) fn save(self, monitor: &Path, files: &LabFiles) -> Result<()> {
        thread::sleep(SETTLED);
        let mut monitor = Monitor::connect(monitor)?;
        monitor.execute("stop", "")?;
        monitor.leave_memory()?;
        let stream = self.folder.join(STREAM);
        let command = format!("exec:cat > {}", quoted(&stream));
        monitor.execute("migrate", &format!(r#""uri":"{}""#, escaped(&command)))?;
        monitor.wait("query-migrate", "completed", &["failed", "cancelled"])?;
        let mut bytes = fs::read(&stream).map_err(on("read", &stream))?;
        without_address(&mut bytes)?;
        fs::write(&stream, bytes).map_err(on("write", &stream))?;
        for (name, path) in files.named() {
            fs::copy(path, self.folder.join(name)).map_err(on("copy", path))?;
        }
        let rate = self.folder.join(RATE);
        fs::write(&rate, crate::agent::tsc_hz().to_string()).map_err(on("write", &rate))?;
        // If there is one, another process has saved the same lab.
        if let Err(error) = fs::rename(&self.folder, &self.goal)
            && !self.goal.is_dir()
        {
            return Err(on("rename", &self.folder)(error));
        }
        self.trim();
        Ok(())
    }

    /// Removes all but the newest snapshots.
    fn trim(&self) {
        let entries = self.goal.parent().and_then(|home| fs::read_dir(home).ok());
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
}

impl Drop for SnapshotDraft {
    fn drop(&mut self) {
        // Where it was saved there is none. Disk space is all that a folder costs that cannot be removed.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes the guest's address of the shared memory from a stream. QEMU compares it as it reads the list of memories,
/// when the device that has that memory is not placed yet (`ram_load` of QEMU's migration/ram.c: name, 64-bit size,
/// 64-bit address).
fn without_address(stream: &mut [u8]) -> Result<()> {
    const NAME: &[u8] = b"/shared";
    let mut found = stream
        .windows(NAME.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == NAME);
    let (Some((at, _)), None) = (found.next(), found.next()) else {
        return Err(failed("QEMU's stream does not name the shared memory once"));
    };
    let at = at + NAME.len() + size_of::<u64>();
    let address = stream.get_mut(at..at + size_of::<u64>());
    let address = address.ok_or_else(|| failed("QEMU's stream ends at the shared memory"))?;
    address.fill(0);
    Ok(())
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

    /// Has memory that is a file stay out of streams.
    fn leave_memory(&mut self) -> Result<()> {
        let capability = r#"{"capability":"x-ignore-shared","state":true}"#;
        self.execute(
            "migrate-set-capabilities",
            &format!(r#""capabilities":[{capability}]"#),
        )
        .map(drop)
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
    fn the_address_of_the_shared_memory_is_removed() {
        let mut stream = [
            b"..pc.ram".as_slice(),
            &[1; 16],
            b"\x1300:02.0/shared",
            &[2; 16],
            b"...",
        ]
        .concat();
        let expected = [&stream[..stream.len() - 11], &[0; 8], b"..."].concat();
        without_address(&mut stream).unwrap();
        assert_eq!(stream, expected);
        let end = stream.len() - 4;
        assert!(without_address(&mut stream[..end]).is_err());
        assert!(without_address(&mut [stream.clone(), stream].concat()).is_err());
        assert!(without_address(&mut []).is_err());
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
