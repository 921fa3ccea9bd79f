//! Processes that end at any moment: what fails in one for that is no error.
//!
//! A process that is killed or exits loses its threads for a tracer first, then its memory, and is listed as ended after
//! that. So what has failed in it is judged by its memory, for some time.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use super::proc;
use super::stopped::threads;

/// Time for which a process that was killed may have its memory still.
const ENDING: Duration = Duration::from_millis(100);
/// Time between two looks.
const BETWEEN: Duration = Duration::from_millis(1);

/// Returns whether `has_ended` holds within a moment: something has failed in a process that may have been killed.
pub(super) fn ends_now(has_ended: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !has_ended() {
        if begun.elapsed() >= ENDING {
            return false;
        }
        std::thread::sleep(BETWEEN);
    }
    true
}

/// Returns whether a process in which something has failed has ended, or does so within a moment.
pub(super) fn ends(pid: u32) -> bool {
    ends_now(|| !has_memory(pid))
}

/// Returns whether a thread of a process has memory: the first one may have ended before others.
pub(super) fn has_memory(pid: u32) -> bool {
    let Ok(threads) = threads(pid) else {
        return proc(pid, "stat").exists();
    };
    threads.into_iter().any(|tid| {
        let maps = fs::read(proc(pid, &format!("task/{tid}/maps")));
        maps.map_or_else(|error| !is_absent(&error), |maps| !maps.is_empty())
    })
}

/// Returns whether an error of a file in `/proc` says that the process is not there any more, or has no memory.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::super::record::Client;
    use super::super::removal::memory;
    use super::*;

    #[test]
    fn a_process_that_is_killed_ends_before_it_is_waited_for() {
        assert!(!ends(std::process::id()));
        let mut sleeping = Command::new("sleep")
            .arg("60")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = sleeping.id();
        assert!(!ends(pid));
        sleeping.kill().unwrap();
        assert!(ends_now(|| !has_memory(pid)));
        // Its memory is gone, and its number is not.
        let error = memory(pid).unwrap_err().to_string();
        assert!(error.contains("it has ended"), "{error}");
        assert!(Client::of(pid).is_ok());
        sleeping.wait().unwrap();
        assert!(ends(pid));
        let error = memory(pid).unwrap_err().to_string();
        assert!(error.contains("it has ended"), "{error}");
    }
}
