//! Functions that the kernel executes between an `int3` and the driver's handler, or on the way back, by the image's
//! own call graph: an `int3` in one of them would recurse without end. Kprobes' handler is called before the
//! notifiers, the driver's is one of them, so the kernel's blacklist lacks some.

use std::collections::{HashMap, HashSet};

use super::functions::Extent;
use crate::code::{Branch, Symbols};
use crate::{Addr, Span};

/// The handler of `int3` (arch/x86/kernel/traps.c).
const HANDLER: &str = "exc_int3";

/// Notifiers of traps with the priority of the driver's, and registered before it, so that they are called first. For an
/// `int3` they return at once. That of kprobes is on the kernel's blacklist.
const NOTIFIERS: [&str; 1] = ["hw_breakpoint_exceptions_notify"];

/// Functions that this code calls, and does not execute for an `int3` of a splice, with the reason. The call graph does
/// not show it; each was looked at in 6.1, 6.12, 7.2 and 7.3. A function that another kernel calls there is not listed,
/// and so no splice stands in it.
const ELSEWHERE: [(&str, &[&str]); 4] = [
    (
        "a trap that no notifier takes",
        &[
            "__printk_ratelimit",
            "_printk",
            "die",
            "fixup_exception",
            "fixup_vdso_exception",
            "force_sig",
            "force_sig_fault",
            "print_vma_addr",
            "show_signal",
            "unhandled_signal",
        ],
    ),
    (
        "a trap of a process",
        &[
            "__SCT__tp_func_user_enter",
            "__SCT__tp_func_user_exit",
            "__hrtimer_rearm_deferred",
            "arch_exit_to_user_mode_prepare",
            "exit_to_user_mode_loop",
            "irqentry_enter_from_user_mode",
            "irqentry_exit_to_user_mode",
            "rcu_nocb_flush_deferred_wakeup",
            "rcu_preempt_deferred_qs",
            "vtime_user_enter",
            "vtime_user_exit",
        ],
    ),
    (
        "after a check that this is no NMI, as which an int3 is handled",
        &[
            "__SCT__preempt_schedule_notrace",
            "__raw_spin_unlock",
            "__trace_set_need_resched",
            "_raw_spin_lock",
            "_raw_spin_unlock",
            "irq_work_queue_on",
            "preempt_schedule_notrace",
            "preempt_schedule_notrace_thunk",
            "raise_softirq_irqoff",
            "rcu_preempt_deferred_qs_irqrestore",
            "tick_nohz_dep_set_cpu",
        ],
    ),
    (
        "a fault of the kernel",
        &[
            "__SCT__WARN_trap",
            "__ubsan_handle_out_of_bounds",
            "__warn_printk",
            "panic",
        ],
    ),
];

/// Trampolines of tracepoints' static calls, and the functions that they jump to if a tracepoint has several probes.
const TRACEPOINTS: (&str, &str) = ("__SCT__tp_func_", "__traceiter_");

/// The extents of functions on the path, by address; `branches` are sorted by source.
///
/// Direct calls and jumps are followed. Notifiers are called through pointers: [`NOTIFIERS`], and then the driver's.
pub(super) fn on_the_path(extents: &[Extent], symbols: &Symbols, branches: &[Branch]) -> Vec<Span> {
    debug_assert!(branches.is_sorted_by_key(|branch| branch.source));
    let name = |extent: &Extent| symbols.name(&extent.symbol);
    let elsewhere: HashSet<&str> = ELSEWHERE
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    let iterators: HashMap<&str, &Extent> = extents
        .iter()
        .filter_map(|extent| Some((name(extent).strip_prefix(TRACEPOINTS.1)?, extent)))
        .collect();
    let at = |to: Addr| {
        let after = extents.partition_point(|extent| extent.span.start <= to);
        let extent = extents.get(after.checked_sub(1)?)?;
        extent.span.contains(to).then_some(extent)
    };
    let mut worklist: Vec<&Extent> = extents
        .iter()
        .filter(|extent| name(extent) == HANDLER)
        .collect();
    let mut visited: HashSet<Addr> = worklist.iter().map(|extent| extent.span.start).collect();
    let notifiers = extents
        .iter()
        .filter(|extent| NOTIFIERS.contains(&name(extent)));
    let mut path: Vec<Span> = notifiers.map(|extent| extent.span).collect();
    while let Some(extent) = worklist.pop() {
        path.push(extent.span);
        let first = branches.partition_point(|branch| branch.source < extent.span.start);
        let own = branches.iter().skip(first);
        let own = own.take_while(|branch| branch.source < extent.span.end);
        let iterator = name(extent)
            .strip_prefix(TRACEPOINTS.0)
            .and_then(|event| iterators.get(event).copied());
        let called = own.filter_map(|branch| at(branch.target)).chain(iterator);
        worklist.extend(called.filter(|callee| {
            let whole = name(callee).split('.').next().unwrap_or_default();
            !elsewhere.contains(whole) && visited.insert(callee.span.start)
        }));
    }
    path.sort_unstable();
    path
}

