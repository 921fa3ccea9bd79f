// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Stacks of the kernel, for generated code: ilk_stack_entry (stack_entry.S) calls ilk_stack_read() at a
 * hook, which may be anywhere that a splice may be: in interrupts, with locks held, in the scheduler. So
 * this unwinder calls no function of the kernel. It reads tables that do not change while it runs, and
 * the stack by loads that may fault; interrupts are off meanwhile, for about a microsecond.
 *
 * A stack is named by a hash of its addresses. The first one of each hash has its addresses kept, until
 * the table is full; the number is right also without them.
 */
#include <linux/rculist.h>
#include <linux/smp.h>
#include <linux/sort.h>
#include <linux/vmalloc.h>
#include <asm/asm.h>
#include <asm/ptrace.h>
#include <asm/vsyscall.h>

#include "ilk.h"

/* stack_entry.S */
void ilk_stack_entry(void);
u64 ilk_stack_read(unsigned long original, u64 extent, unsigned long sp, unsigned long bp);

#define ILK_STACK_SLOTS (2 * ILK_STACKS)	/* at most half of them are in use */
#define ILK_STACK_TRIES 32u

struct ilk_stack_table {
	u64 ids[ILK_STACK_SLOTS];
	atomic_t used;		/* entries of `stacks` that are taken */
	atomic64_t lost;
	struct ilk_stack stacks[ILK_STACKS];
};
static struct ilk_stack_table *ilk_stack_table;

/*
 * Takes the place of a new number, with interrupts off. Returns NULL if it has one already, or there is
 * none.
 */
struct ilk_stack *notrace ilk_stack_place(u64 id)
{
	struct ilk_stack_table *table = READ_ONCE(ilk_stack_table);

	if (!table)
		return NULL;
	for (u32 try = 0; try < ILK_STACK_TRIES; try++) {
		u64 *slot = &table->ids[(id + try) % ILK_STACK_SLOTS];
		u64 there = READ_ONCE(*slot);
		u32 place;

		if (there == id)
			return NULL;
		if (there)
			continue;
		if (atomic_read(&table->used) >= ILK_STACKS)
			break;
		there = cmpxchg(slot, 0, id);
		if (there == id)
			return NULL;
		if (there)
			continue;
		/* As many as there are CPUs may pass the check before. */
		place = atomic_fetch_inc(&table->used);
		if (place < ILK_STACKS)
			return &table->stacks[place];
		break;
	}
	atomic64_inc(&table->lost);
	return NULL;
}

NOKPROBE_SYMBOL(ilk_stack_place);

#ifdef CONFIG_UNWINDER_ORC
#include <asm/orc_lookup.h>
#include <asm/orc_types.h>

/* Text of a module, with its table for the unwinder. */
struct ilk_text {
	unsigned long start, end;
	const struct module *module;
	const int *ip;
	const struct orc_entry *orc;
	unsigned int count;	/* 0 once the module unloads */
};

struct ilk_texts {
	size_t count;
	struct ilk_text texts[];	/* by address */
};
static struct ilk_texts *ilk_texts;

/* A frame: the next instruction to execute, and the registers that rules refer to. */
struct ilk_frame {
	unsigned long ip, sp, bp;
	bool exact;	/* ip was interrupted; else it is after a call */
};

/* Returns whether an address is in the half of the address space that this code executes in. */
static __always_inline bool ilk_is_own_half(unsigned long address)
{
#ifdef ILK_IN_A_PROCESS		/* the native bench (rivals/unwinder) */
	return (long)address >= 0;
#else
	return (long)address < 0;
#endif
}

/* Reads a word of the kernel's memory. Returns whether it is there. */
static __always_inline bool ilk_peek(unsigned long address, unsigned long *word)
{
	unsigned long value = 0, read = 0;

	/* A fault in the lower half reaches no fixup under SMAP, nor does one in the page of vsyscalls. */
	if (!ilk_is_own_half(address) || address % sizeof(long) || address >= VSYSCALL_ADDR - sizeof(long))
		return false;
	asm volatile("1:	movq (%[address]), %[value]\n"
		     "	movl $1, %k[read]\n"
		     "2:\n"
		     _ASM_EXTABLE(1b, 2b)
		     : [value] "+r" (value), [read] "+r" (read)
		     : [address] "r" (address));
	*word = value;
	return read;
}

