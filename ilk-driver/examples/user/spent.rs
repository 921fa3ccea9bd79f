//! Executes a program in a way, and measures its processor time.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::ways::{Begin, RECORDS, Way};
use super::works::Work;

/// Time between two looks at the output of a tool.
const LOOK: Duration = Duration::from_millis(50);

/// Processor time in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    /// The program, from when it waited for its input; its start too where a tool starts it.
    pub(crate) process: f64,
    /// Its start, without a tool.
    pub(crate) start: f64,
    /// A tool that is a process of its own.
    pub(crate) tool: f64,
}

impl Spent {
    fn least(self, other: Self) -> Self {
        Self {
            process: self.process.min(other.process),
            start: self.start.min(other.start),
            tool: self.tool.min(other.tool),
        }
    }
}

pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) rounds: u32,
}

impl Bench {
    /// The smallest time of each way, which are taken in turns.
    pub(crate) fn all(&self, work: &Work, ways: &[Way], runs: u32) -> anyhow::Result<Vec<Spent>> {
        let program = work.path(self.folder.path())?;
        let input = work.input(self.rounds);
        let mut least: Vec<Spent> = Vec::new();
        let mut expected: Option<Vec<u8>> = None;
        for run in 0..runs {
            for (number, way) in ways.iter().enumerate() {
                let what = || format!("{}, {}, {:?}", work.name, way.name, way.purpose);
                let executed = match way.begin {
                    Begin::Native => self.attached(work, &program, way, None, &input),
                    Begin::Attached(begun) => {
                        self.attached(work, &program, way, Some(begun), &input)
                    }
                    Begin::Started => self.started(work, &program, way, &input),
                };
                let (spent, output) = executed.with_context(what)?;
                eprintln!("{}: {spent:.2?}", what());
                ensure!(!output.is_empty(), "{}: it has no output", what());
                let expected = expected.get_or_insert_with(|| output.clone());
                // A tool in the program's process may print before and after it.
                let mut parts = output.windows(expected.len());
                ensure!(
                    parts.any(|part| part == expected),
                    "{}: its output differs",
                    what()
                );
                match least.get_mut(number).filter(|_| run > 0) {
                    Some(least) => *least = least.least(spent),
                    None => least.push(spent),
                }
            }
        }
        Ok(least)
    }

