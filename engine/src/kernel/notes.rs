//! The notes that a kernel's link leaves in its read-only data (the gABI's "Note Section"; the kernel
//! is ELF of 64 bits, whose notes are padded to four bytes all the same).

/// `NT_GNU_BUILD_ID` of `elf.h`.
const BUILD_ID: u32 = 3;

/// The build's identifier among notes.
pub(super) fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let (head, rest) = notes.split_at_checked(12)?;
        let word = |at: usize| {
            let four = *head.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(four))
        };
        let (name, content) = (word(0)? as usize, word(4)? as usize);
        let owner = rest.get(..name)?;
        let after_name = rest.get(name.next_multiple_of(4)..)?;
        if word(8)? == BUILD_ID && owner == b"GNU\0" {
            return after_name.get(..content);
        }
        notes = after_name.get(content.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [owner.len() as u32, content.len() as u32, kind] {
            note.extend(word.to_le_bytes());
        }
        for part in [owner, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_builds_note_is_found_among_others() {
        let mut notes = note(b"Xen\0", 3, b"12345");
        notes.extend(note(b"Linux\0", 257, &[1, 2, 3, 4]));
        notes.extend(note(b"GNU\0", 3, &[7; 20]));
        assert_eq!(build_id(&notes), Some(&[7; 20][..]));
        for len in 0..notes.len() {
            assert_eq!(build_id(&notes[..len]), None, "{len} bytes of them");
        }
        assert_eq!(build_id(&[0xff; 64]), None);
    }
}
