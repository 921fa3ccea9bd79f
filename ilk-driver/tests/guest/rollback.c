/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * rollback: batches of several sizes, from ROLLBACK_LEAST to ROLLBACK_MOST pokes (20,000 by
 * default), each made to fail at every step. For installs, retargets and removals the text is byte
 * for byte as before, nothing pins the arena, and the same batch then succeeds.
 */
#include "assay.h"

#define STEPS 7
#define TRACERS 16

static struct site *sites;
static struct ilk_poke *pokes, *second, *out;
static size_t count;
static u64 injected;

static void fail_at(int step)
{
	FILE *file = fopen("/sys/module/ilk/parameters/fail_step", "w");

	CHECK(file && fprintf(file, "%d\n", step) > 0 && !fclose(file), "fail_step cannot be written");
}

/* Uses the machine: a thread diverted by a leftover of the batch fails here. */
static void live(void)
{
	CHECK(!shell("ls -l /proc/self/ /sys/kernel > /tmp/list && sort /tmp/list | wc > /dev/null"),
	      "a command fails");
}

/* Makes the batch fail at each step, and checks that the text is unchanged. */
static void fails(const char *what, const struct ilk_poke *batch, u32 size)
{
	u8 *before = text_now();

	for (int step = 1; step <= STEPS; step++) {
		u8 *after;
		int reason;

		fail_at(step);
		reason = do_batch(batch, size);
		fail_at(0);
		CHECK(reason == ILK_INJECTED && !answer.tsc_begin && !answer.tsc_end,
		      "%s of %u at step %d: %s at %llx", what, size, step, reason_name(reason),
		      (unsigned long long)batch[answer.failed].addr);
		after = text_now();
		CHECK(!memcmp(before, after, etext - stext),
		      "%s of %u at step %d: the text is not as before", what, size, step);
		free(after);
		injected++;
	}
	free(before);
	live();
}

static bool any_multi(const struct ilk_poke *batch, u32 size)
{
	for (u32 i = 0; i < size; i++)
		if (batch[i].flags & ILK_POKE_MULTI)
			return true;
	return false;
}

/* Applies a batch, and compares the number of its waits with the expected one. */
static double done(const char *what, const struct ilk_poke *batch, u32 size, u32 waits)
{
	double begin = now();
	int reason = do_batch(batch, size);

	CHECK(reason == ILK_OK, "%s of %u: %s", what, size, reason_name(reason));
	CHECK(answer.waits == waits, "%s of %u: %u waits", what, size, answer.waits);
	return now() - begin;
}

static void all_steps(size_t from, u32 size)
{
	u32 waits = any_multi(pokes + from, size);
	u8 nothing[16] = { 0xcc };
	double in, away;

	CHECK(text_is_whole(), "the text is not restored");
	fails("install", pokes + from, size);
	CHECK(text_is_whole(), "the text is not restored");
	/* No splice branches to the arena any more: it may be written, at the start and at the end. */
	CHECK(!write_arena(8u << 20, nothing, sizeof(nothing)), "the arena is still pinned");
	write_patches(sites, count, 0, pokes);
	for (size_t i = 0; i < TRACERS && i < count; i++)
		if (sites[i].length == 5 && text_at(sites[i].address)[0] == 0x0f)
			pokes[i] = poke_of(ILK_TRACER, sites[i].address, 0, pokes[i].target, 0);
	in = done("install", pokes + from, size, waits);
	live();
	for (u32 i = 0; i < size; i++) {
		second[i] = pokes[from + i];
		second[i].flags = 0;
		memcpy(second[i].expect, pokes[from + i].write, sizeof(second[i].expect));
		out[i] = removal_of(&pokes[from + i]);
	}
	fails("retarget", second, size);
	done("retarget", second, size, 1);
	fails("removal", out, size);
	away = done("removal", out, size, 1);
	CHECK(text_is_whole(), "the text is not restored");
	printf("assay: %u pokes: in after %.2f s and %u waits, out after %.2f s and 1\n", size, in, waits,
	       away);
}