/* Returns the last row at or below an address, from `first` up to `last`. */
static __always_inline struct orc_entry ilk_orc_row(const int *ip, const struct orc_entry *orc,
						    size_t first, size_t last, unsigned long address)
{
	while (first < last) {
		size_t middle = first + (last - first + 1) / 2;

		if ((unsigned long)&ip[middle] + ip[middle] <= address)
			first = middle;
		else
			last = middle - 1;
	}
	return orc[first];
}

/* Finds the row of an address of the kernel's own text, in the block of its lookup table if there is one. */
static __always_inline struct orc_entry ilk_orc_core(unsigned long address)
{
	size_t first = 0, last = ilk_sym.orc_ip_end - ilk_sym.orc_ip - 1;
	unsigned long block = (address - (unsigned long)ilk_sym.stext) / LOOKUP_BLOCK_SIZE;

	/* The last block has no end in the table. */
	if (ilk_sym.orc_lookup && ilk_sym.orc_lookup + block + 1 < ilk_sym.orc_lookup_end) {
		first = ilk_sym.orc_lookup[block];
		last = min_t(size_t, last, ilk_sym.orc_lookup[block + 1]);
	}
	return ilk_orc_row(ilk_sym.orc_ip, ilk_sym.orc, first, last, address);
}

static __always_inline bool ilk_orc_module(unsigned long address, struct orc_entry *orc)
{
	const struct ilk_texts *all = READ_ONCE(ilk_texts);
	size_t first = 0, end = all ? all->count : 0;
	const struct ilk_text *text;
	unsigned int count;

	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (all->texts[middle].end <= address)
			first = middle + 1;
		else
			end = middle;
	}
	if (!all || first == all->count || address < all->texts[first].start)
		return false;
	text = &all->texts[first];
	count = READ_ONCE(text->count);
	if (!count)
		return false;
	*orc = ilk_orc_row(text->ip, text->orc, 0, count - 1, address);
	return true;
}

/* This module, whose table has the rows of patches, and is replaced while it has a count of 0. */
static __always_inline bool ilk_orc_own(unsigned long address, struct orc_entry *orc)
{
	const struct mod_arch_specific *own = &THIS_MODULE->arch;
	unsigned int count = READ_ONCE(own->num_orcs);

	if (!count || !within_module_core(address, THIS_MODULE))
		return false;
	*orc = ilk_orc_row(READ_ONCE(own->orc_unwind_ip), READ_ONCE(own->orc_unwind), 0, count - 1,
			   address);
	return true;
}

static __always_inline bool ilk_orc_find(unsigned long address, struct orc_entry *orc)
{
	size_t last;

	if (address >= (unsigned long)ilk_sym.stext && address < (unsigned long)ilk_sym.etext) {
		*orc = ilk_orc_core(address);
		return true;
	}
	if (ilk_orc_own(address, orc) || ilk_orc_module(address, orc))
		return true;
	/* Code of the boot, which idle threads are called from: it has rows and no place in the lookup table. */
	last = ilk_sym.orc_ip_end - ilk_sym.orc_ip - 1;
	if (address < (unsigned long)ilk_sym.etext ||
	    address >= (unsigned long)&ilk_sym.orc_ip[last] + ilk_sym.orc_ip[last])
		return false;
	*orc = ilk_orc_row(ilk_sym.orc_ip, ilk_sym.orc, 0, last, address);
	return true;
}

#ifdef ORC_TYPE_END_OF_STACK	/* from 6.4 on */
#define ILK_ORC_CALL ORC_TYPE_CALL
#define ILK_ORC_REGS ORC_TYPE_REGS
#define ILK_ORC_IRET ORC_TYPE_REGS_PARTIAL
#define ilk_orc_is_end(row) ((row)->type == ORC_TYPE_END_OF_STACK)
#else
#define ILK_ORC_CALL UNWIND_HINT_TYPE_CALL
#define ILK_ORC_REGS UNWIND_HINT_TYPE_REGS
#define ILK_ORC_IRET UNWIND_HINT_TYPE_REGS_PARTIAL
#define ilk_orc_is_end(row) ((row)->end)
#endif

/* Computes the end of a frame, which its saved words are relative to. */
static __always_inline bool ilk_frame_end(const struct ilk_frame *frame, const struct orc_entry *row,
					  unsigned long *end)
{
	switch (row->sp_reg) {
	case ORC_REG_SP:
		*end = frame->sp + row->sp_offset;
		return true;
	case ORC_REG_BP:
		*end = frame->bp + row->sp_offset;
		return true;
	case ORC_REG_SP_INDIRECT:
		if (!ilk_peek(frame->sp, end))
			return false;
		*end += row->sp_offset;
		return true;
	case ORC_REG_BP_INDIRECT:
		return ilk_peek(frame->bp + row->sp_offset, end);
	default:	/* registers of functions that realign their stack, in their first instructions */
		return false;
	}
}

