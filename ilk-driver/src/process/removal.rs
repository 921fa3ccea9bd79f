//! The removal of patches: from a process, from its forked children, and from those of a client that was killed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use gilk_engine::{Addr, Span};

use super::ended::{ends, ends_now, is_absent};
use super::maps::MappedSpan;
use super::pages::TextPages;
use super::places::Places;
use super::ptrace::Tid;
use super::record::{self, Client, Kept, Record, Semaphore, Written, is_ours};
use super::remote::Remote;
use super::stopped::{ATTEMPTS, Attempt, BETWEEN, Stopped, alone, quiet, quiet_now, traced};
use super::{maps, proc, refused, write_memory};
use crate::Result;

/// Number of searches for the remains of a client: at least, and at most where a removal fails.
const LEAST_LOOKS: usize = 5;
const MOST_LOOKS: usize = 100;
/// Time between two looks.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Findings of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Processes from which patches were removed.
    pub processes: Vec<u32>,
    /// The reasons why arenas remain in processes. Nothing enters them any more.
    pub remains: Vec<String>,
    /// Splices that were not there any more: something else has written over them.
    pub overwritten: usize,
    /// The longest time for which the threads of a process were stopped.
    pub stopped: Duration,
    /// The reasons why processes are instrumented still.
    pub failed: Vec<String>,
}

/// A process with patches.
pub(super) struct Patched<'p> {
    pub(super) pid: u32,
    pub(super) memory: &'p File,
    pub(super) record: &'p Record,
}

