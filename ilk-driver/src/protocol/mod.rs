//! The messages between agent and client, versioned.
//!
//! A connection is one byte stream: a unix socket, or a virtio port, at whose other end one client
//! may replace another between two reads. Therefore a connection begins with an [`Opening`] that
//! can be found anywhere in a stream and makes everything before it void; the agent answers with an
//! [`Answer`] that repeats the client's nonce, and everything the client reads before that is void
//! too. Then frames travel in both directions: a length (`u32`, little-endian) and a postcard
//! message of that length.
//!
//! | client | agent |
//! |---|---|
//! | [`Request::Info`], [`Request::Look`] | [`Message::Info`] |
//! | [`Request::Kallsyms`], [`Request::Blacklist`], [`Request::Modules`], [`Request::Read`] | [`Message::Chunk`]…, [`Message::End`] |
//! | [`Request::Clear`], [`Request::Load`] | [`Message::Accepted`] |
//! | [`Request::Plan`] | [`Message::Planning`]…, [`Message::Planned`] |
//! | [`Request::Start`] | [`Message::Started`], then the session's messages, then [`Message::Finished`] |
//! | [`Request::Stop`] | none of its own: `Finished` is sent early |
//! | [`Request::Status`] | [`Message::Status`] |
//! | [`Request::End`] | [`Message::Accepted`] |
//! | [`Request::Ping`] | [`Message::Pong`] |
//! | [`Request::Share`] | [`Message::Accepted`], then everything through shared memory |
//! | [`Request::Flood`] | [`Message::Samples`]…, [`Message::End`] |
//! | [`Request::Confirm`] | none |
//! | [`Request::Resume`] | [`Message::Accepted`], then the session's unconfirmed messages |
//!
//! A session with a grace outlives its client: the agent keeps the session's messages
//! ([`Message::is_of_session`]) until the client confirms them by `Confirm`, and a client that
//! opens a new connection resumes after its last stored message.
//!
//! Each request can be answered with [`Message::Refused`] instead. No request carries bytes to
//! write: the agent plans the session itself, on the kernel that it reads itself.

mod frame;
mod limits;
mod message;
mod opening;
mod schedule;

pub use frame::{Decoder, FrameDecoder, Incoming, encode};
pub use message::{
    CpuLosses, Finished, Holder, Message, NumberedStack, ObjectFile, Outage, Placed, PlanOptions,
    PlanOutline, Refusal, RefusalKind, Request, Return, SessionPart, SplicedFunction, StackFrames,
    Started, Status, Switched, Target, Total, WorkloadEvent,
};
pub use opening::{Answer, MAGIC, OPENING_BYTES, Opening};
pub use schedule::{Collection, Interval, Schedule, Strategy, Workload};
/// Bytes serialised as one unit. A plain `Vec<u8>` would be read one element at a time.
pub use serde_bytes::ByteBuf as Bytes;

/// Protocol version; changes with every change of a message.
pub const VERSION: u32 = 23;
/// Limit on the bytes of a frame, excluding its length field.
pub const MAX_FRAME: usize = 4 << 20;
/// Limit on the bytes of kernel memory in one [`Request::Read`].
pub const MAX_READ: u64 = 256 << 20;
/// Bytes of payload in one chunk or one message of samples.
pub const CHUNK: usize = 64 << 10;
/// Bytes of one sample in a message of samples.
pub const SAMPLE_BYTES: usize = size_of::<gilk_samples::Sample>();
/// Limit on the names, placements or totals in one message.
pub const MAX_ITEMS: usize = 32_768;
/// Limit on the placements, and on the names, of a session: the pokes of a batch of the module.
pub const MAX_PLACEMENTS: usize = 1 << 20;
/// Limit on the bytes of a name.
pub const MAX_NAME: usize = 512;
/// Limit on the bytes of all names, of all sources, and of all object files of a session.
pub const MAX_TEXT: usize = 32 << 20;
/// Limit on the pokes in all batches of a session, 80 bytes each.
pub const MAX_POKES: usize = 4 << 20;
/// Limit on the arguments of a workload.
pub const MAX_ARGUMENTS: usize = 256;
/// Longest delay of a session's second 0, in seconds.
pub const MAX_WAIT: f64 = 60.0;
/// Longest duration of a session, in seconds: a year.
pub const MAX_SECONDS: f64 = 31_557_600.0;
/// Limit on the messages of a flood.
pub const MAX_FLOOD: usize = 1 << 20;
/// Shortest interval of periodic messages, in seconds.
pub const MIN_INTERVAL: f64 = 0.001;
/// Longest interval and grace, in seconds.
pub const MAX_INTERVAL: f64 = 3600.0;
