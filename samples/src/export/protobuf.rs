//! The writing half of the protocol buffers' wire format.
//!
//! A message is a list of fields; a field is its number and type in a varint, then a varint, or a
//! length and bytes (protobuf.dev, "Encoding").

/// Appends a varint.
fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a field that is a number.
pub(super) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// Appends a field of bytes.
pub(super) fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a message in a message. `fill` writes its fields.
pub(super) fn message(out: &mut Vec<u8>, field: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    varint(out, u64::from(field) << 3 | 2);
    // Most messages are short: one byte is reserved for the length, and more are inserted if
    // needed.
    let at = out.len();
    out.push(0);
    fill(out);
    let length = (out.len() - at - 1) as u64;
    if length < 0x80 {
        if let Some(byte) = out.get_mut(at) {
            *byte = length as u8;
        }
    } else {
        let mut head = Vec::new();
        varint(&mut head, length);
        out.splice(at..=at, head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification() {
        let mut out = Vec::new();
        number(&mut out, 1, 150);
        assert_eq!(out, [0x08, 0x96, 0x01]);
        out.clear();
        bytes(&mut out, 2, b"testing");
        assert_eq!(out, b"\x12\x07testing");
        out.clear();
        message(&mut out, 3, |inner| number(inner, 1, 150));
        assert_eq!(out, [0x1a, 0x03, 0x08, 0x96, 0x01]);
        out.clear();
        message(&mut out, 3, |inner| bytes(inner, 1, &[7; 300]));
        assert_eq!(out.len(), 1 + 2 + 303);
        assert_eq!(
            out.get(..6),
            Some(&[0x1a, 0xaf, 0x02, 0x0a, 0xac, 0x02][..])
        );
    }
}