/* Selects possible calls that are not close to an entry. */
static size_t apart(const struct site *called, size_t number, size_t entered)
{
	size_t kept = entered, next = 0;

	for (size_t i = 0; i < number; i++) {
		struct site site = called[i];

		while (next < entered && sites[next].address + 5 <= site.address)
			next++;
		if (next == entered || sites[next].address >= site.address + 5)
			sites[kept++] = site;
	}
	return kept - entered;
}

/*
 * Overwrites the text while the batch waits: the batch is rolled back, except for the int3 of that
 * site, which stays with its branch until the other write is gone.
 */
static void meddled_with(u32 size)
{
	u32 which = size - 1;
	u8 first;
	int reason;

	while (which && !(pokes[which].flags & ILK_POKE_MULTI))
		which--;
	CHECK(!shell("insmod /lab/meddler.ko address=0x%llx", (unsigned long long)pokes[which].addr),
	      "the meddler cannot be loaded");
	reason = do_batch(pokes, size);
	CHECK(reason == ILK_MISMATCH && answer.failed == which, "with the meddler the result is %s, poke %u of %u",
	      reason_name(reason), answer.failed, which);
	peek(pokes[which].addr, &first, 1);
	CHECK(first == 0xcc, "%02x is left at the meddler's address", first);
	live();
	CHECK(ioctl(device, ILK_IOC_RESET) && errno == EBUSY, "a reset before the meddler has gone");
	CHECK(!shell("rmmod meddler"), "the meddler cannot be unloaded");
	CHECK(!ioctl(device, ILK_IOC_RESET), "a reset: errno %d", errno);
	CHECK(text_is_whole(), "the text is not restored");
	done("install", pokes, size, 1);
	CHECK(!ioctl(device, ILK_IOC_RESET) && text_is_whole(), "a reset");
}

/* Sites of the tracer first, then entries, then calls, which are single instructions. */
static void find(size_t most)
{
	size_t entered, called;

	sites = calloc(most + 1, sizeof(*sites));
	pokes = calloc(most + 1, sizeof(*pokes));
	second = calloc(most + 1, sizeof(*second));
	out = calloc(most + 1, sizeof(*out));
	entered = admitted(sites, entries(sites, most * 2 / 5));
	called = admitted(sites + entered, calls(sites + entered, most - entered));
	called = apart(sites + entered, called, entered);
	count = entered + called;
	printf("assay: %zu entries and %zu calls\n", entered, called);
	if (entered > 2 * TRACERS)
		for (size_t i = 0; i < TRACERS; i++) {
			sites[i].address -= 5;
			sites[i].length = 5;
			sites[i].multi = false;
		}
	CHECK(count > most / 2, "only %zu sites of %zu", count, most);
}

void rollback(void)
{
	size_t most = setting("ROLLBACK_MOST", 20000);
	size_t sizes[] = { 1, 2, 7, 64, 1000, 20000, 100000, most };
	double begin = now();

	device_open();
	find(most);
	write_patches(sites, count, 0, pokes);
	for (size_t i = 0; i < TRACERS; i++)
		if (text_at(sites[i].address)[0] == 0x0f)
			pokes[i] = poke_of(ILK_TRACER, sites[i].address, 0, pokes[i].target, 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		u32 size = (u32)(sizes[i] < count ? sizes[i] : count);

		if (sizes[i] > most)
			break;
		if (sizes[i] < setting("ROLLBACK_LEAST", 0))
			continue;
		all_steps(0, size);
	}
	meddled_with((u32)(count < 200 ? count : 200));
	/* Calls alone need neither an int3 nor a wait. */
	for (u32 size = 1; size <= count / 2; size *= 100)
		all_steps(count - size, size);
	device_close();
	printf("assay: %llu failures injected in %.1f s\n", (unsigned long long)injected, now() - begin);
}
