//! Names of code that a process generates.

mod functions;
mod perf_map;
mod registered;

use self::perf_map::PerfMap;
pub(super) use self::registered::RegisteredObjects;
use super::maps::MappedSpan;
use super::removal::memory;

/// The functions that a process has generated, as far as it lists them.
#[derive(Debug, Default)]
pub(super) struct GeneratedNames {
    perf_map: PerfMap,
    registered: RegisteredObjects,
}

impl GeneratedNames {
    /// Reads what the process lists now, beside what it has listed.
    pub(super) fn refresh(&mut self, pid: u32, mapped: &[MappedSpan]) {
        self.perf_map.refresh(pid);
        // The objects of a process that may not be read are not known.
        if let Ok(memory) = memory(pid) {
            self.registered.find(pid, mapped);
            self.registered.read(&memory);
        }
    }

    /// Has the registered objects be those that were read while the process lived.
    pub(super) fn keep(&mut self, registered: RegisteredObjects) {
        self.registered = registered;
    }

    /// Returns the name of the function that has the byte `back` bytes before an address, and where it is listed.
    pub(super) fn name(&self, at: u64, back: u64) -> Option<(&str, u64, &'static str)> {
        let listed = self.perf_map.function(at, back);
        let listed = listed.map(|(name, offset)| (name, offset, "perf map"));
        listed.or_else(|| {
            let (name, offset) = self.registered.function(at, back)?;
            Some((name, offset, "registered for GDB"))
        })
    }
}
