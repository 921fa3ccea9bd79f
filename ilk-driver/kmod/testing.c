// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Failures that tests request by parameters. Only a module built with ILK_TESTING=y has this file, as the
 * lab's has; that of a package has not.
 */
#include "ilk.h"

static unsigned int fail_step;
module_param(fail_step, uint, 0600);
MODULE_PARM_DESC(fail_step, "the step at which every batch fails (1 to 7; 0: none)");

static unsigned int fail_alloc;
module_param(fail_alloc, uint, 0600);
MODULE_PARM_DESC(fail_alloc, "the number of the allocation of each request, and of the load, that fails (0: none)");
static atomic_t ilk_allocations;	/* of the current request */

static char *without;
module_param(without, charp, 0);
MODULE_PARM_DESC(without, "the name of a symbol that the kernel is taken not to have");

bool ilk_failing(enum ilk_fail_step step)
{
	return READ_ONCE(fail_step) == step;
}

void ilk_starve_begin(void)
{
	atomic_set(&ilk_allocations, 0);
}

bool ilk_starved(void)
{
	return (unsigned int)atomic_inc_return(&ilk_allocations) == READ_ONCE(fail_alloc);
}

bool ilk_hidden(const char *symbol)
{
	return without && !strcmp(without, symbol);
}
