//! A test program under observation: its lines, a limit of the time between two of its results, and the processes that
//! it leaves.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::fail::{Fail, Result};
use crate::stages::processor_times;

/// Variable that every process of a test program inherits, by which those that it leaves are found.
const MARK: &str = "GILK_TEST_PROGRAM";
/// Time between two looks whether the program has ended.
const POLL: Duration = Duration::from_millis(50);
/// Time in which processes of an ended program end too.
const GRACE: Duration = Duration::from_secs(2);

/// A program, its lines, and when one of them last mattered.
pub(crate) struct Watched {
    child: Child,
    mark: String,
    lines: Receiver<Vec<u8>>,
    limit: Duration,
    last: Instant,
    status: Option<(ExitStatus, Instant)>,
    is_late: bool,
    left: Option<Vec<String>>,
}

/// The end of a program.
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    /// It was killed after the limit.
    pub(crate) is_late: bool,
    /// Names of processes that were killed because it left them.
    pub(crate) left: Vec<String>,
}

impl Watched {
    /// Starts a program whose standard output is read here.
    pub(crate) fn start(command: &mut Command, limit: Duration) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let program = command.get_program().to_owned();
        let child = command.env(MARK, &mark).stdout(Stdio::piped()).spawn();
        let mut child = child
            .map_err(|error| Fail::new(format!("cannot start {}: {error}", program.display())))?;
        let (sender, lines) = mpsc::channel();
        let mut out = child.stdout.take().map(BufReader::new);
        thread::spawn(move || {
            let mut line = Vec::new();
            // A program that is killed may end within a line.
            while let Some(Ok(1..)) = out.as_mut().map(|out| out.read_until(b'\n', &mut line)) {
                line.pop_if(|last| *last == b'\n');
                // Lines of a process that an ended program has left are not received.
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            mark,
            lines,
            limit,
            last: Instant::now(),
            status: None,
            is_late: false,
            left: None,
        })
    }

    /// The next line, until the program and all that it started have ended. Kills the program if `has_advanced` was not
    /// called within the limit, and what it leaves.
    pub(crate) fn line(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            match self.lines.recv_timeout(POLL) {
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) => {}
                // It may close its output long before its end.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
            }
            let failed = |error| Fail::new(format!("cannot wait for a test program: {error}"));
            let Some((_, ended)) = self.status else {
                let status = self.child.try_wait().map_err(failed)?;
                self.status = status.map(|status| (status, Instant::now()));
                if self.status.is_none() && self.last.elapsed() > self.limit {
                    self.is_late = true;
                    self.has_advanced();
                    self.child.kill().map_err(failed)?;
                }
                continue;
            };
            if self.left.is_some() {
                return Ok(None);
            }
            if ended.elapsed() > GRACE || marked(&self.mark).is_empty() {
                // Lines of a process that is killed now, and had the output open, are received after it.
                self.left = Some(killed(&self.mark));
            }
        }
    }

    /// Begins the limit again: a test has ended.
    pub(crate) fn has_advanced(&mut self) {
        self.last = Instant::now();
    }

    /// Processor time of the program and of all that it has started, but for what has ended and left no parent to
    /// account for it.
    pub(crate) fn processor_time(&self) -> Duration {
        let mut sum = Duration::ZERO;
        let mut pending = vec![self.child.id().to_string()];
        while let Some(pid) = pending.pop() {
            let folder = Path::new("/proc").join(pid);
            let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
            // One that has just ended has no times, or its parent has them.
            sum += processor_times(&stat).into_iter().flatten().sum();
            let threads = fs::read_dir(folder.join("task")).into_iter().flatten();
            for thread in threads.flatten() {
                let children = fs::read_to_string(thread.path().join("children"));
                let children = children.unwrap_or_default();
                pending.extend(children.split_whitespace().map(str::to_owned));
            }
        }
        sum
    }

    /// The end of the program, of which every line was read.
    pub(crate) fn end(self) -> Result<End> {
        let (Some((status, _)), Some(left)) = (self.status, self.left) else {
            return Err(Fail::new(
                "internal error: a test program's lines were not read to their end",
            ));
        };
        Ok(End {
            status,
            is_late: self.is_late,
            left,
        })
    }
}

/// Kills every process with a mark in its environment, and gives their names.
fn killed(mark: &str) -> Vec<String> {
    let mut names = Vec::new();
    // One that forks meanwhile is found in the next round.
    loop {
        let found = marked(mark);
        if found.is_empty() {
            return names;
        }
        for (pid, name) in found {
            // Fails only for a process that has just ended.
            let _ = Command::new("kill")
                .args(["-9", &pid])
                .stderr(Stdio::null())
                .status();
            names.push(format!("{name} ({pid})"));
        }
        thread::sleep(POLL);
        names.sort();
        names.dedup();
    }
}

/// Processes with a mark in their environment: their numbers and names. A zombie has no environment.
fn marked(mark: &str) -> Vec<(String, String)> {
    let variable = format!("{MARK}={mark}");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let pids = pids.filter(|pid| pid.bytes().all(|digit| digit.is_ascii_digit()));
    pids.filter_map(|pid| {
        let mut environment = Vec::new();
        let file = fs::File::open(format!("/proc/{pid}/environ"));
        // Another user's process, or one that has ended.
        file.ok()?.read_to_end(&mut environment).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        variables.find(|found| *found == variable.as_bytes())?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Some((pid, name.trim().to_owned()))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(script: &str, limit: Duration) -> (Vec<String>, End) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let mut program = Watched::start(&mut command, limit).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = program.line().unwrap() {
            lines.push(String::from_utf8(line).unwrap());
            program.has_advanced();
        }
        (lines, program.end().unwrap())
    }

    #[test]
    fn lines_and_status_of_a_program_are_its_own() {
        let (lines, end) = watched("echo one; echo two; printf three; exit 3", Duration::MAX);
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(end.status.code(), Some(3));
        assert!(!end.is_late && end.left.is_empty());
    }

    #[test]
    fn processor_time_of_a_programs_children_is_its_own() {
        let script = "(while :; do :; done) & echo begun; read line; kill $!; wait; echo ended";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped());
        let mut program = Watched::start(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(program.line().unwrap(), Some(b"begun".to_vec()));
        while program.processor_time() < Duration::from_millis(50) {
            thread::sleep(POLL);
        }
        // The end of its input ends the loop, whose time then is that of a child that was waited for.
        drop(program.child.stdin.take());
        assert_eq!(program.line().unwrap(), Some(b"ended".to_vec()));
        assert!(program.processor_time() >= Duration::from_millis(50));
        assert_eq!(program.line().unwrap(), None);
    }

    /// The process that is left has the program's output open.
    #[test]
    fn a_process_that_a_program_leaves_is_killed_and_named() {
        let (lines, end) = watched("echo one; sleep 1000 & exit 0", Duration::MAX);
        assert_eq!(lines, ["one"]);
        let [left] = &end.left[..] else {
            panic!("{:?}", end.left);
        };
        assert!(left.starts_with("sleep ("), "{left}");
        assert!(end.status.success() && !end.is_late);
    }

    #[test]
    fn a_program_without_a_result_in_time_is_killed_with_its_children() {
        let (lines, end) = watched(
            "echo one; printf two; sleep 1000; echo three",
            Duration::from_millis(300),
        );
        assert_eq!(lines, ["one", "two"]);
        assert!(end.is_late && !end.status.success());
        assert_eq!(end.left.len(), 1);
    }
}
