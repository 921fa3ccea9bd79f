//! The processes of this machine, to choose a target from.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::{proc, text};
use crate::{Error, Result, accounts};

/// Ticks of a second in `/proc` (`USER_HZ` of arch/x86/include/uapi/asm/param.h).
const TICKS: f64 = 100.0;

/// A process with memory of its own, as `/proc` shows it to every user.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedProcess {
    /// Its number.
    pub pid: u32,
    /// The name of its user, or the user's number if the machine has no name for it.
    pub owner: String,
    /// Its command line; its name in brackets if it has none.
    pub command: String,
    /// The number of its threads.
    pub threads: u32,
    /// The time since its start.
    pub age: Duration,
}

impl ListedProcess {
    /// Returns all processes but this one, by number: no threads of the kernel, and none that has ended.
    ///
    /// # Errors
    /// [`Error::Io`] if `/proc` cannot be read.
    pub fn all() -> Result<Vec<Self>> {
        let read = |path: &str| {
            fs::read_to_string(path).map_err(Error::io(path, "Is /proc mounted, or /etc readable?"))
        };
        let uptime = read("/proc/uptime")?;
        let uptime = uptime.split_whitespace().next();
        let uptime: f64 = uptime
            .and_then(|seconds| seconds.parse().ok())
            .ok_or_else(|| {
                Error::Target("/proc/uptime does not begin with a number.".to_owned())
            })?;
        // A machine without the file has users without names.
        let names = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let names = user_names(&names);
        let entries = fs::read_dir("/proc").map_err(Error::io("/proc", "Is /proc mounted?"))?;
        let own = std::process::id();
        let mut all: Vec<Self> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&pid| pid != own)
            // Processes may end meanwhile.
            .filter_map(|pid| Self::read(pid, uptime, &names))
            .collect();
        all.sort_by_key(|process| process.pid);
        Ok(all)
    }

    /// Returns whether each word of a filter is in its number, owner or command; cases of letters are not distinguished.
    #[must_use]
    pub fn matches(&self, filter: &str) -> bool {
        let command = self.command.to_lowercase();
        let (pid, owner) = (self.pid.to_string(), self.owner.to_lowercase());
        let mut words = filter.split_whitespace().map(str::to_lowercase);
        words.all(|word| command.contains(&word) || pid == word || owner.contains(&word))
    }

    fn read(pid: u32, uptime: f64, names: &HashMap<u32, &str>) -> Option<Self> {
        let stat = text(pid, "stat").ok()?;
        let status = StatFields::parse(&stat)?;
        let user = fs::metadata(proc(pid, "")).ok()?.uid();
        let line = fs::read(proc(pid, "cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let command = match line.trim() {
            "" => format!("[{}]", status.name),
            line => line.to_owned(),
        };
        let name = names.get(&user);
        Some(Self {
            pid,
            owner: name.map_or_else(|| user.to_string(), |name| (*name).to_owned()),
            command,
            threads: status.threads,
            age: Duration::from_secs_f64((uptime - status.start / TICKS).max(0.0)),
        })
    }
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct StatFields<'t> {
    name: &'t str,
    threads: u32,
    /// Ticks from the start of the machine.
    start: f64,
}

impl<'t> StatFields<'t> {
    /// Returns the fields of a process that executes and has memory.
    fn parse(stat: &'t str) -> Option<Self> {
        // A name may have parentheses.
        let (before, after) = stat.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let state = fields.first()?;
        let memory: u64 = fields.get(20)?.parse().ok()?;
        let is_target = memory > 0 && !matches!(*state, "Z" | "X");
        is_target.then_some(())?;
        Some(Self {
            name,
            threads: fields.get(17)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns the names of users by number, from the lines of `/etc/passwd`.
fn user_names(lines: &str) -> HashMap<u32, &str> {
    accounts::entries(lines).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_processes_are_listed() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let pid = child.id();
        // It is named by its own words once it executes them.
        let is_begun = |all: &[ListedProcess]| {
            all.iter()
                .any(|process| process.pid == pid && process.command == "sleep 60")
        };
        let mut found = ListedProcess::all().expect("/proc is readable");
        for _ in 0..1000 {
            if is_begun(&found) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
            found = ListedProcess::all().expect("/proc is readable");
        }
        child.kill().and_then(|()| child.wait()).expect("it ends");
        let own = std::process::id();
        assert!(found.iter().all(|process| process.pid != own));
        let sleep = found.iter().find(|process| process.pid == pid);
        let sleep = sleep.expect("the child is listed");
        assert_eq!((sleep.command.as_str(), sleep.threads), ("sleep 60", 1));
        assert!(sleep.age < Duration::from_secs(60), "{:?}", sleep.age);
        assert!(sleep.matches("SLEEP 60") && sleep.matches(&pid.to_string()));
        assert!(!sleep.matches("sleep nothing-of-that-name"));
    }

    #[test]
    fn threads_of_the_kernel_and_ended_processes_are_no_targets() {
        let fields = |state: &str, memory: u64| {
            format!("7 (a) b) c) {state} 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 250 {memory} 1")
        };
        let stat = fields("S", 4096);
        let status = StatFields::parse(&stat).expect("it is a process");
        assert_eq!((status.name, status.threads), ("a) b) c", 3));
        assert!((status.start - 250.0).abs() < f64::EPSILON);
        assert_eq!(StatFields::parse(&fields("S", 0)), None);
        assert_eq!(StatFields::parse(&fields("Z", 4096)), None);
        assert_eq!(StatFields::parse("7 (a"), None);
    }

    #[test]
    fn users_have_the_names_of_the_file() {
        let names =
            user_names("root:x:0:0:root:/root:/bin/sh\n# a comment\nweb:x:33:33::/:/bin/sh");
        assert_eq!(names.get(&0), Some(&"root"));
        assert_eq!(names.get(&33), Some(&"web"));
        assert_eq!(names.len(), 2);
    }
}
