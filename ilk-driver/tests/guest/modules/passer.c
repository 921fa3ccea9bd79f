// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * A module with a static key, a jump label for it and a kprobe on a function of the kernel: all of
 * them write text when it is loaded and unloaded.
 */
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static DEFINE_STATIC_KEY_FALSE(passer_key);
static unsigned long passer_hits;

static int passer_seen(struct kprobe *probe, struct pt_regs *regs)
{
	if (static_branch_unlikely(&passer_key))
		passer_hits++;
	return 0;
}

static struct kprobe passer_probe = { .symbol_name = "vfs_statx", .pre_handler = passer_seen };

static int __init passer_init(void)
{
	static_branch_enable(&passer_key);
	return register_kprobe(&passer_probe);
}

static void __exit passer_exit(void)
{
	unregister_kprobe(&passer_probe);
	static_branch_disable(&passer_key);
}

module_init(passer_init);
module_exit(passer_exit);
MODULE_DESCRIPTION("Writes text at load and unload, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
