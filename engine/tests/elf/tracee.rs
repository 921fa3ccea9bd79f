//! A program under ptrace, executed one instruction at a time.

#![allow(unsafe_code, reason = "ptrace")]

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A mapping of a file with code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    /// The file, or the kernel's name for what is none.
    pub(crate) name: String,
}

/// The program.
pub(crate) struct Tracee {
    child: Child,
}

impl Tracee {
    /// Starts a program that stops before its first instruction.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: ptrace(2) is async-signal-safe, and touches nothing of the parent.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let tracee = Self { child };
        assert!(tracee.wait(), "it stops at its start");
        tracee
    }

    fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for a stop; returns whether the program is still there.
    fn wait(&self) -> bool {
        let mut status = 0;
        // SAFETY: the status is written to a local.
        let found = unsafe { libc::waitpid(self.pid(), &raw mut status, 0) };
        assert_eq!(found, self.pid());
        libc::WIFSTOPPED(status)
    }

    /// Executes an instruction; returns the address of the next, or `None` at the end of the program.
    pub(crate) fn step(&self) -> Option<u64> {
        // SAFETY: the program is stopped.
        let done = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid(), 0, 0) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        self.wait().then(|| self.ip())
    }

    /// The address of the next instruction.
    pub(crate) fn ip(&self) -> u64 {
        const RIP: usize = std::mem::offset_of!(libc::user_regs_struct, rip);
        // SAFETY: the program is stopped; the word is in its registers.
        let word = unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.pid(), RIP, 0) };
        word.cast_unsigned()
    }

    /// Its mappings with code.
    pub(crate) fn mappings(&self) -> Vec<Mapping> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
        let executable = text.lines().filter(|line| line.contains("x"));
        executable
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let (start, end) = words.next()?.split_once('-')?;
                words.next().filter(|flags| flags.contains('x'))?;
                let number = |text: &str| u64::from_str_radix(text, 16).ok();
                Some(Mapping {
                    start: number(start)?,
                    end: number(end)?,
                    offset: number(words.next()?)?,
                    name: words.nth(2).unwrap_or_default().to_owned(),
                })
            })
            .collect()
    }

    /// Reads its memory.
    pub(crate) fn read(&self, at: u64, len: usize) -> Vec<u8> {
        use std::os::unix::fs::FileExt;
        let path = CString::new(format!("/proc/{}/mem", self.pid())).unwrap();
        let file = std::fs::File::open(path.to_str().unwrap()).unwrap();
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // The program may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
