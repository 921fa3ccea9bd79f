//! The processor and the kernel that runs.

use gilk_engine::kernel::lists_were_compared;

use super::{Judgement, Machine};

/// The source of the module's table of symbols, which says what a kernel must have.
const SYMBOLS: &str = include_str!("../../kmod/symbols.c");
/// Symbols that the module links to or finds by itself, of kernels that have what it needs from their configuration.
const ALWAYS: [&str; 3] = [
    "kallsyms_lookup_name",
    "register_kprobe",
    "synchronize_rcu_tasks",
];
/// The step for a kernel that lacks what it was not built with.
const ANOTHER: &str = "# no command mends this: boot a kernel of your distribution";
/// Megabytes that a session of some thousand hooks uses at the target, rings included.
const MEMORY_MB: u64 = 256;

/// The architecture is that of x86-64 in 64-bit mode.
pub(super) fn processor(machine: &Machine) -> Option<Judgement> {
    let is_long = machine.has_flag("lm");
    Some(if is_long {
        Judgement::fine("x86-64")
    } else {
        Judgement::fault(
            "not an x86-64 processor in 64-bit mode: GILK decodes and encodes that instruction set alone",
            &[],
        )
    })
}

/// The kernel is one that the lists of functions were compared with.
pub(super) fn release(machine: &Machine) -> Option<Judgement> {
    let Some(release) = machine.release() else {
        return Some(Judgement::fault(
            "/proc/sys/kernel/osrelease cannot be read: is this Linux, with /proc mounted?",
            &["mount -t proc proc /proc"],
        ));
    };
    let symbols = machine.text("/proc/kallsyms").unwrap_or_default();
    let names = symbols.lines().filter_map(|line| line.split(' ').nth(2));
    Some(if lists_were_compared(&release, names) {
        Judgement::fine(format!("Linux {release}"))
    } else {
        Judgement::warning(
            format!(
                "Linux {release} was not compared with this version's lists of functions, so instruments that \
                 read kernel memory, and all instruments in assembly, are refused (rule unknown-kernel)"
            ),
            &["ilk run --unknown-kernel …   # permits them, at your risk"],
        )
    })
}

/// No lockdown forbids to write kernel text.
pub(super) fn lockdown(machine: &Machine) -> Option<Judgement> {
    let Some(modes) = machine.text("/sys/kernel/security/lockdown") else {
        return Some(Judgement::fine("this kernel has no lockdown"));
    };
    let active = modes.split(['[', ']']).nth(1).unwrap_or("none");
    if active == "none" {
        return Some(Judgement::fine("none"));
    }
    let what = format!(
        "the kernel is locked down ({active}): it lets no program change its text, signed or not, and the module \
         refuses to load"
    );
    // The last byte of the variable; four bytes of attributes stand before it.
    let variable = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
    let is_secure = machine
        .bytes(variable)
        .is_some_and(|bytes| bytes.last() == Some(&1));
    Some(if is_secure {
        Judgement::fault(
            format!("{what}; Secure Boot is on, and distributions lock the kernel down then"),
            &[
                "mokutil --sb-state                                    # shows that it is on",
                "sudo mokutil --disable-validation && sudo reboot      # a password is requested at the next start",
            ],
        )
    } else {
        Judgement::fault(
            format!("{what}; Secure Boot is not on, so the command line or a policy requests it"),
            &[
                "grep -o 'lockdown=[a-z]*' /proc/cmdline               # remove it from the boot loader, and reboot",
            ],
        )
    })
}

/// The kernel has the functions and tables that the module finds by name.
pub(super) fn symbols(machine: &Machine) -> Option<Judgement> {
    let Some(list) = machine.text("/proc/kallsyms") else {
        return Some(Judgement::fault(
            "/proc/kallsyms does not exist: the kernel was built without CONFIG_KALLSYMS",
            &[ANOTHER],
        ));
    };
    let names: std::collections::HashSet<&str> = list
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    let wanted = required(SYMBOLS);
    let missing: Vec<&str> = wanted
        .iter()
        .filter(|alternatives| !alternatives.iter().any(|name| names.contains(name)))
        .filter_map(|alternatives| alternatives.first().copied())
        .collect();
    let has_allocator = ["execmem_alloc", "module_alloc"]
        .iter()
        .any(|name| names.contains(name));
    let missing = missing
        .into_iter()
        .chain((!has_allocator).then_some("execmem_alloc"));
    let missing: Vec<&str> = missing.collect();
    Some(if missing.is_empty() {
        Judgement::fine(format!("all {} that the module needs", wanted.len() + 1))
    } else {
        Judgement::fault(
            format!(
                "the kernel has no {}, which the module needs; it was built without kprobes, the function tracer or \
                 CONFIG_KALLSYMS_ALL, or is newer than this version of the module",
                missing.join(", ")
            ),
            &[
                "grep -E 'KALLSYMS_ALL|KPROBES|DYNAMIC_FTRACE|JUMP_LABEL|STATIC_CALL' /boot/config-$(uname -r)",
            ],
        )
    })
}

