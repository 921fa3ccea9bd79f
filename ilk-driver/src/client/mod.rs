//! The other end of the agent: connects, reads the image, runs a verified plan and records it.
//!
//! [`Connection::connect`] shakes hands, [`Connection::live_parts`] reads what an
//! [`Image`](gilk_engine::Image) is made of, [`Connection::run`] carries a session out and records
//! it. All of them block: call them from a thread of their own.

mod aggregates;
mod clock;
mod describe;
mod event;
mod events;
mod hold;
mod lock;
mod outlet;
mod place;
mod poke;
mod resume;
mod run;
mod tally;
mod together;
mod upload;
mod way;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gilk_engine::kernel::{LiveParts, ModuleParts};
use gilk_engine::layout::{CounterBank, Gs, RuntimeLayout, Surroundings};
use gilk_engine::{Addr, Span};

use crate::protocol::{MAX_READ, Message, Request, Target};
use crate::{Error, Result};

pub use crate::protocol::CpuLosses;
pub use describe::{label, metadata};
pub use event::{AggregateSummary, Counted, Event, InstrumentSummary, StopFlag, Summary, Switch};
pub use place::{Place, Way};
pub use resume::resume;
pub use together::{Machine, Seat, together};
pub use way::{Carried, measure_way};
use wire::{Wire, unexpected};

/// How long an agent may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Share of [`Connection::live_parts`]' progress that symbols make.
const SYMBOLS: f32 = 0.2;
/// Bytes of `/proc/kallsyms`, roughly, for its progress.
const KALLSYMS: f32 = 4e6;

/// Where `ilk lab` leaves a link to the socket of the lab that runs from this cache.
#[must_use]
pub fn lab_link(cache: &Path) -> PathBuf {
    cache.join("lab.sock")
}

/// What the target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// `uname -n`.
    pub host: String,
    /// `uname -r`.
    pub release: String,
    /// CPUs that may be there; each has a ring.
    pub cpus: u32,
    /// TSC ticks a second.
    pub tsc_hz: u64,
    /// Where generated code finds its words.
    pub layout: RuntimeLayout,
    /// Whether the agent runs a session's workload.
    pub runs_programs: bool,
}

/// A connection to an agent. Dropping it has the agent take every splice out.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    info: TargetInfo,
    /// Whether counters of events are [supposed](Self::suppose).
    supposed: bool,
}

impl Connection {
    /// Connects to an agent's unix socket (the lab's virtio port is one on the host side) and
    /// shakes hands.
    ///
    /// # Errors
    /// [`Error::NoAgent`] if nobody listens, [`Error::Busy`] if another client is connected,
    /// [`Error::Silent`] if no answer came within [`PATIENCE`], [`Error::Version`] if the two are of
    /// different versions, [`Error::Refused`] if the agent has no module.
    pub fn connect(socket: &Path) -> Result<Self> {
        Self::connect_within(socket, PATIENCE)
    }

