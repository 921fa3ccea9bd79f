//! Source lines of code that a process has, or had until it ended, by the debug information of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use gilk_engine::Addr;

use super::maps::{self, MappedSpan};
use super::names::ProcessNames;
use super::root_of;
use super::subject::is_of_program;
use crate::sources::{SourceLine, Sources};

/// The debug information of the files that lines were looked for in; each is read when it is first needed.
#[derive(Debug, Default)]
pub(super) struct CodeLines {
    /// By the inode of a file, and the address of its first byte.
    files: BTreeMap<(u64, u64), Option<Sources>>,
    /// Reasons why that of a file is not read.
    unread: BTreeSet<String>,
}

impl CodeLines {
    /// Returns the source line of an address of a process, by the mappings that are known.
    pub(super) fn line(&mut self, names: &ProcessNames, pid: u32, at: Addr) -> Option<SourceLine> {
        let mut mappings = names.mapped(pid).iter();
        let mapping = mappings.find(|mapping| mapping.span.contains(at))?;
        if mapping.inode == 0 {
            return None;
        }
        let unread = &mut self.unread;
        let file = self.files.entry((mapping.inode, mapping.origin()));
        let sources = file.or_insert_with(|| match read(pid, mapping) {
            Ok(sources) => sources,
            Err(why) => {
                unread.insert(why);
                None
            }
        });
        sources.as_ref()?.line(at)
    }

    /// Returns the reasons why lines of files are not known that have debug information.
    pub(super) fn unread(&self) -> impl Iterator<Item = &str> {
        self.unread.iter().map(String::as_str)
    }
}

/// Reads the debug information of a mapped file, if it has some.
fn read(pid: u32, mapping: &MappedSpan) -> Result<Option<Sources>, String> {
    // A file that is gone has no lines; that is said of its functions.
    let Ok((mut file, _)) = maps::open(pid, mapping) else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let read = file.read_to_end(&mut bytes);
    read.map_err(|error| format!("{} cannot be read: {error}", mapping.name))?;
    let Some(slide) = maps::slide(&bytes, mapping) else {
        return Ok(None);
    };
    // A separate file of a library takes longer to read than many programs run, and few people have its sources.
    if !is_of_program(&bytes) && !Sources::are_in(&bytes) {
        return Ok(None);
    }
    let object = (Path::new(&mapping.name), bytes.as_slice());
    Sources::of_object(object, &root_of(pid), slide, &|_| true).map_err(|error| error.to_string())
}
