// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * A batch of pokes, all or nothing.
 *
 * 1. Everything is checked, under the locks that keep it true; a refusal ends here.
 * 2. Installs: a jmp where one instruction is overwritten, else a lone int3
 *    that ilk_die() turns into the jmp. From here on every install is in effect.
 * 3. If there were int3s: locks dropped, a wait until no thread is between
 *    the instructions overwritten, and a look whether the text is still as left.
 *    If not, what was written is taken back.
 * 4. The int3s become jmps; retargets and removals are written.
 * 5. If anything stopped leading to a block of the arena: a wait until no thread is in it.
 */
#include <linux/sort.h>
#include <asm/tsc.h>

#include "ilk.h"

static const u8 ilk_int3 = 0xcc;

static int ilk_by_address(const void *a, const void *b)
{
	u64 one = ((const struct ilk_job *)a)->poke->addr;
	u64 other = ((const struct ilk_job *)b)->poke->addr;

	return one < other ? -1 : one > other;
}

static bool ilk_uses_int3(const struct ilk_job *job)
{
	return job->kind == ILK_INSTALL && job->poke->flags & ILK_POKE_MULTI;
}

/* A site for an install, not in the tree yet. */
static struct ilk_site *ilk_site_new(const struct ilk_job *job)
{
	struct ilk_site *site = kzalloc(sizeof(*site), GFP_KERNEL);

	if (!site)
		return NULL;
	site->addr = job->poke->addr;
	site->detour = job->poke->detour;
	site->block = job->block;
	memcpy(site->original, job->poke->expect, ILK_JMP);
	memcpy(site->jmp, job->poke->write, ILK_JMP);
	return site;
}

/* Looks at the request and not at the text. Leaves the place of what it refuses in *at. */
static enum ilk_reason ilk_prepare(struct ilk_job *jobs, u32 count, u32 *at)
{
	enum ilk_reason reason;

	for (*at = 0; *at < count; ++*at) {
		struct ilk_job *job = &jobs[*at];

		reason = ilk_check_fields(job);
		if (reason)
			return reason;
		if (*at && job->poke->addr - job[-1].poke->addr < ILK_JMP)
			return ILK_OVERLAP;
		if (job->kind == ILK_INSTALL)
			job->fresh = job->site = ilk_site_new(job);
		if (!job->site)
			return ILK_NO_MEMORY;
		cond_resched();
	}
	return ILK_OK;
}

static enum ilk_reason ilk_check_all(const struct ilk_job *jobs, u32 count, u32 *at)
{
	enum ilk_reason reason;

	for (*at = 0; *at < count; ++*at) {
		reason = ilk_check_text(&jobs[*at]);
		if (reason)
			return reason;
		cond_resched();
	}
	return ILK_OK;
}

/* Step 2. Returns whether there are int3s. */
static bool ilk_write_installs(struct ilk_job *jobs, u32 count)
{
	bool int3s = false;

	for (u32 i = 0; i < count; i++) {
		if (jobs[i].kind != ILK_INSTALL)
			continue;
		ilk_site_enter(jobs[i].site);
		jobs[i].fresh = NULL;
		if (ilk_uses_int3(&jobs[i]))
			ilk_poke(jobs[i].poke->addr, &ilk_int3, sizeof(ilk_int3), NULL);
		else
			ilk_poke(jobs[i].poke->addr, jobs[i].poke->write, ILK_JMP, NULL);
		int3s |= ilk_uses_int3(&jobs[i]);
	}
	ilk_poke_finish();
	return int3s;
}

/* Step 3: whether the text of a job is as step 2 left it. */
static bool ilk_as_left(const struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	const u8 *text = (const u8 *)poke->addr;

	if (ilk_uses_int3(job))
		return text[0] == ilk_int3 && !memcmp(text + 1, poke->expect + 1, ILK_JMP - 1);
	return !memcmp(text, job->kind == ILK_INSTALL ? poke->write : poke->expect, ILK_JMP);
}

static enum ilk_reason ilk_check_again(const struct ilk_job *jobs, u32 count, u32 *at)
{
	for (*at = 0; *at < count; ++*at)
		if (!ilk_as_left(&jobs[*at]))
			return ILK_MISMATCH;
	return ILK_OK;
}

