//! A connection to an agent, and the parts of the image read through it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gilk_engine::kernel::{LiveParts, ModuleParts};
use gilk_engine::{Addr, Image, Span};

use super::prediction::Prediction;
use super::wire::{PATIENCE, Wire, random_number, unexpected};
pub use crate::protocol::Target as TargetInfo;
use crate::protocol::{MAX_READ, Message, Request};
use crate::{Error, Result};

/// Share of the symbols in the progress of [`Connection::live_parts`].
const SYMBOLS: f32 = 0.2;
/// Approximate size of `/proc/kallsyms`, for its progress.
const KALLSYMS: f32 = 4e6;

/// A connection to an agent. Dropping it makes the agent remove every splice.
#[derive(Debug)]
pub struct Connection {
    pub(super) wire: Wire,
    pub(super) info: TargetInfo,
    /// The event counters are [assumed](Self::assume_events), so the agent does not open them.
    pub(super) events_assumed: bool,
    /// Reads of memory are requested on a kernel whose handling of faults was not checked.
    pub(super) insists: bool,
    /// Runs send the values of aggregates ([`Event::Aggregates`](super::Event::Aggregates)).
    pub(super) reports_aggregates: bool,
    /// The target's kernel, for the names of addresses in recordings.
    pub(super) image: Option<Arc<Image>>,
    /// The prediction that the next run is compared with.
    pub(super) prediction: Option<Prediction>,
}

impl Connection {
    /// Connects to an agent's unix socket (in the lab, the host's end of a virtio port).
    ///
    /// # Errors
    /// [`Error::NoAgent`] if no agent listens, [`Error::Busy`] if another client is connected,
    /// [`Error::Silent`] if no answer arrived within [`PATIENCE`], [`Error::Version`] if the
    /// versions differ, [`Error::Refused`] if the agent has no module.
    pub fn connect(socket: &Path) -> Result<Self> {
        Self::connect_within(socket, PATIENCE)
    }

    /// Connects as [`connect`](Self::connect) does, with another time limit for an answer. A longer one than [`PATIENCE`]
    /// holds for all later answers too.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_within(socket: &Path, patience: Duration) -> Result<Self> {
        let mut wire = Wire::open(socket, patience, true)?;
        wire.send(&Request::Info)?;
        match wire.answer_within(patience, "at the handshake")? {
            Message::Info(target) => Ok(Self::new(wire, *target)),
            other => Err(unexpected(&other)),
        }
    }

    /// Names the addresses among values and keys of aggregates in the recordings of later runs by this kernel, which is
    /// the target's.
    pub fn name_addresses(&mut self, image: Arc<Image>) {
        self.image = Some(image);
    }

    /// Compares the next run with a prediction: its summary and its recording have both costs.
    pub fn compare_with(&mut self, prediction: Prediction) {
        self.prediction = Some(prediction);
    }

    /// Connects to an agent that serves another client, to look at its kernel: symbols, text and tables, as they are
    /// without splices. Everything else is refused.
    ///
    /// # Errors
    /// As [`connect`](Self::connect); [`Error::Busy`] if the other client has only begun, or too many look.
    pub fn look(socket: &Path) -> Result<Self> {
        let mut wire = Wire::looking(socket, PATIENCE)?;
        wire.send(&Request::Look)?;
        match wire.answer("at the handshake")? {
            Message::Info(target) => Ok(Self::new(wire, *target)),
            other => Err(unexpected(&other)),
        }
    }

    fn new(wire: Wire, info: TargetInfo) -> Self {
        Self {
            wire,
            info,
            events_assumed: false,
            insists: false,
            reports_aggregates: false,
            image: None,
            prediction: None,
        }
    }

    /// Returns the description of the target.
    #[must_use]
    pub fn info(&self) -> &TargetInfo {
        &self.info
    }

    /// Assumes these event counters, which the agent is not requested to open: for tests of
    /// programs whose counter is missing.
    #[doc(hidden)]
    pub fn assume_events(&mut self, events: gilk_engine::layout::Events) {
        self.info.layout.events = events;
        self.events_assumed = true;
    }

    /// Limits plans to 2^`log2` entries in the table of thread and call variables: for tests of
    /// values without storage.
    #[doc(hidden)]
    pub fn limit_storage(&mut self, log2: u32) {
        self.info.layout.timers_log2 = log2.min(self.info.layout.timers_log2);
    }

    /// Requests that instruments may read memory, and splices stand in assembly, on a kernel that the
    /// lists of functions by name were not compared with, as the plans of this connection's runs
    /// assume. The agent must permit it.
    pub fn insist_on_unknown_kernel(&mut self) {
        self.insists = true;
    }

    /// Requests that runs send the values of aggregates whenever the target reports totals.
    pub fn report_aggregates(&mut self, report: bool) {
        self.reports_aggregates = report;
    }

    /// Sets the target's name in recordings.
    pub fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.info.host);
    }

    /// Checks that the agent still answers. While nothing runs, this detects a lost target.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection is closed, [`Error::Silent`] if no answer arrived within
    /// [`PATIENCE`].
    pub fn ping(&mut self) -> Result<()> {
        let number = random_number();
        self.wire.send(&Request::Ping(number))?;
        loop {
            match self.wire.answer("between sessions")? {
                Message::Pong {
                    number: answered, ..
                } if answered == number => return Ok(()),
                // The answer to an earlier ping: a run's last ping may be answered after its end.
                Message::Pong { .. } => {}
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Reads symbols, the probe blacklist, text and tables of the running kernel. `progress`
    /// receives the finished share (0 to 1) and the kind of data.
    ///
    /// # Errors
    /// [`Error::Refused`] if the agent cannot read them, [`Error::Lost`], [`Error::Engine`] if the
    /// symbols are not a kernel's.
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

    /// Reads the sections of the running kernel's modules, and their text and tables.
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
                            "{} bytes of memory where {length} were requested",
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
