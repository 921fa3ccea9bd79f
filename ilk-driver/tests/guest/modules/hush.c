// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* A live patch that makes /proc/version consist of one word. */
#include <linux/kernel.h>
#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/seq_file.h>

static int hush_version(struct seq_file *file, void *unused)
{
	seq_puts(file, "hush\n");
	return 0;
}

static struct klp_func hush_functions[] = {
	{ .old_name = "version_proc_show", .new_func = hush_version },
	{ }
};

static struct klp_object hush_objects[] = {
	{ .funcs = hush_functions },
	{ }
};

static struct klp_patch hush_patch = { .mod = THIS_MODULE, .objs = hush_objects };

static int __init hush_init(void)
{
	return klp_enable_patch(&hush_patch);
}

static void __exit hush_exit(void)
{
}

module_init(hush_init);
module_exit(hush_exit);
MODULE_DESCRIPTION("A live patch for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_INFO(livepatch, "Y");
