// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * A batch of pokes, applied completely or not at all: the steps of struct ilk_batch in ilk_abi.h,
 * in order. Their writes are in steps.c.
 */
#include <linux/sort.h>
#include <asm/tsc.h>

#include "ilk.h"

/* Installs and retargets by rising rank, then removals by falling rank. */
static u32 ilk_stage(const struct ilk_job *job)
{
	return job->action == ILK_REMOVE ? 511 - job->poke->rank : job->poke->rank;
}

static int ilk_by_address(const void *a, const void *b)
{
	u64 one = ((const struct ilk_job *)a)->poke->addr;
	u64 other = ((const struct ilk_job *)b)->poke->addr;

	return one < other ? -1 : one > other;
}

static int ilk_by_stage(const void *a, const void *b)
{
	u32 one = ilk_stage(a), other = ilk_stage(b);

	return one != other ? (int)one - (int)other : ilk_by_address(a, b);
}

/* Most clients send pokes in the required order; sort() takes long and does not reschedule. */
static void ilk_sort(struct ilk_job *jobs, u32 count, cmp_func_t order)
{
	for (u32 i = 1; i < count; i++)
		if (order(&jobs[i - 1], &jobs[i]) > 0) {
			sort(jobs, count, sizeof(*jobs), order, NULL);
			return;
		}
}

/* Returns the end of the jobs with the same stage as the one at `first`. */
static u32 ilk_stage_end(const struct ilk_job *jobs, u32 first, u32 count)
{
	u32 end = first;

	while (end < count && ilk_stage(&jobs[end]) == ilk_stage(&jobs[first]))
		end++;
	return end;
}

/* Creates a site for an install and inserts it in the tree; it is not connected yet. */
static struct ilk_site *ilk_site_new(const struct ilk_job *job, u8 span)
{
	struct ilk_site *site = ILK_TRY(kzalloc(
		struct_size(site, under, ilk_fill_len(job->poke->filled)), GFP_KERNEL));

	if (!site)
		return NULL;
	site->filled = job->poke->filled;
	site->addr = job->poke->addr;
	site->detour = job->poke->detour;
	site->target = job->poke->target;
	site->blocks[0] = job->blocks[0];
	site->blocks[1] = job->blocks[1];
	site->kind = job->poke->kind;
	site->len = job->poke->len;
	site->span = span;
	memcpy(site->original, job->poke->expect, site->len);
	memcpy(site->written, job->poke->write, site->len);
	ilk_site_enter(site);
	return site;
}

/* Checks the request without the text. Stores the index of a refused job in *at. */
static enum ilk_reason ilk_prepare(struct ilk_job *jobs, u32 count, u32 *at)
{
	for (*at = 0; *at < count; ++*at) {
		struct ilk_job *job = &jobs[*at];
		enum ilk_reason reason;
		u8 span;

		if (ilk_failing(ILK_FAIL_PREPARE) && *at == count / 2)
			return ILK_INJECTED;
		reason = ilk_check_fields(job, &span);
		if (reason)
			return reason;
		if (job->site && job->site->job)
			return ILK_OVERLAP;
		if (job->action == ILK_INSTALL)
			job->site = ilk_site_new(job, span);
		if (!job->site)
			return ILK_NO_MEMORY;
		job->site->job = job;
		job->ready = true;
		for (int i = 0; job->action == ILK_RETARGET && i < ARRAY_SIZE(job->blocks); i++)
			job->blocks[i]->pins++;
		cond_resched();
	}
	return ILK_OK;
}

/* Connects each new site to its bounce or host, and counts leaving users. */
static enum ilk_reason ilk_connect(struct ilk_job *jobs, u32 count, u32 *at)
{
	for (*at = 0; *at < count; ++*at) {
		const struct ilk_poke *poke = jobs[*at].poke;
		unsigned long on = poke->kind == ILK_SHORT ? poke->target : poke->host;
		struct ilk_site *site = jobs[*at].site;

		cond_resched();
		jobs[*at].site->job = &jobs[*at];	/* the sort moved it */
		if (ilk_failing(ILK_FAIL_CONNECT) && *at == count / 2)
			return ILK_INJECTED;
		if (jobs[*at].action == ILK_REMOVE && site->on)
			site->on->leaving++;
		if (jobs[*at].action != ILK_INSTALL || poke->kind == ILK_TRAP ||
		    poke->kind == ILK_TRACER || poke->kind == ILK_JUMP ||
		    poke->kind == ILK_CALL || !on)
			continue;
		site->on = ilk_site_find(on, on);
		if (!site->on || site->on->addr != on || site->on->kind == ILK_TRACER ||
		    (site->on->kind == ILK_BOUNCE) != (poke->kind == ILK_SHORT)) {
			site->on = NULL;
			return ILK_UNSUPPORTED;
		}
		site->on->users++;
	}
	return ILK_OK;
}

