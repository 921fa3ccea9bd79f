// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Two notifiers of traps: one that is called before ilk's if this module is loaded before ilk, and one after it. */
#include <linux/kdebug.h>
#include <linux/module.h>

static atomic_t listener_calls;

static noinline int listener_first(struct notifier_block *block, unsigned long event, void *data)
{
	if (event != DIE_INT3)
		return NOTIFY_DONE;
	atomic_inc(&listener_calls);
	return NOTIFY_DONE;
}

static noinline int listener_last(struct notifier_block *block, unsigned long event, void *data)
{
	if (event != DIE_INT3)
		return NOTIFY_DONE;
	atomic_dec(&listener_calls);
	return NOTIFY_DONE;
}

static struct notifier_block listener_blocks[] = {
	{ .notifier_call = listener_first, .priority = INT_MAX },
	{ .notifier_call = listener_last, .priority = 0 },
};

static int __init listener_init(void)
{
	int err = register_die_notifier(&listener_blocks[0]);

	if (err)
		return err;
	err = register_die_notifier(&listener_blocks[1]);
	if (err)
		unregister_die_notifier(&listener_blocks[0]);
	return err;
}

static void __exit listener_exit(void)
{
	unregister_die_notifier(&listener_blocks[1]);
	unregister_die_notifier(&listener_blocks[0]);
}

module_init(listener_init);
module_exit(listener_exit);
MODULE_DESCRIPTION("Notifiers of traps, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
