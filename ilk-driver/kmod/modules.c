// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Text of modules. The notifier of an unloading module runs before its text is freed, and waits
 * until the splices in it are removed. So a module found here with the device's mutex held stays
 * loaded until the mutex is released.
 */
#include "ilk.h"

u32 ilk_modules_gone;

bool ilk_is_core(unsigned long address)
{
	return address >= (unsigned long)ilk_sym.stext && address < (unsigned long)ilk_sym.etext;
}

/* Returns the module, other than this one, that owns these bytes of text; valid while ilk_mutex is held. */
struct module *ilk_module_of(unsigned long first, unsigned long last)
{
	struct module *found, *other;

	lockdep_assert_held(&ilk_mutex);
	preempt_disable();
	found = (struct module *)ilk_call(ilk_sym.module_text, first, 0, 0, 0, 0);
	other = (struct module *)ilk_call(ilk_sym.module_text, last, 0, 0, 0, 0);
	if (!found || found != other || found == THIS_MODULE || found->state != MODULE_STATE_LIVE ||
	    !within_module_core(first, found) || !within_module_core(last, found))
		found = NULL;
	preempt_enable();
	return found;
}

/* Returns the number of readable bytes at an address of text: no page may follow a module's text. */
u32 ilk_readable(unsigned long address)
{
	u32 left = PAGE_SIZE - offset_in_page(address), most = MAX_INSN_SIZE;

	if (left >= most || ilk_is_core(address) || ilk_module_of(address, address + most - 1))
		return most;
	return left;
}

static int ilk_module_notify(struct notifier_block *block, unsigned long state, void *data)
{
	if (state == MODULE_STATE_COMING && is_livepatch_module(data))
		ilk_end(ILK_END_LIVE_PATCH);
	if (state != MODULE_STATE_GOING && state != MODULE_STATE_COMING)
		return NOTIFY_DONE;
	mutex_lock(&ilk_mutex);
	if (state == MODULE_STATE_GOING) {
		ilk_modules_gone++;
		ilk_sites_leave(data);
	}
	ilk_stacks_module(data, state == MODULE_STATE_GOING);
	mutex_unlock(&ilk_mutex);
	return NOTIFY_OK;
}

/* Runs before kprobes, jump labels and the tracer drop their records of the module. */
struct notifier_block ilk_module_block = {
	.notifier_call = ilk_module_notify,
	.priority = INT_MAX,
};
