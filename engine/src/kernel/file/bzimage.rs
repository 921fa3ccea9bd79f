//! The frame of a `vmlinuz`: boot code with the compressed kernel in it (Documentation/arch/x86/boot.rst).

use super::bytes::bad;
use crate::Result;

/// Boot code is counted in these.
const SECTOR: usize = 512;
/// The first version of the boot protocol whose header says where the payload is.
const WITH_PAYLOAD: u16 = 0x0208;

fn number<const SIZE: usize>(image: &[u8], at: usize) -> Option<[u8; SIZE]> {
    image.get(at..)?.first_chunk().copied()
}

/// The compressed kernel in a bzImage; `None` if this is none.
///
/// # Errors
/// [`crate::Error::Image`] if the header is that of a bzImage and the payload is not where it says.
pub(super) fn payload(image: &[u8]) -> Result<Option<&[u8]>> {
    if number(image, 0x202) != Some(*b"HdrS") || number(image, 0x1fe) != Some([0x55, 0xaa]) {
        return Ok(None);
    }
    let version = number(image, 0x206).map(u16::from_le_bytes);
    if let Some(version) = version.filter(|version| *version < WITH_PAYLOAD) {
        return Err(bad(format!(
            "its boot protocol is {}.{:02}, which does not say where the kernel is; Linux 2.6.26 and later can be read",
            version >> 8,
            version & 0xff
        )));
    }
    let field = |at| number(image, at).map(u32::from_le_bytes);
    let found = || {
        let sectors = match usize::from(*image.get(0x1f1)?) {
            0 => 4,
            sectors => sectors,
        };
        let start = SECTOR * (sectors + 1) + usize::try_from(field(0x248)?).ok()?;
        let len = usize::try_from(field(0x24c)?).ok()?;
        image.get(start..start.checked_add(len)?)
    };
    match found() {
        Some(payload) if !payload.is_empty() => Ok(Some(payload)),
        _ => Err(bad(format!(
            "it is cut off: its header speaks of more than its {} bytes; get the vmlinuz again",
            image.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR];
        image[0x1f1] = 1;
        image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x206..0x208].copy_from_slice(&0x20f_u16.to_le_bytes());
        image[0x248..0x24c].copy_from_slice(&3_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend([9; 3]);
        image.extend(payload);
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        let whole = image(b"kernel");
        assert_eq!(payload(&whole).unwrap(), Some(&b"kernel"[..]));
        assert_eq!(payload(b"\x7fELF").unwrap(), None);
        assert_eq!(payload(&[]).unwrap(), None);
        for len in 0x206..whole.len() {
            let error = payload(&whole[..len]).unwrap_err().to_string();
            assert!(error.contains("cut off"), "{error}");
        }
        let mut old = whole.clone();
        old[0x206] = 7;
        old[0x207] = 2;
        let error = payload(&old).unwrap_err().to_string();
        assert!(error.contains("2.07"), "{error}");
        let mut far = whole;
        far[0x24c..0x250].fill(0xff);
        far[0x248..0x24c].fill(0xff);
        assert!(payload(&far).is_err());
    }
}
