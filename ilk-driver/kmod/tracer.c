// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Splices by the kernel's function tracer: one ftrace_ops for all of them, whose callback changes
 * the address at which the traced function continues, like that of a live patch
 * (kernel/livepatch/patch.c). Called without text_mutex, which the tracer takes itself.
 */
#include <linux/ftrace.h>

#include "ilk.h"

#ifndef ftrace_regs_set_instruction_pointer	/* its name before 6.2 */
#define ftrace_regs_set_instruction_pointer ftrace_instruction_pointer_set
#endif

/* Calls no traced function, so the tracer's recursion protection, which would lose hits, is not needed. */
static notrace void ilk_trace(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			      struct ftrace_regs *regs)
{
	struct ilk_site *site = ilk_site_find(ip, ip);

	if (site)
		ftrace_regs_set_instruction_pointer(regs, READ_ONCE(site->detour));
}
NOKPROBE_SYMBOL(ilk_trace);

static struct ftrace_ops ilk_ops = {
	.func = ilk_trace,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT
#ifndef CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS
		 | FTRACE_OPS_FL_SAVE_REGS
#endif
};
static u32 ilk_traced;

/* Adds all of them or, with an error, none. */
int ilk_tracer_add(unsigned long *sites, u32 count)
{
	int err;

	lockdep_assert_held(&ilk_mutex);
	lockdep_assert_not_held(ilk_sym.text_mutex);
	err = ftrace_set_filter_ips(&ilk_ops, sites, count, 0, 0);
	if (!err && !ilk_traced) {
		err = register_ftrace_function(&ilk_ops);
		if (err)
			ftrace_set_filter(&ilk_ops, NULL, 0, 1);
	}
	if (!err)
		ilk_traced += count;
	return err;
}

/* An ops without a filter would trace all functions, so it is unregistered before the last site is removed. */
void ilk_tracer_remove(unsigned long *sites, u32 count)
{
	lockdep_assert_held(&ilk_mutex);
	WARN_ON_ONCE(count > ilk_traced);
	if (count == ilk_traced) {
		ilk_tracer_clear();
		return;
	}
	ilk_traced -= count;
	ftrace_set_filter_ips(&ilk_ops, sites, count, 1, 0);
}

void ilk_tracer_clear(void)
{
	if (ilk_traced)
		unregister_ftrace_function(&ilk_ops);
	ilk_traced = 0;
	ftrace_set_filter(&ilk_ops, NULL, 0, 1);
}