    /// As [`connect`](Self::connect), waiting for an answer as long as `patience`.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_within(socket: &Path, patience: Duration) -> Result<Self> {
        let mut wire = Wire::open(socket, patience, true)?;
        wire.send(&Request::Info)?;
        let info = match wire.answer(patience, "at the handshake")? {
            Message::Info(target) => target_info(target),
            other => return Err(unexpected(&other)),
        };
        Ok(Self {
            wire,
            info,
            supposed: false,
        })
    }

    /// What the target is.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Believes the target to have these counters of events, which the agent is not asked to open: for tests of
    /// what becomes of a program whose counter is not there.
    #[doc(hidden)]
    pub fn suppose(&mut self, events: gilk_engine::layout::Events) {
        self.info.layout.events = events;
        self.supposed = true;
    }

    /// Plans with no more than 2^`log2` entries of the table of what threads and calls keep: for tests of what
    /// becomes of those that find no room.
    #[doc(hidden)]
    pub fn crowd(&mut self, log2: u32) {
        self.info.layout.timers_log2 = log2.min(self.info.layout.timers_log2);
    }

    /// Calls the target so in recordings, instead of by its own name.
    pub fn call(&mut self, name: &str) {
        name.clone_into(&mut self.info.host);
    }

    /// Asks whether the agent is still there, and waits for its answer: while nothing runs, this is how
    /// a target that is gone is noticed.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is closed, [`Error::Silent`] if no answer came within
    /// [`PATIENCE`].
    pub fn alive(&mut self) -> Result<()> {
        let number = wire::unguessable();
        self.wire.send(&Request::Ping(number))?;
        loop {
            match self.wire.answer(PATIENCE, "while nothing ran")? {
                Message::Pong {
                    number: answered, ..
                } if answered == number => return Ok(()),
                // The answer to an older question: a run's last ping may come after its end.
                Message::Pong { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Reads symbols, the probe blacklist, text and tables of the running kernel. `progress` is told
    /// the share that is done (0 to 1) and what is being read.
    ///
    /// # Errors
    /// [`Error::Refused`] if the agent cannot read them, [`Error::Lost`], [`Error::Engine`] if the
    /// symbols are not those of a kernel.
    pub fn live_parts(&mut self, progress: &mut dyn FnMut(f32, &str)) -> Result<LiveParts> {
        progress(0.0, "symbols");
        let kallsyms = self
            .text(&Request::Kallsyms, &mut |bytes| {
                progress(SYMBOLS * (bytes as f32 / KALLSYMS).min(1.0), "symbols");
            })?
            .0;
        let (blacklist, note) = self.text(&Request::Blacklist, &mut |_| {})?;
        if !note.is_empty() {
            progress(SYMBOLS, &note);
        }
        let wanted = gilk_engine::kernel::wanted(&kallsyms)?;
        let memory = self.memory(wanted, &mut |share| {
            progress(SYMBOLS + (1.0 - SYMBOLS) * share, "text and tables");
        })?;
        progress(1.0, "done");
        Ok(LiveParts {
            release: self.info.release.clone(),
            kallsyms,
            blacklist,
            memory,
        })
    }

    /// Reads where the running kernel's modules lie, and their text and tables.
    ///
    /// # Errors
    /// As [`Connection::live_parts`].
    pub fn modules(&mut self) -> Result<ModuleParts> {
        let (sections, _) = self.text(&Request::Modules, &mut |_| {})?;
        let wanted = ModuleParts::wanted(&sections)?;
        let memory = self.memory(wanted, &mut |_| {})?;
        Ok(ModuleParts { sections, memory })
    }

    fn memory(
        &mut self,
        wanted: Vec<Span>,
        progress: &mut dyn FnMut(f32),
    ) -> Result<Vec<(Addr, Vec<u8>)>> {
        let all: u64 = wanted.iter().map(|span| span.len()).sum();
        let mut memory = Vec::new();
        let mut done = 0;
        for span in wanted {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < span.len() {
                let at = bytes.len() as u64;
                let length = (span.len() - at).min(MAX_READ);
                let request = Request::Read {
                    address: span.start.add(at).0,
                    length,
                };
                self.wire.send(&request)?;
                self.wire.chunks(length, &mut bytes, &mut |bytes| {
                    let share = (done + bytes as u64) as f32 / all.max(1) as f32;
                    progress(share.min(1.0));
                })?;
                if bytes.len() as u64 != at + length {
                    return Err(Error::Protocol {
                        what: format!(
                            "{} bytes of memory where {length} were asked for",
                            bytes.len() as u64 - at
                        ),
                    });
                }
            }
            done += span.len();
            memory.push((span.start, bytes));
        }
        Ok(memory)
    }

    fn text(
        &mut self,
        request: &Request,
        progress: &mut dyn FnMut(usize),
    ) -> Result<(String, String)> {
        self.wire.send(request)?;
        let mut bytes = Vec::new();
        let note = self.wire.chunks(MAX_READ, &mut bytes, progress)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), note))
    }
}

fn target_info(target: Target) -> TargetInfo {
    let Target {
        host,
        release,
        cpus,
        tsc_hz,
        runs_programs,
        layout,
        events,
    } = target;
    let layout = RuntimeLayout {
        arena: Span::new(Addr(layout.arena), layout.arena_size),
        unwinds: layout.unwinds,
        faults: layout.faults,
        ring_base: Addr(layout.ring_base),
        stride_log2: layout.stride_log2,
        slots_log2: layout.slots_log2,
        head: Gs(layout.head),
        limit: Gs(layout.limit),
        lost_full: Gs(layout.lost_full),
        current: Gs(layout.current),
        counters: layout
            .counters
            .into_iter()
            .map(|(base, slots)| CounterBank {
                base: Gs(base),
                slots,
            })
            .collect(),
        timers: Addr(layout.timers),
        timers_log2: layout.timers_log2,
        surroundings: Surroundings {
            cpu: Gs(layout.surroundings.cpu),
            thread: layout.surroundings.thread,
            process: layout.surroundings.process,
            comm: layout.surroundings.comm,
            tsc_khz: layout.surroundings.tsc_khz,
            shared: layout.surroundings.shared.into_iter().map(Addr).collect(),
        },
        events: events::known(events),
    };
    TargetInfo {
        host,
        release,
        cpus,
        tsc_hz,
        layout,
        runs_programs,
    }
}
