//! Parquet, for DuckDB, Polars and Spark.
//!
//! The recording's columns, and three that save a join: `utc`, the time as a timestamp in
//! microseconds (Spark reads no finer ones), `ns`, nanoseconds since 1970 as a plain number, and
//! `instrument`, the label. Rows are in order of time, in groups of 131,072 whose minimum and
//! maximum times are in the footer: a query of a span of time reads only its groups.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;

use super::items::{Item, loss_name, mark_name};
use super::sink::Sink;
use super::tracks::{self, Name};
use crate::clocks::Alignment;
use crate::record::{ALL_CPUS, known_cpu};
use crate::recording::{Recording, RowKind};

const SCHEMA: &str = "message samples {
    required int64 utc (TIMESTAMP(MICROS, true));
    required int64 ns;
    required int64 time (INTEGER(64, false));
    optional int32 cpu (INTEGER(16, false));
    required int32 kind (INTEGER(8, false));
    required int64 id (INTEGER(64, false));
    required int64 value (INTEGER(64, false));
    required binary instrument (STRING);
";
/// The column of texts, in recordings that have some.
const TEXT: &str = "    optional binary text (STRING);
";
/// Rows per group: some 5 MB in memory.
const GROUP: usize = 1 << 17;

/// Sink for rows.
pub(super) struct Parquet<W: Write + Send> {
    file: SerializedFileWriter<W>,
    alignment: Alignment,
    names: HashMap<u64, Name>,
    labels: HashMap<(u8, u64), ByteArray>,
    utc: Vec<i64>,
    ns: Vec<i64>,
    time: Vec<i64>,
    /// None of totals over all CPUs.
    cpu: Vec<Option<i32>>,
    kind: Vec<i32>,
    id: Vec<i64>,
    value: Vec<i64>,
    instrument: Vec<ByteArray>,
    /// Texts of rows, in recordings that have some.
    text: Option<Vec<Option<ByteArray>>>,
}

impl<W: Write + Send> Parquet<W> {
    pub(super) fn new(out: W, recording: &Recording, alignment: Alignment) -> io::Result<Self> {
        let metadata = recording.metadata();
        let has_texts = !metadata.texts.is_empty();
        let text = if has_texts { TEXT } else { "" };
        let schema = parse_message_type(&format!("{SCHEMA}{text}}}")).map_err(cause)?;
        let level = ZstdLevel::try_new(1).map_err(cause)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by("gilk".to_owned())
            // Statistics per page cost a few bytes and let a reader skip pages within a group.
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_dictionary_enabled(true);
        // Times grow by small differences; other columns repeat themselves.
        for column in ["utc", "ns", "time"] {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(column), false)
                .set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED);
        }
        let value = ColumnPath::from("value");
        properties = properties.set_column_dictionary_enabled(value, false);
        let json = serde_json::to_string(metadata)?;
        let mut about = vec![KeyValue::new("gilk".to_owned(), json)];
        if !recording.totals().is_empty() {
            let json = serde_json::to_string(recording.totals())?;
            about.push(KeyValue::new("gilk.totals".to_owned(), json));
        }
        let (first, last) = recording.span().unwrap_or_default();
        if let Some(error) = alignment.worst_ns(first, last) {
            about.push(KeyValue::new(
                "gilk.clock.error_ns".to_owned(),
                error.to_string(),
            ));
        }
        let properties = properties.set_key_value_metadata(Some(about)).build();
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties));
        Ok(Self {
            file: file.map_err(cause)?,
            alignment,
            names: tracks::names(metadata),
            labels: HashMap::new(),
            utc: Vec::new(),
            ns: Vec::new(),
            time: Vec::new(),
            cpu: Vec::new(),
            kind: Vec::new(),
            id: Vec::new(),
            value: Vec::new(),
            instrument: Vec::new(),
            text: has_texts.then(Vec::new),
        })
    }

    fn row(
        &mut self,
        tsc: u64,
        cpu: u16,
        kind: RowKind,
        (id, value): (u64, u64),
        text: Option<&str>,
    ) {
        let ns = i64::try_from(self.alignment.unix_ns(tsc)).unwrap_or(i64::MAX);
        self.utc.push(ns / 1000);
        self.ns.push(ns);
        self.time.push(tsc.cast_signed());
        self.cpu.push(known_cpu(cpu).map(i32::from));
        self.kind.push(i32::from(kind.number()));
        self.id.push(id.cast_signed());
        self.value.push(value.cast_signed());
        let label = self.labels.entry((kind.number(), id)).or_insert_with(|| {
            let label = || {
                let known = self.names.get(&id).map(|name| name.label.clone());
                known.unwrap_or_else(|| tracks::plain_id(id))
            };
            let words = match kind {
                RowKind::Sample | RowKind::Word => label(),
                RowKind::Loss(cause) => loss_name(cause),
                RowKind::Mark(kind) => format!("{}: {}", mark_name(kind), label()),
            };
            ByteArray::from(words.into_bytes())
        });
        self.instrument.push(label.clone());
        if let Some(texts) = &mut self.text {
            texts.push(text.map(ByteArray::from));
        }
    }

    /// Writes the pending rows as a group.
    fn group(&mut self) -> io::Result<()> {
        if self.utc.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group().map_err(cause)?;
        longs(&mut group, &mut self.utc)?;
        longs(&mut group, &mut self.ns)?;
        longs(&mut group, &mut self.time)?;
        optional_shorts(&mut group, &mut self.cpu)?;
        shorts(&mut group, &mut self.kind)?;
        longs(&mut group, &mut self.id)?;
        longs(&mut group, &mut self.value)?;
        let mut column = group.next_column().map_err(cause)?.ok_or_else(too_few)?;
        let written = column
            .typed::<ByteArrayType>()
            .write_batch(&self.instrument, None, None);
        written.map_err(cause)?;
        column.close().map_err(cause)?;
        self.instrument.clear();
        if let Some(texts) = &mut self.text {
            let levels: Vec<i16> = texts.iter().map(|text| i16::from(text.is_some())).collect();
            let present: Vec<ByteArray> = texts.drain(..).flatten().collect();
            let mut column = group.next_column().map_err(cause)?.ok_or_else(too_few)?;
            let written =
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&present, Some(&levels), None);
            written.map_err(cause)?;
            column.close().map_err(cause)?;
        }
        group.close().map_err(cause)?;
        Ok(())
    }
}

