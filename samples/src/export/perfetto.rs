//! Perfetto's trace in protocol buffers, as ui.perfetto.dev and its trace processor read it.
//!
//! Fields are those of `protos/perfetto/trace/` of Perfetto: `trace_packet.proto`,
//! `track_event/track_descriptor.proto`, `track_event/track_event.proto`. Names are interned: a
//! name is written once. Times are nanoseconds since 1970.

use std::collections::HashMap;
use std::io::{self, Write};

use super::items::{Item, loss_name, mark_name};
use super::protobuf::{bytes, message, number};
use super::sink::Sink;
use super::tracks::{EXACT, Shape, TrackPlace, Tracks};
use crate::Sample;
use crate::metadata::{Clock, Metadata};

const ENOUGH: usize = 1 << 15;

/// `Trace.packet`.
const PACKET: u32 = 1;
/// Fields of `TracePacket`.
mod packet {
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED: u32 = 12;
    pub(super) const FLAGS: u32 = 13;
    pub(super) const TRACK: u32 = 60;
}
/// Fields of `TrackDescriptor`.
mod track {
    pub(super) const UUID: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const PARENT: u32 = 5;
    pub(super) const COUNTER: u32 = 8;
    /// Field of `CounterDescriptor`.
    pub(super) const UNIT_NAME: u32 = 6;
}
/// Fields of `TrackEvent`, and of `DebugAnnotation` in it.
mod event {
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME_IID: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const BEGIN: u64 = 1;
    pub(super) const END: u64 = 2;
    pub(super) const INSTANT: u64 = 3;
    pub(super) const COUNTER: u64 = 4;
    pub(super) const ANNOTATION_NAME: u32 = 10;
    pub(super) const UINT: u32 = 3;
    pub(super) const STRING: u32 = 6;
    pub(super) const POINTER: u32 = 7;
}
/// Values of `TracePacket.sequence_flags`: `SEQ_INCREMENTAL_STATE_CLEARED` and `SEQ_NEEDS_INCREMENTAL_STATE`.
const CLEARED: u64 = 1;
const NEEDS: u64 = 2;
/// Sequence of all packets.
const SEQUENCE: u64 = 1;
/// Identifier of the root track, which also holds losses and marks.
const ROOT: u64 = 1 << 40;
const NOTES: u64 = 2 << 40;

/// Sink for packets.
pub(super) struct Perfetto<'a, W> {
    out: W,
    bytes: Vec<u8>,
    clock: Clock,
    tracks: Tracks<'a>,
    /// Identifiers of interned names.
    names: HashMap<u64, u64>,
}

impl<'a, W: Write> Perfetto<'a, W> {
    pub(super) fn new(out: W, metadata: &'a Metadata) -> Self {
        let mut new = Self {
            out,
            bytes: Vec::new(),
            clock: metadata.clock,
            tracks: Tracks::new(metadata),
            names: HashMap::new(),
        };
        message(&mut new.bytes, PACKET, |out| {
            number(out, packet::SEQUENCE, SEQUENCE);
            number(out, packet::FLAGS, CLEARED);
        });
        new.describe(
            ROOT,
            None,
            &format!("GILK, Linux {}", metadata.kernel),
            None,
        );
        new.describe(NOTES, Some(ROOT), "losses and marks", None);
        new
    }

    /// Writes a track and its name; `unit` turns it into a counter track.
    fn describe(&mut self, uuid: u64, parent: Option<u64>, name: &str, unit: Option<&str>) {
        message(&mut self.bytes, PACKET, |out| {
            number(out, packet::SEQUENCE, SEQUENCE);
            message(out, packet::TRACK, |out| {
                number(out, track::UUID, uuid);
                bytes(out, track::NAME, name.as_bytes());
                if let Some(parent) = parent {
                    number(out, track::PARENT, parent);
                }
                if let Some(unit) = unit {
                    message(out, track::COUNTER, |out| {
                        if !unit.is_empty() {
                            bytes(out, track::UNIT_NAME, unit.as_bytes());
                        }
                    });
                }
            });
        });
    }

