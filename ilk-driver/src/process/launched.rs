//! A program that is started for its instruments: it is stopped at its entry, when the dynamic linker has mapped its
//! libraries and registered its thread for restartable sequences, and has executed nothing of its own.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::library::{names_area, program_file};
use super::ptrace::{self, Tid};
use super::record::Client;
use super::removal::memory;
use super::stopped::traced;
use super::{proc, refused};
use crate::{Error, Result, interrupt};

/// `AT_BASE`, the address of the dynamic linker, and `AT_ENTRY` of include/uapi/linux/auxvec.h.
pub(super) const BASE: u64 = 7;
const ENTRY: u64 = 9;
/// Offset of the class in the identification of an ELF file, and that of 64 bits (the ABI's chapter 4).
pub(super) const CLASS: usize = 4;
pub(super) const CLASS_64: u8 = 2;
/// Time in which a program stops by the signal that it was left with.
const STOPPED: Duration = Duration::from_secs(2);
/// Interval at which its state is polled.
const POLL: Duration = Duration::from_millis(10);
/// `int3`.
const BREAKPOINT: [u8; 1] = [0xcc];

/// A process that is stopped at the entry of its program.
pub trait StoppedProgram {
    /// Lets it execute.
    ///
    /// # Errors
    /// [`Error::Process`] if it has ended.
    fn release(&mut self) -> Result<()>;
}

/// A program, stopped at its entry until it is released. It is killed if this is dropped before.
#[derive(Debug)]
pub struct StartedProgram {
    child: Child,
    released: bool,
}

impl StartedProgram {
    /// Starts a program with arguments. Before it is stopped without a tracer, `guard` is given it, which ends it
    /// if this process is killed before the release, as a [`Supervisor`](super::Supervisor) does.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started, or `guard` fails; [`Error::Process`] if it does not reach its entry, or is
    /// none that can be instrumented there.
    pub fn start(
        program: &str,
        arguments: &[String],
        guard: impl FnOnce(Client) -> std::io::Result<()> + Send,
    ) -> Result<Self> {
        // The thread that starts the program is its tracer.
        traced(0, || {
            let mut command = Command::new(program);
            command.args(arguments);
            let prepare = || {
                interrupt::inherit();
                ptrace::allow_relatives();
                ptrace::trace_me()
            };
            // SAFETY: between fork and exec, the closure executes system calls only.
            #[allow(unsafe_code, reason = "the child has itself traced")]
            unsafe {
                command.pre_exec(prepare)
            };
            let child = command.spawn().map_err(Error::io(
                program,
                "The program cannot be started; write its path, or a name in PATH.",
            ))?;
            let launched = Self {
                child,
                released: false,
            };
            launched.to_entry()?;
            let guarded = Client::of(launched.pid()).and_then(|client| {
                guard(client).map_err(Error::io(program, "Its supervisor has ended."))
            });
            guarded?;
            launched.detach()?;
            Ok(launched)
        })
    }

    /// Refuses a program that registers for restartable sequences after its entry. Others do it before, in the dynamic
    /// linker, or never.
    ///
    /// # Errors
    /// [`Error::Process`] if glibc is linked statically, or the program cannot be read.
    pub fn check_registered(&self) -> Result<()> {
        check_registered(self.pid())
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn tid(&self) -> Tid {
        tid(self.pid())
    }

    /// Executes the dynamic linker, up to the program's entry.
    fn to_entry(&self) -> Result<()> {
        let lost = |error| unreached(self.pid(), &error);
        ptrace::wait_executed(self.tid()).map_err(lost)?;
        ptrace::end_with_tracer(self.tid()).map_err(lost)?;
        to_entry(self.pid())
    }

    /// Leaves it stopped, without a tracer.
    fn detach(&self) -> Result<()> {
        let detached = ptrace::detach_stopped(self.tid());
        detached.map_err(|error| unleft(self.pid(), &error))
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// [`Error::Process`] if its exit status is not known.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.child.wait();
        status.map_err(|error| {
            let pid = self.pid();
            refused(pid, format!("its exit status is not known ({error})"))
        })
    }
}

impl StoppedProgram for StartedProgram {
    fn release(&mut self) -> Result<()> {
        release(self.pid())?;
        self.released = true;
        Ok(())
    }
}

/// A process that was traced, and is stopped without a tracer until it is released, or this is dropped.
#[derive(Debug)]
pub struct HeldProcess {
    pid: u32,
    released: bool,
}

impl HeldProcess {
    /// Leaves a stopped thread, the only one of its process, stopped where it is. Executed by its tracer.
    ///
    /// # Errors
    /// [`Error::Process`] if it has ended.
    pub(super) fn here(pid: u32) -> Result<Self> {
        let left = ptrace::detach_to_stop(tid(pid));
        left.map_err(|error| unleft(pid, &error))?;
        Ok(Self {
            pid,
            released: false,
        })
    }

