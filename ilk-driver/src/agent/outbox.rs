//! The queue of messages to one client, and the thread that sends them.
//!
//! Reports of batches and ends are queued without waiting. Samples and files wait while the queue
//! is over its limit (back-pressure): then the rings fill, and the module counts the losses.
//!
//! In a session with a grace, its messages are kept until the client confirms them, and are sent
//! again to a client that resumes the session ([`Outbox::attach`]).

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::stream::Stream;
use super::sys;
use crate::note;
use crate::protocol::{Message, WorkloadEvent, encode};
use crate::workload::Events;

/// Queued bytes above which samples wait.
const BULK: usize = 8 << 20;
/// The same for a session with a grace, whose messages are kept until confirmed: seconds of a fast
/// session.
const KEPT_BULK: usize = 64 << 20;

/// The client is gone, or has been replaced by another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

struct Frame {
    bytes: Arc<Vec<u8>>,
    /// The message's number in its session; messages without a number are never sent again.
    number: Option<u64>,
}

#[derive(Default)]
struct OutboxState {
    /// Messages that are sent but not confirmed, followed by unsent ones.
    queue: VecDeque<Frame>,
    /// Number of sent messages in the queue.
    sent: usize,
    bytes: usize,
    /// Number of the next message of the session.
    next: u64,
    /// Messages of the session are kept until confirmed.
    keep: bool,
    /// Number of confirmed messages.
    confirmed: u64,
    /// The writer that may take from the queue: writers are numbered.
    writer: u64,
    closed: bool,
}

impl OutboxState {
    /// Returns the number of queued bytes above which samples wait.
    fn limit(&self) -> usize {
        if self.keep { KEPT_BULK } else { BULK }
    }

    /// Drops messages that are sent and need no confirmation any more.
    fn drop_confirmed(&mut self) {
        while self.sent > 0
            && let Some(frame) = self.queue.front()
            && frame.number.is_none_or(|number| number < self.confirmed)
        {
            self.bytes = self.bytes.saturating_sub(frame.bytes.len());
            self.queue.pop_front();
            self.sent -= 1;
        }
    }
}

/// The message queue shared by all threads of a connection.
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    changed: Condvar,
}

impl Outbox {
    /// Creates an outbox and starts the thread that writes it to `stream`.
    pub(super) fn start(stream: Arc<Stream>) -> std::io::Result<(Arc<Self>, JoinHandle<()>)> {
        let outbox = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let writer = outbox.write_into(stream)?;
        Ok((outbox, writer))
    }

    fn write_into(self: &Arc<Self>, stream: Arc<Stream>) -> std::io::Result<JoinHandle<()>> {
        let mut state = self.lock();
        state.writer += 1;
        let writer = state.writer;
        drop(state);
        self.changed.notify_all();
        let outbox = Arc::clone(self);
        std::thread::Builder::new()
            .name(String::from("writer"))
            .spawn(move || {
                let wrote = catch_unwind(AssertUnwindSafe(|| outbox.write_to(&stream, writer)));
                if wrote.is_err() {
                    // Without a writer the client would wait for nothing.
                    outbox.close();
                }
            })
    }

    /// Begins a session. With `keep` its messages stay queued until they are
    /// [confirmed](Self::confirm).
    pub(super) fn begin(&self, keep: bool) {
        let mut state = self.lock();
        for frame in &mut state.queue {
            frame.number = None;
        }
        (state.next, state.confirmed) = (0, 0);
        state.keep = keep;
        state.drop_confirmed();
    }

    /// Records that the client has stored the first `count` messages of the session.
    pub(super) fn confirm(&self, count: u64) {
        let mut state = self.lock();
        // The confirmation may arrive before the writer has marked the message as sent.
        state.confirmed = state.confirmed.max(count.min(state.next));
        state.drop_confirmed();
        drop(state);
        self.changed.notify_all();
    }

    /// Stops the writer; kept messages wait for [`attach`](Self::attach).
    pub(super) fn detach(&self) {
        self.lock().writer += 1;
        self.changed.notify_all();
    }