/* Steps to the caller, or to the interrupted code. Returns false at the end, or where it is not known. */
static __always_inline bool ilk_frame_step(struct ilk_frame *frame)
{
	unsigned long end, saved = frame->bp, cs;
	struct orc_entry row;

	if (!ilk_orc_find(frame->exact ? frame->ip : frame->ip - 1, &row) || ilk_orc_is_end(&row) ||
	    !ilk_frame_end(frame, &row, &end))
		return false;
	switch (row.bp_reg) {
	case ORC_REG_PREV_SP:
		if (!ilk_peek(end + row.bp_offset, &saved))
			return false;
		break;
	case ORC_REG_BP:
		if (!ilk_peek(frame->bp + row.bp_offset, &saved))
			return false;
		break;
	case ORC_REG_UNDEFINED:
		if (row.type == ILK_ORC_REGS && !ilk_peek(end + offsetof(struct pt_regs, bp), &saved))
			return false;
		break;
	default:
		return false;
	}
	switch (row.type) {
	case ILK_ORC_CALL:
		if (!ilk_peek(end - sizeof(long), &frame->ip))
			return false;
		frame->sp = end;
		frame->exact = false;
		break;
	case ILK_ORC_IRET:	/* the words that the processor has pushed */
		end -= offsetof(struct pt_regs, ip);
		fallthrough;
	case ILK_ORC_REGS:
		if (!ilk_peek(end + offsetof(struct pt_regs, cs), &cs) || cs & 3 ||
		    !ilk_peek(end + offsetof(struct pt_regs, ip), &frame->ip) ||
		    !ilk_peek(end + offsetof(struct pt_regs, sp), &frame->sp))
			return false;
		frame->exact = true;
		break;
	default:
		return false;
	}
	frame->bp = saved;
	return true;
}

/* Returns the number of a stack of at most `depth` frames; keeps its addresses if there is room for them. */
static __always_inline u64 ilk_stack_walk(struct ilk_frame frame, u32 depth, struct ilk_stack *into)
{
	u64 hash = 0;
	u32 count = 0;

	do {
		if (into)
			into->frames[count] = frame.ip;
		hash = ilk_stack_hash(hash, frame.ip);
		count++;
	} while (count < depth && ilk_frame_step(&frame));
	hash = hash ? hash : 1;
	if (into) {
		into->id = hash;
		smp_store_release(&into->count, count);
	}
	return hash;
}

/*
 * Called by ilk_stack_entry, with interrupts off. `extent` is the number of bytes that the patch has pushed above the frame
 * of the original instruction, and the most frames in the bits from 16 on.
 */
u64 notrace ilk_stack_read(unsigned long original, u64 extent, unsigned long sp, unsigned long bp)
{
	struct ilk_frame frame = {
		.ip = original,
		.sp = sp + (extent & 0xffff),
		.bp = bp,
		.exact = true,
	};
	u32 depth = clamp_t(u32, extent >> 16, 1, ILK_STACK_DEPTH);
	struct ilk_stack *into;
	u64 id;

	id = ilk_stack_walk(frame, depth, NULL);
	into = ilk_stack_place(id);
	if (into)
		ilk_stack_walk(frame, depth, into);
	return id;
}

NOKPROBE_SYMBOL(ilk_stack_read);

static int ilk_text_order(const void *one, const void *other)
{
	const struct ilk_text *a = one, *b = other;

	return a->start < b->start ? -1 : a->start > b->start;
}

static bool ilk_has_text(const struct module *module)
{
	return module != THIS_MODULE && module->state != MODULE_STATE_UNFORMED &&
	       module->state != MODULE_STATE_GOING && module->arch.num_orcs;
}

static void ilk_nothing(void *unused)
{
}

/* Waits until no CPU is in ilk_stack_read() with what it read before: interrupts are off there. */
static void ilk_wait_for_walks(void)
{
	on_each_cpu(ilk_nothing, NULL, 1);
}

static void ilk_texts_free(void)
{
	struct ilk_texts *old = ilk_texts;

	WRITE_ONCE(ilk_texts, NULL);
	ilk_wait_for_walks();
	kvfree(old);
}

