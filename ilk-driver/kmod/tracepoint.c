// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Tracepoints that a session's splices stand on. The code of a tracepoint is skipped as long as it
 * has no probe, and a single probe is called directly. With two, every event calls the function
 * __traceiter_NAME, where the splices are (include/linux/tracepoint.h, kernel/tracepoint.c). So each
 * tracepoint gets two probes, which do nothing.
 */
#include <linux/tracepoint.h>

#include "ilk.h"

static struct tracepoint *ilk_tracepoints[ILK_MAX_TRACEPOINTS];
static u32 ilk_tracepoint_count;
/* A probe is identified by its function and its data. */
static u8 ilk_tracepoint_data[2];

/* Probes of all tracepoints: the arguments after `data`, which differ, stay in their registers. */
static notrace void ilk_tracepoint_probe(void *data)
{
}

struct ilk_tracepoint_search {
	const char *name;
	struct tracepoint *found;
};

static void ilk_tracepoint_compare(struct tracepoint *tracepoint, void *argument)
{
	struct ilk_tracepoint_search *search = argument;

	if (!strcmp(tracepoint->name, search->name))
		search->found = tracepoint;
}

static int ilk_tracepoint_probes_add(struct tracepoint *tracepoint)
{
	int err = 0;
	u32 added;

	for (added = 0; added < ARRAY_SIZE(ilk_tracepoint_data); added++) {
		err = ilk_starved() ? -ENOMEM :
				      tracepoint_probe_register(tracepoint, ilk_tracepoint_probe,
								&ilk_tracepoint_data[added]);
		if (err)
			break;
	}
	while (err && added--)
		WARN_ON_ONCE(tracepoint_probe_unregister(tracepoint, ilk_tracepoint_probe,
							 &ilk_tracepoint_data[added]));
	return err;
}

/* Switches a tracepoint of the kernel itself on. */
int ilk_tracepoint_on(const struct ilk_tracepoint *request)
{
	struct ilk_tracepoint_search search = { .name = request->name };
	int err;

	lockdep_assert_held(&ilk_mutex);
	if (!request->name[0] || strnlen(request->name, sizeof(request->name)) == sizeof(request->name))
		return -EINVAL;
	for_each_kernel_tracepoint(ilk_tracepoint_compare, &search);
	if (!search.found)
		return -ENOENT;
	for (u32 i = 0; i < ilk_tracepoint_count; i++)
		if (ilk_tracepoints[i] == search.found)
			return 0;
	if (ilk_tracepoint_count == ILK_MAX_TRACEPOINTS)
		return -ENOSPC;
	err = ilk_tracepoint_probes_add(search.found);
	if (!err)
		ilk_tracepoints[ilk_tracepoint_count++] = search.found;
	return err;
}

/* Switches off what ilk_tracepoint_on() has switched on; when it returns, no thread calls its probes. */
void ilk_tracepoints_off(void)
{
	lockdep_assert_held(&ilk_mutex);
	if (!ilk_tracepoint_count)
		return;
	while (ilk_tracepoint_count) {
		struct tracepoint *tracepoint = ilk_tracepoints[--ilk_tracepoint_count];

		for (u32 i = 0; i < ARRAY_SIZE(ilk_tracepoint_data); i++)
			WARN_ON_ONCE(tracepoint_probe_unregister(tracepoint, ilk_tracepoint_probe,
								 &ilk_tracepoint_data[i]));
	}
	tracepoint_synchronize_unregister();
}
