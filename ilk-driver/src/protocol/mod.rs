//! What agent and client say to each other, versioned.
//!
//! A connection is one stream of bytes: a unix socket, or a virtio port behind which a client may
//! be replaced by the next between two reads. So it begins with an [`Opening`] that can be found
//! anywhere in a stream and makes everything before it void; the agent answers with an [`Answer`]
//! that repeats the client's nonce, and what the client reads before that is void too. Then
//! frames go both ways: a length (`u32`, little-endian) and a postcard message of that length.
//!
//! | client | agent |
//! |---|---|
//! | [`Request::Info`] | [`Message::Info`] |
//! | [`Request::Kallsyms`], [`Request::Blacklist`], [`Request::Modules`], [`Request::Read`] | [`Message::Chunk`]…, [`Message::End`] |
//! | [`Request::Clear`], [`Request::Arena`], [`Request::Batch`], [`Request::Pokes`], [`Request::Counters`], [`Request::Retire`] | [`Message::Accepted`] |
//! | [`Request::Start`] | [`Message::Started`], then everything that happens, then [`Message::Finished`] |
//! | [`Request::Stop`] | nothing of its own: `Finished` comes early |
//! | [`Request::Ping`] | [`Message::Pong`] |
//! | [`Request::Share`] | [`Message::Accepted`], and from there on all of it by memory |
//! | [`Request::Flood`] | [`Message::Samples`]…, [`Message::End`] |
//! | [`Request::Taken`] | nothing |
//! | [`Request::Resume`] | [`Message::Accepted`], then everything of the session from there on |
//!
//! A session with a grace outlives its client: the agent keeps what it told of it
//! ([`Message::is_of_session`]) until the client says by `Taken` that it is safe, and a client
//! that opens anew resumes behind what it has.
//!
//! Each request can be answered with [`Message::Refused`] instead. Nothing here knows of the
//! engine: the agent is built without it.

mod bytes;
mod frame;
mod limits;
mod message;
mod opening;
mod schedule;

pub use bytes::Bytes;
pub use frame::{Decoder, FrameDecoder, Incoming, encode};
pub use message::{
    ArenaWrite, Batch, Counter, CpuLosses, EventFound, Fault, Finished, Layout, Message, Poke,
    Recovery, Refusal, RefusalKind, Request, Retire, Row, Started, Surroundings, Switched, Target,
    Total, Way, WorkloadEvent,
};
pub use opening::{Answer, MAGIC, OPENING_BYTES, Opening};
pub use schedule::{Collection, EventCounter, Interval, Schedule, Strategy, Workload};

/// Changes with every change of a message.
pub const VERSION: u32 = 11;
/// Events that an agent looks for, by their numbers in `enum perf_hw_id` of include/uapi/linux/perf_event.h, in
/// the order in which it opens them: those first that have counters of their own.
pub const EVENTS: [u8; 7] = [0, 1, 9, 2, 3, 4, 5];
/// Bytes of the largest frame that is read or written, its length not counted.
pub const MAX_FRAME: usize = 4 << 20;
/// Bytes of kernel memory in one [`Request::Read`].
pub const MAX_READ: u64 = 256 << 20;
/// Bytes of payload in one chunk or one message of samples.
pub const CHUNK: usize = 64 << 10;
/// Bytes of one sample in a message of samples.
pub const SAMPLE_BYTES: usize = size_of::<gilk_samples::Sample>();
/// Pokes in one batch; the module's own limit.
pub const MAX_POKES: usize = 1 << 20;
/// Pokes, counters or totals in one message.
pub const MAX_ITEMS: usize = 32_768;
/// Batches in one session.
pub const MAX_BATCHES: usize = 65_536;
/// Counters in one session; more than the module has.
pub const MAX_COUNTERS: usize = 1 << 21;
/// Arguments of a workload.
pub const MAX_ARGUMENTS: usize = 256;
/// Seconds for which a session may wait for its second 0.
pub const MAX_WAIT: f64 = 60.0;
/// Seconds that a session may last: a year.
pub const MAX_SECONDS: f64 = 31_557_600.0;
/// Messages that a flood may have.
pub const MAX_FLOOD: usize = 1 << 20;
/// The shortest interval in which anything is told, in seconds.
pub const MIN_INTERVAL: f64 = 0.001;
/// The longest interval and grace, in seconds.
pub const MAX_INTERVAL: f64 = 3600.0;
