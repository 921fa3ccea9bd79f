// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Makes the kernel distrust its TSC, as its watchdog does. */
#include <linux/module.h>
#include <asm/tsc.h>

static int __init doubter_init(void)
{
	mark_tsc_unstable("a test of ilk");
	return 0;
}

static void __exit doubter_exit(void)
{
}

module_init(doubter_init);
module_exit(doubter_exit);
MODULE_DESCRIPTION("Marks the TSC as unstable, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
