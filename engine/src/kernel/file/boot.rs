//! Instructions that boot rewrites in the text, from the tables that it frees afterwards.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::super::bounds::Bounds;
use super::super::functions::Extent;
use super::bytes::{address, bad, u32_at};
use crate::code::{Branch, Fixed, LONGEST, Memory, Symbols, Why};
use crate::isa::decode::branch_target;
use crate::{Addr, Result, Span};

/// The changes that boot would make to the text of a file.
#[derive(Clone, Debug, Default)]
pub(in crate::kernel) struct Boot {
    /// Instructions that it may replace.
    pub(in crate::kernel) sites: Vec<Fixed>,
    /// The branches that it writes, and those that execute before it has.
    pub(in crate::kernel) branches: Vec<Branch>,
}

/// Tables of distances from the entries themselves to instructions: retpolines, returns, `endbr64`s
/// that are sealed, lock prefixes (arch/x86/kernel/vmlinux.lds.S). Calls that call depth tracking
/// would redirect are left out: length and meaning stay.
const INSTRUCTIONS: [(&str, &str); 4] = [
    ("__retpoline_sites", "__retpoline_sites_end"),
    ("__return_sites", "__return_sites_end"),
    ("__ibt_endbr_seal", "__ibt_endbr_seal_end"),
    ("__smp_locks", "__smp_locks_end"),
];
const ALTERNATIVES: (&str, &str) = ("__alt_instructions", "__alt_instructions_end");
/// Up to Linux 6.7.
const PARAVIRT: (&str, &str) = ("__parainstructions", "__parainstructions_end");

/// An entry of `struct alt_instr`: what is replaced, and by what.
#[derive(Clone, Copy, Debug)]
struct Alternative {
    original: Span,
    replacement: Span,
}

