//! The first bytes of the file: magic, then the schema message with the metadata.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, write_message};
use arrow_schema::Schema;

use super::format::{ALIGNMENT, COLUMNS, FORMAT_VERSION, MAGIC};
use super::message;
use crate::metadata::Metadata;
use crate::{Error, Result};

/// The graphs of a hundred functions are less than a megabyte of JSON.
const MAX_SCHEMA: u32 = 256 << 20;

/// The head of a recording as it was read.
pub(crate) struct Head {
    pub(crate) metadata: Metadata,
    /// Offset of the first batch.
    pub(crate) end: u64,
    /// Checksum of every byte before `end`: ties a sidecar to its recording.
    pub(crate) crc: u32,
    /// The schema as it is in the file, with additions of later versions.
    pub(crate) schema: Schema,
}

/// Returns the first bytes of a new recording.
pub(crate) fn encode(schema: &Schema) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = vec![0; ALIGNMENT];
    for (byte, magic) in bytes.iter_mut().zip(MAGIC) {
        *byte = magic;
    }
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(true);
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        schema,
        &mut tracker,
        &options,
    );
    write_message(&mut bytes, message, &options).map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Reads and checks the head of the file of `len` bytes at `path`.
pub(crate) fn read(file: &File, path: &Path, len: u64) -> Result<Head> {
    let refuse = |reason: String| Error::NotARecording {
        path: path.to_path_buf(),
        reason,
    };
    if len == 0 {
        return Err(refuse("it is empty".to_owned()));
    }
    let start = ALIGNMENT as u64;
    let mut bytes = vec![0; ALIGNMENT.min(usize::try_from(len).unwrap_or(ALIGNMENT))];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|error| Error::io(path, error))?;
    if !bytes.starts_with(&MAGIC) {
        return Err(refuse(
            "it does not begin with ARROW1, as every recording does".to_owned(),
        ));
    }
    let truncated = || {
        refuse(format!(
            "its schema is cut off: the file ends after {len} bytes"
        ))
    };
    let prefix = message::prefix(file, start, len).map_err(|reason| {
        if len < start + 8 {
            truncated()
        } else {
            refuse(format!("the schema message at byte {start} {reason}"))
        }
    })?;
    let end = start + u64::from(prefix.meta);
    if prefix.is_end || end > len {
        return Err(truncated());
    }
    if prefix.meta > MAX_SCHEMA {
        return Err(refuse(format!(
            "the schema message at byte {start} has an impossible length"
        )));
    }
    bytes.resize(ALIGNMENT + prefix.meta as usize, 0);
    file.read_exact_at(&mut bytes, 0)
        .map_err(|error| Error::io(path, error))?;
    let message = bytes.get(ALIGNMENT + 8..).unwrap_or_default();
    let (metadata, schema) = parse(message)
        .map_err(|reason| refuse(format!("the schema message at byte {start} {reason}")))?;
    Ok(Head {
        metadata,
        end,
        crc: crc32fast::hash(&bytes),
        schema,
    })
}

/// Parses metadata and schema from the flatbuffer of a schema message.
fn parse(message: &[u8]) -> std::result::Result<(Metadata, Schema), String> {
    let message = arrow_ipc::root_as_message(message).map_err(|_| "is damaged".to_owned())?;
    let header = message.header_as_schema().ok_or("is another message")?;
    let pair = |wanted: &str| {
        let pairs = header.custom_metadata()?;
        pairs
            .iter()
            .find(|pair| pair.key() == Some(wanted))
            .and_then(|pair| pair.value())
    };
    let json = pair("gilk").ok_or("has no entry `gilk`: an Arrow file of something else")?;
    let version = pair("gilk.version")
        .and_then(|text| text.parse::<u32>().ok())
        .ok_or("names no format version")?;
    if version > FORMAT_VERSION {
        return Err(format!(
            "is of format {version}; this program reads up to {FORMAT_VERSION}: use a newer one"
        ));
    }
    let fields: Vec<_> = header.fields().into_iter().flatten().collect();
    let as_expected = fields.len() == COLUMNS.len()
        && fields.iter().zip(COLUMNS).all(|(field, (name, width))| {
            let int = field.type_as_int();
            field.name() == Some(name)
                && field.dictionary().is_none()
                && int.is_some_and(|int| {
                    !int.is_signed() && usize::try_from(int.bitWidth()) == Ok(width * 8)
                })
        });
    if !as_expected {
        return Err("does not name the columns time, cpu, kind, id and value".to_owned());
    }
    let metadata = serde_json::from_str(json)
        .map_err(|error| format!("has metadata that cannot be read ({error})"))?;
    let schema = arrow_ipc::convert::try_fb_to_schema(header)
        .map_err(|error| format!("is damaged ({error})"))?;
    Ok((metadata, schema))
}
