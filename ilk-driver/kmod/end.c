// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Events at which every splice is removed, whatever its owner plans, and no other is installed until
 * the owner has noticed:
 *
 *   a live patch is loaded: a thread that is preempted in a patch is not in the function that the
 *   patch belongs to, so the consistency model (kernel/livepatch/transition.c) would not wait for it.
 *   The owner may begin a session again when the transition is complete;
 *   a sleep or a hibernation, after which the TSC may begin at 0 (arch/x86/kernel/tsc.c);
 *   a restart, by kexec too: the next kernel has no arena.
 */
#include <linux/reboot.h>
#include <linux/suspend.h>
#include <asm/tsc.h>

#include "ilk.h"

u32 ilk_ended;	/* enum ilk_end; protected by ilk_mutex, as is the next */
u64 ilk_ended_tsc;	/* after the last splice was removed */

static const char *const ilk_end_names[] = {
	[ILK_END_LIVE_PATCH] = "a live patch changes this kernel",
	[ILK_END_SLEEP] = "this machine goes to sleep",
	[ILK_END_RESTART] = "this machine restarts",
};

/* A live patch ends a session that has no splice yet, too: the text that it was planned for changes. */
static void ilk_end_held(enum ilk_end why)
{
	bool any = ilk_site_from(0);

	lockdep_assert_held(&ilk_mutex);
	if (!any && (why != ILK_END_LIVE_PATCH || ilk_ended))
		return;
	if (any)
		pr_info("%s: every splice is removed\n", ilk_end_names[why]);
	ilk_sites_clear();
	ilk_ended = why;
	ilk_ended_tsc = rdtsc_ordered();
}

void ilk_end(enum ilk_end why)
{
	mutex_lock(&ilk_mutex);
	ilk_end_held(why);
	mutex_unlock(&ilk_mutex);
}

/*
 * Returns whether a live patch is being loaded, or is in transition. A module's state is COMING
 * from before its notifiers are called until its init function, which begins the transition, has returned.
 */
bool ilk_live_patching(void)
{
#ifdef CONFIG_LIVEPATCH
	const struct module *module;
	bool coming = false;

	if (READ_ONCE(*ilk_sym.live_patch))
		return true;
	rcu_read_lock();
	list_for_each_entry_rcu(module, ilk_sym.modules, list)
		coming |= READ_ONCE(module->state) == MODULE_STATE_COMING &&
			  is_livepatch_module((struct module *)module);
	rcu_read_unlock();
	/* The init function may have returned since the first look. */
	return coming || READ_ONCE(*ilk_sym.live_patch);
#else
	return false;
#endif
}

/*
 * Returns whether the session is over. A transition that no load precedes, as of a live patch that is
 * switched off, is noticed here: by the next batch, and by the owner's next look at the state.
 */
bool ilk_is_over(void)
{
	lockdep_assert_held(&ilk_mutex);
	if (!ilk_ended && ilk_live_patching())
		ilk_end_held(ILK_END_LIVE_PATCH);
	return ilk_ended;
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
