//! Messages of the stream: the envelope, and the columns of a record batch.
//!
//! Messages are written by the `arrow-ipc` crate and read here: its decoder trusts the lengths in a
//! message, but a damaged file must neither panic nor claim memory. Five columns of fixed width
//! need little code to decode.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use zstd::bulk::Decompressor;

use super::format::{COLUMNS, CONTINUATION, MAX_READ_ROWS};
use super::rows::Row;
use crate::Sample;

/// The metadata of a record batch of five columns is a few hundred bytes.
const MAX_BATCH_META: u32 = 1 << 16;
/// Rows at their widest, with a margin for the overhead of a codec on incompressible data.
const MAX_BODY: u64 = (MAX_READ_ROWS as u64) * 32;

/// The first eight bytes of a message.
pub(crate) struct Prefix {
    /// Length of prefix and metadata together; the body follows.
    pub(crate) meta: u32,
    /// The end-of-stream marker.
    pub(crate) is_end: bool,
}

/// Contents of the stream at an offset.
pub(crate) enum Found {
    /// A record batch of so many bytes, prefix and body included.
    Batch { meta: u32, length: u32 },
    /// The end of the stream.
    End,
}

/// Reads the prefix of the message at byte `at` of a file of `len` bytes.
pub(crate) fn prefix(file: &File, at: u64, len: u64) -> Result<Prefix, String> {
    let mut bytes = [0; 8];
    if at + 8 > len {
        return Err(format!("is cut off after {} bytes", len.saturating_sub(at)));
    }
    file.read_exact_at(&mut bytes, at)
        .map_err(|error| format!("cannot be read ({error})"))?;
    let [continuation @ .., a, b, c, d] = bytes;
    if continuation != CONTINUATION {
        return Err("does not begin as an Arrow message".to_owned());
    }
    let length = u32::from_le_bytes([a, b, c, d]);
    let meta = length
        .checked_add(8)
        .filter(|_| length <= i32::MAX as u32)
        .ok_or("has an impossible length")?;
    Ok(Prefix {
        meta,
        is_end: length == 0,
    })
}

/// Identifies the contents at byte `at`, without reading a batch's body.
pub(crate) fn probe(file: &File, at: u64, len: u64) -> Result<Found, String> {
    let prefix = prefix(file, at, len)?;
    if prefix.is_end {
        return Ok(Found::End);
    }
    if prefix.meta > MAX_BATCH_META {
        return Err("has an impossible length".to_owned());
    }
    let cut = || format!("is cut off after {} bytes", len.saturating_sub(at));
    if at + u64::from(prefix.meta) > len {
        return Err(cut());
    }
    let mut bytes = vec![0; prefix.meta as usize];
    file.read_exact_at(&mut bytes, at)
        .map_err(|error| format!("cannot be read ({error})"))?;
    let message =
        arrow_ipc::root_as_message(bytes.get(8..).unwrap_or_default()).map_err(|_| "is damaged")?;
    let body = u64::try_from(message.bodyLength())
        .ok()
        .filter(|&body| body <= MAX_BODY);
    let body = body.ok_or("has an impossible length")?;
    let length = u64::from(prefix.meta) + body;
    if at + length > len {
        return Err(cut());
    }
    Ok(Found::Batch {
        meta: prefix.meta,
        length: u32::try_from(length).map_err(|_| "has an impossible length")?,
    })
}

/// Decoder of record batches that reuses its memory.
#[derive(Default)]
pub(crate) struct Decoder {
    zstd: Option<Decompressor<'static>>,
    columns: [Vec<u8>; COLUMNS.len()],
}

