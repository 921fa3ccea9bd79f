// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Text of modules. A module that goes tells before its text does, and waits: the splices in it come out
 * first. What is found here with the device's mutex held is a module that has not told yet.
 */
#include "ilk.h"

u32 ilk_modules_gone;

bool ilk_is_core(unsigned long address)
{
	return address >= (unsigned long)ilk_sym.stext && address < (unsigned long)ilk_sym.etext;
}

/* The module, other than this one, that these bytes are text of as long as it is loaded. */
struct module *ilk_module_of(unsigned long first, unsigned long last)
{
	struct module *found, *other;

	preempt_disable();
	found = (struct module *)ilk_call(ilk_sym.module_text, first, 0, 0, 0, 0);
	other = (struct module *)ilk_call(ilk_sym.module_text, last, 0, 0, 0, 0);
	if (!found || found != other || found == THIS_MODULE || found->state != MODULE_STATE_LIVE ||
	    !within_module_core(first, found) || !within_module_core(last, found))
		found = NULL;
	preempt_enable();
	return found;
}

/* How many bytes of an instruction in text can be read: behind a module's text there may be no page. */
u32 ilk_readable(unsigned long address)
{
	u32 left = PAGE_SIZE - offset_in_page(address), most = MAX_INSN_SIZE;

	if (left >= most || ilk_is_core(address) || ilk_module_of(address, address + most - 1))
		return most;
	return left;
}

static int ilk_module_notify(struct notifier_block *block, unsigned long state, void *data)
{
	if (state != MODULE_STATE_GOING)
		return NOTIFY_DONE;
	mutex_lock(&ilk_mutex);
	ilk_modules_gone++;
	ilk_sites_leave(data);
	mutex_unlock(&ilk_mutex);
	return NOTIFY_OK;
}

/* Before kprobes, jump labels and the tracer forget what they know of the module. */
struct notifier_block ilk_module_block = {
	.notifier_call = ilk_module_notify,
	.priority = INT_MAX,
};
