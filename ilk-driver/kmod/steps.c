// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* What the steps of a batch write, and how that is taken back. batch.c tells when. */
#include "ilk.h"

static const u8 ilk_int3 = ILK_INT3;

static bool ilk_uses_int3(const struct ilk_job *job)
{
	return job->action == ILK_INSTALL &&
	       (job->poke->flags & ILK_POKE_MULTI || job->poke->kind == ILK_TRAP);
}

/* Step 2, as far as it is text. Returns whether there are int3s. */
bool ilk_write_int3s(struct ilk_job *jobs, u32 count)
{
	bool int3s = false;

	for (u32 i = 0; i < count; i++) {
		if (!ilk_uses_int3(&jobs[i]))
			continue;
		ilk_site_poke(jobs[i].site, &ilk_int3, sizeof(ilk_int3));
		jobs[i].begun = true;
		int3s = true;
	}
	ilk_poke_finish();
	return int3s;
}

/* The tracer's sites among some jobs, and the last of them in *at. */
static u32 ilk_traced_among(const struct ilk_job *jobs, u32 count, enum ilk_action action,
			    unsigned long *sites, u32 *at)
{
	u32 found = 0;

	for (u32 i = 0; i < count; i++) {
		if (jobs[i].poke->kind != ILK_TRACER || jobs[i].action != action)
			continue;
		sites[found++] = jobs[i].poke->addr;
		*at = i;
	}
	return found;
}

/* Step 2, as far as it is the tracer's. */
enum ilk_reason ilk_trace_all(struct ilk_job *jobs, u32 count, unsigned long *sites, u32 *at)
{
	u32 found = ilk_traced_among(jobs, count, ILK_INSTALL, sites, at);
	int err = found ? ilk_tracer_add(sites, found) : 0;

	for (u32 i = 0; i < count && !err; i++)
		jobs[i].begun |= jobs[i].poke->kind == ILK_TRACER && jobs[i].action == ILK_INSTALL;
	return err ? err == -ENOMEM ? ILK_NO_MEMORY : ILK_TRACER_REFUSED : ILK_OK;
}

/* Whether the text of a job is as the steps before left it. */
bool ilk_as_left(const struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	const u8 *text = (const u8 *)poke->addr;

	if (poke->kind == ILK_TRACER)
		return true;
	if (!ilk_uses_int3(job))
		return !memcmp(text, poke->expect, poke->len);
	return text[0] == ILK_INT3 && !memcmp(text + 1, poke->expect + 1, poke->len - 1);
}

/* Step 3's way out: takes back the tracer's sites, and every int3 that is still ours to take back. */
void ilk_roll_back(struct ilk_job *jobs, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (jobs[i].begun && jobs[i].poke->kind == ILK_TRACER) {
			ilk_tracer_remove(&jobs[i].site->addr, 1);
			jobs[i].begun = false;
		}
	ilk_text_lock();
	for (u32 i = 0; i < count; i++)
		if (jobs[i].begun && ilk_as_left(&jobs[i])) {
			ilk_site_poke(jobs[i].site, jobs[i].poke->expect, 1);
			jobs[i].begun = false;
		}
	ilk_poke_finish();
	ilk_text_unlock();
}

/* A site leads to its target from here on, and so does whoever still meets an int3. */
void ilk_write_install(struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	struct ilk_site *site = job->site;

	if (job->action == ILK_RETARGET) {
		swap(site->blocks[0], job->blocks[0]);
		swap(site->blocks[1], job->blocks[1]);
		WRITE_ONCE(site->detour, poke->detour);
		site->target = poke->target;
		memcpy(site->written, poke->write, site->len);
	}
	if (poke->kind != ILK_TRAP && poke->kind != ILK_TRACER)
		ilk_site_poke(site, site->written, site->len);
	WRITE_ONCE(site->detour, site->target);
	job->done = true;
}

/* Step 5 for one rank. What someone wrote over meanwhile stays. */
enum ilk_reason ilk_write_removals(struct ilk_job *jobs, u32 first, u32 end, unsigned long *sites,
				   u32 *at)
{
	enum ilk_reason reason = ILK_OK;
	u32 traced = ilk_traced_among(&jobs[first], end - first, ILK_REMOVE, sites, at);

	if (traced)
		ilk_tracer_remove(sites, traced);

	ilk_text_lock();
	for (u32 i = first; i < end; i++) {
		struct ilk_site *site = jobs[i].site;

		if (!ilk_as_left(&jobs[i]) || site->users) {
			reason = ILK_MISMATCH;
			*at = i;
			continue;
		}
		if (site->kind != ILK_TRACER)
			ilk_site_poke(site, site->original, site->len);
		if (site->on)
			site->on->leaving--;
		ilk_site_leave(site);
	}
	ilk_poke_finish();
	ilk_text_unlock();
	return reason;
}