impl Decoder {
    /// Decodes the message `bytes` (prefix, metadata, body) and returns its number of rows. The
    /// error describes why it is not a batch of [`COLUMNS`].
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let meta = match bytes {
            [255, 255, 255, 255, a, b, c, d, ..] => u32::from_le_bytes([*a, *b, *c, *d]) as usize,
            _ => return Err("it does not begin as an Arrow message".to_owned()),
        };
        let (meta, body) = bytes
            .get(8..)
            .and_then(|rest| rest.split_at_checked(meta))
            .ok_or("it is cut off")?;
        let message = arrow_ipc::root_as_message(meta).map_err(|_| "its metadata is damaged")?;
        let batch = message
            .header_as_record_batch()
            .ok_or("it is not a record batch")?;
        let rows = usize::try_from(batch.length())
            .ok()
            .filter(|rows| (1..=MAX_READ_ROWS).contains(rows));
        let rows = rows.ok_or("its number of rows is impossible")?;
        let nodes = batch.nodes().ok_or("it has no columns")?;
        if nodes.len() != COLUMNS.len()
            || nodes
                .iter()
                .any(|n| n.length() != batch.length() || n.null_count() != 0)
        {
            return Err("its columns are not those of a recording".to_owned());
        }
        let compressed = match batch.compression().map(|compression| compression.codec()) {
            None => false,
            Some(arrow_ipc::CompressionType::ZSTD) => true,
            Some(_) => return Err("it is compressed in a way that recordings are not".to_owned()),
        };
        let buffers = batch.buffers().ok_or("it has no buffers")?;
        if buffers.len() != 2 * COLUMNS.len() {
            return Err("its columns are not those of a recording".to_owned());
        }
        // Each column has two buffers: validity, which is ignored because nothing is null, and
        // data.
        let data = buffers.iter().skip(1).step_by(2);
        for ((buffer, (name, width)), column) in data.zip(COLUMNS).zip(&mut self.columns) {
            let range = usize::try_from(buffer.offset())
                .ok()
                .zip(usize::try_from(buffer.length()).ok());
            let source = range.and_then(|(offset, length)| body.get(offset..)?.get(..length));
            let source = source.ok_or_else(|| format!("its column {name} lies outside it"))?;
            fill(column, source, rows * width, compressed, &mut self.zstd)
                .map_err(|reason| format!("its column {name} {reason}"))?;
        }
        Ok(rows)
    }

    /// Returns the batch's CPU, or `None` if its rows are from several.
    pub(crate) fn cpu(&self) -> Option<u16> {
        let [_, cpus, ..] = &self.columns;
        let mut cpus = words::<2>(cpus);
        let first = cpus.next()?;
        cpus.all(|cpu| cpu == first)
            .then(|| u16::from_le_bytes(first))
    }

    /// Returns whether every row is a sample, or `None` if only some are.
    pub(crate) fn is_samples(&self) -> Option<bool> {
        let [_, _, kinds, ..] = &self.columns;
        let first = *kinds.first()? == 0;
        kinds
            .iter()
            .all(|&kind| (kind == 0) == first)
            .then_some(first)
    }

    /// Returns the minimum and maximum time of all rows.
    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let [times, ..] = &self.columns;
        let times = || words::<8>(times).map(u64::from_le_bytes);
        Some((times().min()?, times().max()?))
    }

    /// Appends every row as a sample.
    pub(crate) fn samples(&self, out: &mut Vec<Sample>) {
        let [times, _, _, ids, values] = &self.columns;
        let rows = words::<8>(times)
            .zip(words::<8>(ids))
            .zip(words::<8>(values));
        out.extend(rows.map(|((tsc, id), value)| Sample {
            id: u64::from_le_bytes(id),
            value: u64::from_le_bytes(value),
            tsc: u64::from_le_bytes(tsc),
        }));
    }

    /// Returns every row of any kind.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> {
        let [times, cpus, kinds, ids, values] = &self.columns;
        let keys = words::<8>(times).zip(words::<2>(cpus)).zip(kinds);
        keys.zip(words::<8>(ids).zip(words::<8>(values))).map(
            |(((time, cpu), &kind), (id, value))| Row {
                time: u64::from_le_bytes(time),
                cpu: u16::from_le_bytes(cpu),
                kind,
                id: u64::from_le_bytes(id),
                value: u64::from_le_bytes(value),
            },
        )
    }
}

/// Returns the column's little-endian words.
fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Reads the `want` bytes of a column into `column`, from a buffer that may be compressed.
fn fill(
    column: &mut Vec<u8>,
    source: &[u8],
    want: usize,
    compressed: bool,
    zstd: &mut Option<Decompressor<'static>>,
) -> Result<(), String> {
    column.clear();
    let plain = match (compressed, source) {
        (false, _) => source,
        (true, [a, b, c, d, e, f, g, h, rest @ ..]) => {
            match i64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]) {
                // The codec does not compress a column that it would enlarge.
                -1 => rest,
                length if usize::try_from(length) == Ok(want) => {
                    return decompress(column, rest, want, zstd);
                }
                _ => return Err("has the wrong length".to_owned()),
            }
        }
        (true, _) => return Err("is too short".to_owned()),
    };
    column.extend_from_slice(plain.get(..want).ok_or("is too short")?);
    Ok(())
}

/// Decompresses exactly `want` bytes.
fn decompress(
    column: &mut Vec<u8>,
    source: &[u8],
    want: usize,
    zstd: &mut Option<Decompressor<'static>>,
) -> Result<(), String> {
    let zstd = match zstd {
        Some(zstd) => zstd,
        none => none.insert(Decompressor::new().map_err(|error| error.to_string())?),
    };
    column.reserve_exact(want);
    let got = zstd
        .decompress_to_buffer(source, column)
        .map_err(|error| format!("cannot be decompressed ({error})"))?;
    if got == want {
        Ok(())
    } else {
        Err("has the wrong length".to_owned())
    }
}
