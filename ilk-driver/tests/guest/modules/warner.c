// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* A read of /proc/warner makes the kernel warn, with a backtrace. */
#include <linux/module.h>
#include <linux/proc_fs.h>

static ssize_t warner_read(struct file *file, char __user *into, size_t size, loff_t *at)
{
	WARN(1, "warner was read\n");
	return 0;
}

static const struct proc_ops warner_operations = { .proc_read = warner_read };

static int __init warner_init(void)
{
	return proc_create("warner", 0400, NULL, &warner_operations) ? 0 : -ENOMEM;
}

static void __exit warner_exit(void)
{
	remove_proc_entry("warner", NULL);
}

module_init(warner_init);
module_exit(warner_exit);
MODULE_DESCRIPTION("Warns on request, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
