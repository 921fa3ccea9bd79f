// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * A live patch of pause(2), whose new function sleeps as the old one does: a thread in either of them
 * keeps the transition from being complete.
 */
#include <linux/kernel.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

static long drowse_pause(const struct pt_regs *regs)
{
	while (!signal_pending(current)) {
		__set_current_state(TASK_INTERRUPTIBLE);
		schedule();
	}
	return -ERESTARTNOHAND;
}

static struct klp_func drowse_functions[] = {
	{ .old_name = "__x64_sys_pause", .new_func = drowse_pause },
	{ }
};

static struct klp_object drowse_objects[] = {
	{ .funcs = drowse_functions },
	{ }
};

static struct klp_patch drowse_patch = { .mod = THIS_MODULE, .objs = drowse_objects };

static int __init drowse_init(void)
{
	return klp_enable_patch(&drowse_patch);
}

static void __exit drowse_exit(void)
{
}

module_init(drowse_init);
module_exit(drowse_exit);
MODULE_DESCRIPTION("A live patch for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_INFO(livepatch, "Y");
