//! One QEMU process, which ends with the process that starts it.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::accelerator::Accelerator;
use super::host::{StepResult as Result, failed, on};

/// Parameters of one start of QEMU.
pub(super) struct QemuMachine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Words that are appended to the kernel's command line.
    pub(super) append: Vec<String>,
    /// Arguments that are appended to QEMU's.
    pub(super) arguments: Vec<String>,
    pub(super) accelerator: Accelerator,
    pub(super) cpus: u32,
    pub(super) memory_mib: u32,
    /// The folder of the console, QEMU's messages and the agent's socket.
    pub(super) directory: &'a Path,
    pub(super) start: Start<'a>,
}

/// Kind of start, and use of the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start<'a> {
    /// It boots, and has no monitor.
    Boot,
    /// It boots, with its memory in this file, and its state can be saved through its monitor.
    BootToSave(&'a Path),
    /// It waits until a state is loaded through its monitor. This file is its memory, and does not change: what the guest
    /// writes is the process's own.
    Restore(&'a Path),
}

impl QemuMachine<'_> {
    pub(super) fn console(&self) -> PathBuf {
        self.directory.join("console")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    /// The file of the memory that the lab shares; it goes with its directory.
    pub(super) fn shared(&self) -> PathBuf {
        self.socket().with_extension("shared")
    }

    /// The socket of QEMU's monitor, where a snapshot is saved or restored.
    pub(super) fn monitor(&self) -> PathBuf {
        self.directory.join("monitor")
    }

    fn complaints(&self) -> PathBuf {
        self.directory.join("qemu")
    }

    fn command(&self) -> Result<Command> {
        let log = self.complaints();
        let complaints = fs::File::create(&log).map_err(on("create", &log))?;
        // On a busy host a timer may be so late that the kernel concludes that there is none. All processors
        // have the same TSC, and the emulated ones no flag that says so.
        let mut append = String::from(
            "console=ttyS0 loglevel=5 oops=panic panic=-1 no_timer_check tsc=reliable",
        );
        let cpus = match self.accelerator {
            Accelerator::CountInstructions => {
                append.push_str(" nokaslr");
                1
            }
            Accelerator::Kvm => self.cpus,
            Accelerator::Emulate => {
                // The emulated TSC is the host's. On a busy host the kernel's own calibration of 10 ms can be short
                // of three quarters of the ticks, and its seconds are then a quarter of a second.
                append.push_str(&format!(" tsc_early_khz={}", crate::agent::tsc_hz() / 1000));
                self.cpus
            }
        };
        for word in &self.append {
            append.push(' ');
            append.push_str(word);
        }
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-cpu",
            self.accelerator.processor(),
        ]);
        qemu.args(self.accelerator.arguments());
        qemu.args([
            "-smp",
            &cpus.to_string(),
            "-m",
            &self.memory_mib.to_string(),
        ]);
        qemu.arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", &append]);
        // A restored lab's console has the boot's text already.
        let console = format!("file,id=console,append=on,path={}", value(&self.console()));
        qemu.args(["-chardev", &console]);
        qemu.args(["-serial", "chardev:console"]);
        qemu.args(["-device", "virtio-serial-pci,max_ports=3"]);
        qemu.args([
            "-chardev",
            &format!(
                "socket,id=agent,server=on,wait=off,path={}",
                value(&self.socket())
            ),
        ]);
        qemu.args([
            "-device",
            "virtserialport,chardev=agent,nr=1,name=gilk.agent",
        ]);
        // A port has one client: others look at the kernel through a second one.
        qemu.args([
            "-chardev",
            &format!(
                "socket,id=look,server=on,wait=off,path={}",
                value(&self.socket().with_extension("look"))
            ),
        ]);
        qemu.args(["-device", "virtserialport,chardev=look,nr=2,name=gilk.look"]);
        qemu.args([
            "-object",
            &format!(
                "memory-backend-file,id=shared,share=on,size={},mem-path={}",
                crate::shared::BYTES,
                value(&self.shared())
            ),
        ]);
        let memory = match self.start {
            Start::Boot => None,
            Start::BootToSave(file) => Some((file, "on")),
            Start::Restore(file) => Some((file, "off")),
        };
        if let Some((file, shared)) = memory {
            qemu.args(["-machine", "memory-backend=memory", "-object"]);
            qemu.arg(format!(
                "memory-backend-file,id=memory,share={shared},size={}M,mem-path={}",
                self.memory_mib,
                value(file)
            ));
        }
        // A device that is no master hinders a snapshot.
        let master = if self.start == Start::Boot {
            "off"
        } else {
            "on"
        };
        qemu.args([
            "-device",
            &format!("ivshmem-plain,memdev=shared,master={master}"),
        ]);
        if self.start != Start::Boot {
            qemu.args([
                "-qmp",
                &format!("unix:{},server=on,wait=off", value(&self.monitor())),
            ]);
        }
        if matches!(self.start, Start::Restore(_)) {
            qemu.args(["-incoming", "defer"]);
        }
        qemu.args(&self.arguments);
        // Ctrl-C in a terminal ends the session first, and then QEMU.
        qemu.process_group(0);
        qemu.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(complaints);
        Ok(qemu)
    }

    /// Starts QEMU.
    pub(super) fn start(&self) -> Result<EmulatorProcess> {
        EmulatorProcess::start(self.command()?, self.complaints(), "qemu-system-x86")
    }
}