impl Patched<'_> {
    /// Returns whether the process has ended, or executed another program. A part may have been unmapped before.
    pub(super) fn has_ended(&self) -> bool {
        let spans = std::iter::once(&self.record.words).chain(&self.record.arenas);
        let mut starts = spans.filter(|span| !span.is_empty()).map(|span| span.start);
        !starts.any(|at| self.memory.read_exact_at(&mut [0], at.0).is_ok())
    }

    /// Has no thread wait any more, restores the text, then unmaps the arena and the counters.
    pub(super) fn remove(&self, cleaned: &mut Cleaned) -> Result<()> {
        if let Some(open) = self.record.open {
            // A process that has ended has no threads that wait.
            let _ended = self.memory.write_all_at(&[0; 4], open.0);
        }
        self.take_out(cleaned)
    }

    /// Restores the text, then unmaps the arena and the counters. Forked children that wait still do so.
    pub(super) fn take_out(&self, cleaned: &mut Cleaned) -> Result<()> {
        let busy = self.take_out_within(ATTEMPTS, cleaned)?;
        cleaned.remains.extend(busy.map(|busy| {
            format!(
                "the stack of thread {busy} of process {} points into an arena, such as in the frame of a signal",
                self.pid
            )
        }));
        Ok(())
    }

    /// The same, with so many attempts to unmap; returns the thread by which the arena and the counters remain.
    pub(super) fn take_out_within(
        &self,
        attempts: usize,
        cleaned: &mut Cleaned,
    ) -> Result<Option<Tid>> {
        let restored = traced(self.pid, || self.restore(cleaned));
        let removed = match restored {
            Ok(()) if self.has_ended() => return Ok(None),
            Ok(()) => traced(self.pid, || self.unmap(attempts, cleaned)),
            Err(error) => Err(error),
        };
        match removed {
            Ok(busy) => {
                if !cleaned.processes.contains(&self.pid) {
                    cleaned.processes.push(self.pid);
                }
                Ok(busy)
            }
            // It was killed meanwhile.
            Err(_) if ends_now(|| self.has_ended()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the original text, as far as the process has not unmapped it.
    fn restore(&self, cleaned: &mut Cleaned) -> Result<()> {
        if self.record.text.is_empty() {
            return Ok(());
        }
        let stopped = quiet(self.pid, self.memory, &self.record.bounces)?;
        self.restore_stopped(cleaned)?;
        cleaned.stopped = cleaned.stopped.max(stopped.duration());
        Ok(())
    }

    /// Writes the original text of a process that is stopped, and no thread of which is among bounces. Returns the
    /// addresses of the splices that it had.
    pub(super) fn restore_stopped(&self, cleaned: &mut Cleaned) -> Result<BTreeSet<Addr>> {
        let code = maps::read(self.pid)?;
        let code = code.iter().filter(|one| one.executable && !is_ours(one));
        let code = Span::merged(code.map(|one| one.span).collect());
        let is_mapped = |write: &&Written| {
            let end = write.at.add(write.splice.len() as u64);
            let after = code.partition_point(|span| span.start <= write.at);
            let before = after.checked_sub(1).and_then(|before| code.get(before));
            before.is_some_and(|span| end <= span.end)
        };
        let mapped: Vec<&Written> = self.record.text.iter().filter(is_mapped).collect();
        let splices: Vec<(Addr, &[u8])> = mapped
            .iter()
            .map(|write| (write.at, write.splice.as_slice()))
            .collect();
        let mut text = TextPages::read(self.pid, self.memory, &splices)?;
        let mut restored = BTreeSet::new();
        for write in mapped.into_iter().rev() {
            let found = text.bytes(write.at, write.splice.len());
            let found = found.unwrap_or_default();
            if found == write.splice {
                found.copy_from_slice(&write.original);
                restored.insert(write.at);
            } else if found != write.original {
                cleaned.overwritten += 1;
            }
        }
        self.switch_off(&restored)?;
        text.write(self.memory)?;
        Ok(restored)
    }

    /// Switches the static probes of a stopped process on.
    pub(super) fn switch_on(&self) -> Result<()> {
        let semaphores = self.record.semaphores.iter();
        let counts: Vec<(Addr, u16)> = semaphores
            .map(|semaphore| Ok((semaphore.at, self.semaphore(semaphore.at)?)))
            .collect::<Result<_>>()?;
        for (at, count) in &counts {
            self.put(*at, &count.saturating_add(1).to_le_bytes())?;
        }
        // A client that is killed before leaves them on, which costs the program time, and not those of another tracer off.
        match counts.is_empty() {
            true => Ok(()),
            false => self.put(self.record.switch(), &[1]),
        }
    }

    /// Switches off the static probes of objects whose text was found with its splices.
    fn switch_off(&self, restored: &BTreeSet<Addr>) -> Result<()> {
        if self.record.semaphores.is_empty() {
            return Ok(());
        }
        let mut on = [0];
        let read = self.memory.read_exact_at(&mut on, self.record.switch().0);
        read.map_err(|error| self.unreadable("the record of its patches", &error))?;
        if on == [0] {
            return Ok(());
        }
        self.put(self.record.switch(), &[0])?;
        for Semaphore { at, splice } in &self.record.semaphores {
            if restored.contains(splice) {
                let count = self.semaphore(*at)?;
                self.put(*at, &count.saturating_sub(1).to_le_bytes())?;
            }
        }
        Ok(())
    }

    fn semaphore(&self, at: Addr) -> Result<u16> {
        let mut bytes = [0; 2];
        let read = self.memory.read_exact_at(&mut bytes, at.0);
        read.map_err(|error| self.unreadable("the semaphore of a static probe", &error))?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn put(&self, at: Addr, bytes: &[u8]) -> Result<()> {
        write_memory(self.pid, self.memory, bytes, at)
    }

    fn unreadable(&self, what: &str, error: &std::io::Error) -> crate::Error {
        refused(self.pid, format!("{what} cannot be read ({error})"))
    }

    /// Unmaps the arenas and the counters once no thread is in a patch or will return to one; returns one that always was.
    fn unmap(&self, attempts: usize, cleaned: &mut Cleaned) -> Result<Option<Tid>> {
        let arenas = Places::arenas(&self.record.arenas);
        let mut busy = None;
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(BETWEEN);
            }
            let stopped = Stopped::stop(self.pid)?;
            busy = stopped.inside(self.memory, &arenas)?.first().copied();
            if busy.is_none() {
                self.disarm(&stopped)?;
                // A filter may end the process for a system call of the removal.
                if stopped.unfiltered().is_none() {
                    cleaned.remains.push(format!(
                        "process {} filters its system calls (seccomp) since it was instrumented",
                        self.pid
                    ));
                    return Ok(None);
                }
                let maps = maps::read(self.pid)?;
                let remote = Remote::of(self.pid, &stopped, self.memory, &maps)?;
                self.unmap_by(&remote, &maps)?;
            }
            cleaned.stopped = cleaned.stopped.max(stopped.duration());
            if busy.is_none() {
                break;
            }
        }
        Ok(busy)
    }

    /// Unmaps the arenas and the counters by a thread of the process.
    pub(super) fn unmap_by(&self, remote: &Remote<'_>, maps: &[MappedSpan]) -> Result<()> {
        let spans = std::iter::once(&self.record.words).chain(&self.record.arenas);
        // A client that was killed may have unmapped a part, and the process have mapped something else there.
        let is_mapped = |span: &&Span| {
            let mut all = maps.iter().filter(|one| is_ours(one));
            all.any(|one| one.span.start == span.start)
        };
        let mut mapped = spans.filter(is_mapped);
        mapped.try_for_each(|span| unmap(remote, *span))
    }

    /// Clears the descriptor of each thread that is in an arena: the kernel would not find it there, and kill the
    /// process.
    pub(super) fn disarm(&self, stopped: &Stopped) -> Result<()> {
        for thread in stopped
            .threads
            .iter()
            .filter(|thread| thread.rseq.area != 0)
        {
            let failed = |error| {
                let tid = thread.tid;
                refused(
                    self.pid,
                    format!("the area of its thread {tid} cannot be cleared ({error})"),
                )
            };
            let at = thread.rseq.area + 8;
            let mut word = [0; 8];
            self.memory.read_exact_at(&mut word, at).map_err(failed)?;
            let at_descriptor = Addr(u64::from_le_bytes(word));
            let mut arenas = self.record.arenas.iter();
            if arenas.any(|arena| arena.contains(at_descriptor)) {
                self.memory.write_all_at(&[0; 8], at).map_err(failed)?;
            }
        }
        Ok(())
    }
}

pub(super) fn unmap(remote: &Remote<'_>, span: Span) -> Result<()> {
    let arguments = [span.start.0, span.len(), 0, 0, 0, 0];
    let what = format!("unmap memory at {}", span.start);
    remote.call(&what, libc::SYS_munmap, arguments).map(drop)
}

/// Returns what clients have mapped in all processes whose mappings may be read.
pub(super) fn everywhere() -> Result<Vec<(u32, Kept)>> {
    let listed = fs::read_dir("/proc").map_err(crate::Error::io("/proc", "Is it mounted?"))?;
    let pids = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut remains = Vec::new();
    for pid in pids {
        // It has ended, or is another user's.
        let Ok(all) = record::kept(pid) else {
            continue;
        };
        remains.extend(all.into_iter().map(|kept| (pid, kept)));
    }
    Ok(remains)
}

/// Removes what `chosen` accepts from all processes, those too that they fork meanwhile.
pub(super) fn clean(chosen: &dyn Fn(u32, &Kept) -> bool, cleaned: &mut Cleaned) -> Result<()> {
    let mut tried = BTreeSet::new();
    loop {
        let mut all = everywhere()?;
        all.retain(|(pid, kept)| chosen(*pid, kept) && tried.insert((*pid, kept.clone())));
        if all.is_empty() {
            return Ok(());
        }
        for (pid, kept) in all {
            let mut remove = || {
                let memory = memory(pid)?;
                let record = Record::read(pid, &memory, &kept)?;
                let patched = Patched {
                    pid,
                    memory: &memory,
                    record: &record,
                };
                patched.remove(cleaned)
            };
            // The reader of the list names the process. One that has ended, or executed another program, has no splice.
            if let Err(error) = remove()
                && has_mapped(pid, kept.file)
            {
                cleaned.failed.push(error.to_string());
            }
        }
    }
}

/// Returns whether each process that has mapped a file had a moment in which no thread was in its patches, or would return
/// to one. One that cannot be stopped may have had none. `stopped` is the longest time for which threads are stopped.
pub(super) fn have_left_patches(file: u64, stopped: &mut Duration) -> bool {
    let mut has_left = |pid, arenas: &[Span]| {
        let memory = memory(pid)?;
        let _alone = alone();
        let begun = Instant::now();
        let left = traced(pid, || {
            let moment = quiet_now(pid, &memory, &Places::arenas(arenas))?;
            Ok(matches!(moment, Attempt::Quiet(_)))
        });
        *stopped = begun.elapsed().max(*stopped);
        left
    };
    let Ok(all) = everywhere() else {
        return false;
    };
    let mut all = all.into_iter().filter(|(_, kept)| kept.file == file);
    // One that has ended, or executed another program, has no thread in a patch.
    all.all(|(pid, kept)| has_left(pid, kept.arenas()).unwrap_or_else(|_| !has_mapped(pid, file)))
}

/// Returns whether a process in which something has failed has a file still. One that has ended, or ends now, has none.
fn has_mapped(pid: u32, file: u64) -> bool {
    // One that cannot be read any more may have it.
    let has_mapped = |kept: Vec<Kept>| kept.iter().any(|kept| kept.file == file);
    !ends(pid) && record::kept(pid).map_or(true, has_mapped)
}

/// Opens the memory of a process; of this program alone, should the process execute another.
pub(super) fn memory(pid: u32) -> Result<File> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(proc(pid, "mem"));
    opened.map_err(|error| match is_absent(&error) {
        true => refused(pid, "it has ended"),
        false => refused(
            pid,
            format!(
                "its memory may not be written ({error}): it belongs to another user, or is not dumpable"
            ),
        ),
    })
}

