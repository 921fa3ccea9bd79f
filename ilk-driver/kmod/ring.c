// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * All data written by generated code: the ring of each CPU and its words, counters and running
 * timers. Generated code never calls functions of this file; a timer polls the rings for waiting
 * readers.
 *
 * The mode of a ring is determined only by the two words that generated code compares: the limit is
 * out of reach if the oldest samples may be overwritten, and both words have the same value while
 * the ring is off. No code changes, so a switch takes microseconds.
 */
#include <linux/cpu.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/vmalloc.h>
#include <asm/current.h>
#include <asm/tsc.h>

#include "ilk.h"

#ifdef ILK_HAS_PCPU_HOT	/* 6.2 to 6.14 */
#define ILK_CURRENT (&pcpu_hot.current_task)
#define ILK_CPU (&pcpu_hot.cpu_number)
#else
#define ILK_CURRENT (&current_task)
#define ILK_CPU (&cpu_number)
#endif

#define ILK_SLOT_LOG2 5u
#define ILK_SLOTS_LOG2_LEAST 7u	/* a page */
#define ILK_NEAR_COUNTERS 512u	/* number that fits the modules' share of static per-CPU memory */
#define ILK_BANK_COUNTERS 4096u	/* the largest dynamic per-CPU allocation */
#define ILK_TIMERS_LOG2 16u
#define ILK_POLL_PERIOD msecs_to_jiffies(3)

static unsigned int slots_log2 = 16;
module_param(slots_log2, uint, 0444);
MODULE_PARM_DESC(slots_log2, "slots in the ring of a CPU, as a power of two (7 to 20)");

static unsigned int counters_log2 = 16;
module_param(counters_log2, uint, 0444);
MODULE_PARM_DESC(counters_log2, "counters of a CPU, as a power of two (12 to 20)");

static DEFINE_PER_CPU(u64, ilk_head);
static DEFINE_PER_CPU(u64, ilk_limit);
static DEFINE_PER_CPU(u64, ilk_lost_full);	/* includes the hits while off */
static DEFINE_PER_CPU(u64, ilk_lost_off);	/* the part of ilk_lost_full counted while off */
static DEFINE_PER_CPU(u64, ilk_lost_before);	/* ilk_lost_full at the last switch to off */
static DEFINE_PER_CPU(u64, ilk_tail);		/* every sample before this was read */
static DEFINE_PER_CPU(u64, ilk_parked);		/* the head while off */
static DEFINE_PER_CPU(u64[ILK_NEAR_COUNTERS], ilk_near_counters);
static u64 __percpu *ilk_banks[1 + (1 << 20) / ILK_BANK_COUNTERS];
static u32 ilk_bank_count = 1;
static struct ilk_timer ilk_timers[1 << ILK_TIMERS_LOG2] __aligned(64);
static void *ilk_rings;			/* of all CPUs, from the first open on */
static struct page **ilk_ring_pages;

static void ilk_poll_tick(struct timer_list *timer);
static DECLARE_WAIT_QUEUE_HEAD(ilk_readers);
static DEFINE_TIMER(ilk_poll_timer, ilk_poll_tick);

static bool ilk_overwrite;	/* full rings overwrite their oldest samples */
static bool ilk_off;
static u64 ilk_off_word;	/* different each time, so that a stale copy in a register fails its cmpxchg */
static u32 ilk_watermark;

static u64 ilk_slots;
static u32 ilk_stride_log2;
static size_t ilk_rings_size;

static u32 ilk_bank_slots(u32 bank)
{
	return bank ? ILK_BANK_COUNTERS : ILK_NEAR_COUNTERS;
}

/* Bank 0 is static; the others provide the requested number of counters. */
static bool ilk_banks_alloc(void)
{
	u32 wanted = 1 + (1u << counters_log2) / ILK_BANK_COUNTERS;

	ilk_banks[0] = &ilk_near_counters[0];
	for (; ilk_bank_count < wanted; ilk_bank_count++) {
		ilk_banks[ilk_bank_count] =
			ILK_TRY(__alloc_percpu(ILK_BANK_COUNTERS * sizeof(u64), 64));
		if (!ilk_banks[ilk_bank_count])
			return false;
	}
	return true;
}