/// A path as a value in one of QEMU's options, where a comma ends it unless doubled.
fn value(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// A process of an emulator. It ends when this value is dropped, and when the starting process ends in any way.
///
/// A thread starts it and exists as long as it does: Linux sends the signal of a
/// parent's death when the *thread* that forked ends, and a lab may be booted by one that ends soon.
pub(super) struct EmulatorProcess {
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    ended: Arc<Mutex<Option<String>>>,
    complaints: PathBuf,
    process: u32,
    began: Instant,
}

impl EmulatorProcess {
    /// Starts an emulator of a package, whose messages go to a file.
    pub(super) fn start(mut command: Command, complaints: PathBuf, package: &str) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        die_with_parent(&mut command);
        // Before the process exists, so that it cannot have waited for longer.
        let began = Instant::now();
        let (stop, stopped) = mpsc::channel::<()>();
        let (sender, started) = mpsc::channel();
        let ended = Arc::new(Mutex::new(None));
        let note = Arc::clone(&ended);
        let keep = move || {
            let mut child = match command.spawn() {
                Ok(child) => child,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    return;
                }
            };
            let _ = sender.send(Ok(child.id()));
            let status = loop {
                match (
                    child.try_wait(),
                    stopped.recv_timeout(Duration::from_millis(50)),
                ) {
                    (Ok(Some(status)), _) => break status.to_string(),
                    (Ok(None), Err(RecvTimeoutError::Timeout)) => (),
                    (Err(error), _) => break error.to_string(),
                    (Ok(None), _) => {
                        let _ = child.kill();
                        break child
                            .wait()
                            .map_or_else(|error| error.to_string(), |status| status.to_string());
                    }
                }
            };
            *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        };
        let keeper = thread::Builder::new()
            .name("emulator".into())
            .spawn(keep)
            .map_err(|error| failed(format!("cannot start a thread: {error}")))?;
        match started.recv() {
            Ok(Ok(process)) => Ok(Self {
                stop: Some(stop),
                keeper: Some(keeper),
                ended,
                complaints,
                process,
                began,
            }),
            Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(failed(format!(
                "there is no {program} on this machine; install the package {package}"
            ))),
            Ok(Err(error)) => Err(failed(format!("cannot start {program}: {error}"))),
            Err(_) => Err(failed(format!("the thread that starts {program} ended"))),
        }
    }

    /// The process number.
    pub(super) fn process(&self) -> u32 {
        self.process
    }

    /// Returns the time since its start, without the time for which it waited for a processor of this machine: a
    /// busy machine does not bring a limit nearer.
    pub(super) fn time(&self) -> Duration {
        self.began
            .elapsed()
            .saturating_sub(waited_for_processors(self.process))
    }

    /// Returns the exit status and messages, once it has ended.
    pub(super) fn end(&self) -> Option<String> {
        let status = self
            .ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        let messages = fs::read_to_string(&self.complaints).unwrap_or_default();
        let messages = messages.trim();
        Some(if messages.is_empty() {
            status
        } else {
            format!("{status}; it printed: {messages}")
        })
    }
}

impl Drop for EmulatorProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// Returns the time for which a process waited for a processor: that of its thread that waited most. It is zero where
/// the kernel does not keep it (`CONFIG_SCHED_INFO`), and when the process has ended.
fn waited_for_processors(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task"));
    let delays = threads.into_iter().flatten().flatten().filter_map(|entry| {
        // Documentation/scheduler/sched-stats.rst: time on a processor, time of waiting for one, and slices.
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok()
    });
    Duration::from_nanos(delays.max().unwrap_or(0))
}

/// Has the kernel kill the child when the thread that starts it ends.
#[allow(unsafe_code, reason = "prctl between fork and exec has no safe face")]
fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let request = move || {
        // SAFETY: both calls are async-signal-safe system calls that touch no memory of this process, as is
        // required between fork and exec.
        let (outcome, parent_now) = unsafe {
            (
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL),
                libc::getppid(),
            )
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have died before the request.
        if parent_now.cast_unsigned() == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: `request` allocates nothing and calls nothing but two system calls; see above.
    unsafe { command.pre_exec(request) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_waiting_for_a_processor_is_not_the_emulators() {
        let start = || {
            let pinned = "taskset -p 1 $$ >/dev/null || exit; while :; do :; done";
            let mut command = Command::new("sh");
            command.args(["-c", pinned]);
            EmulatorProcess::start(command, PathBuf::new(), "dash").expect("it starts")
        };
        let (first, second) = (start(), start());
        let began = Instant::now();
        while waited_for_processors(first.process()) < Duration::from_millis(100) {
            assert_eq!([first.end(), second.end()], [None, None]);
            assert!(began.elapsed() < Duration::from_secs(60), "it never waited");
            thread::sleep(Duration::from_millis(10));
        }
        let time = first.time();
        let elapsed = first.began.elapsed();
        assert!(
            time + Duration::from_millis(100) <= elapsed,
            "{time:?} of {elapsed:?}"
        );
    }
}
