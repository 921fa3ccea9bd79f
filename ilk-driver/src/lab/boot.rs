//! Starts a prepared lab and waits for its agent.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::accelerator::Accelerator;
use super::cpio::Archive;
use super::host::{Failure, StepResult as Outcome, failed, on};
use super::prepare::Prepared;
use super::qemu::{EmulatorProcess, QemuMachine, Start};
use super::runtime::RunDirectory;
use super::snapshot::{LabFiles, Snapshot, SnapshotDraft};
use super::steps::{At, Reporter, Step};
use super::trial::{self, Verdict};
use crate::Result;
use crate::agent::READ_FIRST;
use crate::note;

/// Lines of `init.sh`: it starts the agent, or it has failed.
const READY: &str = "gilk-lab: ready";
pub(super) const FAILED: &str = "gilk-lab: failed: ";
/// Lines of the console that an error quotes.
const TAIL: usize = 25;
/// Interval at which the console is polled.
pub(super) const LOOK: Duration = Duration::from_millis(20);

/// A running lab. Dropping it ends QEMU and removes its files.
pub struct Lab {
    // Ended before its directory is removed: fields are dropped in this order.
    running: EmulatorProcess,
    directory: RunDirectory,
    socket: PathBuf,
    console: PathBuf,
    accelerator: Accelerator,
    reason: String,
}

impl Lab {
    /// Boots and waits until the agent runs.
    ///
    /// # Errors
    /// [`crate::Error::Lab`] with the end of the console: QEMU is missing or ended, the kernel panicked, the
    /// module could not be loaded, or the boot took longer than [`super::Options::boot_limit`].
    pub fn boot(prepared: &Prepared, progress: &mut dyn FnMut(&Step)) -> Result<Self> {
        let mut reporter = Reporter::new(progress);
        let verdict = choose(prepared, &mut reporter)
            .map_err(|failure| failure.at_step("choose how to run the kernel"))?;
        reporter.done(
            At::Accelerator,
            format!("{}: {}", verdict.accelerator.describe(), verdict.reason),
        );
        let snapshot = Snapshot::of(prepared, verdict.accelerator)
            .map_err(|failure| failure.at_step("look for a snapshot"))?;
        if let Some(snapshot) = snapshot.as_ref().filter(|snapshot| snapshot.exists()) {
            match restore(prepared, &verdict, snapshot, &mut reporter) {
                Ok(lab) => return Ok(lab),
                Err(failure) => {
                    snapshot.remove();
                    let detail = format!("its snapshot could not be restored ({failure}): booting");
                    note!("The lab: {detail}");
                    reporter.report(At::Boot, detail, None);
                }
            }
        }
        boot(prepared, verdict, snapshot.as_ref(), &mut reporter)
            .map_err(|failure| failure.at_step("boot"))
    }

    /// The socket at which the agent answers.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the text that the kernel and the first process have printed.
    ///
    /// # Errors
    /// [`crate::Error::Lab`] if the console's file cannot be read.
    pub fn console(&self) -> Result<String> {
        read(&self.console).map_err(|failure| failure.at_step("show its console"))
    }

    /// Returns the complete lines after the first `seen` bytes, and advances `seen` past them.
    ///
    /// # Errors
    /// [`crate::Error::Lab`] if the console's file cannot be read.
    pub fn console_since(&self, seen: &mut u64) -> Result<Vec<String>> {
        read_since(&self.console, seen).map_err(|failure| failure.at_step("show its console"))
    }

    /// Returns the accelerator, and the reason for its choice.
    #[must_use]
    pub fn accelerator(&self) -> (Accelerator, &str) {
        (self.accelerator, &self.reason)
    }

    /// QEMU's process number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.running.process()
    }

    /// Returns QEMU's exit status, once it has ended: a kernel that panics ends it.
    #[must_use]
    pub fn end(&self) -> Option<String> {
        self.running.end()
    }

    /// Returns the directory of its files, which is removed with it.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn choose(prepared: &Prepared, reporter: &mut Reporter<'_>) -> Outcome<Verdict> {
    if let Some(accelerator) = prepared.options.accelerator {
        return Ok(Verdict {
            accelerator,
            reason: "as requested".into(),
        });
    }
    reporter.report(At::Accelerator, "looking at /dev/kvm", None);
    trial::choose(
        &prepared.options.cache,
        &prepared.kernel.image,
        &prepared.initramfs,
        &mut || {
            reporter.report(At::Accelerator, "trying a boot under KVM", None);
        },
    )
}