fn longs<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<i64>,
) -> io::Result<()> {
    let mut column = group.next_column().map_err(cause)?.ok_or_else(too_few)?;
    let written = column.typed::<Int64Type>().write_batch(values, None, None);
    written.map_err(cause)?;
    values.clear();
    column.close().map_err(cause)
}

fn shorts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<i32>,
) -> io::Result<()> {
    let mut column = group.next_column().map_err(cause)?.ok_or_else(too_few)?;
    let written = column.typed::<Int32Type>().write_batch(values, None, None);
    written.map_err(cause)?;
    values.clear();
    column.close().map_err(cause)
}

fn optional_shorts<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &mut Vec<Option<i32>>,
) -> io::Result<()> {
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let present: Vec<i32> = values.drain(..).flatten().collect();
    let mut column = group.next_column().map_err(cause)?.ok_or_else(too_few)?;
    let written = column
        .typed::<Int32Type>()
        .write_batch(&present, Some(&levels), None);
    written.map_err(cause)?;
    column.close().map_err(cause)
}

fn too_few() -> io::Error {
    io::Error::other("the Parquet file has fewer columns than its schema")
}

/// Returns the error of the system inside, if there is one.
fn cause(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

impl<W: Write + Send> Sink for Parquet<W> {
    fn item(&mut self, item: &Item) -> io::Result<()> {
        match item {
            Item::Sample(cpu, sample) => {
                let value = (sample.id, sample.value);
                self.row(sample.tsc, *cpu, RowKind::Sample, value, None);
            }
            Item::Text(cpu, sample, text) => {
                let value = (sample.id, sample.value);
                self.row(sample.tsc, *cpu, RowKind::Sample, value, Some(text));
            }
            Item::Loss(loss) => {
                let kind = RowKind::Loss(loss.cause);
                self.row(loss.tsc, loss.cpu, kind, (0, loss.count), None);
            }
            Item::Mark(mark) => {
                let kind = RowKind::Mark(mark.kind);
                self.row(mark.tsc, ALL_CPUS, kind, (mark.id, mark.value), None);
            }
        }
        if self.utc.len() >= GROUP {
            self.group()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.group()?;
        self.file.finish().map_err(cause)?;
        self.file.inner_mut().flush()
    }
}
