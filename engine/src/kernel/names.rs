//! Facts about symbols by their names.

use crate::code::KnownNames;

/// The names that mean something to control flow.
pub(crate) const KNOWN: KnownNames = KnownNames {
    is_return_thunk,
    is_indirect_thunk,
    never_returns,
};

/// Returns whether a symbol of the linker script or of assembly marks a place in the text and is no function.
pub(crate) fn is_marker(name: &str) -> bool {
    matches!(name, "_text" | "_stext" | "_etext" | "_sinittext" | "_einittext")
        || name.starts_with("__") && (name.ends_with("_text_start") || name.ends_with("_text_end"))
        || matches!(name, "__indirect_thunk_start" | "__indirect_thunk_end")
        || matches!(name, "__x86_indirect_thunk_array" | "__x86_indirect_its_thunk_array")
        || matches!(name, "__x86_indirect_call_thunk_array" | "__x86_indirect_jump_thunk_array")
        // Space before an entry that call depth tracking and kCFI use: not executed as a function.
        || name.starts_with("__pfx_")
        || name.starts_with("__cfi_")
        || name.starts_with(".L")
}

/// Returns whether a function of this name is a part that the compiler split off another.
pub(crate) fn is_part(name: &str) -> bool {
    name.contains(".cold")
}

/// Orders the names of one address by how unlikely people are to write them.
pub(crate) fn strangeness(name: &str, weak: bool) -> impl Ord + use<> {
    let compiler_made = name.contains('.');
    // The system calls' entries have several names; the one of the table that 64-bit programs use is best.
    let second_choice = ["__ia32_", "__do_sys_", "__se_sys_", "__x32_"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    let underscores = name.len() - name.trim_start_matches('_').len();
    (
        is_marker(name),
        compiler_made,
        second_choice,
        underscores,
        weak,
        name.len(),
        name.to_owned(),
    )
}

/// Returns whether it is a return thunk: a jump to it is a return (arch/x86/lib/retpoline.S).
pub(crate) fn is_return_thunk(name: &str) -> bool {
    name.ends_with("return_thunk") || name == "srso_safe_ret" || name == "srso_alias_safe_ret"
}

/// Returns whether it is a thunk of an indirect branch: a jump to it is a jump through a register (arch/x86/lib/retpoline.S).
pub(crate) fn is_indirect_thunk(name: &str) -> bool {
    name.starts_with("__x86_indirect_")
}

/// Returns whether text outside the sections in which Linux forbids probes can have no splice either.
pub(crate) fn is_forbidden(name: &str) -> bool {
    is_return_thunk(name)
        || is_indirect_thunk(name)
        || name.ends_with("_untrain_ret")
        // Executes while `gs` is not the kernel's yet, or on other page tables (head_64.S, wakeup_64.S).
        || matches!(
            name,
            "startup_64"
                | "secondary_startup_64"
                | "secondary_startup_64_no_verify"
                | "common_startup_64"
                | "verify_cpu"
                | "sev_verify_cbit"
                | "start_cpu0"
                | "vc_boot_ghcb"
                | "__startup_64"
                | "__startup_secondary_64"
                | "startup_64_setup_env"
                | "startup_64_setup_gdt_idt"
                | "startup_64_load_idt"
                | "soft_restart_cpu"
                | "pvh_start_xen"
                | "startup_xen"
                | "asm_cpu_bringup_and_idle"
                | "wakeup_long64"
                | "do_suspend_lowlevel"
                | "asm_acpi_mp_play_dead"
                | "__efi64_thunk"
        )
        // Executes on a CPU that starts, before the table with the handler of `int3` is loaded (smpboot.c, cpu/common.c).
        || matches!(
            name,
            "start_secondary"
                | "early_setup_idt"
                | "set_bringup_idt_handler"
                | "cr4_init"
                | "cpu_init_secondary"
                | "cpu_init_exception_handling"
        )
        // Is copied, and executes at an address where relative jumps are wrong (relocate_kernel_64.S, hibernate_asm_64.S,
        // ftrace_64.S, kprobes/opt.c, mem_encrypt_boot.S).
        || matches!(
            name,
            "relocate_kernel"
                | "identity_mapped"
                | "virtual_mapped"
                | "swap_pages"
                | "core_restore_code"
                | "restore_image"
                | "restore_registers"
                | "ftrace_caller"
                | "ftrace_caller_op_ptr"
                | "ftrace_call"
                | "ftrace_caller_end"
                | "ftrace_regs_caller"
                | "ftrace_regs_caller_op_ptr"
                | "ftrace_regs_call"
                | "ftrace_regs_caller_jmp"
                | "ftrace_regs_caller_end"
                | "ftrace_epilogue"
                | "ftrace_stub"
                | "ftrace_stub_direct_tramp"
                | "return_to_handler"
                | "__fentry__"
                | "sme_encrypt_execute"
                | "__enc_copy"
        )
        || name.starts_with("optprobe_template_")
        // Switches stacks, or executes with the user's (entry_64.S, xen-asm.S).
        || matches!(
            name,
            "__switch_to_asm"
                | "ret_from_fork"
                | "ret_from_fork_asm"
                | "rewind_stack_and_make_dead"
                | "xenpv_restore_regs_and_return_to_usermode"
                | "xen_iret"
                | "xen_cpu_bringup_again"
                | "xen_entry_SYSCALL_64"
                | "xen_entry_SYSCALL_compat"
                | "xen_entry_SYSENTER_compat"
        )
}

/// Functions that never return, in any kernel supported: `global_noreturns` of tools/objtool/check.c
/// (Linux 6.1), tools/objtool/noreturns.h (6.12). One that is not listed costs an edge that is never
/// taken; one listed wrongly would hide an edge, so a function that has a return is not believed ([`super::sweep`]).
const NEVER_RETURN: [&str; 30] = [
    "__fortify_panic",
    "__invalid_creds",
    "__module_put_and_kthread_exit",
    "__reiserfs_panic",
    "__stack_chk_fail",
    "__ubsan_handle_builtin_unreachable",
    "__x64_sys_exit",
    "__x64_sys_exit_group",
    "cpu_bringup_and_idle",
    "cpu_startup_entry",
    "do_exit",
    "do_group_exit",
    "do_task_dead",
    "fortify_panic",
    "hv_ghcb_terminate",
    "kthread_complete_and_exit",
    "kthread_exit",
    "kunit_try_catch_throw",
    "machine_real_restart",
    "make_task_dead",
    "nmi_panic_self_stop",
    "panic",
    "panic_smp_self_stop",
    "rewind_stack_and_make_dead",
    "sev_es_terminate",
    "snp_abort",
    "stop_this_cpu",
    "usercopy_abort",
    "vpanic",
    "xen_start_kernel",
];

/// Returns whether a function of this name never returns.
pub(crate) fn never_returns(name: &str) -> bool {
    NEVER_RETURN.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Addr;
    use crate::kernel::fixture::Fixture;

    #[test]
    fn the_list_is_sorted_for_the_search() {
        assert!(NEVER_RETURN.is_sorted());
        assert!(never_returns("do_exit"));
        assert!(!never_returns("schedule"));
    }

    #[test]
    fn markers_are_no_functions() {
        for marker in [
            "_stext",
            "__noinstr_text_start",
            "__lock_text_end",
            "__pfx_vfs_read",
            "__indirect_thunk_end",
        ] {
            assert!(is_marker(marker), "{marker}");
        }
        for function in [
            "vfs_read",
            "__x64_sys_clone",
            "cpu_startup_entry",
            "text_poke",
            "__text_poke",
        ] {
            assert!(!is_marker(function), "{function}");
        }
    }

    #[test]
    fn the_name_that_a_person_would_write_is_least_strange() {
        let best = |names: &[&'static str]| {
            names
                .iter()
                .copied()
                .min_by_key(|name| strangeness(name, false))
                .unwrap()
        };
        assert_eq!(
            best(&["__ia32_sys_getpid", "__do_sys_getpid", "__x64_sys_getpid"]),
            "__x64_sys_getpid"
        );
        assert_eq!(best(&["_stext", "startup_64", "_text"]), "startup_64");
        assert_eq!(best(&["__memcpy", "memcpy"]), "memcpy");
        assert_eq!(best(&["foo.isra.0", "__foo"]), "__foo");
    }

    #[test]
    fn a_function_that_has_a_return_is_not_believed_never_to() {
        let at = Fixture::address;
        let image = Fixture::new()
            .asm("panic", |a| a.ud2())
            .asm("do_exit", |a| {
                a.nop()?;
                a.ret()
            })
            .asm("make_task_dead", |a| a.jmp(at(3)))
            .asm("__x86_return_thunk", |a| a.ret())
            .image();
        let believed: [bool; 3] =
            std::array::from_fn(|number| image.never_returns(Addr(at(number))));
        assert_eq!(believed, [true, false, false]);
    }
}
