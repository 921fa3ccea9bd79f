// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* Keeps the program that loads it asleep where it cannot be frozen, so that a suspension fails. */
#include <linux/delay.h>
#include <linux/module.h>

static int __init sleeper_init(void)
{
	msleep(4000);
	return -EAGAIN;
}

module_init(sleeper_init);
MODULE_DESCRIPTION("Cannot be frozen, for tests of ilk");
MODULE_LICENSE("Dual MIT/GPL");