int ilk_ring_init(void)
{
	if (counters_log2 < 12 || counters_log2 > 20) {
		pr_err("counters_log2=%u is not within 12 to 20\n", counters_log2);
		return -EINVAL;
	}
	if (slots_log2 < ILK_SLOTS_LOG2_LEAST || slots_log2 > 20) {
		pr_err("slots_log2=%u is not within 7 to 20\n", slots_log2);
		return -EINVAL;
	}
	if (nr_cpu_ids > 1u << (30 - slots_log2)) {
		pr_err("slots_log2=%u leaves too few bits of a head for %u CPUs\n", slots_log2, nr_cpu_ids);
		return -EINVAL;
	}
	BUILD_BUG_ON(sizeof(struct ilk_slot) != 1 << ILK_SLOT_LOG2);
	ilk_slots = 1ull << slots_log2;
	ilk_stride_log2 = slots_log2 + ILK_SLOT_LOG2;
	ilk_rings_size = (size_t)nr_cpu_ids << ilk_stride_log2;
	if (ilk_banks_alloc())
		return 0;
	pr_err("no memory for 2^%u counters of each CPU: lower counters_log2\n", counters_log2);
	ilk_ring_exit();
	return -ENOMEM;
}

static void ilk_ring_free(void)
{
	vunmap(ilk_rings);
	ilk_rings = NULL;
	for (size_t i = 0; ilk_ring_pages && i < ilk_rings_size >> PAGE_SHIFT; i++)
		if (ilk_ring_pages[i])
			__free_page(ilk_ring_pages[i]);
	kvfree(ilk_ring_pages);
	ilk_ring_pages = NULL;
}

/*
 * Allocates the rings, each on its CPU's node, for the first owner. They stay for the others: a plan that
 * was made for an earlier owner has their address.
 */
int ilk_ring_alloc(void)
{
	size_t count = ilk_rings_size >> PAGE_SHIFT, of_cpu = ilk_stride_log2 - PAGE_SHIFT;

	lockdep_assert_held(&ilk_mutex);
	BUILD_BUG_ON(ILK_SLOTS_LOG2_LEAST + ILK_SLOT_LOG2 < PAGE_SHIFT);
	if (ilk_rings)
		return 0;
	ilk_ring_pages = ILK_TRY(kvcalloc(count, sizeof(*ilk_ring_pages), GFP_KERNEL));
	for (size_t i = 0; ilk_ring_pages && i < count; i++) {
		int cpu = i >> of_cpu, node = cpu_possible(cpu) ? cpu_to_node(cpu) : NUMA_NO_NODE;

		ilk_ring_pages[i] = alloc_pages_node(node, GFP_KERNEL | __GFP_ZERO | __GFP_RETRY_MAYFAIL, 0);
		if (!ilk_ring_pages[i])
			goto failed;
		cond_resched();
	}
	if (ilk_ring_pages)
		ilk_rings = ILK_TRY(vmap(ilk_ring_pages, count, VM_MAP, PAGE_KERNEL));
	if (ilk_rings)
		return 0;
failed:
	pr_err("no memory for rings of %zu bytes in total: lower slots_log2\n", ilk_rings_size);
	ilk_ring_free();
	return -ENOMEM;
}

void ilk_ring_exit(void)
{
#ifdef ILK_HAS_TIMER_DELETE_SYNC
	timer_delete_sync(&ilk_poll_timer);
#else
	del_timer_sync(&ilk_poll_timer);
#endif
	ilk_ring_free();
	for (u32 bank = 1; bank < ilk_bank_count; bank++)
		free_percpu(ilk_banks[bank]);
}

/* Zeroes counters, losses and timers. No splice is installed. */
void ilk_ring_zero_tables(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		per_cpu(ilk_lost_full, cpu) = 0;
		per_cpu(ilk_lost_off, cpu) = 0;
		per_cpu(ilk_lost_before, cpu) = 0;
		for (u32 bank = 0; bank < ilk_bank_count; bank++)
			memset(per_cpu_ptr(ilk_banks[bank], cpu), 0,
			       ilk_bank_slots(bank) * sizeof(u64));
	}
	memset(ilk_timers, 0, sizeof(ilk_timers));
}

/* Returns the shift of the serial number in a head, above the CPU. */
static unsigned int ilk_serial_shift(void)
{
	return 32 - slots_log2;
}

static u64 ilk_head_at(int cpu, u64 serial)
{
	return serial << ilk_serial_shift() | cpu;
}

/* Resets everything for a new owner. */
void ilk_ring_open(void)
{
	int cpu;

	ilk_ring_zero_tables();
	ilk_overwrite = false;
	ilk_off = false;
	ilk_watermark = 1;
	for_each_possible_cpu(cpu) {
		memset(ilk_rings + ((size_t)cpu << ilk_stride_log2), 0,
		       ilk_slots * sizeof(struct ilk_slot));
		per_cpu(ilk_tail, cpu) = ilk_slots;
		per_cpu(ilk_head, cpu) = ilk_head_at(cpu, ilk_slots);
		per_cpu(ilk_limit, cpu) = ilk_head_at(cpu, 2 * ilk_slots);
		cond_resched();
	}
}

