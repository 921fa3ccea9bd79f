//! How much memory this process takes.

use std::fs;
#[cfg(feature = "client")]
use std::ops::ControlFlow;

#[cfg(feature = "client")]
use gilk_engine::plan::Stage;

/// Has glibc give back lists of a MiB and more as soon as they are done with. By itself it keeps up to
/// 32 MiB of each for whoever comes next, who, in a plan of a whole kernel, needs lists of other lengths.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        #[allow(unsafe_code, reason = "mallopt(3)")]
        // SAFETY: it sets a number of the allocator's.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        }
    }
}

/// A watch over a plan that has glibc give back what a stage has left behind, before the next takes more: of
/// a whole kernel 130 MB when every hook has its site.
#[cfg(feature = "client")]
pub fn between_stages() -> impl FnMut(Stage) -> ControlFlow<()> {
    let mut last = None;
    move |stage| {
        if last.replace(stage) != Some(stage) {
            #[cfg(target_env = "gnu")]
            {
                #[allow(unsafe_code, reason = "malloc_trim(3)")]
                // SAFETY: it only touches memory that nobody has.
                unsafe {
                    libc::malloc_trim(0);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The most bytes that this process ever had in memory, or since [`forget_peak`]. `None` where the
/// system does not tell.
#[must_use]
pub fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let most = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = most.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Begins anew with [`peak`], where the system allows it (proc(5), `clear_refs`).
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_of_what_was_there() {
        give_back();
        let before = peak().unwrap();
        let list = vec![1_u8; 64 << 20];
        assert!(list.iter().all(|&byte| byte == 1));
        assert!(peak().unwrap() >= before.max(64 << 20));
        drop(list);
        forget_peak();
        assert!(peak().unwrap() > 0);
    }
}
