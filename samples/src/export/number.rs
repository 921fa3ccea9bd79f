//! Numbers as text, without an allocation each.

use super::tracks::EXACT;

/// Appends `number` in decimal, zero-padded to `width` digits.
pub(super) fn decimal(bytes: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut used = 0;
    // Two digits per division.
    for pair in digits.as_chunks_mut::<2>().0.iter_mut().rev() {
        let two = (number % 100) as u8;
        number /= 100;
        *pair = [b'0' + two / 10, b'0' + two % 10];
        used += if number == 0 && two < 10 { 1 } else { 2 };
        if number == 0 {
            break;
        }
    }
    let used = used.max(width).min(digits.len());
    bytes.extend_from_slice(digits.get(digits.len() - used..).unwrap_or_default());
}

/// Appends `number` for a JSON reader, which may keep numbers as doubles: a number that a double
/// would round becomes a string in hexadecimal.
pub(super) fn json(bytes: &mut Vec<u8>, number: u64) {
    if number < EXACT {
        decimal(bytes, number, 1);
    } else {
        bytes.extend_from_slice(format!("\"{number:#x}\"").as_bytes());
    }
}

/// Appends nanoseconds as microseconds or seconds, with `digits` (3 or 9) decimals.
pub(super) fn fraction(bytes: &mut Vec<u8>, nanoseconds: i64, digits: u32) {
    let unit = 10u64.pow(digits);
    let (before, nanoseconds) = (nanoseconds < 0, nanoseconds.unsigned_abs());
    if before {
        bytes.push(b'-');
    }
    decimal(bytes, nanoseconds / unit, 1);
    bytes.push(b'.');
    decimal(bytes, nanoseconds % unit, digits as usize);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decimal_equals_format(number: u64, small in 0u64..1000, width in 1usize..10) {
            for number in [number, small] {
                let mut bytes = Vec::new();
                decimal(&mut bytes, number, width);
                prop_assert_eq!(String::from_utf8(bytes).unwrap(), format!("{number:0width$}"));
            }
        }

        #[test]
        fn a_fraction_has_every_digit(nanoseconds: i64) {
            for digits in [3, 9] {
                let mut bytes = Vec::new();
                fraction(&mut bytes, nanoseconds, digits);
                let text = String::from_utf8(bytes).unwrap();
                let (_, decimals) = text.split_once('.').unwrap();
                prop_assert_eq!(decimals.len(), digits as usize);
                prop_assert_eq!(text.replace('.', "").parse::<i128>().unwrap(), i128::from(nanoseconds));
            }
        }
    }
}
