//! A kernel from a file: an ELF `vmlinux`, or a `vmlinuz` as it stands in `/boot`.
//!
//! The text of a file is not the text that executes: boot rewrites alternatives, returns and retpolines.
//! They become fixed sites, so that nothing is planned over them.

mod boot;
mod bytes;
mod bzimage;
mod decompress;
mod elf;
mod embedded;
mod probes;
#[cfg(test)]
mod tests;
mod tokens;

use std::borrow::Cow;

use super::bounds::Bounds;
use super::modules::ModuleParts;
use super::{LiveParts, build, kallsyms, notifiers};
use crate::code::Memory;
use crate::{Image, Result, Span};

pub(super) use boot::Boot;

use bytes::bad;

/// The contents of a kernel's file, in the form in which they would be read from the running kernel, at
/// the addresses that it was linked for.
#[derive(Clone, Debug)]
pub struct FileParts {
    /// Symbols, blacklist and memory; the text as boot finds it.
    pub parts: LiveParts,
    pub(super) boot: Boot,
}

impl FileParts {
    /// Returns whether the bytes begin as a `vmlinux` or a `vmlinuz` does, so that [`FileParts::read`]
    /// can name what is wrong with them.
    #[must_use]
    pub fn knows(bytes: &[u8]) -> bool {
        bytes.starts_with(elf::MAGIC) || !matches!(bzimage::payload(bytes), Ok(None))
    }

    /// Returns the ELF file that a `vmlinuz` holds; a `vmlinux` is one.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) if the bytes are neither, damaged or cut off.
    pub fn vmlinux(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
        if bytes.starts_with(elf::MAGIC) {
            Ok(Cow::Borrowed(bytes))
        } else if let Some(payload) = bzimage::payload(bytes)? {
            decompress::decompress(payload)
        } else {
            Err(bad(
                "it is neither an ELF vmlinux nor a vmlinuz (bzImage) for x86; name a file such as \
                 /boot/vmlinuz-RELEASE, or one that `ilk dump` saved",
            ))
        }
    }

    /// Reads the bytes of a `vmlinux` or a `vmlinuz`.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) as of [`vmlinux`](Self::vmlinux); if it is of another architecture, or without
    /// a table of symbols (`CONFIG_KALLSYMS_ALL`).
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let kernel = Self::vmlinux(bytes)?;
        let segments = elf::segments(&kernel)?;
        let kallsyms = embedded::kallsyms(&segments)?;
        let symbols = kallsyms::parse(&kallsyms)?;
        let release = release(&segments)?;
        let memory = Memory::new(segments.iter().map(|segment| (segment.at, segment.bytes)));
        let bounds = Bounds::of(&symbols)?;
        let mut blacklist = probes::blacklist(&symbols, &memory)?;
        blacklist.push_str(&notifiers::of_a_file(&symbols, &memory)?);
        let boot = Boot::read(&symbols, &memory, &bounds)?;
        let needed = bounds
            .needed()
            .into_iter()
            .map(|span| Ok((span.start, padded(&memory, span)?)));
        let types = bounds.types.into_iter();
        let types = types.filter_map(|span| Some(Ok((span.start, memory.bytes(span)?.to_vec()))));
        let memory = needed.chain(types).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            parts: LiveParts {
                release,
                kallsyms,
                blacklist,
                memory,
            },
            boot,
        })
    }
}

impl Image {
    /// Builds the image of a kernel that does not run, from the bytes of a `vmlinux` or a `vmlinuz`.
    /// It can be browsed, planned and covered; a plan for it is never sent: what it expects to find in
    /// a running kernel is not there. See [`Image::is_live`].
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) as of [`FileParts::read`] and [`Image::from_live`].
    pub fn from_file(bytes: &[u8]) -> Result<Self> {
        let FileParts { parts, boot } = FileParts::read(bytes)?;
        build::build(&parts, &ModuleParts::default(), Some(boot))
    }
}

/// The bytes of a part of the kernel. Parts may end at the end of a page or of a large page, to which
/// the file does not say that there are zeros.
fn padded(memory: &Memory, span: Span) -> Result<Vec<u8>> {
    /// Bytes of a large page.
    const LARGE_PAGE: u64 = 2 << 20;
    let present = usize::try_from(span.len())
        .ok()
        .and_then(|len| memory.bytes_from(span.start, len))
        .unwrap_or_default();
    let missing = span.len() - present.len() as u64;
    if missing >= LARGE_PAGE || present.is_empty() {
        return Err(bad(format!(
            "it does not hold the memory from {} to {}",
            span.start, span.end
        )));
    }
    let zeros = usize::try_from(missing).unwrap_or_default();
    Ok(present
        .iter()
        .copied()
        .chain(std::iter::repeat_n(0, zeros))
        .collect())
}

/// The release as `uname -r` prints it, from the kernel's banner (init/version.c).
fn release(segments: &[elf::LoadedSegment<'_>]) -> Result<String> {
    const BANNER: &[u8] = b"Linux version ";
    /// Bytes of a release at most: `struct new_utsname` of include/uapi/linux/utsname.h.
    const LONGEST: usize = 64;
    let greeted = segments
        .iter()
        .flat_map(|segment| positions(segment.bytes, BANNER).map(|at| (segment.bytes, at)));
    for (bytes, at) in greeted {
        let rest = bytes.get(at + BANNER.len()..).unwrap_or_default();
        let end = rest.iter().take(LONGEST).position(|&byte| byte == b' ');
        let name = end
            .and_then(|end| rest.get(..end))
            .and_then(|name| std::str::from_utf8(name).ok());
        // The format that others are printed with, "Linux version %s", is there too.
        if let Some(name) = name.filter(|name| name.starts_with(|c: char| c.is_ascii_digit())) {
            return Ok(name.to_owned());
        }
    }
    Err(bad(
        "there is no \"Linux version\" in it, so that its release is not known",
    ))
}

/// The positions of `wanted` in `bytes`.
fn positions<'b>(bytes: &'b [u8], wanted: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let first = wanted.first().copied().unwrap_or_default();
    let candidates = bytes.iter().enumerate().filter(move |&(_, &b)| b == first);
    candidates
        .map(|(at, _)| at)
        .filter(move |&at| bytes.get(at..).is_some_and(|rest| rest.starts_with(wanted)))
}
