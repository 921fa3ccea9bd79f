//! A client's connection: its requests, its device, its session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gilk_engine::layout::Events;

use super::board::{Board, View};
use super::device::Device;
use super::image::KernelCache;
use super::kernel::{self, Memory};
use super::outbox::{Gone, Outbox};
use super::planning::{self, Draft};
use super::session::{Loaded, RunningSession};
use super::stream::Stream;
use super::sys::Peer;
use super::trust::Trust;
use super::{clock, events};
use crate::protocol::{
    self, Bytes, CHUNK, Message, Opening, PlanOptions, PlanOutline, Refusal, RefusalKind, Request,
    SAMPLE_BYTES, Schedule, Target,
};
use crate::{processor, workload};

/// A connection opened by a client. Dropping it removes all of its splices.
pub(super) struct ClientConnection {
    stream: Arc<Stream>,
    outbox: Arc<Outbox>,
    writer: Option<JoinHandle<()>>,
    session: Option<RunningSession>,
    device: Option<Arc<Device>>,
    memory: Option<Memory>,
    /// The session that the client loads, and its plan.
    draft: Draft,
    loaded: Option<Loaded>,
    /// The plan assumes counters of events, which are not opened.
    events_assumed: bool,
    trust: Trust,
    kernel: Arc<KernelCache>,
    board: Arc<Board>,
    /// The client's user; unknown at a port.
    peer: Option<Peer>,
    tsc_hz: u64,
    /// Availability of the processor's events, cached after the first request, and the events that
    /// the session keeps open.
    events: Option<Events>,
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
        trust: Trust,
        (kernel, board): (Arc<KernelCache>, Arc<Board>),
        peer: Option<Peer>,
    ) -> std::io::Result<Self> {
        let (outbox, writer) = Outbox::start(Arc::clone(&stream))?;
        outbox.raw(
            Opening {
                version: protocol::VERSION,
                nonce: opening.nonce,
            }
            .to_bytes(),
        );
        Ok(Self {
            stream,
            outbox,
            writer: Some(writer),
            session: None,
            device: None,
            memory: None,
            draft: Draft::default(),
            loaded: None,
            events_assumed: false,
            trust,
            kernel,
            board,
            peer,
            tsc_hz: 0,
            events: None,
            open_events: events::OpenEvents::default(),
            token: 0,
            grace: Duration::ZERO,
        })
    }

    /// Returns the user of the client that opened this connection.
    pub(super) fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// Sends an answer that was found elsewhere.
    pub(super) fn reply(&self, message: &Message) {
        self.outbox.post(message);
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
        self.writer = Some(self.outbox.attach(Arc::clone(&stream), confirmed)?);
        self.stream = stream;
        Ok(())
    }

    /// Accepts, and sends everything after that through the memory in which the client wrote
    /// `number`.
    pub(super) fn share(&self, stream: &Stream, number: u64) -> Result<(), Gone> {
        let shared = stream.find_shared(number);
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
                tsc: processor::tsc(),
            }),
            Request::Confirm(count) => {
                self.outbox.confirm(count);
                return Ok(());
            }
            // Valid forms of these requests were handled by the server loop.
            Request::Resume { .. } | Request::Share(_) | Request::Status | Request::End => {
                Err(wrong("This request is invalid in the current state."))
            }
            Request::Stop => {
                if let Some(session) = &self.session {
                    session.stop();
                }
                return Ok(());
            }
            _ if self.session.is_some() => Err(wrong("A session is running; stop it first.")),
            Request::Info | Request::Look => self.info().map(Box::new).map(Message::Info),
            Request::Kallsyms => {
                let lists = self.kernel.lists();
                let text = lists
                    .as_ref()
                    .map(|lists| (lists.kallsyms.as_bytes(), String::new()));
                return self.send_file(text);
            }
            Request::Blacklist => {
                let lists = self.kernel.last_lists();
                let text = lists
                    .as_ref()
                    .map(|lists| (lists.blacklist.0.as_bytes(), lists.blacklist.1.clone()));
                return self.send_file(text);
            }
            Request::Modules => {
                let lists = self.kernel.lists();
                let text = lists
                    .as_ref()
                    .map(|lists| (lists.sections.0.as_bytes(), lists.sections.1.clone()));
                return self.send_file(text);
            }
            Request::Read { address, length } => return self.send_memory(address, length),
            Request::Flood(messages) => return self.flood(messages),
            Request::Clear => self.clear().map(|()| Message::Accepted),
            Request::Load(part) => {
                self.loaded = None;
                self.draft.add(part).map(|()| Message::Accepted)
            }
            Request::Plan(options) => self.plan(&options).map(Message::Planned),
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
        let events = self.events.get_or_insert_with(events::probe).clone();
        let target = Target {
            host: kernel::host(),
            release: kernel::release(),
            cpus: device.cpus(),
            tsc_hz: self.tsc_hz,
            runs_programs: self.trust.run,
            boot: workload::boot(),
            layout: device.layout(events),
        };
        self.board.describe(&target);
        Ok(target)
    }

    /// Reopens the device: no splice, empty rings, all counters zero.
    fn clear(&mut self) -> Result<(), Refusal> {
        self.draft = Draft::default();
        self.loaded = None;
        self.device = None;
        self.info().map(drop)
    }

    /// Plans and verifies the loaded session, and writes its code to the arena.
    fn plan(&mut self, options: &PlanOptions) -> Result<PlanOutline, Refusal> {
        let draft = std::mem::take(&mut self.draft);
        self.clear()?;
        let trust = self.trust;
        let layout = planning::layout(self.info()?.layout, options, trust)?;
        self.events_assumed = options.assumed_events.is_some();
        let (kernel, outbox, stream) = (&self.kernel, &self.outbox, &self.stream);
        let (planned, image) = while_reporting(outbox, || {
            let image = kernel.image()?;
            let is_gone = || outbox.is_closed() || stream.is_abandoned();
            let planned = planning::plan(draft, options, trust, &image, &layout, &is_gone)?;
            Ok((planned, image))
        })?;
        let planning::Planned {
            mut writes,
            outline,
            duration,
            tracepoints,
            stacks,
            replanner,
        } = planned;
        let device = self.device()?;
        for write in std::mem::take(&mut writes.arena) {
            device.write_arena(&write)?;
        }
        let view = Arc::new(View::new(image));
        self.loaded = Some(Loaded {
            writes,
            duration,
            tracepoints,
            stacks,
            view,
            replanner,
            kernel: Arc::clone(&self.kernel),
        });
        Ok(outline)
    }

    fn start(&mut self, schedule: Schedule) -> Result<(), Refusal> {
        if schedule.workload.is_some() && !self.trust.run {
            let host = kernel::host();
            let text = format!(
                "The agent on {host} runs no programs, and the session has a workload; start it on {host} itself, where \
                 `ilk` runs the workload, start the agent with --allow-run, or take the workload out of the session."
            );
            return Err(Refusal::new(RefusalKind::Workload, text));
        }
        self.info()?;
        let device = self.device()?;
        let loaded = self.loaded.take().ok_or_else(|| {
            wrong("No session is planned that could be started; load and plan it first.")
        })?;
        if !self.events_assumed {
            self.open_events = events::hold(&loaded.writes.events)?;
        }
        self.token = schedule.token;
        self.grace = Duration::from_secs_f64(schedule.collection.grace);
        self.outbox.begin(!self.grace.is_zero());
        self.board.show(Some(Arc::clone(&loaded.view)));
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
        let records = Bytes::from(vec![0x5a; CHUNK / SAMPLE_BYTES * SAMPLE_BYTES]);
        let message = Message::Samples { cpu: 0, records };
        for _ in 0..messages {
            self.outbox.send(&message)?;
        }
        self.outbox.send(&Message::End(String::new()))
    }

    fn send_file(&self, file: Result<(&[u8], String), &Refusal>) -> Result<(), Gone> {
        match file {
            Ok((bytes, note)) => {
                for chunk in bytes.chunks(CHUNK) {
                    self.outbox
                        .send(&Message::Chunk(Bytes::from(chunk.to_vec())))?;
                }
                self.outbox.send(&Message::End(note))
            }
            Err(refusal) => self.outbox.send(&Message::Refused(refusal.clone())),
        }
    }

    fn send_memory(&mut self, address: u64, length: u64) -> Result<(), Gone> {
        let lists = self.kernel.last_lists();
        if let Err(refusal) = lists.and_then(|lists| lists.check(address, length)) {
            return self.outbox.send(&Message::Refused(refusal));
        }
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
            self.outbox.send(&Message::Chunk(Bytes::from(chunk)))?;
        }
        self.outbox.send(&Message::End(String::new()))
    }

    fn end_session(&mut self) {
        if let Some(session) = self.session.take() {
            session.abandon();
            self.board.show(None);
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

/// Interval of reports that a session is still being planned.
const PLANNING_INTERVAL: Duration = Duration::from_secs(1);

/// Does `work` while another thread reports to the client that it still lasts.
fn while_reporting<T>(
    outbox: &Outbox,
    work: impl FnOnce() -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let report = || {
            while !done.load(Ordering::Acquire) {
                std::thread::park_timeout(PLANNING_INTERVAL);
                if !done.load(Ordering::Acquire) {
                    outbox.post(&Message::Planning);
                }
            }
        };
        let reporter = std::thread::Builder::new()
            .name(String::from("planning"))
            .spawn_scoped(scope, report)
            .map_err(|e| {
                wrong(&format!(
                    "The agent could not start a thread for the plan: {e}."
                ))
            })?;
        let outcome = catch_unwind(AssertUnwindSafe(work));
        done.store(true, Ordering::Release);
        reporter.thread().unpark();
        outcome.unwrap_or_else(|_| {
            Err(Refusal::new(
                RefusalKind::Plan,
                "The plan ended by a bug in gilk; nothing was written. The agent's output has more.",
            ))
        })
    })
}