/// Reads the module's table: the alternatives of each symbol that it requires.
pub(super) fn required(source: &str) -> Vec<Vec<&str>> {
    let rows = source.lines().filter_map(|line| {
        let row = line.trim().strip_prefix("{ \"")?;
        let (name, rest) = row.split_once('"')?;
        let mut columns = rest.split(',').skip(2).map(str::trim);
        let is_required = columns.next()?.starts_with("true");
        let former = columns.next().and_then(|column| column.split('"').nth(1));
        is_required.then(|| std::iter::once(name).chain(former).collect())
    });
    rows.chain(ALWAYS.iter().map(|&name| vec![name])).collect()
}

/// The kernel reports addresses of its symbols to root.
pub(super) fn addresses(machine: &Machine) -> Option<Judgement> {
    let hidden = machine
        .text("/proc/sys/kernel/kptr_restrict")
        .is_some_and(|text| text == "2");
    if hidden {
        return Some(Judgement::fault(
            "kernel.kptr_restrict is 2: /proc/kallsyms has no addresses, for root neither",
            &["sudo sysctl kernel.kptr_restrict=1"],
        ));
    }
    if !machine.exists("/proc/kcore") {
        return Some(Judgement::fault(
            "/proc/kcore does not exist: the kernel was built without CONFIG_PROC_KCORE, and its text cannot be read",
            &[ANOTHER],
        ));
    }
    Some(Judgement::fine("readable by root"))
}

/// The kernel describes its types.
pub(super) fn types(machine: &Machine) -> Option<Judgement> {
    Some(if machine.exists("/sys/kernel/btf/vmlinux") {
        Judgement::fine("described by the kernel (BTF)")
    } else {
        Judgement::warning(
            "the kernel was built without CONFIG_DEBUG_INFO_BTF: instruments cannot name fields or types",
            &[],
        )
    })
}

/// The TSC counts at one rate, also while a CPU sleeps, and the kernel trusts it.
pub(super) fn clock(machine: &Machine) -> Option<Judgement> {
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !machine.has_flag(flag))
        .collect();
    if !missing.is_empty() {
        let is_guest = machine.has_flag("hypervisor");
        let what = format!(
            "the processor does not report {}: times of samples may jump or drift",
            missing.join(" and ")
        );
        return Some(if is_guest {
            Judgement::warning(
                what,
                &["qemu-system-x86_64 -cpu host,+invtsc …   # at the virtual machine's host"],
            )
        } else {
            Judgement::warning(what, &[])
        });
    }
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let available = machine
        .text(&format!("{folder}/available_clocksource"))
        .unwrap_or_default();
    if available.split_whitespace().any(|name| name == "tsc") {
        return Some(Judgement::fine(
            "the TSC is constant and trusted by the kernel",
        ));
    }
    let current = machine
        .text(&format!("{folder}/current_clocksource"))
        .unwrap_or_default();
    Some(Judgement::fault(
        format!(
            "the kernel has marked the TSC as unstable (its clock is {}): times of samples would be wrong",
            if current.is_empty() {
                "unknown"
            } else {
                &current
            }
        ),
        &[
            "sudo dmesg | grep -i tsc                              # says why; often a reboot mends it",
        ],
    ))
}

/// No live patch is active.
pub(super) fn live_patches(machine: &Machine) -> Option<Judgement> {
    let folder = "/sys/kernel/livepatch";
    let names: Vec<String> = machine
        .names(folder)
        .into_iter()
        .filter(|name| {
            machine
                .text(&format!("{folder}/{name}/enabled"))
                .is_some_and(|text| text == "1")
        })
        .collect();
    Some(if names.is_empty() {
        Judgement::fine("none")
    } else {
        Judgement::warning(
            format!(
                "active: {}. Entries of functions that they replace cannot be hooked, and hooks elsewhere in them \
                 are not executed",
                names.join(", ")
            ),
            &[],
        )
    })
}

/// Enough memory is available for rings and patches.
pub(super) fn memory(machine: &Machine) -> Option<Judgement> {
    let text = machine.text("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    let mb = kib * 1024 / 1_000_000;
    Some(if mb >= MEMORY_MB {
        Judgement::fine(format!("{mb} MB available"))
    } else {
        Judgement::warning(
            format!("{mb} MB available: large sessions need some {MEMORY_MB} MB"),
            &["sudo modprobe ilk slots_log2=12                      # smaller rings"],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_table_is_read_with_former_names() {
        let wanted = required(SYMBOLS);
        let has = |names: &[&str]| wanted.iter().any(|alternatives| alternatives == names);
        assert!(has(&["text_mutex"]));
        assert!(has(&["smp_text_poke_batch_add", "text_poke_queue"]));
        assert!(has(&["execmem_free", "module_memfree"]));
        assert!(
            !wanted
                .iter()
                .flatten()
                .any(|name| *name == "alternatives_text_reserved")
        );
        let rows = SYMBOLS
            .lines()
            .filter(|line| line.contains(", true"))
            .count();
        assert_eq!(wanted.len(), rows + ALWAYS.len());
    }
}
