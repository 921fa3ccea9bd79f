//! The memory use of this process.

use std::fs;
use std::ops::ControlFlow;

use gilk_engine::plan::Stage;

/// Makes glibc return lists of a MiB and more to the system as soon as they are freed. By default
/// it keeps up to 32 MiB of each for reuse, but a plan of a whole kernel needs lists of different
/// lengths later.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "mallopt(3)")]
        // SAFETY: it sets a parameter of the allocator.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        }
    }
}

/// Returns a watch over a plan that makes glibc return the memory freed by a stage before the next
/// stage allocates: for a whole kernel 130 MB when every hook has its site.
pub fn between_stages() -> impl FnMut(Stage) -> ControlFlow<()> {
    let mut last = None;
    move |stage| {
        if last.replace(stage) != Some(stage) {
            #[cfg(target_env = "gnu")]
            {
                #[allow(unsafe_code, reason = "malloc_trim(3)")]
                // SAFETY: it only touches unallocated memory.
                unsafe {
                    libc::malloc_trim(0);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Returns the peak resident memory of this process in bytes, since its start or the last
/// [`reset_peak`]. `None` if the system does not report it.
#[must_use]
pub fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = most.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Resets [`peak`], where the system supports it (proc(5), `clear_refs`).
pub fn reset_peak() {
    let _unsupported = fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_includes_freed_memory_until_reset() {
        give_back();
        let before = peak().unwrap();
        let list = vec![1_u8; 64 << 20];
        assert!(list.iter().all(|&byte| byte == 1));
        assert!(peak().unwrap() >= before.max(64 << 20));
        drop(list);
        reset_peak();
        assert!(peak().unwrap() > 0);
    }
}