void ilk_ring_describe(struct ilk_info *info)
{
	info->cpus = nr_cpu_ids;
	info->slots_log2 = slots_log2;
	info->stride_log2 = ilk_stride_log2;
	info->tsc_khz = tsc_khz;
	info->ring_base = (unsigned long)ilk_rings;
	info->gs_head = (unsigned long)&ilk_head;
	info->gs_limit = (unsigned long)&ilk_limit;
	info->gs_lost_full = (unsigned long)&ilk_lost_full;
	info->gs_current = (unsigned long)ILK_CURRENT;
	info->gs_cpu = (unsigned long)ILK_CPU;
	info->task_pid = offsetof(struct task_struct, pid);
	info->task_tgid = offsetof(struct task_struct, tgid);
	info->task_comm = offsetof(struct task_struct, comm);
	info->counter_banks = ilk_bank_count;
	info->timers = (unsigned long)ilk_timers;
	info->timers_log2 = ILK_TIMERS_LOG2;
}

/* Maps all rings, read-only, for this process only. */
int ilk_ring_mmap(struct vm_area_struct *vma)
{
	if (vma->vm_pgoff || vma->vm_end - vma->vm_start != ilk_rings_size)
		return -EINVAL;
	if (vma->vm_flags & (VM_WRITE | VM_EXEC))
		return -EPERM;
#ifdef ILK_HAS_VM_FLAGS_MOD
	vm_flags_mod(vma, VM_DONTCOPY, VM_MAYWRITE | VM_MAYEXEC);
#else
	vma->vm_flags = (vma->vm_flags | VM_DONTCOPY) & ~(VM_MAYWRITE | VM_MAYEXEC);
#endif
	return vm_map_pages(vma, ilk_ring_pages, ilk_rings_size >> PAGE_SHIFT);
}

/* Returns a value that is no CPU's number: a patch with a word of it in a register reserves no slot. */
static u64 ilk_no_cpu(void)
{
	return (1ull << ilk_serial_shift()) - 1;
}

static u64 ilk_next(int cpu)
{
	u64 head = READ_ONCE(per_cpu(ilk_head, cpu));

	if ((head & ilk_no_cpu()) == ilk_no_cpu())
		head = READ_ONCE(per_cpu(ilk_parked, cpu));
	return head >> ilk_serial_shift();
}

static u64 ilk_limit_of(int cpu)
{
	if (ilk_overwrite)
		return ilk_no_cpu() - 1;
	return ilk_head_at(cpu, per_cpu(ilk_tail, cpu) + ilk_slots);
}

/* Returns whether a ring has reached the watermark. */
static bool ilk_unread(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		if (ilk_next(cpu) - READ_ONCE(per_cpu(ilk_tail, cpu)) >= READ_ONCE(ilk_watermark))
			return true;
	return false;
}

/*
 * Executes on `cpu` with interrupts off, or anywhere if `cpu` is offline. A patch interrupted with the
 * head in a register finds a different head when it reserves, and retries. Only an NMI can execute
 * between the two writes: it treats slots as free, which they are unless the ring is full.
 */
static void ilk_park(void *argument)
{
	int cpu = (long)argument;

	WRITE_ONCE(per_cpu(ilk_limit, cpu), ilk_off_word);
	WRITE_ONCE(per_cpu(ilk_parked, cpu), xchg(&per_cpu(ilk_head, cpu), ilk_off_word));
	per_cpu(ilk_lost_before, cpu) = per_cpu(ilk_lost_full, cpu);
}

static void ilk_unpark(void *argument)
{
	int cpu = (long)argument;

	per_cpu(ilk_lost_off, cpu) += per_cpu(ilk_lost_full, cpu) - per_cpu(ilk_lost_before, cpu);
	xchg(&per_cpu(ilk_head, cpu), per_cpu(ilk_parked, cpu));
	WRITE_ONCE(per_cpu(ilk_limit, cpu), ilk_limit_of(cpu));
}

