//! Writer of cpio archives in the format that Linux unpacks at boot
//! (Documentation/driver-api/early-userspace/buffer-format.rst: "newc").

/// File types, as the bits of a mode.
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// An archive under construction. Entries belong to root and have no time, so equal contents yield
/// equal bytes.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory. Its parent must exist already.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, FILE | 0o755, (0, 0), contents);
    }

    /// Adds a readable file.
    pub(super) fn file(&mut self, path: &str, contents: &[u8]) {
        self.entry(path, FILE | 0o644, (0, 0), contents);
    }

    /// Adds a character device with access for root only.
    pub(super) fn character_device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, CHARACTER_DEVICE | 0o600, (major, minor), &[]);
    }

    /// Completes the archive and returns its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), contents: &[u8]) {
        let inode = self.entries;
        self.entries += 1;
        let name = path.trim_start_matches('/');
        let (size, name_size) = (contents.len(), name.len() + 1);
        let (major, minor) = device;
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{major:08x}{minor:08x}{name_size:08x}{0:08x}",
            0, 1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    /// Pads to a multiple of four, at which headers and contents begin.
    fn pad(&mut self) {
        let length = self.bytes.len().next_multiple_of(4);
        self.bytes.resize(length, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;
    use std::collections::BTreeMap;

    /// Parses an archive independently of the writer: names, modes and contents.
    fn read(bytes: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut entries = BTreeMap::new();
        let mut at = 0;
        loop {
            let field = |index: usize| {
                let start = at + 6 + 8 * index;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16)
                    .unwrap()
            };
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name =
                String::from_utf8(bytes[at + 110..at + 110 + name_size - 1].to_vec()).unwrap();
            let start = (at + 110 + name_size).next_multiple_of(4);
            if name == "TRAILER!!!" {
                return entries;
            }
            entries.insert(name, (mode, bytes[start..start + size].to_vec()));
            at = (start + size).next_multiple_of(4);
        }
    }

    proptest::proptest! {
        #[test]
        fn entries_round_trip(contents: Vec<Vec<u8>>) {
            let mut archive = Archive::default();
            archive.directory("/lab");
            archive.character_device("dev/console", 5, 1);
            for (number, content) in contents.iter().enumerate() {
                archive.file(&format!("lab/{number}"), content);
            }
            let entries = read(&archive.finish());
            assert_eq!(entries["lab"].0, 0o040_755);
            assert_eq!(entries["dev/console"].0, 0o020_600);
            assert_eq!(entries.len(), contents.len() + 2);
            for (number, content) in contents.iter().enumerate() {
                assert_eq!(&entries[&format!("lab/{number}")].1, content);
            }
        }
    }
}