/* What is checked may change between chunks, and is checked again before it is overwritten. */
static enum ilk_reason ilk_check_all(const struct ilk_job *jobs, u32 count, u32 *at)
{
	enum ilk_reason reason = ILK_OK;

	*at = 0;
	for (u32 end; *at < count && !reason;) {
		end = ilk_chunk_end(*at, count);
		ilk_text_lock();
		for (; *at < end; ++*at) {
			reason = ilk_check_chain(&jobs[*at]);
			if (!reason)
				reason = ilk_check_text(&jobs[*at]);
			if (!reason && ilk_failing(ILK_FAIL_CHECK) && *at == count / 2)
				reason = ILK_INJECTED;
			if (reason)
				break;
			cond_resched();
		}
		ilk_text_unlock();
	}
	return reason;
}

static enum ilk_reason ilk_check_again(const struct ilk_job *jobs, u32 count, u32 *at)
{
	for (*at = 0; *at < count; ++*at) {
		if (ilk_kprobe_in(&jobs[*at]))
			return ILK_KPROBE;
		if (!ilk_text_is_unchanged(&jobs[*at]))
			return ILK_MISMATCH;
		if (ilk_failing(ILK_FAIL_LOOK) && *at == count / 2)
			return ILK_INJECTED;
		cond_resched();
	}
	return ILK_OK;
}

/* Performs step 4. Returns whether a splice was retargeted. */
static bool ilk_write_installs(struct ilk_job *jobs, u32 count)
{
	bool retargeted = false;

	for (u32 first = 0, end; first < count; first = end) {
		end = ilk_stage_end(jobs, first, count);
		for (u32 i = first; i < end; i++) {
			ilk_write_install(&jobs[i]);
			retargeted |= jobs[i].action == ILK_RETARGET;
		}
		ilk_poke_finish();
		for (u32 i = first; i < end; i++)
			if (jobs[i].action == ILK_INSTALL)
				ilk_fill_write(jobs[i].site, true);
	}
	return retargeted;
}

/* Performs step 5. */
static enum ilk_reason ilk_remove_all(struct ilk_job *jobs, u32 first, u32 count,
				      unsigned long *sites, u32 *at)
{
	enum ilk_reason reason = ILK_OK;

	for (u32 end; first < count; first = end) {
		enum ilk_reason failed;
		bool bounced = false;
		u32 where;

		end = ilk_stage_end(jobs, first, count);
		failed = ilk_write_removals(jobs, first, end, sites, &where);
		if (failed) {
			reason = failed;
			*at = where;
		}
		/* No thread may be in a bounce when its bytes change. */
		for (u32 i = first; i < end; i++)
			bounced |= jobs[i].poke->kind == ILK_SHORT;
		if (bounced && end < count)
			ilk_wait_for_tasks();
	}
	return reason;
}

/* Performs steps 1 to 4. */
static enum ilk_reason ilk_begin(struct ilk_job *jobs, u32 count, u32 installs, unsigned long *sites,
				 struct ilk_batch *batch, u32 *at, bool *must_wait)
{
	enum ilk_reason reason;
	bool int3s = false;

	reason = ilk_check_all(jobs, count, at);
	if (reason)
		return reason;
	*at = 0;
	if (installs)
		ilk_seen_install();
	batch->tsc_begin = rdtsc_ordered();
	reason = ilk_write_int3s(jobs, ilk_failing(ILK_FAIL_INT3S) ? installs / 2 : installs, &int3s, at);
	if (!reason && ilk_failing(ILK_FAIL_INT3S))
		reason = ILK_INJECTED;
	if (!reason)
		reason = ilk_trace_all(jobs, installs, sites, at);
	if (!reason && ilk_failing(ILK_FAIL_TRACER))
		reason = ILK_INJECTED;
	if (!reason && int3s)
		ilk_wait_for_tasks();
	if (!reason && ilk_failing(ILK_FAIL_WAIT))
		reason = ILK_INJECTED;

