//! Registration of a process's threads for restartable sequences, by which their hits are counted, and the place of
//! their numbers.

use std::fs;
use std::os::unix::fs::FileExt;

use gilk_engine::layout::SegmentOffset;

use super::library::{names_area, program_file};
use super::objects::{file_of, linker};
use super::ptrace::Tid;
use super::removal::memory;
use super::stopped::Stopped;
use super::{inner_number, numbers, proc, refused, text};
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
    let blocks = control_blocks(pid, &stopped)?;
    let has_thread_pointers = blocks.iter().all(ControlBlock::is_own);
    let tid = match has_thread_pointers {
        true => place_of_numbers(pid, &blocks)?,
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
        let unregistered = unregistered(pid)?;
        return Ok(unregistered.map(|()| Registered {
            has_thread_pointers,
            tid,
            ..Registered::NONE
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

/// Checks that the C library of a process makes no registration, of which there is none.
fn unregistered(pid: u32) -> Result<std::result::Result<(), &'static str>> {
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
    Ok(Ok(()))
}

/// The start of a thread's control block, as far as it is mapped.
struct ControlBlock {
    tid: Tid,
    address: u64,
    words: Vec<u32>,
}

/// Reads the control blocks of all threads.
fn control_blocks(pid: u32, stopped: &Stopped) -> Result<Vec<ControlBlock>> {
    let memory = memory(pid)?;
    let blocks = stopped.threads.iter().map(|thread| {
        let mut block = [0; CONTROL_BLOCK];
        let address = thread.registers.fs_base;
        // Nothing is mapped at the base of a thread without one.
        let read = memory.read_at(&mut block, address).unwrap_or(0);
        let (words, _) = block.get(..read).unwrap_or_default().as_chunks::<4>();
        ControlBlock {
            tid: thread.tid,
            address,
            words: words.iter().map(|word| u32::from_le_bytes(*word)).collect(),
        }
    });
    Ok(blocks.collect())
}

impl ControlBlock {
    /// Returns whether its first word is its own address.
    fn is_own(&self) -> bool {
        let first = match self.words[..] {
            [low, high, ..] => u64::from(low) | u64::from(high) << 32,
            _ => return false,
        };
        self.address != 0 && first == self.address
    }
}

/// Returns the one place in control blocks that has the number of each thread, as the process itself knows it.
fn place_of_numbers(pid: u32, blocks: &[ControlBlock]) -> Result<Option<SegmentOffset>> {
    let mut places: Vec<usize> = (0..CONTROL_BLOCK / 4).collect();
    let nested = numbers(&text(pid, "status")?, "NSpid:").is_some_and(|numbers| numbers.len() > 1);
    for block in blocks {
        // All threads are stopped meanwhile, so this is read where the number is another one alone.
        let number = match nested {
            true => inner_number(&text(pid, &format!("task/{}/status", block.tid))?),
            false => u32::try_from(block.tid).ok(),
        };
        places.retain(|&place| number.is_some() && block.words.get(place).copied() == number);
    }
    Ok(match places[..] {
        [place] => Some(SegmentOffset(4 * place as u64)),
        _ => None,
    })
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
