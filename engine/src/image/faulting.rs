//! Functions that the kernel runs between a fault of an instruction and the place where it goes on.

/// From `exc_page_fault` and `exc_general_protection` (arch/x86/mm/fault.c, arch/x86/kernel/traps.c) by
/// `fixup_exception` (arch/x86/mm/extable.c) to the table of a module (kernel/extable.c,
/// kernel/module/main.c), as they are called in 6.1 and 6.12; names that a kernel does not have harm nobody.
const NAMES: [&str; 27] = [
    "__bad_area_nosemaphore",
    "__module_address",
    "__rcu_read_lock",
    "__rcu_read_unlock",
    "bad_area_nosemaphore",
    "bsearch",
    "cmp_ex_search",
    "do_kern_addr_fault",
    "do_user_addr_fault",
    "ex_get_fixup_type",
    "exc_general_protection",
    "exc_page_fault",
    "fault_in_kernel_space",
    "fixup_exception",
    "gp_try_fixup_and_notify",
    "is_prefetch",
    "kernelmode_fixup_or_oops",
    "mod_find",
    "page_fault_oops",
    "preempt_count_add",
    "preempt_count_sub",
    "rcu_read_unlock_special",
    "search_bpf_extables",
    "search_exception_tables",
    "search_extable",
    "search_kernel_exception_table",
    "search_module_extables",
];

/// Whether the kernel may run a function while it handles a fault. Code there that faults each time
/// would never come to its end.
pub(crate) fn handles_faults(function: &str) -> bool {
    let name = function.split('.').next().unwrap_or(function);
    let starts = ["ex_handler_", "preempt_schedule"];
    NAMES.binary_search(&name).is_ok() || starts.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_function_and_handlers_of_every_kind_are_known() {
        assert!(NAMES.is_sorted());
        for name in [
            "fixup_exception",
            "is_prefetch.constprop.0",
            "ex_handler_msr.cold",
            "preempt_schedule_notrace",
        ] {
            assert!(handles_faults(name), "{name}");
        }
        assert!(!handles_faults("exc_page") && !handles_faults("vfs_read"));
    }
}
