//! Functions that the kernel executes between the fault of an instruction and its fixup, by their names in 6.1,
//! 6.12, 7.2 and 7.3. Names that a kernel does not have do no harm. ilk-driver's `live::executed::faulted` compares them with
//! what a processor executes there.

/// Between the processor and the table, for an address where nothing is (arch/x86/mm/fault.c). Not all of it is in
/// the section where nothing may be probed.
const PAGE_FAULT: [&str; 9] = [
    "__bad_area_nosemaphore",
    "bad_area_nosemaphore",
    "do_kern_addr_fault",
    "do_user_addr_fault",
    "exc_page_fault",
    "fault_in_kernel_space",
    // An erratum of old processors is looked for first.
    "is_prefetch",
    "kernelmode_fixup_or_oops",
    // Looks into the table as well, before it says anything.
    "page_fault_oops",
];

/// The same for an address that cannot be one, and for a counter that is not there, which both are general
/// protection faults (arch/x86/kernel/traps.c).
const PROTECTION: [&str; 2] = ["exc_general_protection", "gp_try_fixup_and_notify"];

/// The same for an instruction that the processor does not have: QEMU's has no `rdpmc` (arch/x86/kernel/traps.c).
/// Before the lookup in the table, the kernel calls the notifiers of traps (kernel/notifier.c), kprobes among
/// them.
const INVALID: [&str; 11] = [
    "atomic_notifier_call_chain",
    "do_error_trap",
    "do_trap",
    "do_trap_no_signal",
    "exc_invalid_op",
    "handle_bug",
    "handle_invalid_op",
    "is_valid_bugaddr",
    "kprobe_exceptions_notify",
    "notifier_call_chain",
    "notify_die",
];

/// Looks for an instruction in the kernel's table, those of modules and those of BPF programs
/// (arch/x86/mm/extable.c, kernel/extable.c, lib/extable.c, lib/bsearch.c, kernel/module/main.c).
const TABLES: [&str; 11] = [
    "__module_address",
    "bsearch",
    "cmp_ex_search",
    "ex_get_fixup_type",
    "fixup_exception",
    "mod_find",
    "search_bpf_extables",
    "search_exception_tables",
    "search_extable",
    "search_kernel_exception_table",
    "search_module_extables",
];

/// Around the search in modules: preemption is turned off and on again, BPF's is in a section of RCU's. After the
/// handler, a fault returns as an interrupt does, which may schedule (kernel/entry/common.c).
const AROUND: [&str; 8] = [
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "dynamic_irqentry_exit_cond_resched",
    "irqentry_exit_cond_resched",
    "preempt_count_add",
    "preempt_count_sub",
    "raw_irqentry_exit_cond_resched",
    "rcu_read_unlock_special",
];

/// Everywhere in a kernel that is built for debugging: checks of preemption and of `smp_processor_id` (`DEBUG_PREEMPT`),
/// lockdep and RCU's use of it, KASAN, and what its compiler makes no part of its callers there.
const DEBUGGING: [&str; 14] = [
    "__this_cpu_preempt_check",
    "check_preemption_disabled",
    "cond_local_irq_disable",
    "cond_local_irq_enable",
    "debug_smp_processor_id",
    "in_lock_functions",
    "irqentry_enter",
    "irqentry_exit",
    "is_kmmio_active",
    "lock_is_held_type",
    "mark_held_locks",
    "rcu_is_watching",
    "rcu_read_lock_sched_held",
    "spurious_kernel_fault",
];
/// Begins the names of other functions of these.
const DEBUGGING_PREFIXES: [&str; 7] = [
    "__asan_",
    "__kasan_",
    "debug_lockdep_",
    "kasan_",
    "lockdep_",
    "rcu_lockdep_",
    "trace_hardirqs_",
];

/// Returns whether the kernel may execute a function while it handles a fault. Code there that faults
/// each time would never end.
pub(crate) fn handles_faults(function: &str) -> bool {
    let name = function.split('.').next().unwrap_or(function);
    let mut all = [
        &PAGE_FAULT[..],
        &PROTECTION,
        &INVALID,
        &TABLES,
        &AROUND,
        &DEBUGGING,
    ]
    .into_iter();
    let mut starts = ["ex_handler_", "preempt_schedule"]
        .into_iter()
        .chain(DEBUGGING_PREFIXES);
    all.any(|names| names.contains(&name)) || starts.any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_function_and_handlers_of_every_kind_are_known() {
        for name in [
            "fixup_exception",
            "notify_die",
            "is_prefetch.constprop.0",
            "ex_handler_msr.cold",
            "preempt_schedule_notrace",
            "raw_irqentry_exit_cond_resched",
            "cond_local_irq_disable.isra.0",
            "kasan_check_range",
        ] {
            assert!(handles_faults(name), "{name}");
        }
        assert!(!handles_faults("exc_page") && !handles_faults("vfs_read"));
    }
}