/* Reads which modules there are. Without the kernel's list stacks end in modules. */
static int ilk_texts_read(void)
{
	struct ilk_texts *all, *old = ilk_texts;
	const struct module *module;
	size_t room = 8;

	if (!ilk_sym.modules)
		return 0;
	rcu_read_lock();
	list_for_each_entry_rcu(module, ilk_sym.modules, list)
		room++;
	rcu_read_unlock();
	all = ILK_TRY(kvzalloc(struct_size(all, texts, room), GFP_KERNEL));
	if (!all)
		return -ENOMEM;
	rcu_read_lock();
	list_for_each_entry_rcu(module, ilk_sym.modules, list) {
		struct ilk_text *text = &all->texts[all->count];

		if (!ilk_has_text(module) || all->count == room)
			continue;
#ifdef ILK_HAS_MODULE_MEMORY	/* from 6.4 on */
		text->start = (unsigned long)module->mem[MOD_TEXT].base;
		text->end = text->start + module->mem[MOD_TEXT].size;
#else
		text->start = (unsigned long)module->core_layout.base;
		text->end = text->start + module->core_layout.text_size;
#endif
		text->module = module;
		text->ip = module->arch.orc_unwind_ip;
		text->orc = module->arch.orc_unwind;
		text->count = module->arch.num_orcs;
		all->count++;
	}
	rcu_read_unlock();
	sort(all->texts, all->count, sizeof(*all->texts), ilk_text_order, NULL);
	smp_store_release(&ilk_texts, all);
	ilk_wait_for_walks();
	kvfree(old);
	return 0;
}

/* A module was loaded, or is about to be unloaded. */
void ilk_stacks_module(const struct module *module, bool leaves)
{
	lockdep_assert_held(&ilk_mutex);
	if (!ilk_texts)
		return;
	if (!leaves) {
		if (ilk_texts_read())
			pr_warn("no memory for the table of %s: stacks end there\n", module->name);
		return;
	}
	for (size_t i = 0; i < ilk_texts->count; i++)
		if (ilk_texts->texts[i].module == module)
			WRITE_ONCE(ilk_texts->texts[i].count, 0);
	ilk_wait_for_walks();
}

u64 ilk_stacks_address(void)
{
	return ilk_unwinds ? (unsigned long)ilk_stack_entry : 0;
}

#else

u64 ilk_stack_read(unsigned long original, u64 extent, unsigned long sp, unsigned long bp)
{
	return 0;
}

static void ilk_texts_free(void)
{
}

static int ilk_texts_read(void)
{
	return 0;
}

void ilk_stacks_module(const struct module *module, bool leaves)
{
}

u64 ilk_stacks_address(void)
{
	return 0;
}

#endif

/* Frees the table. No splice is installed. */
void ilk_stacks_forget(void)
{
	struct ilk_stack_table *old = ilk_stack_table;

	if (!old)
		return;
	WRITE_ONCE(ilk_stack_table, NULL);
	ilk_texts_free();
	vfree(old);
}

static int ilk_stacks_begin(void)
{
	struct ilk_stack_table *table;
	int err;

	if (!ilk_stacks_address())
		return -ENXIO;
	if (ilk_site_find(0, ULONG_MAX))
		return -EBUSY;
	ilk_stacks_forget();
	table = ILK_TRY(vzalloc(sizeof(*table)));
	if (!table)
		return -ENOMEM;
	err = ilk_texts_read();
	if (!err)
		err = ilk_faults_always();
	if (err) {
		ilk_texts_free();
		vfree(table);
		return err;
	}
	smp_store_release(&ilk_stack_table, table);
	return 0;
}

int ilk_stacks_check(const struct ilk_stacks *request)
{
	return request->reserved || request->begin > 1 || request->lost ||
	       request->count > ILK_STACKS || (request->begin && request->count) ? -EINVAL : 0;
}

/* Begins, or reads the stacks from number `first` on into `out`. */
int ilk_stacks(struct ilk_stacks *request, struct ilk_stack *out)
{
	struct ilk_stack_table *table = ilk_stack_table;
	u32 read = 0;

	lockdep_assert_held(&ilk_mutex);
	if (request->begin)
		return ilk_stacks_begin();
	if (!table)
		return -ENXIO;
	for (; read < request->count && request->first < ILK_STACKS - read; read++) {
		const struct ilk_stack *stack = &table->stacks[request->first + read];

		/*
		 * An entry that is taken is written at once, with interrupts off, so that all stacks of samples
		 * that are in the rings are read.
		 */
		while (!smp_load_acquire(&stack->count) &&
		       request->first + read < (u32)atomic_read(&table->used))
			cpu_relax();
		if (!smp_load_acquire(&stack->count))
			break;
		out[read] = *stack;
	}
	request->count = read;
	request->lost = atomic64_read(&table->lost);
	return 0;
}
