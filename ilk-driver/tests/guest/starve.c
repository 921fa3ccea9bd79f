/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * starve: each allocation of the module fails once, in its load and in each request, and so does
 * each symbol lookup. The caller gets an error, the text is unchanged, and the same request then
 * succeeds.
 */
#include "assay.h"

#define SITES 24u
#define ASIDE (8u << 20)	/* in the arena, after all patches */

static struct site sites[SITES];
static struct ilk_poke pokes[SITES], second[SITES], out[SITES];
static u32 count, starved;

static void fail_alloc(u32 which)
{
	FILE *file = fopen("/sys/module/ilk/parameters/fail_alloc", "w");

	CHECK(file && fprintf(file, "%u\n", which) > 0 && !fclose(file), "fail_alloc cannot be written");
}

/* Writes with rows and faults; after a failure there is no block to branch to. */
static void write_starved(void)
{
	struct ilk_row row = { .original = sites[0].address };
	struct ilk_fault fault = { .fixup = 1 };
	u8 code[16] = { 0x90, 0x90, 0xcc };
	struct ilk_arena_write request = { .offset = ASIDE, .data = (u64)code, .len = sizeof(code),
					   .rows = (u64)&row, .row_count = info.unwinds,
					   .faults = (u64)&fault, .fault_count = !!info.faults };
	struct ilk_poke there = jump_to(&sites[1], info.arena + ASIDE);
	u32 which = 1;

	there.expect[0] ^= 0xff;
	for (;; which++) {
		int err;

		fail_alloc(which);
		err = ioctl(device, ILK_IOC_ARENA, &request) ? errno : 0;
		fail_alloc(0);
		if (!err)
			break;
		CHECK(err == ENOMEM && which < 100, "allocation %u of a write: errno %d", which, err);
		EXPECT(do_batch(&there, 1), ILK_BAD_DETOUR);
		starved++;
	}
	EXPECT(do_batch(&there, 1), ILK_MISMATCH);
	CHECK(which > 2 + 2 * info.unwinds, "only %u allocations of a write", which - 1);
}

static void batch_starved(const char *what, const struct ilk_poke *batch, u32 least)
{
	u8 *before = text_now();
	u32 which = 1;

	for (;; which++) {
		int reason;
		u8 *after;

		fail_alloc(which);
		reason = do_batch(batch, count);
		fail_alloc(0);
		if (reason == ILK_OK)
			break;
		CHECK((reason == ILK_NO_MEMORY || reason == -ENOMEM) && which < 1000,
		      "allocation %u of %s: %s", which, what, reason_name(reason));
		CHECK(!answer.waits && !answer.tsc_begin, "allocation %u of %s comes too late", which, what);
		after = text_now();
		CHECK(!memcmp(before, after, etext - stext), "allocation %u of %s changes the text", which,
		      what);
		free(after);
		starved++;
	}
	free(before);
	printf("assay: %u allocations of %s\n", which - 1, what);
	CHECK(which > least, "only %u allocations of %s", which - 1, what);
}

static void counters_starved(void)
{
	u64 values[256];
	struct ilk_counters request = { .count = 1, .out = (u64)values };

	fail_alloc(1);
	CHECK(ioctl(device, ILK_IOC_COUNTERS, &request) && errno == ENOMEM, "counters without memory");
	fail_alloc(0);
	counted(0);
	starved++;
}

static void find(void)
{
	count = (u32)entries(sites, SITES);
	count = (u32)admitted(sites, count);
	CHECK(count > SITES / 2, "only %u sites", count);
	/* The first poke is a tracer's. */
	sites[0].address -= 5;
	sites[0].length = 5;
	sites[0].multi = false;
}

static void load_starved(void)
{
	u32 which = 1;

	CHECK(!shell("rmmod ilk"), "the module cannot be unloaded");
	while (shell("insmod /lab/ilk.ko fail_alloc=%u 2>/dev/null", which)) {
		CHECK(which < 1000, "the module cannot be loaded");
		if (which++ >= 1000)
			return;
		starved++;
	}
	fail_alloc(0);
	printf("assay: %u allocations of a load\n", which - 1);
	CHECK(which > 4, "only %u allocations of a load", which - 1);
}

/* Without any one of these symbols the module does not load, and names it. */
static void symbols_missing(void)
{
	static const char *const names[] = {
		"kallsyms_lookup_name", "text_poke", "text_poke_copy", "text_poke_set", "text_mutex", "_stext", "_etext", "insn_decode",
		"ftrace_text_reserved", "ftrace_location",
		"set_memory_ro", "set_memory_rw", "set_memory_x", "set_memory_nx", "get_kprobe",
		"die_chain", "kprobe_mutex", "kprobe_blacklist", "__start___jump_table", "__stop___jump_table",
		"__start_static_call_sites", "__stop_static_call_sites", "ftrace_caller",
		"ftrace_regs_caller_end", "search_exception_tables", "__module_text_address",
		"modules", "klp_transition_patch",
	};

	CHECK(!shell("rmmod ilk"), "the module cannot be unloaded");
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		CHECK(shell("insmod /lab/ilk.ko without=%s 2>/dev/null", names[i]),
		      "the module loads without %s", names[i]);
		CHECK(!shell("dmesg | tail -n 1 | grep -q 'ilk: .*%s'", names[i]), "%s is not named",
		      names[i]);
	}
	printf("assay: %zu symbols missing, each named\n", sizeof(names) / sizeof(*names));
	CHECK(!shell("insmod /lab/ilk.ko"), "the module cannot be loaded");
}

void starve(void)
{
	load_starved();
	symbols_missing();
	device_open();
	find();
	write_patches(sites, count, 0, pokes);
	pokes[0] = poke_of(ILK_TRACER, sites[0].address, 0, pokes[0].target, 0);
	write_starved();
	for (u32 i = 0; i < count; i++) {
		second[i] = pokes[i];
		second[i].flags = 0;
		memcpy(second[i].expect, pokes[i].write, sizeof(second[i].expect));
		out[i] = removal_of(&pokes[i]);
	}
	/* The request itself, the sites, and the tables of the unwinder and of faults. */
	batch_starved("an install", pokes, count + 3);
	batch_starved("a retarget", second, 3);
	batch_starved("a removal", out, 3);
	counters_starved();
	device_close();
	printf("assay: %u allocations failed\n", starved);
}