    /// Executes the dynamic linker of a program that a process has stopped for, up to the program's entry, and leaves it
    /// stopped there. Executed by its tracer, which has left it in any case then.
    ///
    /// # Errors
    /// [`Error::Process`] if it does not reach its entry, or is none that can be instrumented there.
    pub(super) fn at_entry(pid: u32) -> Result<Self> {
        let lost = |error| unreached(pid, &error);
        let reached = ptrace::stop_for_signals_alone(tid(pid)).map_err(lost);
        match reached.and_then(|()| to_entry(pid)) {
            Ok(()) => Self::here(pid),
            Err(error) => {
                // It may have ended.
                let _ended = ptrace::detach(tid(pid));
                Err(error)
            }
        }
    }

    /// The number of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// As [`StartedProgram::check_registered`].
    ///
    /// # Errors
    /// As that.
    pub fn check_registered(&self) -> Result<()> {
        check_registered(self.pid)
    }
}

impl StoppedProgram for HeldProcess {
    fn release(&mut self) -> Result<()> {
        self.released = true;
        release(self.pid)
    }
}

impl Drop for HeldProcess {
    fn drop(&mut self) {
        if !self.released {
            // It may have ended.
            let _ended = release(self.pid);
        }
    }
}

/// Refuses a program that registers for restartable sequences after its entry.
fn check_registered(pid: u32) -> Result<()> {
    let is_static = auxiliary(pid, BASE)?.is_none_or(|base| base == 0);
    if is_static && names_area(&program_file(pid)?) {
        return Err(refused(
            pid,
            "its program is linked statically, and registers for restartable sequences only after its \
             entry; start it, and instrument it with -p",
        ));
    }
    Ok(())
}

/// Executes a stopped program, up to its entry.
fn to_entry(pid: u32) -> Result<()> {
    let lost = |error| unreached(pid, &error);
    let mut header = [0; CLASS + 1];
    let exe = File::open(proc(pid, "exe")).map_err(lost)?;
    exe.read_exact_at(&mut header, 0).map_err(lost)?;
    if header.last() != Some(&CLASS_64) {
        return Err(refused(
            pid,
            "its program is not one of 64 bits, and only these are instrumented",
        ));
    }
    let entry = auxiliary(pid, ENTRY)?.unwrap_or_default();
    let memory = memory(pid)?;
    let mut original = [0];
    memory.read_exact_at(&mut original, entry).map_err(lost)?;
    memory.write_all_at(&BREAKPOINT, entry).map_err(lost)?;
    ptrace::run_to(tid(pid), entry.wrapping_add(1)).map_err(lost)?;
    memory.write_all_at(&original, entry).map_err(lost)?;
    let mut registers = ptrace::registers(tid(pid)).map_err(lost)?;
    registers.rip = entry;
    ptrace::set_registers(tid(pid), &registers).map_err(lost)
}

fn unreached(pid: u32, error: &std::io::Error) -> Error {
    refused(
        pid,
        format!("the program does not reach its entry ({error})"),
    )
}

fn unleft(pid: u32, error: &std::io::Error) -> Error {
    refused(pid, format!("it cannot be left ({error})"))
}

/// Lets a process that was left so execute.
fn release(pid: u32) -> Result<()> {
    let released = ptrace::proceed(tid(pid));
    released.map_err(|error| refused(pid, format!("it cannot continue ({error})")))
}

fn tid(pid: u32) -> Tid {
    Tid::try_from(pid).unwrap_or(Tid::MAX)
}

/// Returns a value of the auxiliary vector of a process (getauxval(3)).
pub(super) fn auxiliary(pid: u32, key: u64) -> Result<Option<u64>> {
    let path = proc(pid, "auxv");
    let vector = fs::read(&path);
    let vector = vector.map_err(|error| {
        let path = path.display();
        refused(pid, format!("{path} cannot be read ({error})"))
    })?;
    let (words, _) = vector.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let pair = pairs.iter().find(|pair| u64::from_le_bytes(pair[0]) == key);
    Ok(pair.map(|pair| u64::from_le_bytes(pair[1])))
}

/// Ends a program that was started, stopped and not released by a process that has ended.
///
/// The program is stopped by a signal that it is left with, and so only once it is scheduled: a busy machine may take a
/// while. One that is not stopped after two seconds has been released.
pub(super) fn end_stopped(program: Client) {
    let begun = Instant::now();
    while program.is_alive() && begun.elapsed() < STOPPED {
        if program.is_stopped() {
            ptrace::kill(Tid::try_from(program.pid).unwrap_or(Tid::MAX));
            return;
        }
        thread::sleep(POLL);
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        if !self.released {
            // It may have ended.
            let _ended = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_program_that_stops_late_is_ended_and_one_that_executes_is_left() {
        let waiting = || {
            let mut command = Command::new("cat");
            command.stdin(Stdio::piped()).spawn().unwrap()
        };
        let mut late = waiting();
        let client = Client::of(late.id()).unwrap();
        let stops = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            let pid = Tid::try_from(client.pid).unwrap();
            // SAFETY: kill(2) takes no pointers.
            #[allow(unsafe_code, reason = "kill(2)")]
            unsafe {
                libc::kill(pid, libc::SIGSTOP)
            }
        });
        end_stopped(client);
        assert_eq!(stops.join().unwrap(), 0);
        assert_eq!(late.wait().unwrap().signal(), Some(libc::SIGKILL));

        let mut executes = waiting();
        end_stopped(Client::of(executes.id()).unwrap());
        drop(executes.stdin.take());
        assert!(executes.wait().unwrap().success());
    }
}
