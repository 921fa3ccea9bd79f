// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Exception table entries of the arena. For a module the kernel's fault handler has a sorted table
 * of instructions, each with the address at which execution continues: this module's table is
 * replaced by one that also has the entries of every block.
 *
 * Patches must never execute without a table. So all tables have the same length, padded with
 * entries for an address that is never executed, and a replacement only changes a pointer.
 */
#include <linux/extable.h>
#include <linux/rcupdate.h>

#include "ilk.h"

typedef struct exception_table_entry ilk_entry;

static ilk_entry *ilk_own, *ilk_published;
static unsigned int ilk_own_count;
static bool ilk_faults_changed;

static unsigned long ilk_entry_address(const ilk_entry *entry)
{
	return (unsigned long)&entry->insn + entry->insn;
}

static void ilk_entry_set(ilk_entry *entry, unsigned long insn, unsigned long fixup, int data)
{
	entry->insn = (int)(insn - (unsigned long)&entry->insn);
	entry->fixup = (int)(fixup - (unsigned long)&entry->fixup);
	entry->data = data;
}

static void ilk_entry_copy(ilk_entry *entry, const ilk_entry *from)
{
	ilk_entry_set(entry, ilk_entry_address(from), (unsigned long)&from->fixup + from->fixup,
		      from->data);
}

void ilk_faults_init(void)
{
	ilk_own = THIS_MODULE->extable;
	ilk_own_count = THIS_MODULE->num_exentries;
}

/*
 * Allowed only while no patch may fault: between the waits there is no table. Lookups run with
 * preemption off.
 */
static void ilk_faults_use(ilk_entry *entries, unsigned int count)
{
	WRITE_ONCE(THIS_MODULE->num_exentries, 0);
	synchronize_rcu_expedited();
	WRITE_ONCE(THIS_MODULE->extable, entries);
	synchronize_rcu_expedited();
	WRITE_ONCE(THIS_MODULE->num_exentries, count);
}

void ilk_faults_exit(void)
{
	if (!ilk_published)
		return;
	ilk_faults_use(ilk_own, ilk_own_count);
	ilk_near_free(ilk_published);
	ilk_published = NULL;
}

/* Returns the limit on faults in all blocks: 0 if a lookup in the arena does not find this module. */
u32 ilk_faults_most(void)
{
	return ilk_arena_is_text() && ilk_own_count < ILK_MAX_FAULTS ? ILK_MAX_FAULTS - ilk_own_count : 0;
}

/* Returns the entry of an instruction in text of the kernel or a module; NULL after the module's unload. */
static const ilk_entry *ilk_entry_of(u64 original)
{
	return (const ilk_entry *)ilk_call(ilk_sym.exception_entry, original, 0, 0, 0, 0);
}

static bool ilk_fault_is_valid(const struct ilk_fault *fault, u32 len)
{
	if (fault->offset >= len)
		return false;
	if (fault->original)
		return !fault->fixup && ilk_entry_of(fault->original);
	return fault->fixup < len;
}

/* Builds the entry of a block's fault: a copy of the original's, or one that continues in the block. */
static void ilk_entry_make(ilk_entry *entry, unsigned long block, const struct ilk_fault *fault)
{
	const ilk_entry *like = fault->original ? ilk_entry_of(fault->original) : NULL;

	if (like)
		ilk_entry_set(entry, block + fault->offset,
			      (unsigned long)&like->fixup + like->fixup, like->data);
	else if (fault->original)	/* of an unloaded module: no thread executes it */
		ilk_entry_set(entry, block + fault->offset, block + fault->offset, EX_TYPE_DEFAULT);
	else
		ilk_entry_set(entry, block + fault->offset, block + fault->fixup, EX_TYPE_DEFAULT);
}

/* Takes the faults of a block, which become its own. */
int ilk_faults_read(struct ilk_block *block, const struct ilk_arena_write *request,
		    struct ilk_fault **array)
{
	struct ilk_fault *faults = *array;

	if (request->reserved)
		return -EINVAL;
	if (!request->fault_count)
		return 0;
	if (request->fault_count > ilk_faults_most())
		return -EINVAL;
	for (u32 i = 0; i < request->fault_count; i++)
		if (!ilk_fault_is_valid(&faults[i], request->len) ||
		    (i && faults[i].offset <= faults[i - 1].offset))
			return -EINVAL;
	block->faults = faults;
	*array = NULL;
	block->fault_count = request->fault_count;
	ilk_faults_changed = true;
	return 0;
}

/* Publishes the faults written since the last call to the fault handler. */
int ilk_faults_publish(void)
{
	size_t needed = ilk_own_count, count = 0, own = 0;
	struct ilk_block *block = NULL;
	ilk_entry *entries, *old = ilk_published;
	unsigned long last = ilk_arena + ilk_arena_size;

	if (!ilk_faults_changed)
		return 0;
	while ((block = ilk_next_block(block)))
		needed += block->fault_count;
	if (needed > ILK_MAX_FAULTS)
		return -ENOSPC;
	entries = ILK_TRY(ilk_near_alloc(ILK_MAX_FAULTS * sizeof(*entries)));
	if (!entries)
		return -ENOMEM;
	for (; own < ilk_own_count && ilk_entry_address(&ilk_own[own]) < ilk_arena; own++)
		ilk_entry_copy(&entries[count++], &ilk_own[own]);
	while ((block = ilk_next_block(block)))
		for (u32 i = 0; i < block->fault_count; i++)
			ilk_entry_make(&entries[count++], block->node.start, &block->faults[i]);
	for (; own < ilk_own_count; own++)
		ilk_entry_copy(&entries[count++], &ilk_own[own]);
	if (count)
		last = max(last, ilk_entry_address(&entries[count - 1]) + 1);
	while (count < ILK_MAX_FAULTS)
		ilk_entry_set(&entries[count++], last, last, EX_TYPE_DEFAULT);
	ilk_published = entries;
	ilk_faults_changed = false;
	if (!old) {
		ilk_faults_use(entries, ILK_MAX_FAULTS);
		return 0;
	}
	/* A concurrent reader of the old table may use it until this wait is over. */
	WRITE_ONCE(THIS_MODULE->extable, entries);
	synchronize_rcu_expedited();
	ilk_near_free(old);
	return 0;
}

/*
 * Makes this module's own faults be handled also while faults of the arena are published first: the
 * table is replaced now, before generated code calls what may fault.
 */
int ilk_faults_always(void)
{
	if (ilk_published || !ilk_arena_is_text())
		return 0;
	ilk_faults_changed = true;
	return ilk_faults_publish();
}
