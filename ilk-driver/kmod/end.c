// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Events at which every splice is removed, whatever its owner plans, and no other is installed until
 * the owner has noticed:
 *
 *   a live patch is loaded: a thread that is preempted in a patch is not in the function that the
 *   patch belongs to, so the consistency model (kernel/livepatch/transition.c) would not wait for it;
 *   a sleep or a hibernation, after which the TSC may begin at 0 (arch/x86/kernel/tsc.c);
 *   a restart, by kexec too: the next kernel has no arena.
 */
#include <linux/reboot.h>
#include <linux/suspend.h>

#include "ilk.h"

u32 ilk_ended;	/* enum ilk_end; protected by ilk_mutex */

static const char *const ilk_end_names[] = {
	[ILK_END_LIVE_PATCH] = "a live patch is loaded",
	[ILK_END_SLEEP] = "this machine goes to sleep",
	[ILK_END_RESTART] = "this machine restarts",
};

void ilk_end(enum ilk_end why)
{
	mutex_lock(&ilk_mutex);
	if (ilk_site_from(0)) {
		ilk_ended = why;
		pr_info("%s: every splice is removed\n", ilk_end_names[why]);
		ilk_sites_clear();
	}
	mutex_unlock(&ilk_mutex);
}

static int ilk_sleep_notify(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE ||
	    event == PM_RESTORE_PREPARE)
		ilk_end(ILK_END_SLEEP);
	return NOTIFY_DONE;
}

static struct notifier_block ilk_sleep_block = { .notifier_call = ilk_sleep_notify };

static int ilk_restart_notify(struct notifier_block *block, unsigned long event, void *unused)
{
	ilk_end(ILK_END_RESTART);
	return NOTIFY_DONE;
}

static struct notifier_block ilk_restart_block = { .notifier_call = ilk_restart_notify };

int ilk_end_init(void)
{
	int err = ilk_starved() ? -ENOMEM : register_pm_notifier(&ilk_sleep_block);

	if (err)
		return err;
	err = ilk_starved() ? -ENOMEM : register_reboot_notifier(&ilk_restart_block);
	if (err)
		unregister_pm_notifier(&ilk_sleep_block);
	return err;
}

void ilk_end_exit(void)
{
	unregister_reboot_notifier(&ilk_restart_block);
	unregister_pm_notifier(&ilk_sleep_block);
}