/// Removes what a client that ends now leaves in processes.
///
/// Its threads end one after the other: one may still trace a process, whose thread has yet to finish a system call
/// that maps memory. So it is looked for several times.
///
/// # Errors
/// [`Error`](crate::Error) if the processes of the machine cannot be listed.
pub(super) fn clean_after(client: Client) -> Result<Cleaned> {
    let mut cleaned = Cleaned::default();
    for attempt in 0..MOST_LOOKS {
        cleaned.failed.clear();
        clean(&|_, kept| kept.client == client, &mut cleaned)?;
        if attempt >= LEAST_LOOKS && cleaned.failed.is_empty() && !client.is_alive() {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    Ok(cleaned)
}

/// Removes what killed clients have left, in a process and its forked children, or in all processes.
///
/// # Errors
/// [`Error::Process`](crate::Error::Process) if there is no such process, or one that executes counts in it.
pub fn clean_leftovers(pid: Option<u32>) -> Result<Cleaned> {
    let kept = pid.map(record::kept).transpose()?;
    let all = kept.iter().flatten();
    let alive = all.clone().find(|kept| kept.client.is_alive());
    if let (Some(pid), Some(Kept { client, .. })) = (pid, alive) {
        let reason = format!(
            "process {} instruments it; Ctrl-C there ends that",
            client.pid
        );
        return Err(refused(pid, reason));
    }
    let files: BTreeSet<u64> = all.map(|kept| kept.file).collect();
    let chosen = |_, one: &Kept| {
        let named = pid.is_none() || files.contains(&one.file);
        named && !one.client.is_alive()
    };
    let mut cleaned = Cleaned::default();
    clean(&chosen, &mut cleaned)?;
    Ok(cleaned)
}