    /// Sends the session's messages from number `confirmed` on to another client. Earlier ones stay
    /// queued until that client confirms them.
    pub(super) fn attach(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        confirmed: u64,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut state = self.lock();
        // Answers to requests were for the previous client.
        state.queue.retain(|frame| frame.number.is_some());
        let is_stored = |frame: &Frame| frame.number.is_some_and(|number| number < confirmed);
        state.sent = state.queue.partition_point(is_stored);
        state.bytes = state.queue.iter().map(|frame| frame.bytes.len()).sum();
        drop(state);
        self.write_into(stream)
    }

    /// Returns whether the client has confirmed every message of the session.
    pub(super) fn is_confirmed(&self) -> bool {
        let state = self.lock();
        state.queue.iter().all(|frame| frame.number.is_none())
    }

    /// Returns whether all messages from number `confirmed` on are still queued.
    pub(super) fn holds_from(&self, confirmed: u64) -> bool {
        let state = self.lock();
        let first = state.queue.iter().find_map(|frame| frame.number);
        !state.closed && (first.unwrap_or(state.next)..=state.next).contains(&confirmed)
    }

    /// Queues a message regardless of the limit.
    pub(super) fn post(&self, message: &Message) {
        match encode(message) {
            Ok(frame) => self.put(frame, message.is_of_session()),
            // Every message is split below the limit of a frame.
            Err(error) => {
                debug_assert!(false, "{error}");
                note!("A message to the client was dropped: {error}");
            }
        }
    }

