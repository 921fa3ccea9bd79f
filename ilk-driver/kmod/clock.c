// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The kernel's monotonic clock, for generated code: its nanoseconds are a multiple of the TSC and the
 * word that is kept here. The kernel calls back at each update of its time, with the readings that it
 * computes the time from (update_pvclock_gtod() in kernel/time/timekeeping.c). Generated code reads one
 * word, so it needs neither a loop nor a lock.
 */
#include <linux/math64.h>
#include <linux/pvclock_gtod.h>
#include <linux/timekeeper_internal.h>
#include <asm/tsc.h>

#include "ilk.h"

static u64 ilk_nsecs;	/* nanoseconds minus the multiple of the TSC, modulo 2^64 */
static u64 ilk_factor;	/* the multiple, times 2^32 */
static bool ilk_clock_on;

static bool ilk_clock_is_tsc(const struct tk_read_base *read)
{
	return read->clock->vdso_clock_mode == VDSO_CLOCKMODE_TSC;
}

/* The rate of the clock where it is the TSC; otherwise that of the TSC by its calibration. */
static u64 ilk_clock_rate(const struct tk_read_base *read)
{
	if (ilk_clock_is_tsc(read) && read->shift <= 32)
		return (u64)read->mult << (32 - read->shift);
	return tsc_khz ? div_u64(1000000ull << 32, tsc_khz) : 0;
}

/* Called with interrupts off, inside the kernel's update: ktime_get() would wait for its end. */
static int ilk_clock_update(struct notifier_block *block, unsigned long stepped, void *timekeeper)
{
	const struct tk_read_base *read = &((struct timekeeper *)timekeeper)->tkr_mono;
	u64 tsc = rdtsc_ordered();
	u64 cycles = read->clock->read(read->clock);
	u64 passed, now;

	if (ilk_clock_is_tsc(read))
		tsc = cycles;
	else	/* between two readings: reading a device takes a microsecond */
		tsc += (rdtsc_ordered() - tsc) / 2;
	/* The TSC of this CPU may be a few ticks less than the last reading, on another one. */
	passed = (cycles - read->cycle_last) & read->mask;
	if (passed > read->mask >> 1)
		passed = 0;
	now = ktime_to_ns(read->base) + ((passed * read->mult + read->xtime_nsec) >> read->shift);
	if (!ilk_factor)
		ilk_factor = ilk_clock_rate(read);
	WRITE_ONCE(ilk_nsecs, now - mul_u64_u64_shr(tsc, ilk_factor, 32));
	return NOTIFY_OK;
}

static struct notifier_block ilk_clock_block = { .notifier_call = ilk_clock_update };

/* Begins: registering calls back once, before it returns. */
int ilk_clock_open(void)
{
	int err;

	ilk_factor = 0;
	err = ilk_starved() ? -ENOMEM : pvclock_gtod_register_notifier(&ilk_clock_block);
	ilk_clock_on = !err;
	return err;
}

void ilk_clock_close(void)
{
	if (ilk_clock_on)
		pvclock_gtod_unregister_notifier(&ilk_clock_block);
	ilk_clock_on = false;
}

void ilk_clock_describe(struct ilk_info *info)
{
	info->nsecs = (unsigned long)&ilk_nsecs;
	info->nsecs_factor = ilk_factor;
}
