//! Names of code that a process generates, from the file in which its compiler lists it
//! (`tools/perf/Documentation/jit-interface.txt` of Linux).

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

use super::super::{inner_number, numbers, proc, text};
use super::functions::GeneratedFunctions;

/// Limit on the bytes that are read of a file, which any user may write.
const MAX_BYTES: u64 = 16 << 20;

/// The functions that a file lists.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    /// Bytes and time of the file that was read.
    version: Option<(u64, SystemTime)>,
    functions: GeneratedFunctions,
}

impl PerfMap {
    /// Reads the file of a process, unless it is the one that was read. A process without such a file has no names of
    /// generated code.
    pub(super) fn refresh(&mut self, pid: u32) {
        let Ok((file, about)) = open(pid) else {
            return;
        };
        let version = about.modified().ok().map(|time| (about.len(), time));
        if version.is_some() && version == self.version {
            return;
        }
        *self = Self::parsed(BufReader::new(file.take(MAX_BYTES)));
        self.version = version;
    }

    /// Parses lines of a start, a number of bytes, both hexadecimal, and a name. Of functions that overlap the last one
    /// stays: the memory of the others was used again. Other lines, as one that is being written, are left out.
    fn parsed(mut lines: impl BufRead) -> Self {
        let mut map = Self::default();
        let mut line = Vec::new();
        while !map.functions.is_full()
            && let Ok(1..) = lines.read_until(b'\n', &mut line)
        {
            if let Some((start, end, name)) = function(&String::from_utf8_lossy(&line)) {
                map.functions.add(start, end, name);
            }
            line.clear();
        }
        map
    }

    /// Returns the function that has the byte `back` bytes before an address, and the address's offset in it.
    pub(super) fn function(&self, at: u64, back: u64) -> Option<(&str, u64)> {
        self.functions.function(at, back)
    }
}

fn function(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.trim_end().splitn(3, ' ');
    let mut number = || {
        let word = words.next()?;
        u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
    };
    let (start, bytes) = (number()?, number()?);
    let name = words.next().filter(|name| !name.is_empty())?;
    let end = start.checked_add(bytes)?;
    (start < end).then_some((start, end, name))
}

/// Opens the file of a process: `/tmp/perf-PID.map`, with the folder and the number that the process itself has; of one
/// that has ended, this machine's. It must be a plain file of the process's user or of root.
fn open(pid: u32) -> io::Result<(File, Metadata)> {
    let inside = |status: String| {
        let own = inner_number(&status)?;
        let user = *numbers(&status, "Uid:")?.first()?;
        open_of(proc(pid, "root").join(format!("tmp/perf-{own}.map")), user).ok()
    };
    if let Some(found) = text(pid, "status").ok().and_then(inside) {
        return Ok(found);
    }
    let user = fs::metadata("/proc/self")?.uid();
    open_of(PathBuf::from(format!("/tmp/perf-{pid}.map")), user)
}

fn open_of(path: PathBuf, user: u32) -> io::Result<(File, Metadata)> {
    // Another kind of file is refused below, and must not be waited for.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    match about.is_file() && [0, user].contains(&about.uid()) {
        true => Ok((file, about)),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_overlapping_functions_stays_and_other_lines_are_left_out() {
        let text = b"1000 20 old\n0x1020 0x10 kept, with spaces\n1000 8 first\n1008 10 second\nnonsense\n2000 0 empty\n\
                     ffffffffffffffff 2 beyond\n3000 10\n4000 10 \xff\n5000 1";
        let map = PerfMap::parsed(&text[..]);
        assert_eq!(map.function(0x1007, 0), Some(("first", 7)));
        assert_eq!(map.function(0x1008, 0), Some(("second", 0)));
        // A return address right after a function's last instruction.
        assert_eq!(map.function(0x1008, 1), Some(("first", 8)));
        assert_eq!(map.function(0x1018, 0), None);
        assert_eq!(map.function(0x102f, 0), Some(("kept, with spaces", 15)));
        assert_eq!(map.function(0x4000, 0), Some(("\u{fffd}", 0)));
        assert_eq!(map.functions.len(), 4);
    }
}
