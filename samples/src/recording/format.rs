//! The fixed parts of the file: columns, schema, footer.

use std::collections::HashMap;

use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_ipc::writer::DictionaryTracker;
use arrow_schema::{DataType, Field, Schema};
use flatbuffers::FlatBufferBuilder;

use super::rows::RowKind;
use super::sidecar::Block;
use crate::metadata::Metadata;
use crate::totals::Totals;

/// Value of `gilk.version`. A reader refuses a higher number.
pub const FORMAT_VERSION: u32 = 1;
/// Maximum number of rows in a batch that a [`Writer`](super::Writer) writes.
pub const MAX_ROWS: usize = 1 << 16;
/// Name and width in bytes of every column; all are unsigned and never null.
pub const COLUMNS: [(&str, usize); 5] = [
    ("time", 8),
    ("cpu", 2),
    ("kind", 1),
    ("id", 8),
    ("value", 8),
];

/// Maximum number of rows in a batch that a reader accepts. This bounds the memory that a file can
/// claim: a batch takes at least 512 bytes of the file, and at most 24 bytes per row in memory, so
/// reading takes at most 3,072 times the size of the file (if each CPU has one batch, of identical
/// rows), plus some megabytes.
pub(crate) const MAX_READ_ROWS: usize = MAX_ROWS;
/// Key of the metadata in the footer's metadata, if it is not that of the head.
pub(crate) const DESCRIBED: &str = "gilk.described";
/// Key of the totals in the footer's metadata.
pub(crate) const TOTALS: &str = "gilk.totals";
/// The first and the last bytes of an Arrow file.
pub(crate) const MAGIC: [u8; 6] = *b"ARROW1";
/// Offset of the schema message, and alignment of messages and their buffers.
pub(crate) const ALIGNMENT: usize = 64;
/// First bytes of every message.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end of the stream of messages.
pub(crate) const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// Returns the schema with the recording's metadata.
pub(crate) fn schema(metadata: &Metadata) -> Result<Schema, String> {
    // JSON has no infinity: a reader would refuse the null in its place.
    let instruments = metadata.instruments.iter();
    let times = instruments.flat_map(|info| [info.launch, info.splash]);
    if let Some(time) = times.into_iter().find(|time| !time.is_finite()) {
        return Err(format!("a launch or splash is {time} s"));
    }
    let json = serde_json::to_string(metadata).map_err(|error| error.to_string())?;
    let fields: Vec<Field> = COLUMNS
        .iter()
        .map(|&(name, width)| {
            let data_type = match width {
                1 => DataType::UInt8,
                2 => DataType::UInt16,
                _ => DataType::UInt64,
            };
            Field::new(name, data_type, false)
        })
        .collect();
    let kinds: Vec<String> = RowKind::ALL
        .iter()
        .map(|(number, _, words)| format!("{number}={words}"))
        .collect();
    let plain = [
        ("gilk", json),
        ("gilk.version", FORMAT_VERSION.to_string()),
        ("gilk.kernel", metadata.kernel.clone()),
        ("gilk.cpus", metadata.cpus.to_string()),
        ("gilk.clock.hz", metadata.clock.hz.to_string()),
        ("gilk.clock.start", metadata.clock.start.to_string()),
        (
            "gilk.clock.start_unix_ns",
            metadata.clock.start_unix_ns.to_string(),
        ),
        ("gilk.kinds", kinds.join("; ")),
        ("gilk.session", metadata.session.clone()),
    ];
    let pairs: HashMap<String, String> = plain
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    Ok(Schema::new(fields).with_metadata(pairs))
}

/// Returns the schema of a footer whose recording has other metadata than its head.
pub(crate) fn described(metadata: &Metadata, head: &Schema) -> Result<Schema, String> {
    let json = serde_json::to_string(metadata).map_err(|error| error.to_string())?;
    let mut schema = head.clone();
    schema.metadata.insert(DESCRIBED.to_owned(), json);
    Ok(schema)
}

/// Returns the bytes after the last batch of a finished file: end of stream, footer, its length,
/// the magic. The footer's schema adds the totals, which are not known at the start of the file.
pub(crate) fn tail(schema: &Schema, totals: &Totals, blocks: &[Block]) -> Result<Vec<u8>, String> {
    let mut schema = schema.clone();
    // A damaged head may contain some.
    schema.metadata.remove(TOTALS);
    if !totals.is_empty() {
        let json = serde_json::to_string(totals).map_err(|error| error.to_string())?;
        schema.metadata.insert(TOTALS.to_owned(), json);
    }
    let mut builder = FlatBufferBuilder::new();
    let blocks: Vec<arrow_ipc::Block> = blocks.iter().map(Block::footer_entry).collect();
    let dictionaries = builder.create_vector::<arrow_ipc::Block>(&[]);
    let batches = builder.create_vector(&blocks);
    let mut tracker = DictionaryTracker::new(true);
    let schema = IpcSchemaEncoder::new()
        .with_dictionary_tracker(&mut tracker)
        .schema_to_fb_offset(&mut builder, &schema);
    let mut footer = arrow_ipc::FooterBuilder::new(&mut builder);
    footer.add_version(arrow_ipc::MetadataVersion::V5);
    footer.add_schema(schema);
    footer.add_dictionaries(dictionaries);
    footer.add_recordBatches(batches);
    let root = footer.finish();
    builder.finish(root, None);
    let footer = builder.finished_data();
    let length =
        i32::try_from(footer.len()).map_err(|_| "the footer would exceed 2 GiB".to_owned())?;
    let mut bytes = Vec::with_capacity(footer.len() + END_OF_STREAM.len() + MAGIC.len() + 4);
    bytes.extend_from_slice(&END_OF_STREAM);
    bytes.extend_from_slice(footer);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&MAGIC);
    Ok(bytes)
}
