//! Undoes what the kernel's build did to its own image (scripts/Makefile.lib: `cmd_xzkern`,
//! `cmd_zstd22_with_size`, `cmd_lz4_with_size`, `cmd_gzip`). Each ends with the size of what it holds.

use std::borrow::Cow;
use std::io::Read;

use super::bytes::bad;
use crate::{Error, Result};

/// No kernel is larger, in bytes: one with all of its drivers built in has some 150 MB.
const LARGEST: usize = 512 << 20;
/// The memory that a decompressor may use in addition, in KiB: kernels are packed with windows of 128 MiB at most.
const WORKING_KIB: u32 = 160 << 10;
/// The binary logarithm of the largest window of zstd, in bytes.
const WINDOW_LOG: u32 = 27;
/// The most that one block of LZ4's older format holds.
const LZ4_BLOCK: usize = 8 << 20;

/// The kernel in a payload.
///
/// # Errors
/// [`Error::Image`] if it is packed in another way, damaged, or larger than any kernel.
pub(super) fn decompress(payload: &[u8]) -> Result<Cow<'_, [u8]>> {
    let stated = payload
        .last_chunk()
        .map_or(0, |size| u32::from_le_bytes(*size) as usize);
    let unpacked = match payload {
        [0x7f, b'E', b'L', b'F', ..] => return Ok(Cow::Borrowed(payload)),
        [0x1f, 0x8b, ..] => {
            let reader = flate2::read::GzDecoder::new(payload);
            read("gzip", reader, checked(stated)?)?
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            let reader = lzma_rust2::XzReader::new_mem_limit(payload, false, WORKING_KIB);
            read("xz", reader, checked(stated)?)?
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let reader = zstd::stream::read::Decoder::with_buffer(payload);
            let mut reader = reader
                .map_err(|error| damaged("zstd", &error))?
                .single_frame();
            reader
                .window_log_max(WINDOW_LOG)
                .map_err(|error| damaged("zstd", &error))?;
            read("zstd", reader, checked(stated)?)?
        }
        [0x02, 0x21, 0x4c, 0x18, blocks @ ..] => lz4(blocks, checked(stated)?)?,
        _ => {
            return Err(bad(format!(
                "its kernel is packed with {}, which is not known here; unpack it with scripts/extract-vmlinux of Linux and name the vmlinux",
                name(payload)
            )));
        }
    };
    Ok(Cow::Owned(unpacked))
}

/// Other formats that kernels can be packed with (`CONFIG_KERNEL_BZIP2` and so on).
fn name(payload: &[u8]) -> &'static str {
    match payload {
        [b'B', b'Z', b'h', ..] => "bzip2",
        [0x5d, 0, 0, ..] => "lzma",
        [0x89, b'L', b'Z', b'O', ..] => "lzo",
        _ => "something",
    }
}

fn checked(stated: usize) -> Result<usize> {
    if stated <= LARGEST {
        return Ok(stated);
    }
    Err(bad(format!(
        "it says that it unpacks to {stated} bytes, which no kernel has; it is damaged"
    )))
}

fn damaged(method: &str, error: &dyn std::fmt::Display) -> Error {
    bad(format!(
        "it cannot be unpacked ({method}: {error}); it is damaged, get it again"
    ))
}

/// Reads `stated` bytes, and no more than one further, so that what lies costs no memory.
fn read(method: &str, reader: impl Read, stated: usize) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    reader
        .take(stated as u64 + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| damaged(method, &error))?;
    if unpacked.len() == stated {
        return Ok(unpacked);
    }
    Err(damaged(method, &"its size is not the one it states"))
}

/// LZ4's older format, which the kernel's build uses: blocks, each after its size.
fn lz4(mut blocks: &[u8], stated: usize) -> Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let mut room = vec![0; LZ4_BLOCK.min(stated)];
    while unpacked.len() < stated {
        let (size, rest) = blocks
            .split_first_chunk()
            .ok_or_else(|| damaged("lz4", &"it is cut off"))?;
        let (block, rest) = usize::try_from(u32::from_le_bytes(*size))
            .ok()
            .and_then(|size| rest.split_at_checked(size))
            .ok_or_else(|| damaged("lz4", &"it is cut off"))?;
        let len = lz4_flex::block::decompress_into(block, &mut room)
            .map_err(|error| damaged("lz4", &error))?;
        if len == 0 {
            break;
        }
        let (block, _) = room.split_at(len);
        unpacked.extend_from_slice(block);
        blocks = rest;
    }
    if unpacked.len() == stated {
        return Ok(unpacked);
    }
    Err(damaged("lz4", &"its size is not the one it states"))
}
