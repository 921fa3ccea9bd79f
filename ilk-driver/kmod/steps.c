// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/* The writes of a batch's steps, and their rollback. batch.c determines their order. */
#include "ilk.h"

static const u8 ilk_int3 = ILK_INT3;

static bool ilk_uses_int3(const struct ilk_job *job)
{
	return job->action == ILK_INSTALL &&
	       (job->poke->flags & ILK_POKE_MULTI || job->poke->kind == ILK_TRAP);
}

/* Returns whether the text of a job is as the earlier steps left it. */
bool ilk_text_is_unchanged(const struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	const u8 *text = (const u8 *)poke->addr;

	if (poke->kind == ILK_TRACER)
		return true;
	if (job->action != ILK_RETARGET && !ilk_fill_is(job->site, job->action == ILK_REMOVE))
		return false;
	if (!job->begun)
		return !memcmp(text, poke->expect, poke->len);
	return text[0] == ILK_INT3 && !memcmp(text + 1, poke->expect + 1, poke->len - 1);
}

/* Writes the int3s of step 2; *any becomes whether there is one. */
enum ilk_reason ilk_write_int3s(struct ilk_job *jobs, u32 count, bool *any, u32 *at)
{
	enum ilk_reason reason = ILK_OK;

	for (u32 i = 0, end; i < count && !reason; i = end) {
		end = ilk_chunk_end(i, count);
		ilk_text_lock();
		for (; i < end && !reason; i++) {
			if (!ilk_uses_int3(&jobs[i]))
				continue;
			if (ilk_kprobe_in(&jobs[i]))
				reason = ILK_KPROBE;
			else if (!ilk_text_is_unchanged(&jobs[i]))
				reason = ILK_MISMATCH;
			if (reason) {
				*at = i;
				break;
			}
			ilk_site_poke(jobs[i].site, &ilk_int3, sizeof(ilk_int3));
			jobs[i].begun = true;
			*any = true;
		}
		ilk_poke_finish();
		ilk_text_unlock();
	}
	return reason;
}

/* Collects the tracer's sites of some jobs; stores the index of the last in *at. */
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

/* Registers the tracer's sites of step 2. */
enum ilk_reason ilk_trace_all(struct ilk_job *jobs, u32 count, unsigned long *sites, u32 *at)
{
	u32 found = ilk_traced_among(jobs, count, ILK_INSTALL, sites, at);
	int err = found ? ilk_tracer_add(sites, found) : 0;

	for (u32 i = 0; i < count && !err; i++)
		jobs[i].begun |= jobs[i].poke->kind == ILK_TRACER && jobs[i].action == ILK_INSTALL;
	return err ? err == -ENOMEM ? ILK_NO_MEMORY : ILK_TRACER_REFUSED : ILK_OK;
}

/* Rolls back step 2: the tracer's sites, and every int3 that was not overwritten. */
void ilk_roll_back(struct ilk_job *jobs, u32 count)
{
	for (u32 i = 0; i < count; i++)
		if (jobs[i].begun && jobs[i].poke->kind == ILK_TRACER) {
			ilk_tracer_remove(&jobs[i].site->addr, 1);
			jobs[i].begun = false;
		}
	for (u32 i = 0, end; i < count; i = end) {
		end = ilk_chunk_end(i, count);
		ilk_text_lock();
		for (; i < end; i++)
			if (jobs[i].begun && ilk_text_is_unchanged(&jobs[i])) {
				ilk_site_poke(jobs[i].site, jobs[i].poke->expect, 1);
				jobs[i].begun = false;
			}
		ilk_poke_finish();
		ilk_text_unlock();
	}
}

/* Makes a site branch to its target, also for threads that still execute an int3. */
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

/* Performs step 5 for one rank. A splice overwritten by something else stays. */
enum ilk_reason ilk_write_removals(struct ilk_job *jobs, u32 first, u32 end, unsigned long *sites,
				   u32 *at)
{
	enum ilk_reason reason = ILK_OK;
	u32 traced = ilk_traced_among(&jobs[first], end - first, ILK_REMOVE, sites, at);

	if (traced)
		ilk_tracer_remove(sites, traced);

	for (u32 i = first, next; i < end; i = next) {
		next = ilk_chunk_end(i, end);
		ilk_text_lock();
		for (; i < next; i++) {
			struct ilk_site *site = jobs[i].site;

			if (ilk_kprobe_in(&jobs[i]) || !ilk_text_is_unchanged(&jobs[i]) ||
			    site->users) {
				reason = ILK_MISMATCH;
				*at = i;
				continue;
			}
			if (site->kind != ILK_TRACER) {
				ilk_fill_write(site, false);
				ilk_site_poke(site, site->original, site->len);
			}
			if (site->on)
				site->on->leaving--;
			ilk_site_leave(site);
		}
		ilk_poke_finish();
		ilk_text_unlock();
	}
	return reason;
}