#[cfg(test)]
mod tests {
    use super::on_the_path;
    use crate::code::{Memory, Texts, Why};
    use crate::kernel::bounds::Bounds;
    use crate::kernel::fixture::Fixture;
    use crate::kernel::{LiveParts, functions, kallsyms, sweep};
    use crate::{Addr, Image, Span};

    #[test]
    fn what_an_int3_executes_before_the_driver_has_no_splice() {
        let at = Fixture::address;
        let image = Fixture::new()
            .asm("exc_int3", |a| {
                a.call(at(1))?;
                a.call(at(4))?;
                a.ret()
            })
            .asm("notify", |a| {
                a.call(at(2))?;
                a.jmp(at(3))
            })
            .asm("__SCT__tp_func_run", |a| a.ret())
            .asm("tail", |a| a.ret())
            .asm("die", |a| {
                a.call(at(6))?;
                a.ret()
            })
            .asm("__traceiter_run", |a| a.ret())
            .asm("oops", |a| a.ret())
            .asm("hw_breakpoint_exceptions_notify", |a| a.ret())
            .image();
        let expected = [true, true, true, true, false, true, false, true];
        let found = std::array::from_fn(|number| is_forbidden(&image, at(number)));
        assert_eq!(found, expected);
    }

    fn is_forbidden(image: &Image, at: u64) -> bool {
        let mut sites = image.fixed().overlapping(Span::new(Addr(at), 1));
        sites.any(|site| site.why == Why::Forbidden)
    }

    #[test]
    #[ignore = "needs GILK_IMAGE, a saved live image; cargo xtask test makes one"]
    fn a_kernels_path_has_what_the_driver_refuses_and_not_what_only_looks_like_it() {
        let path = std::env::var_os("GILK_IMAGE").expect("GILK_IMAGE names a saved live image");
        let parts: LiveParts = postcard::from_bytes(&std::fs::read(path).unwrap()).unwrap();
        let symbols = kallsyms::parse(&parts.kallsyms).unwrap();
        let text = Bounds::of(&symbols).unwrap().text;
        let read = parts.memory.iter();
        let memory = Memory::new(read.map(|(at, bytes)| (*at, bytes.as_slice())));
        let extents = functions::extents(&symbols, text);
        let swept = sweep::sweep(&extents, &Texts::new(text, None), &memory);
        let whole_path = on_the_path(&extents, &symbols, &swept.branches);
        // More are what this code does not execute for an int3, and reaches through a function that is not listed.
        assert!((15..60).contains(&whole_path.len()), "{}", whole_path.len());
        let image = Image::from_live(&parts).unwrap();
        let state = |name: &str| {
            let function = image.function_named(name).ok()?;
            Some(is_forbidden(&image, function.span.start.0))
        };
        // The list of kmod/check.c; a kernel has those of its configuration.
        let denied = [
            "__rcu_read_lock",
            "__rcu_read_unlock",
            "rcu_read_unlock_special",
            "hw_breakpoint_exceptions_notify",
            "trace_hwlat_callback",
            "trace_osnoise_callback",
            "trace_clock_local",
            "__traceiter_notifier_run",
            "__traceiter_nmi_noise",
        ];
        for name in &denied[..4] {
            assert_eq!(state(name), Some(true), "{name}");
        }
        let hwlat = state("trace_hwlat_callback").is_some();
        for name in &denied[4..] {
            let is_on_it = *name != "trace_clock_local" || hwlat;
            assert!(!is_on_it || state(name) != Some(false), "{name}");
        }
        for name in [
            "_raw_spin_lock",
            "_printk",
            "panic",
            "fixup_exception",
            "schedule",
            "__traceiter_sched_switch",
            "vfs_read",
        ] {
            assert_eq!(state(name), Some(false), "{name}");
        }
    }
}
