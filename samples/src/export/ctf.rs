//! The Common Trace Format 1.8, a directory that babeltrace2, Trace Compass and LTTng's tools read.
//!
//! `metadata` describes everything in TSDL (CTF 1.8.3, 4); a stream per CPU holds packets of
//! events. An instrument is an event class with one field. Fields are byte-aligned and
//! little-endian.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::items::{Item, loss_name, mark_name};
use super::sink::Sink;
use super::tracks::{self, Name};
use crate::metadata::Metadata;
use crate::record::ALL_CPUS;
use crate::recording::RowKind;
use crate::{Error, Meaning, Result};

/// Magic number of a packet (CTF 1.8.3, 5.1).
const MAGIC: u32 = 0xc1fc_1fc1;
/// Bytes of a packet before its events: the magic, the stream's class, and the context that the
/// metadata declares.
const HEAD: usize = 8 + 5 * 8 + 4;
/// Bytes of events that complete a packet.
const ENOUGH: usize = 1 << 16;

/// Sink for a trace.
pub(super) struct Ctf<'a> {
    directory: PathBuf,
    metadata: &'a Metadata,
    names: HashMap<u64, Name>,
    /// Numbers of event classes.
    classes: HashMap<(u8, u64, bool), u32>,
    /// The classes in TSDL, in the order of their numbers.
    described: String,
    streams: BTreeMap<u16, Stream>,
}

/// Refuses a directory that contains anything but a trace of this module.
pub(super) fn may_be_replaced(directory: &Path) -> Result<()> {
    let io = |error| Error::io(directory, error);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io)?,
    };
    for entry in entries {
        let name = entry.map_err(io)?.file_name();
        let name = name.to_string_lossy();
        if name != "metadata" && !name.starts_with("cpu_") {
            return Err(Error::Occupied {
                path: directory.to_path_buf(),
                reason: format!(
                    "it is a folder with {name}, which is no part of a trace; name a new folder"
                ),
            });
        }
    }
    Ok(())
}

/// Events of one CPU.
struct Stream {
    file: File,
    events: Vec<u8>,
    first: u64,
    last: u64,
    /// Samples lost up to this packet.
    discarded: u64,
}

impl<'a> Ctf<'a> {
    /// Creates a trace in `directory`, which is empty.
    pub(super) fn new(directory: &Path, metadata: &'a Metadata) -> Self {
        Self {
            directory: directory.to_path_buf(),
            metadata,
            names: tracks::names(metadata),
            classes: HashMap::new(),
            described: String::new(),
            streams: BTreeMap::new(),
        }
    }

    /// Returns the number of an event class, which is described at its first use.
    fn class(&mut self, kind: RowKind, id: u64, is_text: bool) -> u32 {
        let next = self.classes.len() as u32;
        let key = (kind.number(), id, is_text);
        if let Some(&class) = self.classes.get(&key) {
            return class;
        }
        self.classes.insert(key, next);
        let name = self.names.entry(id).or_insert_with(|| tracks::unknown(id));
        let (words, field, base) = match kind {
            RowKind::Sample => {
                let is_word = name.meaning == Meaning::Value && name.unit.is_empty();
                (name.label.clone(), "value", if is_word { 16 } else { 10 })
            }
            RowKind::Loss(cause) => (loss_name(cause), "count", 10),
            RowKind::Mark(kind) => {
                let words = format!("{}: {}", mark_name(kind), name.label);
                (words, "value", 10)
            }
            RowKind::Word => (name.label.clone(), "word", 16),
        };
        let text = match is_text {
            true => " string { encoding = UTF8; } text;",
            false => "",
        };
        let words = literal(&words);
        // Writing to a String cannot fail.
        let _ = writeln!(
            self.described,
            "event {{ name = \"{words}\"; id = {next}; stream_id = 0; fields := struct {{ \
             integer {{ size = 64; align = 8; signed = false; base = {base}; }} {field};{text} }}; }};"
        );
        next
    }