    /// Returns the identifier of an instrument's name, which is written at its first use.
    fn name(&mut self, id: u64) -> u64 {
        if let Some(&number) = self.names.get(&id) {
            return number;
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(id, iid);
        let label = self.tracks.name(id).label.clone();
        message(&mut self.bytes, PACKET, |out| {
            number(out, packet::SEQUENCE, SEQUENCE);
            number(out, packet::FLAGS, NEEDS);
            message(out, packet::INTERNED, |out| {
                // `InternedData.event_names`, and in an `EventName` its identifier and name.
                message(out, 2, |out| {
                    number(out, 1, iid);
                    bytes(out, 2, label.as_bytes());
                });
            });
        });
        iid
    }

    fn event(&mut self, tsc: u64, fill: impl FnOnce(&mut Vec<u8>)) {
        let at = self.clock.unix_nanoseconds(tsc).max(0) as u64;
        message(&mut self.bytes, PACKET, |out| {
            number(out, packet::TIMESTAMP, at);
            number(out, packet::SEQUENCE, SEQUENCE);
            number(out, packet::FLAGS, NEEDS);
            message(out, packet::TRACK_EVENT, fill);
        });
    }

    fn new_track(&mut self, place: TrackPlace, cpu: u16, id: u64) {
        let title = self.tracks.title(id, cpu);
        let unit = self.tracks.name(id).unit.clone();
        let unit = (place.shape == Shape::Counter).then_some(unit.as_str());
        self.describe(place.track, Some(ROOT), &title, unit);
    }

    fn sample(&mut self, cpu: u16, sample: &Sample, text: Option<&str>) {
        let place = match text {
            Some(_) => self.tracks.event(cpu, sample),
            None => self.tracks.place(cpu, sample),
        };
        if place.is_new {
            self.new_track(place, cpu, sample.id);
        }
        let of_type = |out: &mut Vec<u8>, sort| {
            number(out, event::TYPE, sort);
            number(out, event::TRACK, place.track);
        };
        match place.shape {
            Shape::Counter => self.event(sample.tsc, |out| {
                of_type(out, event::COUNTER);
                number(out, event::COUNTER_VALUE, sample.value);
            }),
            Shape::Slice => {
                let name = self.name(sample.id);
                let begin = sample.tsc.saturating_sub(sample.value);
                self.event(begin, |out| {
                    of_type(out, event::BEGIN);
                    number(out, event::NAME_IID, name);
                    value(out, sample.value);
                });
                self.event(sample.tsc, |out| of_type(out, event::END));
            }
            Shape::Instant => {
                let name = self.name(sample.id);
                self.event(sample.tsc, |out| {
                    of_type(out, event::INSTANT);
                    number(out, event::NAME_IID, name);
                    value(out, sample.value);
                    if let Some(text) = text {
                        message(out, event::ANNOTATION, |out| {
                            bytes(out, event::STRING, text.as_bytes());
                            bytes(out, event::ANNOTATION_NAME, b"text");
                        });
                    }
                });
            }
        }
    }

    fn note(&mut self, tsc: u64, name: &str, amount: u64) {
        self.event(tsc, |out| {
            number(out, event::TYPE, event::INSTANT);
            number(out, event::TRACK, NOTES);
            bytes(out, event::NAME, name.as_bytes());
            value(out, amount);
        });
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

/// Appends the value of an event. A value that JavaScript would round is declared as a pointer,
/// which the viewer shows in hexadecimal.
fn value(out: &mut Vec<u8>, value: u64) {
    message(out, event::ANNOTATION, |out| {
        let field = if value < EXACT {
            event::UINT
        } else {
            event::POINTER
        };
        number(out, field, value);
        bytes(out, event::ANNOTATION_NAME, b"value");
    });
}

impl<W: Write> Sink for Perfetto<'_, W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Sample(cpu, sample) => self.sample(*cpu, sample, None),
            Item::Text(cpu, sample, text) => self.sample(*cpu, sample, Some(text)),
            Item::Loss(loss) => {
                let cpu = self.tracks.metadata.cpu_name(loss.cpu);
                let name = format!("{} · {cpu}", loss_name(loss.cause));
                self.note(loss.tsc, &name, loss.count);
            }
            Item::Mark(mark) => {
                let label = self.tracks.name(mark.id).label.clone();
                let name = format!("{}: {label}", mark_name(mark.kind));
                self.note(mark.tsc, &name, mark.value);
            }
        }
        if self.bytes.len() >= ENOUGH {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.flush()?;
        self.out.flush()
    }
}
