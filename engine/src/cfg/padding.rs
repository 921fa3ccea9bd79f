//! Padding after functions.

use iced_x86::{Decoder, DecoderOptions};

use crate::code::FunctionId;
use crate::isa::decode::is_padding;
use crate::{Addr, Image, Span};

/// Returns the bytes after a function that belong to nothing, up to the next symbol: `int3` and nops,
/// which are executed only if the function falls through into them. The space that belongs to the next
/// function's entry (`__pfx_`, `__cfi_`) begins with a symbol, so it is not included.
pub(crate) fn padding_after(image: &Image, function: FunctionId) -> Span {
    let function = &image[function];
    let start = function.span.end;
    let next = image.next_symbol(start).unwrap_or(start);
    let limit = next.min(image.text_of(function.span.start).end).max(start);
    // There may be nothing.
    let bytes = image.bytes(Span { start, end: limit }).unwrap_or_default();
    let mut end = start;
    for instruction in Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE) {
        if !is_padding(&instruction) {
            break;
        }
        end = Addr(instruction.next_ip());
    }
    Span { start, end }
}
