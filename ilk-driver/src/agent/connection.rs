//! One client: its requests, its device, its session.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::device::Device;
use super::kernel::{self, Memory};
use super::outbox::{Gone, Outbox};
use super::session::{Loaded, Running};
use super::stream::Stream;
use super::{abi, clock, device, events, modules, sys};
use crate::protocol::{
    self, Bytes, CHUNK, EventFound, Message, Opening, Recovery, Refusal, RefusalKind, Request,
    SAMPLE_BYTES, Schedule, Target,
};

/// A client that has opened a connection. Dropping it takes everything out.
pub(super) struct Served {
    outbox: Arc<Outbox>,
    writer: Option<JoinHandle<()>>,
    session: Option<Running>,
    device: Option<Arc<Device>>,
    memory: Option<Memory>,
    batches: Vec<protocol::Batch>,
    counters: Vec<protocol::Counter>,
    retire: Vec<protocol::Retire>,
    allow_run: bool,
    tsc_hz: u64,
    /// Counters of events, once somebody has looked, and those that the session has open.
    events: Option<Vec<EventFound>>,
    held: events::Held,
    /// Of the session: its token, and how long it goes on without its client.
    token: u64,
    grace: Duration,
}

/// How long a client may take to read the answer to [`Request::Resume`].
const PATIENCE: Duration = Duration::from_secs(5);

impl Served {
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
            held: events::Held::default(),
            token: 0,
            grace: Duration::ZERO,
        })
    }

    /// The client is lost. Whether its session is to go on for a while, with nobody to hear of it.
    pub(super) fn detach(&mut self) -> bool {
        let ended = self.session.as_ref().is_none_or(Running::has_ended);
        if self.grace.is_zero() || (ended && self.outbox.is_safe()) {
            return false;
        }
        self.outbox.detach();
        self.join_writer();
        true
    }

    /// Whether it is that session, and `taken` may be gone on from.
    pub(super) fn continues(&self, token: u64, taken: u64) -> bool {
        self.token == token && self.outbox.has_from(taken)
    }

    /// How long the session goes on without its client.
    pub(super) fn grace(&self) -> Duration {
        self.grace
    }

    /// The client is back: it is told all that it has not safe.
    pub(super) fn attach(&mut self, stream: Arc<Stream>, taken: u64) -> std::io::Result<()> {
        self.writer = Some(self.outbox.attach(stream, taken)?);
        Ok(())
    }

    /// Says yes, and sends everything behind that by memory that the client wrote `number` in.
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

    /// Says yes to a client that goes on with another's session, and leaves it to that.
    pub(super) fn leave(self) {
        self.outbox.tell(&Message::Accepted);
        self.outbox.flush(PATIENCE);
    }

    /// Says no.
    pub(super) fn refuse(&self, refusal: Refusal) {
        self.outbox.tell(&Message::Refused(refusal));
    }

    fn join_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _panicked = writer.join();
        }
    }

    /// Does what was asked and answers.
    pub(super) fn serve(&mut self, request: Request) -> Result<(), Gone> {
        if let Err(refusal) = request.check() {
            return self.outbox.send(&Message::Refused(refusal));
        }
        if self.session.as_ref().is_some_and(Running::is_over) {
            self.end_session();
        }
        let answer = match request {
            Request::Ping(number) => Ok(Message::Pong {
                number,
                tsc: sys::tsc(),
            }),
            Request::Taken(count) => {
                self.outbox.taken(count);
                return Ok(());
            }
            // Whoever was to be found was looked for before.
            Request::Resume { .. } | Request::Share(_) => {
                Err(wrong("That is not to be asked for now."))
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
                    last.pokes.extend(pokes);
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

    /// Tells the client that what it sent makes no sense.
    pub(super) fn complain(&self, error: &crate::Error) {
        self.outbox.tell(&Message::Refused(Refusal::new(
            RefusalKind::Request,
            error.to_string(),
        )));
    }

    /// The device, opened when it is first needed.
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
            host: device::host(),
            release: kernel::release(),
            cpus: device.cpus(),
            tsc_hz: self.tsc_hz,
            runs_programs: self.allow_run,
            layout: device.layout(),
            events: self.events.get_or_insert_with(events::look).clone(),
        })
    }

    /// A fresh device: no splice, empty rings, every count zero.
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
                abi::Fault {
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
            let host = device::host();
            let text = format!(
                "The agent on {host} runs no programs, and the session has a workload; start the \
                 agent with --allow-run, or take the workload out of the session."
            );
            return Err(Refusal::new(RefusalKind::Workload, text));
        }
        self.info()?;
        let device = self.device()?;
        self.held = events::hold(&schedule.events)?;
        let loaded = Loaded {
            batches: std::mem::take(&mut self.batches),
            counters: std::mem::take(&mut self.counters),
            retire: std::mem::take(&mut self.retire),
        };
        self.token = schedule.token;
        self.grace = Duration::from_secs_f64(schedule.collection.grace);
        self.outbox.begin(!self.grace.is_zero());
        self.session = Some(Running::start(
            device,
            loaded,
            schedule,
            Arc::clone(&self.outbox),
            self.tsc_hz,
        )?);
        Ok(())
    }

    /// Messages of samples, as full as they ever are.
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
        if self.memory.is_none() {
            match Memory::open() {
                Ok(memory) => self.memory = Some(memory),
                Err(refusal) => return self.outbox.send(&Message::Refused(refusal)),
            }
        }
        let Some(memory) = &self.memory else {
            return Ok(());
        };
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
        self.held = events::Held::default();
    }
}

impl Drop for Served {
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

fn raw_row(row: &protocol::Row) -> abi::Row {
    abi::Row {
        original: row.original,
        offset: row.offset,
        pushed: row.pushed,
    }
}