/// QEMU's process for a lab, and the paths of its files.
struct Launched {
    running: EmulatorProcess,
    directory: RunDirectory,
    socket: PathBuf,
    files: LabFiles,
    monitor: PathBuf,
}

impl Launched {
    fn start(
        prepared: &Prepared,
        accelerator: Accelerator,
        start: Start<'_>,
        saved: Option<&Snapshot>,
    ) -> Outcome<Self> {
        let options = &prepared.options;
        let mut append = options.append.clone();
        if !options.load_module {
            append.push("gilk.module=off".into());
        }
        if matches!(start, Start::BootToSave(_)) {
            append.push("gilk.read".into());
        }
        let directory = RunDirectory::create()?;
        let initramfs = with_files(prepared, directory.path())?;
        let machine = QemuMachine {
            kernel: &prepared.kernel.image,
            initramfs: &initramfs,
            append,
            arguments: options.arguments.clone(),
            accelerator,
            cpus: options.cpus,
            memory_mib: options.memory_mib,
            directory: directory.path(),
            start,
        };
        let files = LabFiles {
            console: machine.console(),
            shared: machine.shared(),
        };
        if let Some(snapshot) = saved {
            snapshot.copy_to(&files)?;
        }
        let (socket, monitor) = (machine.socket(), machine.monitor());
        let running = machine.start()?;
        Ok(Self {
            running,
            directory,
            socket,
            files,
            monitor,
        })
    }

    fn into_lab(self, verdict: Verdict) -> Lab {
        let Verdict {
            accelerator,
            reason,
        } = verdict;
        Lab {
            running: self.running,
            directory: self.directory,
            socket: self.socket,
            console: self.files.console,
            accelerator,
            reason,
        }
    }
}

/// Restores a lab from its snapshot.
fn restore(
    prepared: &Prepared,
    verdict: &Verdict,
    snapshot: &Snapshot,
    reporter: &mut Reporter<'_>,
) -> Outcome<Lab> {
    let begin = Instant::now();
    reporter.report(At::Boot, "restoring a snapshot", None);
    let memory = snapshot.memory();
    let start = Start::Restore(&memory);
    let launched = Launched::start(prepared, verdict.accelerator, start, Some(snapshot))?;
    snapshot.restore(&launched.monitor, &launched.running)?;
    reporter.done(
        At::Boot,
        format!("restored after {:.1} s", begin.elapsed().as_secs_f32()),
    );
    Ok(launched.into_lab(Verdict {
        accelerator: verdict.accelerator,
        reason: verdict.reason.clone(),
    }))
}

