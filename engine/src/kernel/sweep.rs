//! One pass over all of the text: the ends of functions, and entries into them other than their start.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::functions::Extent;
use crate::code::{Branch, Fixed, Memory, Texts, Why};
use crate::isa::decode::{
    EMULATION, branch_target, computed_address, is_direct_call, is_emulation_prefix, is_padding,
};
use crate::{Addr, Span};

/// The results of the pass.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// For each extent, its bytes without the padding after them; `None` if it is all padding.
    pub(crate) spans: Vec<Option<Span>>,
    /// Branches to other functions, and all calls: unsorted.
    pub(crate) branches: Vec<Branch>,
    /// Addresses that instructions compute: indirect branches may target them.
    pub(crate) values: Vec<Addr>,
    /// Instructions that the kernel rewrites when a second CPU comes.
    pub(crate) alternatives: Vec<Fixed>,
}

/// Decodes every function once.
pub(crate) fn sweep(extents: &[Extent], texts: &Texts, memory: &Memory) -> Swept {
    let mut swept = Swept {
        spans: Vec::with_capacity(extents.len()),
        ..Swept::default()
    };
    let mut instruction = Instruction::default();
    for extent in extents {
        // All text of the core was read; a page of a module may be gone.
        let Some(bytes) = memory.bytes(extent.span) else {
            swept.spans.push(None);
            continue;
        };
        let mut decoder = Decoder::with_ip(64, bytes, extent.span.start.0, DecoderOptions::NONE);
        let mut end = extent.span.start;
        while decoder.can_decode() {
            let position = decoder.position();
            decoder.decode_out(&mut instruction);
            let (before, _) = bytes.split_at(decoder.position());
            let (_, encoded) = before.split_at(position);
            if is_padding(&instruction) || is_zero(encoded, &instruction) {
                continue;
            }
            end = Addr(instruction.next_ip());
            if is_emulation_prefix(bytes, extent.span.start, &instruction) {
                skip(&mut decoder, EMULATION);
                continue;
            }
            // Bytes that do not decode are skipped: Cfg::of refuses the function, and the instructions after
            // them may still branch to other functions.
            if instruction.flow_control() == FlowControl::Next {
                swept
                    .values
                    .extend(computed_address(&instruction).filter(|&to| texts.contains(to)));
            } else {
                let from_outside = |&to: &Addr| {
                    texts.contains(to)
                        && (is_direct_call(&instruction) || !extent.span.contains(to))
                };
                let source = Addr(instruction.ip());
                swept.branches.extend(
                    branch_target(&instruction)
                        .filter(from_outside)
                        .map(|target| Branch { target, source }),
                );
            }
            if looks_unlocked(&instruction, encoded) {
                let span = Span::new(Addr(instruction.ip()), instruction.len() as u64);
                swept.alternatives.push(Fixed::new(span, Why::Alternative));
            }
        }
        swept.spans.push((end > extent.span.start).then_some(Span {
            start: extent.span.start,
            end,
        }));
    }
    swept
}

/// Returns whether code has a return, or a jump to a thunk for one.
pub(crate) fn has_return(bytes: &[u8], start: Addr, is_thunk: impl Fn(Addr) -> bool) -> bool {
    let mut all = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE).into_iter();
    all.any(|instruction| match instruction.flow_control() {
        FlowControl::Return => true,
        FlowControl::UnconditionalBranch => branch_target(&instruction).is_some_and(&is_thunk),
        _ => false,
    })
}

fn skip(decoder: &mut Decoder<'_>, bytes: usize) {
    let (position, ip) = (decoder.position() + bytes, decoder.ip() + bytes as u64);
    if decoder.set_position(position).is_ok() {
        decoder.set_ip(ip);
    }
}

/// Returns whether the bytes are zero: zeros between sections decode as `add [rax], al`.
fn is_zero(bytes: &[u8], instruction: &Instruction) -> bool {
    instruction.code() == Code::Add_rm8_r8 && bytes == [0, 0]
}

/// On one CPU the kernel turns `lock` prefixes (f0) into `ds` (3e), and back when another CPU comes
/// (`alternatives_smp_lock` of arch/x86/kernel/alternative.c); never the other way after boot. Its
/// list of them may be freed, but compilers write no `ds` before an instruction that could be locked.
fn looks_unlocked(instruction: &Instruction, bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x3e)
        && instruction.op0_kind() == OpKind::Memory
        && instruction.op_code().can_use_lock_prefix()
}

/// Values in read-only data that are addresses in the text, at 8-byte boundaries: tables of labels,
/// such as the interpreter's of BPF. Of a module's data, whose end the kernel does not list, as much as was read.
pub(crate) fn pointers(span: Span, memory: &Memory, texts: &Texts) -> impl Iterator<Item = Addr> {
    let len = usize::try_from(span.len()).unwrap_or(usize::MAX);
    let bytes = memory.bytes_from(span.start, len).unwrap_or_default();
    let skipped = usize::try_from(span.start.0.next_multiple_of(8) - span.start.0).unwrap_or(0);
    let (words, _) = bytes.get(skipped..).unwrap_or_default().as_chunks::<8>();
    words
        .iter()
        .map(|word| Addr(u64::from_le_bytes(*word)))
        .filter(move |&at| texts.contains(at))
}
