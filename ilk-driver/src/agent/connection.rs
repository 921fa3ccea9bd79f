//! A client's connection: its requests, its device, its session.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::device::Device;
use super::kernel::{self, Memory};
use super::outbox::{Gone, Outbox};
use super::session::{Loaded, RunningSession};
use super::stream::Stream;
use super::{abi, clock, events, modules, sys};
use crate::protocol::{
    self, Bytes, CHUNK, EventFound, Message, Opening, Recovery, Refusal, RefusalKind, Request,
    SAMPLE_BYTES, Schedule, Target,
};

/// A connection opened by a client. Dropping it removes all of its splices.
pub(super) struct ClientConnection {
    outbox: Arc<Outbox>,
    writer: Option<JoinHandle<()>>,
    session: Option<RunningSession>,
    device: Option<Arc<Device>>,
    memory: Option<Memory>,
    batches: Vec<protocol::Batch>,
    counters: Vec<protocol::Counter>,
    retire: Vec<protocol::Retire>,
    allow_run: bool,
    tsc_hz: u64,
    /// Availability of the processor's events, cached after the first request, and the events that
    /// the session keeps open.
    events: Option<Vec<EventFound>>,
    open_events: events::OpenEvents,
    /// The session's token, and the time for which it continues without its client.
    token: u64,
    grace: Duration,
}

/// Time limit for a client to read the answer to [`Request::Resume`].
const PATIENCE: Duration = Duration::from_secs(5);

impl ClientConnection {
    /// Answers an opening.
    pub(super) fn open(
        stream: Arc<Stream>,
        opening: Opening,
        allow_run: bool,
    ) -> std::io::Result<Self> {
        let (outbox, writer) = Outbox::start(stream)?;
        outbox.raw(
            Opening {
                version: protocol::VERSION,
                nonce: opening.nonce,
            }
            .to_bytes(),
        );
        Ok(Self {
            outbox,
            writer: Some(writer),
            session: None,
            device: None,
            memory: None,
            batches: Vec::new(),
            counters: Vec::new(),
            retire: Vec::new(),
            allow_run,
            tsc_hz: 0,
            events: None,
            open_events: events::OpenEvents::default(),
            token: 0,
            grace: Duration::ZERO,
        })
    }

    /// Detaches from a lost client. Returns whether its session continues for its grace.
    pub(super) fn detach(&mut self) -> bool {
        let ended = self.session.as_ref().is_none_or(RunningSession::has_ended);
        if self.grace.is_zero() || (ended && self.outbox.is_confirmed()) {
            return false;
        }
        self.outbox.detach();
        self.join_writer();
        true
    }

    /// Returns whether the session has this token and can be resumed after `confirmed` messages.
    pub(super) fn can_resume(&self, token: u64, confirmed: u64) -> bool {
        self.token == token && self.outbox.holds_from(confirmed)
    }

    /// Returns the time for which the session continues without its client.
    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// Attaches the stream of the returned client, and sends all messages that the client has not
    /// confirmed.
    pub(super) fn attach(&mut self, stream: Arc<Stream>, confirmed: u64) -> std::io::Result<()> {
        self.writer = Some(self.outbox.attach(stream, confirmed)?);
        Ok(())
    }

    /// Accepts, and sends everything after that through the memory in which the client wrote
    /// `number`.
    pub(super) fn share(&self, stream: &Stream, number: u64) -> Result<(), Gone> {
        let shared = Stream::find_shared(number);
        let answer = match shared {
            Some(_) => Message::Accepted,
            None => Message::Refused(wrong("This machine has no memory with that number.")),
        };
        self.outbox.send(&answer)?;
        if shared.is_some() {
            self.outbox.flush(PATIENCE);
            stream.share(shared);
        }
        Ok(())
    }

    /// Accepts the resumption of another connection's session, which continues in place of this
    /// connection.
    pub(super) fn leave(self) {
        self.outbox.post(&Message::Accepted);
        self.outbox.flush(PATIENCE);
    }

