//! Numbers of a code cache that a process has executed in.

use serde::{Deserialize, Serialize};

/// Numbers of an execution in the code cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheNumbers {
    /// Blocks that were translated; one that was translated again counts again.
    pub blocks: u64,
    /// Translations on demand, each of several blocks.
    pub translations: u64,
    /// The time that these took, with their proofs and writes, in nanoseconds.
    pub translating_ns: u64,
    /// Bytes of translated code at the end.
    pub bytes: u64,
    /// Lookups of targets that were in no table.
    pub missed: u64,
    /// Instructions that were executed in the original code.
    pub stepped: u64,
    /// Signals that were delivered.
    pub signals: u64,
    /// Times that everything translated was dropped.
    pub flushes: u64,
    /// Writes of code that was translated.
    pub writes: u64,
    /// Translations that were dropped alone, since their code was written or mapped in another way.
    pub dropped: u64,
    /// Calls of the function that threads were in the cache for; `None` if they were in it for all code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// Calls of it that were not in the cache, since a condition did not hold; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_calls: Option<u64>,
    /// Reads of memory for the condition that failed, and yielded 0; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_reads: Option<u64>,
}