fn boot(
    prepared: &Prepared,
    verdict: Verdict,
    snapshot: Option<&Snapshot>,
    reporter: &mut Reporter<'_>,
) -> Outcome<Lab> {
    let options = &prepared.options;
    let draft = snapshot.and_then(|snapshot| {
        snapshot
            .begin()
            .map_err(|failure| note!("The lab: no snapshot can be made ({failure})"))
            .ok()
    });
    let memory = draft.as_ref().map(SnapshotDraft::memory);
    let start = memory.as_deref().map_or(Start::Boot, Start::BootToSave);
    // What a snapshot has, no lab that is restored from it has to do again.
    let wanted = if draft.is_some() { READ_FIRST } else { READY };
    let launched = Launched::start(prepared, verdict.accelerator, start, None)?;
    let usual = UsualTime::read(&options.cache, verdict.accelerator);
    let begin = Instant::now();
    loop {
        let text = read(&launched.files.console).unwrap_or_default();
        if text.contains(wanted) && launched.socket.exists() {
            break;
        }
        if let Some(reason) = text
            .lines()
            .find_map(|line| line.split_once(FAILED))
            .map(|(_, reason)| reason.trim())
        {
            return Err(with_tail(
                &format!("its first process gave up ({reason})"),
                &text,
            ));
        }
        if let Some(end) = launched.running.end() {
            return Err(with_tail(&format!("QEMU ended ({end})"), &text));
        }
        if launched.running.time() > options.boot_limit {
            return Err(with_tail(
                &format!("it was not up after {} s", options.boot_limit.as_secs()),
                &text,
            ));
        }
        let mut latest = text.lines().rev().map(str::trim);
        let last = latest.find(|line| !line.is_empty()).unwrap_or_default();
        let what = format!(
            "Linux {} under {}  {last}",
            prepared.kernel.release,
            verdict.accelerator.describe()
        );
        reporter.report(At::Boot, what, Some(usual.share(begin.elapsed())));
        thread::sleep(LOOK);
    }
    usual.write(begin.elapsed());
    reporter.done(
        At::Boot,
        format!("up after {:.1} s", begin.elapsed().as_secs_f32()),
    );
    if let (Some(snapshot), Some(draft)) = (snapshot, draft) {
        let saved = draft.save(&launched.monitor, &launched.files);
        // Its memory is the snapshot's.
        drop(launched);
        let restored = saved.and_then(|()| restore(prepared, &verdict, snapshot, reporter));
        return restored.or_else(|failure| {
            snapshot.remove();
            note!("The lab: no snapshot could be made ({failure}): booting without one");
            boot(prepared, verdict, None, reporter)
        });
    }
    Ok(launched.into_lab(verdict))
}

/// Appends an archive of further files to the lab's file system: Linux unpacks one archive after the other.
pub(super) fn with_files(prepared: &Prepared, directory: &Path) -> Outcome<PathBuf> {
    let files = &prepared.options.files;
    if files.is_empty() {
        return Ok(prepared.initramfs.clone());
    }
    let mut bytes = fs::read(&prepared.initramfs).map_err(on("read", &prepared.initramfs))?;
    let mut archive = Archive::default();
    for (name, path) in files {
        archive.program(name, &fs::read(path).map_err(on("read", path))?);
    }
    bytes.extend(archive.finish());
    let whole = directory.join("initramfs");
    fs::write(&whole, bytes).map_err(on("write", &whole))?;
    Ok(whole)
}

pub(super) fn read(console: &Path) -> Outcome<String> {
    let bytes = fs::read(console).map_err(on("read", console))?;
    Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
}

pub(super) fn read_since(console: &Path, seen: &mut u64) -> Outcome<Vec<String>> {
    let mut bytes = Vec::new();
    fs::File::open(console)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(*seen))?;
            file.read_to_end(&mut bytes)
        })
        .map_err(on("read", console))?;
    let ended = bytes.iter().rposition(|&byte| byte == b'\n');
    bytes.truncate(ended.map_or(0, |last| last + 1));
    *seen += bytes.len() as u64;
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    Ok(text.lines().map(str::to_owned).collect())
}

pub(super) fn with_tail(what: &str, text: &str) -> Failure {
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines
        .get(lines.len().saturating_sub(TAIL)..)
        .unwrap_or_default();
    if tail.is_empty() {
        failed(format!("{what}, and printed nothing"))
    } else {
        failed(format!(
            "{what}. Its console ends with:\n{}",
            tail.join("\n")
        ))
    }
}

/// Duration of the last boot, by which the progress of this one is estimated.
struct UsualTime {
    note: PathBuf,
    seconds: f32,
}

impl UsualTime {
    fn read(cache: &Path, accelerator: Accelerator) -> Self {
        let note = cache.join(format!("boot-time-{accelerator:?}").to_lowercase());
        let seconds = fs::read_to_string(&note)
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .filter(|seconds: &f32| *seconds > 0.1);
        Self {
            note,
            seconds: seconds.unwrap_or(10.0),
        }
    }

    /// Returns the estimated progress; less than 1, which only the end reports.
    fn share(&self, elapsed: Duration) -> f32 {
        (elapsed.as_secs_f32() / self.seconds).min(0.98)
    }

    fn write(&self, elapsed: Duration) {
        // Without the note only the bar's pace is wrong.
        let _ = fs::write(&self.note, format!("{:.2}\n", elapsed.as_secs_f32()));
    }
}
