//! The processes that are instrumented, by any user's `ilk`.

use super::record::{Client, Record};
use super::removal::{everywhere, memory};
use super::text;
use crate::Result;

/// A process with splices, or with a file of counters and patches that a killed client has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instrumented {
    /// Its number.
    pub pid: u32,
    /// The name of its program, at most 15 bytes.
    pub name: String,
    /// The process that instruments it.
    pub client: Client,
    /// True if that process executes; else `ilk process --clean` removes what it has left.
    pub is_counting: bool,
    /// Splices in its text; `None` if its memory may not be read by this user.
    pub splices: Option<usize>,
}

impl Instrumented {
    /// Returns all processes whose mappings this user may read, by number.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) if the processes of the machine cannot be listed.
    pub fn all() -> Result<Vec<Self>> {
        let mut all: Vec<Self> = everywhere()?
            .into_iter()
            .map(|(pid, kept)| {
                let record = memory(pid).and_then(|memory| Record::read(pid, &memory, &kept));
                Self {
                    pid,
                    // It may have ended meanwhile.
                    name: text(pid, "comm").map_or_else(|_| "?".into(), |name| name.trim().into()),
                    client: kept.client,
                    is_counting: kept.client.is_alive(),
                    splices: record.ok().map(|record| record.text.len()),
                }
            })
            .collect();
        all.sort_by_key(|process| (process.pid, process.client));
        // Libraries that are loaded later have files of their own.
        all.dedup_by(|next, first| {
            let is_same = (next.pid, next.client) == (first.pid, first.client);
            if is_same {
                first.splices = first.splices.zip(next.splices).map(|(a, b)| a + b);
            }
            is_same
        });
        Ok(all)
    }
}