    /// A command in the environment of all programs, so that their executions are alike.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env("LC_ALL", "C")
            .env("PYTHONHASHSEED", "0")
            .env("PERL_HASH_SEED", "0")
            .env("HOME", self.folder.path())
            .env_remove("XDG_CACHE_HOME");
        command
    }

    /// Executes a program, to which a tool attaches if it has words by which it begins; returns the times and the output.
    fn attached(
        &self,
        work: &Work,
        program: &Path,
        way: &Way,
        words: Option<&str>,
        input: &[u8],
    ) -> anyhow::Result<(Spent, Vec<u8>)> {
        let at = |name: &str| self.folder.path().join(name);
        let (output, messages) = (at("output"), at("messages"));
        let mut program = self.command(program);
        program
            .args(work.arguments)
            .stdin(Stdio::piped())
            .stdout(File::create(&output)?);
        let mut program = program.spawn().context("it does not start")?;
        waits(program.id())?;
        let start = used(program.id())?;
        let mut tool = None;
        if let Some((words, (name, arguments))) = words.zip(way.command.split_first()) {
            let both = File::create(&messages)?;
            let mut command = self.command(name);
            command
                .args(arguments)
                .arg(program.id().to_string())
                .stdin(Stdio::null())
                .stdout(both.try_clone()?)
                .stderr(both);
            let mut child = command.spawn().context("the tool does not start")?;
            begun(&mut child, words, program.id(), &messages)?;
            tool = Some(child);
        }
        let mut pipe = program.stdin.take().context("it has an input")?;
        pipe.write_all(input)
            .context("it does not read its input")?;
        drop(pipe);
        let whole = ended(&program, work.name)?;
        let tool = match tool {
            Some(tool) => {
                let spent = ended(&tool, way.name)?;
                check(way, &fs::read_to_string(&messages)?)?;
                spent
            }
            None => 0.0,
        };
        let process = whole - start;
        let spent = Spent {
            process,
            start,
            tool,
        };
        Ok((spent, fs::read(&output)?))
    }

    /// Has a tool start a program; returns the times and the output.
    fn started(
        &self,
        work: &Work,
        program: &Path,
        way: &Way,
        input: &[u8],
    ) -> anyhow::Result<(Spent, Vec<u8>)> {
        let at = |name: &str| self.folder.path().join(name);
        let (output, messages) = (at("output"), at("messages"));
        // No tool writes over the records of an earlier run.
        match fs::remove_file(at(RECORDS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let (name, arguments) = way.command.split_first().context("it has a command")?;
        let mut command = self.command(name);
        command
            .args(arguments)
            .arg(program)
            .args(work.arguments)
            .stdin(Stdio::piped())
            .stdout(File::create(&output)?)
            .stderr(File::create(&messages)?);
        let mut tool = command.spawn().context("the tool does not start")?;
        let mut pipe = tool.stdin.take().context("it has an input")?;
        pipe.write_all(input)
            .context("it does not read its input")?;
        drop(pipe);
        let spent = Spent {
            process: ended(&tool, work.name)?,
            ..Spent::default()
        };
        let output = fs::read(&output)?;
        let mut said = fs::read_to_string(&messages)?;
        if !said.contains(way.done) {
            said += &String::from_utf8_lossy(&output);
        }
        check(way, &said)?;
        Ok((spent, output))
    }
}

/// Refuses messages of a tool that has not done what it is for.
fn check(way: &Way, messages: &str) -> anyhow::Result<()> {
    let left = ["was let go", "has executed another program"];
    let has_left = left.iter().any(|words| messages.contains(words));
    ensure!(messages.contains(way.done) && !has_left, "{messages}");
    Ok(())
}

/// Waits until a tool has begun with a process.
fn begun(tool: &mut Child, words: &str, pid: u32, messages: &Path) -> anyhow::Result<()> {
    loop {
        if let Some(status) = tool.try_wait()? {
            let messages = fs::read_to_string(messages)?;
            anyhow::bail!("the tool has ended, {status}: {messages}");
        }
        if fs::read_to_string(messages)?.contains(words) {
            return waits(pid);
        }
        std::thread::sleep(LOOK);
    }
}

/// Waits until a process waits for its input.
fn waits(pid: u32) -> anyhow::Result<()> {
    let mut before = f64::NAN;
    loop {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let (_, fields) = stat.rsplit_once(") ").context("a line of stat")?;
        let now = used(pid)?;
        // Asleep, and without an instruction since the last look.
        if fields.starts_with('S') && now.to_bits() == before.to_bits() {
            return Ok(());
        }
        before = now;
        std::thread::sleep(LOOK);
    }
}

/// Processor time of a process that has one thread, in seconds.
fn used(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
    let nanoseconds = text.split_whitespace().next().context("schedstat")?;
    Ok(nanoseconds.parse::<f64>()? / 1e9)
}

/// Waits for the end of a child; returns its processor time, with that of its children that it has waited for.
#[expect(unsafe_code, reason = "the standard library has no wait4")]
fn ended(child: &Child, name: &str) -> anyhow::Result<f64> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let pid = libc::pid_t::try_from(child.id())?;
    // SAFETY: both places are valid for writes, and zeroes are an rusage.
    let usage = unsafe {
        if libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) != pid {
            return Err(std::io::Error::last_os_error()).context(format!("cannot wait for {name}"));
        }
        usage.assume_init()
    };
    ensure!(status == 0, "{name} has ended with status {status:#x}");
    #[expect(clippy::cast_precision_loss, reason = "seconds of a measurement")]
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
}