    /// Sends a refusal.
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.outbox.post(&Message::Refused(refusal));
    }

    fn join_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _panicked = writer.join();
        }
    }

    /// Carries out a request and answers it.
    pub(super) fn serve(&mut self, request: Request) -> Result<(), Gone> {
        if let Err(refusal) = request.check() {
            return self.outbox.send(&Message::Refused(refusal));
        }
        if self.session.as_ref().is_some_and(RunningSession::is_over) {
            self.end_session();
        }
        let answer = match request {
            Request::Ping(number) => Ok(Message::Pong {
                number,
                tsc: sys::tsc(),
            }),
            Request::Confirm(count) => {
                self.outbox.confirm(count);
                return Ok(());
            }
            // Valid forms of these requests were handled by the server loop.
            Request::Resume { .. } | Request::Share(_) => {
                Err(wrong("This request is invalid in the current state."))
            }
            Request::Stop => {
                if let Some(session) = &self.session {
                    session.stop();
                }
                return Ok(());
            }
            _ if self.session.is_some() => Err(wrong("A session is running; stop it first.")),
            Request::Info => self.info().map(Message::Info),
            Request::Kallsyms => {
                return self.send_file(kernel::kallsyms().map(|text| (text, String::new())));
            }
            Request::Blacklist => return self.send_file(Ok(kernel::blacklist())),
            Request::Modules => return self.send_file(Ok(modules::sections())),
            Request::Read { address, length } => return self.send_memory(address, length),
            Request::Flood(messages) => return self.flood(messages),
            Request::Clear => self.clear().map(|()| Message::Accepted),
            Request::Arena(writes) => self.arena(&writes).map(|()| Message::Accepted),
            Request::Batch(batch) => Request::check_next(&self.batches, &batch).map(|()| {
                self.batches.push(batch);
                Message::Accepted
            }),
            Request::Pokes(pokes) => Request::check_more(&self.batches, &pokes).map(|()| {
                if let Some(last) = self.batches.last_mut() {
                    last.pokes.extend(pokes); // `check_more` requires a last batch.
                }
                Message::Accepted
            }),
            Request::Counters(counters) => {
                Request::check_counters(&self.counters, &counters).map(|()| {
                    self.counters.extend(counters);
                    Message::Accepted
                })
            }
            Request::Retire(splices) => Request::check_retire(&self.retire, &splices).map(|()| {
                self.retire.extend(splices);
                Message::Accepted
            }),
            Request::Start(schedule) => match self.start(schedule) {
                Ok(()) => return Ok(()),
                Err(refusal) => Err(refusal),
            },
        };
        self.outbox.send(&answer.unwrap_or_else(Message::Refused))
    }

    /// Reports to the client that its bytes were invalid.
    pub(super) fn complain(&self, error: &crate::Error) {
        self.outbox.post(&Message::Refused(Refusal::new(
            RefusalKind::Request,
            error.to_string(),
        )));
    }

    /// Returns the device, and opens it on first use.
    fn device(&mut self) -> Result<Arc<Device>, Refusal> {
        if let Some(device) = &self.device {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(Device::open()?);
        self.device = Some(Arc::clone(&device));
        Ok(device)
    }

    fn info(&mut self) -> Result<Target, Refusal> {
        let device = self.device()?;
        if self.tsc_hz == 0 {
            self.tsc_hz = clock::tsc_hz(device.tsc_hz());
        }
        Ok(Target {
            host: kernel::host(),
            release: kernel::release(),
            cpus: device.cpus(),
            tsc_hz: self.tsc_hz,
            runs_programs: self.allow_run,
            layout: device.layout(),
            events: self.events.get_or_insert_with(events::probe).clone(),
        })
    }

    /// Reopens the device: no splice, empty rings, all counters zero.
    fn clear(&mut self) -> Result<(), Refusal> {
        self.batches.clear();
        self.counters.clear();
        self.retire.clear();
        self.device = None;
        self.info().map(drop)
    }

    fn arena(&mut self, writes: &[protocol::ArenaWrite]) -> Result<(), Refusal> {
        let device = self.device()?;
        writes.iter().try_for_each(|write| {
            let rows: Vec<_> = write.rows.iter().map(raw_row).collect();
            let faults = write.faults.iter().map(|fault| {
                let (fixup, original) = match fault.recovery {
                    Recovery::At(fixup) => (fixup, 0),
                    Recovery::Like(original) => (0, original),
                };
                abi::IlkFault {
                    offset: fault.offset,
                    fixup,
                    original,
                }
            });
            let faults: Vec<_> = faults.collect();
            device.write_arena(write.offset, &write.code.0, &rows, &faults)
        })
    }

    fn start(&mut self, schedule: Schedule) -> Result<(), Refusal> {
        if schedule.workload.is_some() && !self.allow_run {
            let host = kernel::host();
            let text = format!(
                "The agent on {host} runs no programs, and the session has a workload; start the \
                 agent with --allow-run, or take the workload out of the session."
            );
            return Err(Refusal::new(RefusalKind::Workload, text));
        }
        self.info()?;
        let device = self.device()?;
        self.open_events = events::hold(&schedule.events)?;
        let loaded = Loaded {
            batches: std::mem::take(&mut self.batches),
            counters: std::mem::take(&mut self.counters),
            retire: std::mem::take(&mut self.retire),
        };
        self.token = schedule.token;
        self.grace = Duration::from_secs_f64(schedule.collection.grace);
        self.outbox.begin(!self.grace.is_zero());
        self.session = Some(RunningSession::start(
            device,
            loaded,
            schedule,
            Arc::clone(&self.outbox),
            self.tsc_hz,
        )?);
        Ok(())
    }

    /// Sends full messages of meaningless samples.
    fn flood(&self, messages: u32) -> Result<(), Gone> {
        let records = Bytes(vec![0x5a; CHUNK / SAMPLE_BYTES * SAMPLE_BYTES]);
        let message = Message::Samples { cpu: 0, records };
        for _ in 0..messages {
            self.outbox.send(&message)?;
        }
        self.outbox.send(&Message::End(String::new()))
    }

    fn send_file(&self, file: Result<(Vec<u8>, String), Refusal>) -> Result<(), Gone> {
        match file {
            Ok((bytes, note)) => {
                for chunk in bytes.chunks(CHUNK) {
                    self.outbox.send(&Message::Chunk(Bytes(chunk.to_vec())))?;
                }
                self.outbox.send(&Message::End(note))
            }
            Err(refusal) => self.outbox.send(&Message::Refused(refusal)),
        }
    }

    fn send_memory(&mut self, address: u64, length: u64) -> Result<(), Gone> {
        let memory = match self.memory.take() {
            Some(memory) => memory,
            None => match Memory::open() {
                Ok(memory) => memory,
                Err(refusal) => return self.outbox.send(&Message::Refused(refusal)),
            },
        };
        let memory = self.memory.insert(memory);
        let mut sent = 0;
        while sent < length {
            let mut chunk = vec![0; usize::try_from(length - sent).unwrap_or(CHUNK).min(CHUNK)];
            if let Err(refusal) = memory.read(address + sent, &mut chunk) {
                return self.outbox.send(&Message::Refused(refusal));
            }
            sent += chunk.len() as u64;
            self.outbox.send(&Message::Chunk(Bytes(chunk)))?;
        }
        self.outbox.send(&Message::End(String::new()))
    }

    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            session.abandon();
        }
        self.open_events = events::OpenEvents::default();
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.outbox.close();
        self.end_session();
        self.device = None;
        self.join_writer();
    }
}

fn wrong(text: &str) -> Refusal {
    Refusal::new(RefusalKind::Request, text)
}

fn raw_row(row: &protocol::Row) -> abi::IlkRow {
    abi::IlkRow {
        original: row.original,
        offset: row.offset,
        pushed: row.pushed,
    }
}