impl Boot {
    /// Reads the tables of a kernel's file.
    ///
    /// # Errors
    /// [`crate::Error::Image`] if the table of alternatives is not there or of a form not known.
    pub(super) fn read(symbols: &Symbols, memory: &Memory, bounds: &Bounds) -> Result<Self> {
        let table = |(start, end): (&str, &str)| {
            let (start, end) = (address(symbols, start)?, address(symbols, end)?);
            Some((start, memory.bytes(Span { start, end })?))
        };
        let mut boot = Self::default();
        let (at, bytes) = table(ALTERNATIVES).ok_or_else(|| {
            bad("it has no table of alternatives; CONFIG_KALLSYMS_ALL shows where")
        })?;
        for alternative in alternatives(at, bytes, bounds.kernel)? {
            if bounds.text.contains(alternative.original.start) {
                boot.replace(alternative.original);
                boot.follow(memory, alternative.replacement, bounds)?;
                boot.follow_out(memory, alternative.original, bounds)?;
            }
        }
        for (at, bytes) in INSTRUCTIONS.into_iter().filter_map(table) {
            for entry in (0..bytes.len()).step_by(4) {
                let to = distance(at, bytes, entry).filter(|&to| bounds.text.contains(to));
                if let Some(span) = to.and_then(|to| instruction(memory, to)) {
                    boot.replace(span);
                }
            }
        }
        if let Some((_, bytes)) = table(PARAVIRT) {
            // struct paravirt_patch_site: an address, a byte of type, a byte of length, padding.
            for entry in bytes.as_chunks::<16>().0 {
                let [a, b, c, d, e, f, g, h, _, len, ..] = *entry;
                let at = Addr(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
                if bounds.text.contains(at) {
                    boot.replace(Span::new(at, u64::from(len)));
                }
            }
        }
        boot.sites.sort_unstable();
        Ok(boot)
    }

    /// Extends functions over bytes that look like padding after them and that boot rewrites.
    pub(in crate::kernel) fn widen(&self, extents: &[Extent], spans: &mut [Option<Span>]) {
        let mut sites = self.sites.iter().map(|site| site.span).peekable();
        for (extent, span) in extents.iter().zip(spans) {
            while let Some(site) = sites.next_if(|site| site.start < extent.span.end) {
                if let Some(span) = span.as_mut().filter(|span| span.start <= site.start) {
                    span.end = span.end.max(site.end.min(extent.span.end));
                }
            }
        }
    }

    /// Notes bytes that are replaced, in pieces no longer than an instruction.
    fn replace(&mut self, span: Span) {
        let mut start = span.start;
        while start < span.end {
            let end = span.end.min(start.add(LONGEST));
            self.sites
                .push(Fixed::new(Span { start, end }, Why::Alternative));
            start = end;
        }
    }

    /// Notes the branches among these instructions that target the text.
    fn follow(&mut self, memory: &Memory, span: Span, bounds: &Bounds) -> Result<()> {
        let bytes = held(memory, span)?;
        let decoder = Decoder::with_ip(64, bytes, span.start.0, DecoderOptions::NONE);
        for instruction in decoder {
            let target = branch_target(&instruction).filter(|&to| bounds.text.contains(to));
            self.branches.extend(target.map(|target| Branch {
                target,
                source: Addr(instruction.ip()),
            }));
        }
        Ok(())
    }

    /// Until it is replaced, `static_cpu_has()` jumps to a test in init text, which jumps back
    /// (arch/x86/include/asm/cpufeature.h).
    fn follow_out(&mut self, memory: &Memory, original: Span, bounds: &Bounds) -> Result<()> {
        /// `testb` on memory, `jnz`, `jmp`: instructions of the test, and bytes they may have.
        const TEST: (usize, usize) = (3, 32);
        let bytes = held(memory, original)?;
        let mut decoder = Decoder::with_ip(64, bytes, original.start.0, DecoderOptions::NONE);
        let Some(jump) = decoder.iter().next() else {
            return Ok(());
        };
        let out = branch_target(&jump).filter(|&to| {
            jump.flow_control() == FlowControl::UnconditionalBranch && !bounds.text.contains(to)
        });
        let Some(out) = out else { return Ok(()) };
        let bytes = memory.bytes_from(out, TEST.1).ok_or_else(|| {
            bad(format!(
                "it does not hold the code at {out}, which a jump at {} targets",
                original.start
            ))
        })?;
        let mut decoder = Decoder::with_ip(64, bytes, out.0, DecoderOptions::NONE);
        let end = decoder.iter().take(TEST.0).last();
        let end = end.map_or(out, |last| Addr(last.next_ip()));
        self.follow(memory, Span { start: out, end }, bounds)
    }
}

/// The bytes of code that the table of alternatives names.
fn held(memory: &Memory, span: Span) -> Result<&[u8]> {
    if span.is_empty() {
        return Ok(&[]);
    }
    memory.bytes(span).ok_or_else(|| {
        bad(format!(
            "its table of alternatives names code from {} to {}, which it does not hold",
            span.start, span.end
        ))
    })
}

/// The address at the distance that a table has at `offset`.
fn distance(table: Addr, bytes: &[u8], offset: usize) -> Option<Addr> {
    let distance = i64::from(u32_at(bytes, offset)?.cast_signed());
    Some(table.add(offset as u64).add(distance.cast_unsigned()))
}

/// The bytes of the instruction at `at`.
fn instruction(memory: &Memory, at: Addr) -> Option<Span> {
    let bytes = memory.bytes_from(at, LONGEST as usize)?;
    let decoded = Decoder::with_ip(64, bytes, at.0, DecoderOptions::NONE).decode();
    (!decoded.is_invalid()).then(|| Span::new(at, decoded.len() as u64))
}

/// The entries: 12 bytes each up to Linux 6.2, 14 since (arch/x86/include/asm/alternative.h).
fn alternatives(table: Addr, bytes: &[u8], kernel: Span) -> Result<Vec<Alternative>> {
    let read = |size: usize| {
        let entry = |offset: usize| {
            let lengths = bytes.get(offset + size - 2..)?;
            let &[original, replacement, ..] = lengths else {
                return None;
            };
            Some(Alternative {
                original: Span::new(distance(table, bytes, offset)?, u64::from(original)),
                replacement: Span::new(distance(table, bytes, offset + 4)?, u64::from(replacement)),
            })
        };
        let is_right = |alternative: &Alternative| {
            let Alternative {
                original,
                replacement,
            } = *alternative;
            kernel.contains(original.start)
                && !original.is_empty()
                && (replacement.is_empty() || kernel.contains(replacement.start))
                && replacement.len() <= original.len()
        };
        let entries: Option<Vec<Alternative>> = (0..bytes.len()).step_by(size).map(entry).collect();
        entries.filter(|entries| bytes.len().is_multiple_of(size) && entries.iter().all(is_right))
    };
    let found = [12, 14].into_iter().find_map(read);
    found.ok_or_else(|| bad("its table of alternatives has a form that is not known"))
}
