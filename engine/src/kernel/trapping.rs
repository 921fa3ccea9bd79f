//! Functions that the kernel executes between an `int3` and the driver's handler, or on the way back, by the image's
//! own call graph: an `int3` in one of them would recurse without end. Kprobes' handler is called before the
//! notifiers, the driver's is one of them, so the kernel's blacklist lacks some.
//!
//! The notifiers before the driver's are called through pointers; [`super::notifiers`] finds them.

use rustc_hash::{FxHashMap, FxHashSet};

use super::functions::Extent;
use crate::code::{Branch, Symbols};
use crate::{Addr, Span};

/// The handler of `int3` (arch/x86/kernel/traps.c).
const HANDLER: &str = "exc_int3";

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
        &["__SCT__WARN_trap", "__warn_printk", "panic"],
    ),
];

/// Begins the names of functions that report undefined behaviour of the kernel (lib/ubsan.c), which is a fault of it too.
/// Compilers call other ones in each kernel, wherever a shift or an index is not known to be in range.
const UNDEFINED: &str = "__ubsan_handle_";

/// Trampolines of tracepoints' static calls, and the functions that they jump to if a tracepoint has several probes.
const TRACEPOINTS: (&str, &str) = ("__SCT__tp_func_", "__traceiter_");

/// The extents of functions on the path, by address; `branches` are sorted by source, and `notified` are the targets of
/// what notifiers execute.
///
/// Direct calls and jumps are followed.
pub(super) fn on_the_path(
    extents: &[Extent],
    symbols: &Symbols,
    branches: &[Branch],
    notified: &[Addr],
) -> Vec<Span> {
    debug_assert!(branches.is_sorted_by_key(|branch| branch.source));
    let name = |extent: &Extent| symbols.name(&extent.symbol);
    let elsewhere: FxHashSet<&str> = ELSEWHERE
        .iter()
        .flat_map(|(_, names)| names.iter().copied())
        .collect();
    let iterators: FxHashMap<&str, &Extent> = extents
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
    let mut visited: FxHashSet<Addr> = worklist.iter().map(|extent| extent.span.start).collect();
    let mut is_new = |callee: &Extent| {
        let whole = name(callee).split('.').next().unwrap_or_default();
        !elsewhere.contains(whole)
            && !whole.starts_with(UNDEFINED)
            && visited.insert(callee.span.start)
    };
    worklist.extend(
        notified
            .iter()
            .filter_map(|&to| at(to))
            .filter(|callee| is_new(callee)),
    );
    let mut path = Vec::new();
    while let Some(extent) = worklist.pop() {
        path.push(extent.span);
        let first = branches.partition_point(|branch| branch.source < extent.span.start);
        let own = branches.iter().skip(first);
        let own = own.take_while(|branch| branch.source < extent.span.end);
        let iterator = name(extent)
            .strip_prefix(TRACEPOINTS.0)
            .and_then(|event| iterators.get(event).copied());
        let called = own.filter_map(|branch| at(branch.target)).chain(iterator);
        worklist.extend(called.filter(|callee| is_new(callee)));
    }
    path.sort_unstable();
    path
}

#[cfg(test)]
mod tests {
    use iced_x86::code_asm::rsi;

    use super::on_the_path;
    use crate::code::{Memory, Texts, Why};
    use crate::kernel::bounds::Bounds;
    use crate::kernel::fixture::{Fixture, STRIDE};
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
                a.call(at(7))?;
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
            .asm("sched_clock", |a| {
                a.call(at(8))?;
                a.ret()
            })
            .asm("__ubsan_handle_shift_out_of_bounds", |a| {
                a.call(at(6))?;
                a.ret()
            })
            .image();
        let expected = [true, true, true, true, false, true, false, true, false];
        let found = std::array::from_fn(|number| is_forbidden(&image, at(number)));
        assert_eq!(found, expected);
    }

    #[test]
    fn notifiers_before_the_drivers_and_what_an_int3_executes_in_them_have_no_splice() {
        let at = Fixture::address;
        let fixture = Fixture::new()
            .compiled("notified", |a| {
                let mut is_mine = a.create_label();
                a.call(at(1))?;
                a.cmp(rsi, 3)?;
                a.je(is_mine)?;
                a.jmp(at(2))?;
                a.set_label(&mut is_mine)?;
                a.jmp(at(3))
            })
            .asm("called", |a| a.ret())
            .asm("always", |a| a.jmp(at(4)))
            .asm("after_a_call", |a| a.ret())
            .asm("last", |a| a.ret())
            .asm("other", |a| a.ret())
            .compiled("decides", |a| {
                let mut is_mine = a.create_label();
                a.cmp(rsi, 3)?;
                a.je(is_mine)?;
                a.ret()?;
                a.set_label(&mut is_mine)?;
                a.jmp(at(5))
            });
        let mut parts = fixture.parts();
        for number in [0, 6] {
            let (start, end) = (at(number), at(number) + STRIDE);
            parts.blacklist += &format!("notifier {start:#x}-{end:#x}\tn\n");
        }
        let image = Image::from_live(&parts).unwrap();
        let expected = [true, true, true, true, true, false, true];
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
        let whole_path = on_the_path(&extents, &symbols, &swept.branches, &[]);
        // More are what this code does not execute for an int3, and reaches through a function that is not listed.
        assert!((15..60).contains(&whole_path.len()), "{}", whole_path.len());
        let image = Image::from_live(&parts).unwrap();
        let state = |name: &str| {
            let function = image.function_named(name).ok()?;
            Some(is_forbidden(&image, function.span.start.0))
        };
        // The list of kmod/check.c, and what it finds; a kernel has those of its configuration.
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