    fn event(
        &mut self,
        cpu: u16,
        tsc: u64,
        kind: RowKind,
        (id, value): (u64, u64),
        text: Option<&str>,
    ) -> io::Result<()> {
        let class = self.class(kind, id, text.is_some());
        let stream = match self.streams.entry(cpu) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let name = match cpu {
                    ALL_CPUS => "cpu_all".to_owned(),
                    cpu => format!("cpu_{cpu}"),
                };
                entry.insert(Stream {
                    file: File::create(self.directory.join(name))?,
                    events: Vec::with_capacity(ENOUGH + 32),
                    first: tsc,
                    last: tsc,
                    discarded: 0,
                })
            }
        };
        if stream.events.is_empty() {
            stream.first = tsc;
        }
        stream.last = tsc;
        if matches!(kind, RowKind::Loss(_)) {
            stream.discarded = stream.discarded.saturating_add(value);
        }
        stream.events.extend_from_slice(&class.to_le_bytes());
        stream.events.extend_from_slice(&tsc.to_le_bytes());
        stream.events.extend_from_slice(&value.to_le_bytes());
        if let Some(text) = text {
            // A string ends at its zero (CTF 1.8.3, 4.2.1); texts have no control characters.
            stream.events.extend_from_slice(text.as_bytes());
            stream.events.push(0);
        }
        if stream.events.len() >= ENOUGH {
            stream.packet(cpu)?;
        }
        Ok(())
    }

    /// Returns the description of the trace.
    fn tsdl(&self) -> String {
        let clock = self.metadata.clock;
        // Cycles from 1970 to the counter's 0.
        let hz = i128::from(clock.hz.max(1));
        let offset = i128::from(clock.start_unix_ns) * hz / 1_000_000_000 - i128::from(clock.start);
        let (seconds, cycles) = (offset.div_euclid(hz), offset.rem_euclid(hz));
        let kernel = literal(&self.metadata.kernel);
        let described = &self.described;
        format!(
            "/* CTF 1.8 */\n\
             typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;\n\
             typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;\n\
             trace {{ major = 1; minor = 8; byte_order = le; \
             packet.header := struct {{ uint32_t magic; uint32_t stream_id; }}; }};\n\
             env {{ domain = \"kernel\"; kernel_release = \"{kernel}\"; tracer_name = \"gilk\"; }};\n\
             clock {{ name = tsc; description = \"time-stamp counter\"; freq = {hz}; \
             offset_s = {seconds}; offset = {cycles}; absolute = true; }};\n\
             typealias integer {{ size = 64; align = 8; signed = false; map = clock.tsc.value; }} := tsc_t;\n\
             stream {{ id = 0; packet.context := struct {{ tsc_t timestamp_begin; tsc_t timestamp_end; \
             uint64_t content_size; uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; }}; \
             event.header := struct {{ uint32_t id; tsc_t timestamp; }}; }};\n\
             {described}"
        )
    }
}

impl Stream {
    /// Writes the pending events as a packet.
    fn packet(&mut self, cpu: u16) -> io::Result<()> {
        if self.events.is_empty() {
            return Ok(());
        }
        let bits = (HEAD + self.events.len()) as u64 * 8;
        let mut bytes = Vec::with_capacity(HEAD + self.events.len());
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        for word in [self.first, self.last, bits, bits, self.discarded] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&u32::from(cpu).to_le_bytes());
        bytes.append(&mut self.events);
        self.file.write_all(&bytes)
    }
}

/// Escapes text for quotes in TSDL, whose readers support little beyond ASCII.
fn literal(words: &str) -> String {
    let plain = words.chars().map(|character| match character {
        '"' => '\'',
        '\\' => '/',
        ' '..='~' => character,
        _ => '?',
    });
    plain.collect()
}

impl Sink for Ctf<'_> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Sample(cpu, sample) => self.event(
                *cpu,
                sample.tsc,
                RowKind::Sample,
                (sample.id, sample.value),
                None,
            ),
            Item::Text(cpu, sample, text) => {
                let value = (sample.id, sample.value);
                self.event(*cpu, sample.tsc, RowKind::Sample, value, Some(text))
            }
            Item::Loss(loss) => {
                let kind = RowKind::Loss(loss.cause);
                self.event(loss.cpu, loss.tsc, kind, (0, loss.count), None)
            }
            Item::Mark(mark) => {
                let kind = RowKind::Mark(mark.kind);
                self.event(ALL_CPUS, mark.tsc, kind, (mark.id, mark.value), None)
            }
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        for (cpu, stream) in &mut self.streams {
            stream.packet(*cpu)?;
        }
        fs::write(self.directory.join("metadata"), self.tsdl())
    }
}
