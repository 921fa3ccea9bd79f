//! What is to be sent to one client, and the thread that sends it.
//!
//! Whoever tells of a batch or an end never waits. Whoever sends samples or files waits while too
//! much is under way: then the rings fill, and the module counts what they lose.
//!
//! Where a session has a grace, what is told of it is kept until the client says that it has it
//! safe, and sent again to the client that comes back ([`Outbox::attach`]).

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::stream::Stream;
use super::sys;
use crate::protocol::{Message, encode};

/// Bytes under way above which samples wait.
const BULK: usize = 8 << 20;
/// The same where they are kept until the client has them safe: seconds of a fast session.
const KEPT: usize = 64 << 20;

/// The client is gone, or has been replaced by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

struct Frame {
    bytes: Arc<Vec<u8>>,
    /// Its place among what is told of the session; nothing else is sent again.
    number: Option<u64>,
}

#[derive(Default)]
struct State {
    /// Those sent and not yet safe, then those to be sent.
    queue: VecDeque<Frame>,
    /// How many were sent.
    sent: usize,
    bytes: usize,
    /// The number of the next message of the session.
    next: u64,
    /// Whether they are kept, until the client has said that so many are safe.
    keep: bool,
    safe: u64,
    /// The writer that may take from the queue: each has a number of its own.
    writer: u64,
    closed: bool,
}

impl State {
    /// Bytes under way above which samples wait.
    fn most(&self) -> usize {
        if self.keep { KEPT } else { BULK }
    }

    /// Drops what was sent and is safe.
    fn forget(&mut self) {
        while self.sent > 0
            && let Some(frame) = self.queue.front()
            && frame.number.is_none_or(|number| number < self.safe)
        {
            self.bytes = self.bytes.saturating_sub(frame.bytes.len());
            self.queue.pop_front();
            self.sent -= 1;
        }
    }
}

/// Where everybody puts messages.
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