/* Step 3's way out: restores every install that is still ours to restore. */
static void ilk_roll_back(struct ilk_job *jobs, u32 count)
{
	for (u32 i = 0; i < count; i++) {
		if (jobs[i].kind != ILK_INSTALL || !ilk_as_left(&jobs[i]))
			continue;
		ilk_poke(jobs[i].poke->addr, jobs[i].poke->expect, ILK_JMP, jobs[i].poke->write);
		jobs[i].site->out = true;
	}
	ilk_poke_finish();
}

/* Step 4. Returns whether anything stopped leading to where it led. */
static bool ilk_write_rest(struct ilk_job *jobs, u32 count)
{
	bool left = false;

	for (u32 i = 0; i < count; i++) {
		const struct ilk_poke *poke = jobs[i].poke;
		struct ilk_site *site = jobs[i].site;

		if (jobs[i].kind == ILK_REMOVE) {
			ilk_poke(poke->addr, poke->write, ILK_JMP, poke->expect);
			site->out = true;
		} else if (jobs[i].kind == ILK_RETARGET || ilk_uses_int3(&jobs[i])) {
			ilk_poke(poke->addr, poke->write, ILK_JMP, NULL);
		}
		if (jobs[i].kind == ILK_RETARGET) {
			jobs[i].left = site->block;
			jobs[i].block->pins++;
			site->block = jobs[i].block;
			site->detour = poke->detour;
			memcpy(site->jmp, poke->write, ILK_JMP);
		}
		left |= jobs[i].kind != ILK_INSTALL;
	}
	ilk_poke_finish();
	return left;
}

/* Steps 1 to 5. */
static enum ilk_reason ilk_commit(struct ilk_job *jobs, u32 count, struct ilk_batch *batch, u32 *at)
{
	enum ilk_reason reason;
	bool left = true;

	ilk_text_lock();
	reason = ilk_check_all(jobs, count, at);
	if (reason) {
		ilk_text_unlock();
		return reason;
	}
	batch->tsc_begin = rdtsc_ordered();
	if (ilk_write_installs(jobs, count)) {
		ilk_text_unlock();
		ilk_wait_for_tasks();
		ilk_text_lock();
		reason = ilk_check_again(jobs, count, at);
	}
	if (reason)
		ilk_roll_back(jobs, count);
	else
		left = ilk_write_rest(jobs, count);
	batch->tsc_end = reason ? 0 : rdtsc_ordered();
	batch->tsc_begin = reason ? 0 : batch->tsc_begin;
	ilk_text_unlock();

	if (left)
		ilk_wait_for_tasks();
	for (u32 i = 0; i < count; i++) {
		if (jobs[i].left)
			jobs[i].left->pins--;
		if (jobs[i].site->out)
			ilk_site_drop(jobs[i].site);
	}
	return reason;
}

/*
 * 0 if the batch was carried out or refused: batch->reason tells which. An error if the
 * request itself cannot be read.
 */
int ilk_batch_run(struct ilk_batch *batch)
{
	struct ilk_poke *pokes;
	struct ilk_job *jobs;
	u32 at = 0;

	batch->failed = batch->reason = ILK_OK;
	batch->tsc_begin = batch->tsc_end = 0;
	if (batch->reserved || batch->count > ILK_MAX_POKES)
		return -EINVAL;
	if (!batch->count)
		return 0;

	pokes = vmemdup_user(u64_to_user_ptr(batch->pokes), batch->count * sizeof(*pokes));
	if (IS_ERR(pokes))
		return PTR_ERR(pokes);
	jobs = kvcalloc(batch->count, sizeof(*jobs), GFP_KERNEL);
	if (!jobs) {
		kvfree(pokes);
		return -ENOMEM;
	}
	for (u32 i = 0; i < batch->count; i++)
		jobs[i].poke = &pokes[i];
	sort(jobs, batch->count, sizeof(*jobs), ilk_by_address, NULL);

	batch->reason = ilk_prepare(jobs, batch->count, &at);
	if (!batch->reason)
		batch->reason = ilk_commit(jobs, batch->count, batch, &at);
	if (batch->reason)
		batch->failed = jobs[at].poke - pokes;
	for (u32 i = 0; i < batch->count; i++)
		kfree(jobs[i].fresh);
	kvfree(jobs);
	kvfree(pokes);
	return 0;
}