    /// Returns whether the queue is over its limit: reports of running totals wait for a later one.
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.bytes > state.limit()
    }

    /// Queues bytes that are not a message.
    pub(super) fn raw(&self, bytes: Vec<u8>) {
        self.put(bytes, false);
    }

    fn put(&self, bytes: Vec<u8>, of_session: bool) {
        let mut state = self.lock();
        if !state.closed {
            let number = (of_session && state.keep).then_some(state.next);
            state.next += u64::from(of_session);
            state.bytes += bytes.len();
            state.queue.push_back(Frame {
                bytes: Arc::new(bytes),
                number,
            });
            self.changed.notify_all();
        }
    }

    /// Queues a message, after waiting while the queue is over its limit.
    pub(super) fn send(&self, message: &Message) -> Result<(), Gone> {
        let mut state = self.lock();
        while state.bytes > state.limit() && !state.closed {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let gone = state.closed;
        drop(state);
        if gone {
            return Err(Gone);
        }
        self.post(message);
        Ok(())
    }

    /// Waits up to `time` until every message was sent.
    pub(super) fn flush(&self, time: Duration) {
        let is_pending = |state: &mut OutboxState| state.sent < state.queue.len() && !state.closed;
        let _late = self
            .changed
            .wait_timeout_while(self.lock(), time, is_pending);
    }

    /// Returns whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Drops all queued messages and wakes all waiting threads.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue.clear();
        state.sent = 0;
        state.bytes = 0;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, stream: &Stream, writer: u64) {
        while let Some(bytes) = self.next(writer) {
            if self.write(stream, &bytes, writer).is_err() {
                let mut state = self.lock();
                if state.writer == writer && !state.keep {
                    drop(state);
                    self.close();
                } else if state.writer == writer {
                    // Until a client resumes the session no writer may continue.
                    state.writer += 1;
                }
                return;
            }
            let mut state = self.lock();
            if state.writer == writer && !state.closed {
                state.sent += 1;
                state.drop_confirmed();
            }
            self.changed.notify_all();
        }
    }

    /// Returns the next bytes for this writer; `None` if it must end.
    fn next(&self, writer: u64) -> Option<Arc<Vec<u8>>> {
        let mut state = self.lock();
        while state.writer == writer && !state.closed {
            if let Some(frame) = state.queue.get(state.sent) {
                return Some(Arc::clone(&frame.bytes));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    fn is_current(&self, writer: u64) -> bool {
        let state = self.lock();
        state.writer == writer && !state.closed
    }

    fn write(&self, stream: &Stream, mut bytes: &[u8], writer: u64) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if !self.is_current(writer) {
                return Err(Gone);
            }
            match stream.write(bytes) {
                Ok(0) => return Err(Gone),
                Ok(written) => {
                    // write(2) returns at most the slice's length.
                    debug_assert!(written <= bytes.len());
                    bytes = bytes.get(written..).unwrap_or_default();
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let ready = sys::poll(
                        stream.file.as_fd(),
                        sys::WRITABLE,
                        Duration::from_millis(100),
                    )
                    .map_err(|_| Gone)?;
                    if ready & sys::WRITABLE == 0 && ready != 0 {
                        // Hung up: the reader detects this too, and closes this outbox.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }
}

impl Events for Outbox {
    fn deliver(&self, event: WorkloadEvent) -> bool {
        let is_line = matches!(event, WorkloadEvent::Line(_));
        let message = Message::Workload(event);
        if is_line {
            return self.send(&message).is_ok();
        }
        self.post(&message);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Bytes, Decoder};
    use std::os::unix::net::UnixStream;

    fn pair() -> (Arc<Stream>, UnixStream) {
        let (agent, client) = UnixStream::pair().unwrap();
        (Arc::new(Stream::socket(agent).unwrap()), client)
    }

    #[test]
    fn post_ignores_the_limit_that_send_waits_for() {
        let (stream, client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        let chunk = Message::Chunk(Bytes::from(vec![7; 1 << 20]));
        for _ in 0..8 {
            assert_eq!(outbox.send(&chunk), Ok(()));
        }
        // The client reads nothing, so a call that waited would never return.
        outbox.post(&Message::Accepted);
        assert!(outbox.lock().bytes > BULK);

        let sending = Arc::clone(&outbox);
        let waiting = std::thread::spawn(move || sending.send(&Message::Accepted));
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !waiting.is_finished(),
            "samples must wait for a slow client"
        );
        assert!(outbox.is_full(), "totals must wait too");
        outbox.close();
        assert_eq!(waiting.join().unwrap(), Err(Gone));
        writer.join().unwrap();
        drop(client);
    }

    fn pong(number: u64) -> Message {
        Message::Pong { number, tsc: 7 }
    }

    #[test]
    fn messages_arrive_in_order() {
        let (stream, mut client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        for n in 0..1000 {
            outbox.send(&pong(n)).unwrap();
        }
        let mut decoder = Decoder::frames_only();
        for n in 0..1000 {
            let mut bytes = [0; 100];
            let received = loop {
                if let Some(message) = decoder.take::<Message>().unwrap() {
                    break message;
                }
                let count = std::io::Read::read(&mut client, &mut bytes).unwrap();
                decoder.push(&bytes[..count]);
            };
            assert_eq!(received, pong(n));
        }
        outbox.close();
        writer.join().unwrap();
    }

    /// Reads `count` losses, numbered by their times, and skips pongs, which belong to no session.
    fn read(client: &mut UnixStream, count: usize) -> Vec<u64> {
        let mut decoder = Decoder::frames_only();
        let mut times = Vec::new();
        let mut bytes = [0; 100];
        while times.len() < count {
            while let Some(message) = decoder.take::<Message>().unwrap() {
                match message {
                    Message::Losses { tsc, .. } => times.push(tsc),
                    Message::Pong { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if times.len() < count {
                let length = std::io::Read::read(client, &mut bytes).unwrap();
                decoder.push(&bytes[..length]);
            }
        }
        times
    }

    #[test]
    fn unconfirmed_messages_are_sent_again_on_resume() {
        let (stream, mut client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        outbox.begin(true);
        let send = |numbers: std::ops::Range<u64>| {
            for tsc in numbers {
                let cpus = Vec::new();
                outbox.send(&Message::Losses { tsc, cpus }).unwrap();
                outbox.post(&pong(tsc));
            }
        };
        send(0..10);
        assert_eq!(read(&mut client, 10), (0..10).collect::<Vec<_>>());
        outbox.confirm(4);
        assert!(!outbox.is_confirmed() && outbox.holds_from(4) && !outbox.holds_from(3));
        drop(client);
        outbox.detach();
        writer.join().unwrap();
        send(10..15);
        assert!(outbox.holds_from(15) && !outbox.holds_from(16));

        let (stream, mut resumed) = pair();
        let writer = outbox.attach(stream, 7).unwrap();
        send(15..20);
        assert_eq!(read(&mut resumed, 13), (7..20).collect::<Vec<_>>());
        // Another client may resume from an earlier message.
        assert!(outbox.holds_from(4));
        outbox.confirm(20);
        outbox.flush(Duration::from_secs(5));
        assert!(outbox.is_confirmed());
        assert_eq!(outbox.lock().bytes, 0);
        outbox.close();
        writer.join().unwrap();
    }
}