impl Outbox {
    /// An outbox and the thread that empties it into `stream`.
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
        let own = Arc::clone(self);
        std::thread::Builder::new()
            .name(String::from("writer"))
            .spawn(move || own.write_to(&stream, writer))
    }

    /// A session begins. If it is to be kept, what is told of it stays until it is
    /// [`taken`](Self::taken).
    pub(super) fn begin(&self, keep: bool) {
        let mut state = self.lock();
        for frame in &mut state.queue {
            frame.number = None;
        }
        (state.next, state.safe) = (0, 0);
        state.keep = keep;
        state.forget();
    }

    /// The client has so many messages of the session safe.
    pub(super) fn taken(&self, count: u64) {
        let mut state = self.lock();
        // The client may be faster than the writer, who has yet to say that it was sent.
        state.safe = state.safe.max(count.min(state.next));
        state.forget();
        drop(state);
        self.changed.notify_all();
    }

    /// No writer takes from the queue any more; what is kept waits for [`attach`](Self::attach).
    pub(super) fn detach(&self) {
        self.lock().writer += 1;
        self.changed.notify_all();
    }

    /// Sends everything of the session from message `taken` on to another client. What that has already is
    /// kept all the same, until it says that it is safe.
    pub(super) fn attach(
        self: &Arc<Self>,
        stream: Arc<Stream>,
        taken: u64,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut state = self.lock();
        // Answers were for the client before.
        state.queue.retain(|frame| frame.number.is_some());
        let has = |frame: &Frame| frame.number.is_some_and(|number| number < taken);
        state.sent = state.queue.partition_point(has);
        state.bytes = state.queue.iter().map(|frame| frame.bytes.len()).sum();
        drop(state);
        self.write_into(stream)
    }

    /// Whether the client has everything safe that was told of the session.
    pub(super) fn is_safe(&self) -> bool {
        let state = self.lock();
        state.queue.iter().all(|frame| frame.number.is_none())
    }

    /// Whether messages from number `taken` on are all still there.
    pub(super) fn has_from(&self, taken: u64) -> bool {
        let state = self.lock();
        let first = state.queue.iter().find_map(|frame| frame.number);
        !state.closed && (first.unwrap_or(state.next)..=state.next).contains(&taken)
    }

    /// Queues a message whatever else is queued.
    pub(super) fn tell(&self, message: &Message) {
        if let Ok(frame) = encode(message) {
            self.put(frame, message.is_of_session());
        }
    }

    /// Queues bytes that are no message.
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

    /// Queues a message when there is room for it.
    pub(super) fn send(&self, message: &Message) -> Result<(), Gone> {
        let mut state = self.lock();
        while state.bytes > state.most() && !state.closed {
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
        self.tell(message);
        Ok(())
    }

    /// Waits until everything was sent, at most so long.
    pub(super) fn flush(&self, time: Duration) {
        let waiting = |state: &mut State| state.sent < state.queue.len() && !state.closed;
        let _late = self.changed.wait_timeout_while(self.lock(), time, waiting);
    }

    /// Whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Drops what is queued and wakes everybody who waits.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue.clear();
        state.sent = 0;
        state.bytes = 0;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
                    // Nobody else goes on with it before the client is back.
                    state.writer += 1;
                }
                return;
            }
            let mut state = self.lock();
            if state.writer == writer && !state.closed {
                state.sent += 1;
                state.forget();
            }
            self.changed.notify_all();
        }
    }

    /// What this writer is to send next; `None` if it is to end.
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

    fn is_mine(&self, writer: u64) -> bool {
        let state = self.lock();
        state.writer == writer && !state.closed
    }

    fn write(&self, stream: &Stream, mut bytes: &[u8], writer: u64) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if !self.is_mine(writer) {
                return Err(Gone);
            }
            match stream.write(bytes) {
                Ok(0) => return Err(Gone),
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let ready = sys::poll(
                        stream.file.as_fd(),
                        sys::WRITABLE,
                        Duration::from_millis(100),
                    )
                    .map_err(|_| Gone)?;
                    if ready & sys::WRITABLE == 0 && ready != 0 {
                        // Hung up: the reader notices too, and closes this outbox.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                Err(_) => return Err(Gone),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;
    use crate::protocol::{Bytes, Decoder};

    fn pair() -> (Arc<Stream>, UnixStream) {
        let (one, other) = UnixStream::pair().unwrap();
        (Arc::new(Stream::socket(one).unwrap()), other)
    }

    #[test]
    fn telling_never_waits_for_a_client_that_does_not_read() {
        let (stream, client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        let chunk = Message::Chunk(Bytes(vec![7; 1 << 20]));
        for _ in 0..8 {
            assert_eq!(outbox.send(&chunk), Ok(()));
        }
        let begun = Instant::now();
        outbox.tell(&Message::Accepted);
        assert!(begun.elapsed() < Duration::from_secs(1));

        let own = Arc::clone(&outbox);
        let waiting = std::thread::spawn(move || own.send(&Message::Accepted));
        std::thread::sleep(Duration::from_millis(50));
        assert!(
            !waiting.is_finished(),
            "samples must wait for a slow client"
        );
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
            let told = loop {
                if let Some(message) = decoder.take::<Message>().unwrap() {
                    break message;
                }
                let count = std::io::Read::read(&mut client, &mut bytes).unwrap();
                decoder.push(&bytes[..count]);
            };
            assert_eq!(told, pong(n));
        }
        outbox.close();
        writer.join().unwrap();
    }

    /// So many pongs, which are of no session, and the losses of a session, numbered by their times.
    fn read(client: &mut UnixStream, count: usize) -> Vec<u64> {
        let mut decoder = Decoder::frames_only();
        let mut told = Vec::new();
        let mut bytes = [0; 100];
        while told.len() < count {
            while let Some(message) = decoder.take::<Message>().unwrap() {
                match message {
                    Message::Losses { tsc, .. } => told.push(tsc),
                    Message::Pong { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            if told.len() < count {
                let got = std::io::Read::read(client, &mut bytes).unwrap();
                decoder.push(&bytes[..got]);
            }
        }
        told
    }

    #[test]
    fn what_is_not_safe_is_sent_again_to_who_comes_back() {
        let (stream, mut client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        outbox.begin(true);
        let tell = |numbers: std::ops::Range<u64>| {
            for tsc in numbers {
                let cpus = Vec::new();
                outbox.send(&Message::Losses { tsc, cpus }).unwrap();
                outbox.tell(&pong(tsc));
            }
        };
        tell(0..10);
        assert_eq!(read(&mut client, 10), (0..10).collect::<Vec<_>>());
        outbox.taken(4);
        assert!(!outbox.is_safe() && outbox.has_from(4) && !outbox.has_from(3));
        drop(client);
        outbox.detach();
        writer.join().unwrap();
        tell(10..15);
        assert!(outbox.has_from(15) && !outbox.has_from(16));

        let (stream, mut back) = pair();
        let writer = outbox.attach(stream, 7).unwrap();
        tell(15..20);
        assert_eq!(read(&mut back, 13), (7..20).collect::<Vec<_>>());
        // Whoever comes for a client that is gone may have less than that had.
        assert!(outbox.has_from(4));
        outbox.taken(20);
        outbox.flush(Duration::from_secs(5));
        assert!(outbox.is_safe());
        assert_eq!(outbox.lock().bytes, 0);
        outbox.close();
        writer.join().unwrap();
    }
}
