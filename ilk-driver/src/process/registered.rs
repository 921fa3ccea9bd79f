//! Registration of a process's threads for restartable sequences, by which their hits are counted, and the place of
//! their numbers.

use std::fs;
use std::os::unix::fs::FileExt;

use gilk_engine::layout::SegmentOffset;

use super::library::{names_area, program_file};
use super::objects::{file_of, linker};
use super::removal::memory;
use super::stopped::Stopped;
use super::{proc, refused, text};
use crate::Result;

/// The setting of glibc by which a program registers no area.
const SWITCHED_OFF: &str = "glibc.pthread.rseq=0";

/// Bytes of a thread's control block that are searched for its number: glibc 2.36 has it at 720, musl 1.2.3 at 48.
const CONTROL_BLOCK: usize = 1024;

/// The registration of a process's threads for restartable sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registered {
    /// The area, from the base of the segment; `None` if no thread registers one.
    pub(super) area: Option<SegmentOffset>,
    pub(super) signature: u32,
    /// True if each thread's control block has its own address in its first word, as the psABI has it.
    pub(super) has_thread_pointers: bool,
    /// The thread's number, 32 bits, in its control block: both C libraries have it there, and the kernel or the library
    /// writes that of a forked child. `None` if no place or several have that of each thread.
    pub(super) tid: Option<SegmentOffset>,
}

impl Registered {
    pub(super) const NONE: Self = Self {
        area: None,
        signature: 0,
        has_thread_pointers: false,
        tid: None,
    };
}

/// The registration, or the reason why instruments are refused for it.
pub(super) type Registration = std::result::Result<Registered, &'static str>;

/// Returns how the threads of a process are registered for restartable sequences.
pub(super) fn registered(pid: u32) -> Result<Registered> {
    registration(pid)?.map_err(|why| refused(pid, why))
}

/// The same, or the reason why instruments are refused.
pub(super) fn registration(pid: u32) -> Result<Registration> {
    let stopped = Stopped::stop(pid)?;
    let has_thread_pointers = has_thread_pointers(pid, &stopped)?;
    let tid = match has_thread_pointers {
        true => place_of_numbers(pid, &stopped)?,
        false => None,
    };
    let registered = stopped
        .threads
        .iter()
        .filter(|thread| thread.rseq.area != 0);
    let mut known = registered.map(|thread| {
        let area = thread.rseq.area.wrapping_sub(thread.registers.fs_base);
        (SegmentOffset(area), thread.rseq.signature)
    });
    let Some((area, signature)) = known.next() else {
        return Ok(unregistered(pid)?.map(|registered| Registered {
            has_thread_pointers,
            tid,
            ..registered
        }));
    };
    if known.any(|other| other != (area, signature)) {
        return Ok(Err(
            "its threads have registered for restartable sequences in different ways (rule no-runtime)",
        ));
    }
    Ok(Ok(Registered {
        area: Some(area),
        signature,
        has_thread_pointers,
        tid,
    }))
}

/// Returns the registration of a process that has none, and whose C library makes none.
fn unregistered(pid: u32) -> Result<Registration> {
    let library = match linker(pid) {
        Ok(linker) => file_of(pid, &linker)?,
        // It is linked statically.
        Err(_) => program_file(pid)?,
    };
    let environment = fs::read(proc(pid, "environ"))
        .map_err(|error| refused(pid, format!("its environment cannot be read ({error})")))?;
    let is_off = contains(&environment, SWITCHED_OFF.as_bytes());
    if names_area(&library) && !is_off {
        return Ok(Err(
            "no thread has registered for restartable sequences (rseq), by which hits are counted, and its C library \
             does so when the program begins or not at all on this kernel: try again (rule no-runtime)",
        ));
    }
    Ok(Ok(Registered::NONE))
}

/// Returns whether all threads are found by the first word of their control blocks.
fn has_thread_pointers(pid: u32, stopped: &Stopped) -> Result<bool> {
    let memory = memory(pid)?;
    let threads = stopped.threads.iter();
    let mut bases = threads.map(|thread| thread.registers.fs_base);
    Ok(bases.all(|base| {
        let mut word = [0; 8];
        // Nothing is mapped at the base of a thread without a control block.
        let read = memory.read_exact_at(&mut word, base);
        base != 0 && read.is_ok() && u64::from_le_bytes(word) == base
    }))
}

/// Returns the one place in control blocks that has the number of each thread, as the process itself knows it.
fn place_of_numbers(pid: u32, stopped: &Stopped) -> Result<Option<SegmentOffset>> {
    let memory = memory(pid)?;
    let mut places: Vec<usize> = (0..CONTROL_BLOCK / 4).collect();
    for thread in &stopped.threads {
        let status = text(pid, &format!("task/{}/status", thread.tid))?;
        let mut lines = status.lines();
        let numbers = lines.find_map(|line| line.strip_prefix("NSpid:"));
        let number = numbers.and_then(|numbers| numbers.split_whitespace().next_back());
        let number: Option<u32> = number.and_then(|number| number.parse().ok());
        let mut block = [0; CONTROL_BLOCK];
        let read = memory.read_exact_at(&mut block, thread.registers.fs_base);
        if number.is_none() || read.is_err() {
            return Ok(None);
        }
        let (words, _) = block.as_chunks::<4>();
        places.retain(|&place| words.get(place).map(|word| u32::from_le_bytes(*word)) == number);
    }
    Ok(match places[..] {
        [place] => Some(SegmentOffset(4 * place as u64)),
        _ => None,
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