	if (!reason) {
		ilk_text_lock();
		reason = ilk_check_again(jobs, count, at);
		if (!reason)
			*must_wait = ilk_write_installs(jobs, installs);
		ilk_text_unlock();
	}
	if (reason) {
		ilk_roll_back(jobs, installs);
		*must_wait = true;
	}
	return reason;
}

/* Performs all steps. The jobs are sorted by stage. */
static enum ilk_reason ilk_commit(struct ilk_job *jobs, u32 count, struct ilk_batch *batch, u32 *at)
{
	enum ilk_reason reason;
	unsigned long *sites;
	u32 installs = 0, tracers = 0;
	bool must_wait = false;

	while (installs < count && jobs[installs].action != ILK_REMOVE)
		installs++;
	for (u32 i = 0; i < count; i++)
		tracers += jobs[i].poke->kind == ILK_TRACER;
	/* Allocated before the first write, after which it is too late to fail. */
	sites = ILK_TRY(kvcalloc(tracers, sizeof(*sites), GFP_KERNEL));
	if (!sites)
		return ILK_NO_MEMORY;

	reason = ilk_begin(jobs, count, installs, sites, batch, at, &must_wait);
	if (!reason && installs < count) {
		reason = ilk_remove_all(jobs, installs, count, sites, at);
		must_wait = true;
	}
	batch->tsc_end = rdtsc_ordered();
	kvfree(sites);
	if (reason)
		batch->tsc_begin = batch->tsc_end = 0;
	if (must_wait)
		ilk_wait_for_tasks();
	return reason;
}

/* Releases sites that nothing branches to any more, and those never written. */
static void ilk_settle(struct ilk_job *jobs, u32 count)
{
	for (u32 i = 0; i < count && jobs[i].ready; i++) {
		struct ilk_job *job = &jobs[i];

		cond_resched();
		job->site->job = NULL;
		if (job->site->on)
			job->site->on->leaving = 0;
		for (int k = 0; job->action == ILK_RETARGET && k < ARRAY_SIZE(job->blocks); k++)
			job->blocks[k]->pins--;
		if (job->action == ILK_INSTALL && !job->done) {
			/* An int3 that could not be rolled back stays, unconnected. */
			ilk_site_leave(job->site);
			job->site->out = !job->begun;
		}
	}
	for (u32 i = 0; i < count && jobs[i].ready; i++) {
		cond_resched();
		if (jobs[i].site->out)
			ilk_site_drop(jobs[i].site);
	}
}

/* Returns whether a poke is in text of a module that may have been unloaded or replaced. */
static bool ilk_is_gone(const struct ilk_poke *poke, u32 modules)
{
	return modules != ilk_modules_gone && !ilk_is_core(poke->addr) &&
	       !ilk_site_find(poke->addr, poke->addr);
}

/*
 * `pokes` are a copy of the owner's. Returns 0 if the batch was applied or refused: batch->reason is
 * the result. Returns an error if the request itself is invalid.
 */
int ilk_batch_run(struct ilk_batch *batch, const struct ilk_poke *pokes)
{
	struct ilk_job *jobs;
	u32 at = 0, count = 0, waits = ilk_waits;
	int err;

	batch->failed = batch->reason = ILK_OK;
	batch->tsc_begin = batch->tsc_end = 0;
	lockdep_assert_held(&ilk_mutex);
	if (!batch->count)
		return 0;
	if (ilk_is_over()) {
		batch->reason = ILK_OVER;
		return 0;
	}
	err = ilk_unwind_publish();
	if (!err)
		err = ilk_faults_publish();
	if (err)
		return err;

	jobs = ILK_TRY(kvcalloc(batch->count, sizeof(*jobs), GFP_KERNEL));
	if (!jobs)
		return -ENOMEM;
	for (u32 i = 0; i < batch->count; i++)
		if (!ilk_is_gone(&pokes[i], batch->modules))
			jobs[count++].poke = &pokes[i];
	batch->gone = batch->count - count;
	/* Sorted by address, so that an overlap is reported at the higher address. */
	ilk_sort(jobs, count, ilk_by_address);
	batch->reason = ilk_prepare(jobs, count, &at);
	if (!batch->reason) {
		ilk_sort(jobs, count, ilk_by_stage);
		batch->reason = ilk_connect(jobs, count, &at);
	}
	if (!batch->reason)
		batch->reason = ilk_commit(jobs, count, batch, &at);
	if (batch->reason)
		batch->failed = jobs[at].poke - pokes;
	ilk_settle(jobs, count);
	batch->waits = ilk_waits - waits;
	kvfree(jobs);
	return 0;
}
