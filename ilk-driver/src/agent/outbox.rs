//! What is to be sent to one client, and the thread that sends it.
//!
//! Whoever tells of a batch or an end never waits. Whoever sends samples or files waits while too
//! much is under way: then the rings fill, and the module counts what they lose.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::stream::Stream;
use super::sys;
use crate::protocol::{Message, encode};

/// Bytes under way above which samples wait.
const BULK: usize = 8 << 20;

/// The client is gone, or has been replaced by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    bytes: usize,
    closed: bool,
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
        let own = Arc::clone(&outbox);
        let writer = std::thread::Builder::new()
            .name(String::from("writer"))
            .spawn(move || own.write_to(&stream))?;
        Ok((outbox, writer))
    }

    /// Queues a message whatever else is queued.
    pub(super) fn tell(&self, message: &Message) {
        if let Ok(frame) = encode(message) {
            self.raw(frame);
        }
    }

    /// Queues bytes that are no message.
    pub(super) fn raw(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        if !state.closed {
            state.bytes += bytes.len();
            state.queue.push_back(bytes);
            self.changed.notify_all();
        }
    }

    /// Queues a message when there is room for it.
    pub(super) fn send(&self, message: &Message) -> Result<(), Gone> {
        let mut state = self.lock();
        while state.bytes > BULK && !state.closed {
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

    /// Drops what is queued and wakes everybody who waits.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue.clear();
        state.bytes = 0;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_to(&self, stream: &Stream) {
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.closed {
                state = self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            let Some(frame) = state.queue.pop_front() else {
                return;
            };
            drop(state);
            if self.write(stream, &frame).is_err() {
                self.close();
                return;
            }
            let mut state = self.lock();
            state.bytes = state.bytes.saturating_sub(frame.len());
            self.changed.notify_all();
        }
    }

    fn write(&self, stream: &Stream, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if self.lock().closed {
                return Err(Gone);
            }
            match (&stream.file).write(bytes) {
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

    #[test]
    fn messages_arrive_in_order() {
        let (stream, mut client) = pair();
        let (outbox, writer) = Outbox::start(stream).unwrap();
        for n in 0..1000 {
            outbox.send(&Message::Pong(n)).unwrap();
        }
        let mut decoder = Decoder::frames_only();
        for n in 0..1000 {
            let mut bytes = [0; 100];
            let pong = loop {
                if let Some(message) = decoder.take::<Message>().unwrap() {
                    break message;
                }
                let count = std::io::Read::read(&mut client, &mut bytes).unwrap();
                decoder.push(&bytes[..count]);
            };
            assert_eq!(pong, Message::Pong(n));
        }
        outbox.close();
        writer.join().unwrap();
    }
}
