//! The functions of a directory of the kernel's source.
//!
//! A stock kernel has no debug information that names a function's file. But it is linked directory
//! by directory, in the order of the makefiles: the functions of a directory are those from the
//! first of its first file to the first of the following file. In a file with tracepoints, the
//! first function is that of its first tracepoint. Functions that sleep for the scheduler are in a
//! section of their own, in the same order.
//!
//! | directory | from | to |
//! |---|---|---|
//! | `kernel/sched` | the first tracepoint of `kernel/sched/core.c` | the first of `kernel/locking/mutex.c` |
//! | the same, `.sched.text` | `io_schedule_timeout` of `kernel/sched/core.c` | `mutex.c`'s unlocking, or on real-time kernels `semaphore.c` |
//! | `mm` | the first tracepoint of `mm/filemap.c` | `generic_file_open` of `fs/open.c` |
//! | `fs` | `generic_file_open` | the first of `ipc/compat.c` |
//! | `net` | the first of `net/devres.c` | the first of `arch/x86/pci/i386.c` |

use gilk_engine::Image;
use gilk_engine::code::Function;

/// The functions of a directory, with known members as a check.
pub(crate) struct Directory {
    pub(crate) name: &'static str,
    /// The first function of each range, and the first after it: of two names the one that the kernel has.
    ranges: &'static [(&'static str, &'static str)],
    /// Some of its functions, from its first file to its last; a real-time kernel lacks some.
    members: &'static [&'static str],
    /// Functions of adjacent objects before and after it.
    strangers: &'static [&'static str],
}

pub(crate) const DIRECTORIES: [Directory; 3] = [
    Directory {
        name: "kernel/sched",
        ranges: &[
            (
                "__traceiter_sched_kthread_stop",
                "__traceiter_contention_begin",
            ),
            (
                "io_schedule_timeout",
                "__mutex_unlock_slowpath|down_trylock",
            ),
        ],
        members: &[
            "wake_up_process",
            "sched_fork",
            "enqueue_task_fair",
            "enqueue_task_stop",
            "enqueue_task_rt",
            "dl_task_timer",
            "__wake_up",
            "cpuacct_charge",
            "autogroup_path|cpuacct_charge",
            "schedule",
            "wait_for_completion",
        ],
        strangers: &[
            "groups_search",
            "kthread_stop",
            "mutex_lock|mutex_lock_nested",
            "down_read_trylock",
            "pm_qos_update_target",
        ],
    },
    Directory {
        name: "mm",
        ranges: &[(
            "__traceiter_mm_filemap_delete_from_page_cache",
            "generic_file_open",
        )],
        members: &[
            "filemap_read",
            "oom_badness",
            "shrink_slab",
            "handle_mm_fault",
            "do_mmap",
            "vfree",
            "kfree",
            "mem_cgroup_css_online",
            "get_page_bootmem",
        ],
        strangers: &[
            "is_hash_blacklisted",
            "__x64_sys_rseq",
            "vfs_truncate",
            "vfs_read",
        ],
    },
    Directory {
        name: "fs",
        ranges: &[("generic_file_open", "get_compat_ipc64_perm")],
        members: &[
            "vfs_truncate",
            "vfs_read",
            "path_openat",
            "dput",
            "do_epoll_ctl",
            "proc_pid_status",
            "sysfs_add_file_mode_ns",
            "ramfs_get_inode",
            "pstore_dump",
        ],
        strangers: &["get_page_bootmem", "ksys_msgget", "kfree", "shm_destroy"],
    },
];

/// The directory that no standard run hooks: its load is that of another suite.
pub(crate) const NET: Directory = Directory {
    name: "net",
    ranges: &[("netdev_devres_match", "pcibios_align_resource")],
    members: &[
        "devm_free_netdev",
        "__sys_socket",
        "sk_filter_trim_cap",
        "netlink_sendmsg",
        "tcp_sendmsg",
        "unix_stream_sendmsg",
        "packet_rcv",
        "xsk_bind",
    ],
    strangers: &[
        "vfs_read",
        "pcibios_set_master",
        "pci_mmcfg_read",
        "argv_free",
    ],
};

/// Returns the functions of a directory, in order of address, with the parts that the compiler
/// split off.
pub(crate) fn functions<'a>(image: &'a Image, directory: &Directory) -> Vec<&'a Function> {
    // The compiler may have made a copy for its callers: `.constprop.0` on 6.1, `.isra.0` on Debian 13's 6.12.
    let is_copy = |function: &&Function, symbol: &str| {
        let ending = function.name.strip_prefix(symbol);
        ending
            .is_some_and(|ending| ending.starts_with(".constprop.") || ending.starts_with(".isra."))
    };
    let known = |symbol: &str| {
        let copy = || {
            let mut functions = image.functions().iter();
            functions.find(|function| is_copy(function, symbol))
        };
        image.function_named(symbol).ok().or_else(copy)
    };
    let named = |symbols: &str| {
        let function = symbols.split('|').find_map(known);
        function.unwrap_or_else(|| panic!("{}: there is no {symbols}", directory.name))
    };
    let start = |symbols| named(symbols).span.start;
    let ranges: Vec<_> = directory
        .ranges
        .iter()
        .map(|&(first, following)| start(first)..start(following))
        .collect();
    let within = |function: &&Function| {
        ranges
            .iter()
            .any(|range| range.contains(&function.span.start))
    };
    for member in directory.members {
        assert!(
            within(&named(member)),
            "{member} is not among {}",
            directory.name
        );
    }
    for stranger in directory.strangers {
        assert!(
            !within(&named(stranger)),
            "{stranger} is among {}",
            directory.name
        );
    }
    let parts = |function: &&Function| {
        let whole = function.name.split_once(".cold").map(|(whole, _)| whole);
        whole
            .and_then(|whole| image.function_named(whole).ok())
            .is_some_and(|whole| within(&whole))
    };
    let all = image.functions().iter();
    all.filter(|function| within(function) || function.is_part() && parts(function))
        .collect()
}