static void ilk_switch(bool off)
{
	int cpu;

	if (off == ilk_off)
		return;
	ilk_off_word = (ilk_off_word + (1ull << ilk_serial_shift())) | ilk_no_cpu();
	cpus_read_lock();
	for_each_possible_cpu(cpu) {
		smp_call_func_t turn = off ? ilk_park : ilk_unpark;

		if (smp_call_function_single(cpu, turn, (void *)(long)cpu, true))
			turn((void *)(long)cpu);
	}
	cpus_read_unlock();
	ilk_off = off;
}

/* A change of the mode discards unread samples; it requires that no splice is installed, so no head moves. */
int ilk_ring_rings(const struct ilk_rings *request)
{
	bool overwrite = request->flags & ILK_RINGS_OVERWRITE;
	int cpu;

	if (request->reserved || request->flags & ~(ILK_RINGS_OVERWRITE | ILK_RINGS_OFF) ||
	    !request->watermark || request->watermark > ilk_slots)
		return -EINVAL;
	if (overwrite != ilk_overwrite) {
		if (ilk_site_find(0, ULONG_MAX))
			return -EBUSY;
		ilk_overwrite = overwrite;
		for_each_possible_cpu(cpu) {
			WRITE_ONCE(per_cpu(ilk_tail, cpu), ilk_next(cpu));
			if (!ilk_off)
				WRITE_ONCE(per_cpu(ilk_limit, cpu), ilk_limit_of(cpu));
		}
	}
	WRITE_ONCE(ilk_watermark, request->watermark);
	ilk_switch(request->flags & ILK_RINGS_OFF);
	return 0;
}

static void ilk_poll_tick(struct timer_list *timer)
{
	if (ilk_unread())
		wake_up_interruptible(&ilk_readers);
	else if (waitqueue_active(&ilk_readers))
		mod_timer(timer, jiffies + ILK_POLL_PERIOD);
}

__poll_t ilk_ring_poll(struct file *file, poll_table *wait)
{
	poll_wait(file, &ilk_readers, wait);
	if (ilk_unread())
		return EPOLLIN | EPOLLRDNORM;
	if (!timer_pending(&ilk_poll_timer))
		mod_timer(&ilk_poll_timer, jiffies + ILK_POLL_PERIOD);
	return 0;
}

int ilk_ring_consume(const struct ilk_consume *request)
{
	unsigned int cpu = request->cpu;

	if (request->reserved || cpu >= nr_cpu_ids || !cpu_possible(cpu) ||
	    request->tail < per_cpu(ilk_tail, cpu) || request->tail > ilk_next(cpu))
		return -EINVAL;
	WRITE_ONCE(per_cpu(ilk_tail, cpu), request->tail);
	/* Reads of the samples complete before their slots are freed. */
	smp_mb();
	if (!ilk_off)
		WRITE_ONCE(per_cpu(ilk_limit, cpu), ilk_limit_of(cpu));
	return 0;
}

int ilk_ring_bank(struct ilk_bank *request)
{
	if (request->bank >= ilk_bank_count)
		return -EINVAL;
	request->slots = ilk_bank_slots(request->bank);
	request->gs = (unsigned long)ilk_banks[request->bank];
	request->shared = (unsigned long)per_cpu_ptr(ilk_banks[request->bank], 0);
	return 0;
}

int ilk_ring_counters_check(const struct ilk_counters *request)
{
	u32 bank = request->bank;

	if (request->reserved || bank >= ilk_bank_count || !request->count ||
	    request->count > ilk_bank_slots(bank) ||
	    request->first > ilk_bank_slots(bank) - request->count)
		return -EINVAL;
	return 0;
}

/* Reads counters into u64[cpus][count]; zeroes are left for CPUs that are not possible. */
void ilk_ring_counters(const struct ilk_counters *request, u64 *out)
{
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		const u64 *from = per_cpu_ptr(ilk_banks[request->bank], cpu);

		for (u32 i = 0; i < request->count; i++)
			out[(size_t)cpu * request->count + i] = READ_ONCE(from[request->first + i]);
	}
}

/* Reads the state of each possible CPU; zeroes are left for the others. */
void ilk_ring_losses(struct ilk_cpu_state *out)
{
	unsigned int cpu;

	lockdep_assert_held(&ilk_mutex);
	for_each_possible_cpu(cpu) {
		u64 lost = READ_ONCE(per_cpu(ilk_lost_full, cpu));

		out[cpu].head = ilk_next(cpu);
		out[cpu].lost_off = per_cpu(ilk_lost_off, cpu);
		if (ilk_off)
			out[cpu].lost_off += lost - per_cpu(ilk_lost_before, cpu);
		out[cpu].lost_full = lost - out[cpu].lost_off;
	}
}
