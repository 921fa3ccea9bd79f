//! Chrome's trace events in JSON, which `chrome://tracing`, Perfetto and Speedscope open.
//!
//! The format: "Trace Event Format", Google, 2016. Every track is a thread of one process. Times
//! are in microseconds from the start of the instrumentation, with three decimals.

use std::io::{self, Write};

use serde_json::json;

use super::items::{Item, loss_name, mark_name};
use super::number::{decimal, fraction, json as number};
use super::sink::Sink;
use super::tracks::{Shape, TrackPlace, Tracks};
use crate::Sample;
use crate::metadata::{Clock, Metadata};
use crate::record::known_cpu;

const ENOUGH: usize = 1 << 15;

/// Sink for trace events.
pub(super) struct Chrome<'a, W> {
    out: W,
    bytes: Vec<u8>,
    clock: Clock,
    tracks: Tracks<'a>,
    /// Names of counter tracks, in JSON: a counter is identified by its name alone.
    counters: std::collections::HashMap<u64, String>,
}

impl<'a, W: Write> Chrome<'a, W> {
    pub(super) fn new(out: W, metadata: &'a Metadata) -> Self {
        let about = json!({
            "kernel": metadata.kernel,
            "cpus": metadata.cpus,
            "session": metadata.session,
            "tsc_hz": metadata.clock.hz,
            "tsc_start": format!("{:#x}", metadata.clock.start),
            "start_unix_ns": metadata.clock.start_unix_ns.to_string(),
        });
        let name = json!(format!("GILK, Linux {}", metadata.kernel));
        let head = format!(
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[\n\
             {{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"tid\":0,\"args\":{{\"name\":{name}}}}}"
        );
        Self {
            out,
            bytes: head.into_bytes(),
            clock: metadata.clock,
            tracks: Tracks::new(metadata),
            counters: std::collections::HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn time(&mut self, nanoseconds: i64) {
        fraction(&mut self.bytes, nanoseconds, 3);
    }

    fn name_track(&mut self, place: TrackPlace, cpu: u16, id: u64) {
        let title = json!(self.tracks.title(id, cpu)).to_string();
        if place.shape == Shape::Counter {
            self.counters.insert(place.track, title);
            return;
        }
        self.text(",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":");
        decimal(&mut self.bytes, place.track, 1);
        self.text(",\"args\":{\"name\":");
        self.text(&title);
        self.text("}}");
    }

    fn sample(&mut self, cpu: u16, sample: &Sample, text: Option<&str>) {
        let place = match text {
            Some(_) => self.tracks.event(cpu, sample),
            None => self.tracks.place(cpu, sample),
        };
        if place.is_new {
            self.name_track(place, cpu, sample.id);
        }
        let end = self.clock.nanoseconds(sample.tsc);
        match place.shape {
            Shape::Counter => {
                self.text(",\n{\"ph\":\"C\",\"pid\":1,\"name\":");
                let name = self
                    .counters
                    .get(&place.track)
                    .map(String::as_bytes)
                    .unwrap_or_default();
                self.bytes.extend_from_slice(name);
                self.text(",\"ts\":");
                self.time(end);
            }
            Shape::Instant => {
                self.text(",\n{\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":");
                decimal(&mut self.bytes, place.track, 1);
                self.named(sample.id);
                self.time(end);
            }
            Shape::Slice => {
                let begin = self
                    .clock
                    .nanoseconds(sample.tsc.saturating_sub(sample.value));
                self.text(",\n{\"ph\":\"X\",\"pid\":1,\"tid\":");
                decimal(&mut self.bytes, place.track, 1);
                self.named(sample.id);
                self.time(begin);
                self.text(",\"dur\":");
                self.time(end.saturating_sub(begin));
            }
        }
        self.text(",\"args\":{\"value\":");
        number(&mut self.bytes, sample.value);
        if let Some(text) = text {
            self.text(",\"text\":");
            self.text(&json!(text).to_string());
        }
        self.text("}}");
    }

    fn named(&mut self, id: u64) {
        let name = json!(self.tracks.name(id).label).to_string();
        self.text(",\"name\":");
        self.text(&name);
        self.text(",\"ts\":");
    }

    /// Writes an event of the whole recording: a line through every track.
    fn note(&mut self, tsc: u64, name: &str, args: &serde_json::Value) {
        let name = json!(name).to_string();
        self.text(",\n{\"ph\":\"i\",\"s\":\"g\",\"pid\":1,\"tid\":0,\"name\":");
        self.text(&name);
        self.text(",\"ts\":");
        let at = self.clock.nanoseconds(tsc);
        self.time(at);
        self.text(",\"args\":");
        self.text(&args.to_string());
        self.text("}");
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}

impl<W: Write> Sink for Chrome<'_, W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Sample(cpu, sample) => self.sample(*cpu, sample, None),
            Item::Text(cpu, sample, text) => self.sample(*cpu, sample, Some(text)),
            Item::Loss(loss) => {
                let args = json!({"cpu": known_cpu(loss.cpu), "count": loss.count});
                self.note(loss.tsc, &loss_name(loss.cause), &args);
            }
            Item::Mark(mark) => {
                let label = self.tracks.name(mark.id).label.clone();
                let args = json!({"instrument": label, "value": format!("{:#x}", mark.value)});
                self.note(mark.tsc, mark_name(mark.kind), &args);
            }
        }
        if self.bytes.len() >= ENOUGH {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.text("\n]}\n");
        self.flush()?;
        self.out.flush()
    }
}
