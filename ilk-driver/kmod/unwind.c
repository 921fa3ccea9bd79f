// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Unwind rows of the arena. For a module the kernel's unwinder has a sorted table (ORC) of
 * addresses, each with the rule to find the caller's frame up to the next address: this module's
 * table is replaced by one that also has the rows of every block. A row of a block is the kernel's
 * own row of the represented instruction, adjusted by the pushed bytes.
 */
#include <linux/rcupdate.h>
#include <linux/vmalloc.h>

#include "ilk.h"

bool ilk_unwinds;

#ifdef CONFIG_UNWINDER_ORC
#include <asm/orc_types.h>

struct ilk_unwind {
	u32 offset;	/* from the start of the block */
	struct orc_entry orc;
};

/* A table for the unwinder. Addresses are relative to their own location. */
struct ilk_table {
	int *ip;
	struct orc_entry *orc;
	unsigned int count;
};

static struct ilk_table ilk_own, ilk_published;
static bool ilk_rows_changed;

static unsigned long ilk_orc_address(const int *ip)
{
	return (unsigned long)ip + *ip;
}

static void ilk_table_add(struct ilk_table *table, unsigned long address, struct orc_entry orc)
{
	table->ip[table->count] = (int)(address - (unsigned long)&table->ip[table->count]);
	table->orc[table->count++] = orc;
}

static void ilk_table_free(struct ilk_table *table)
{
	if (table->ip)
		ilk_near_free(table->ip);
	vfree(table->orc);
	*table = (struct ilk_table){};
}

/*
 * Unwinders run with preemption off, so after each wait none uses the old words. Between the waits
 * they find no row, and fall back to guesses for that millisecond.
 */
static void ilk_table_use(const struct ilk_table *table)
{
	struct mod_arch_specific *arch = &THIS_MODULE->arch;

	WRITE_ONCE(arch->num_orcs, 0);
	synchronize_rcu_expedited();
	WRITE_ONCE(arch->orc_unwind_ip, table->ip);
	WRITE_ONCE(arch->orc_unwind, table->orc);
	synchronize_rcu_expedited();
	WRITE_ONCE(arch->num_orcs, table->count);
}

void ilk_unwind_init(void)
{
	ilk_own.ip = THIS_MODULE->arch.orc_unwind_ip;
	ilk_own.orc = THIS_MODULE->arch.orc_unwind;
	ilk_own.count = THIS_MODULE->arch.num_orcs;
	ilk_unwinds = ilk_own.count && ilk_sym.orc && ilk_sym.orc_ip < ilk_sym.orc_ip_end;
}

void ilk_unwind_exit(void)
{
	if (!ilk_published.ip)
		return;
	ilk_table_use(&ilk_own);
	ilk_table_free(&ilk_published);
}

/* Returns the row of an address in a sorted table: the last one at or below it. */
static struct orc_entry ilk_orc_in(const int *ip, const struct orc_entry *orc, size_t count,
				   unsigned long address)
{
	const int *first = ip, *last = ip + count - 1;

	while (first < last) {
		const int *middle = first + (last - first + 1) / 2;

		if (ilk_orc_address(middle) <= address)
			first = middle;
		else
			last = middle - 1;
	}
	return orc[first - ip];
}

/* Determines the row of an address. Returns whether it is text of the kernel or a module. */
static bool ilk_orc_of(unsigned long address, struct orc_entry *orc)
{
	const struct module *module;

	if (ilk_is_core(address)) {
		*orc = ilk_orc_in(ilk_sym.orc_ip, ilk_sym.orc, ilk_sym.orc_ip_end - ilk_sym.orc_ip,
				  address);
		return true;
	}
	module = ilk_module_of(address, address);
	*orc = (struct orc_entry){};
	if (module && module->arch.num_orcs)
		*orc = ilk_orc_in(module->arch.orc_unwind_ip, module->arch.orc_unwind,
				  module->arch.num_orcs, address);
	return module;
}

/* Adjusts a row for bytes pushed. Rules relative to rbp are unaffected. */
static struct orc_entry ilk_orc_below(struct orc_entry orc, u32 pushed)
{
	int offset = orc.sp_offset + (int)pushed;

	if (!pushed || orc.sp_reg == ORC_REG_BP || orc.sp_reg == ORC_REG_BP_INDIRECT ||
	    orc.sp_reg == ORC_REG_UNDEFINED)
		return orc;
		/* A patch may use the other registers: no row is better than a wrong one. */
	if (orc.sp_reg != ORC_REG_SP || offset != (s16)offset)
		return (struct orc_entry){};
	orc.sp_offset = (s16)offset;
	return orc;
}

/* Takes the rows of a block; the caller frees them with the block, also after an error. */
int ilk_unwind_read(struct ilk_block *block, const struct ilk_arena_write *request,
		    const struct ilk_row *rows)
{
	if (!request->row_count) {
		ilk_rows_changed = true;
		return 0;
	}
	if (!ilk_unwinds)
		return -EINVAL;
	block->rows = ILK_TRY(kvmalloc_array(request->row_count, sizeof(*block->rows), GFP_KERNEL));
	if (!block->rows)
		return -ENOMEM;
	for (u32 i = 0; i < request->row_count; i++) {
		const struct ilk_row *row = &rows[i];
		struct orc_entry orc;

		if (row->offset >= request->len || (i && row->offset <= rows[i - 1].offset) ||
		    row->pushed >= ILK_MAX_PUSHED || row->pushed % 8 ||
		    !ilk_orc_of(row->original, &orc))
			return -EINVAL;
		block->rows[i].offset = row->offset;
		block->rows[i].orc = ilk_orc_below(orc, row->pushed);
	}
	block->row_count = request->row_count;
	ilk_rows_changed = true;
	return 0;
}

/* Adds the rows of every block, without repetitions; there are no rows between blocks. */
static void ilk_table_add_arena(struct ilk_table *table)
{
	const struct orc_entry unknown = {};
	struct ilk_block *block = NULL;

	ilk_table_add(table, ilk_arena, unknown);
	while ((block = ilk_next_block(block))) {
		for (u32 i = 0; i < block->row_count; i++) {
			const struct ilk_unwind *row = &block->rows[i];

			if (memcmp(&row->orc, &table->orc[table->count - 1], sizeof(row->orc)))
				ilk_table_add(table, block->node.start + row->offset, row->orc);
		}
		ilk_table_add(table, block->node.last + 1, unknown);
	}
}

/* Publishes the rows written since the last call to the unwinder. */
int ilk_unwind_publish(void)
{
	/* A row before the first block, and one after each. */
	size_t capacity = ilk_own.count + 1, i = 0;
	struct ilk_table table = {}, old = ilk_published;
	struct ilk_block *block = NULL;

	if (!ilk_unwinds || !ilk_rows_changed)
		return 0;
	while ((block = ilk_next_block(block)))
		capacity += block->row_count + 1;
	table.ip = ILK_TRY(ilk_near_alloc(capacity * sizeof(*table.ip)));
	table.orc = ILK_TRY(vmalloc(capacity * sizeof(*table.orc)));
	if (!table.ip || !table.orc) {
		ilk_table_free(&table);
		return -ENOMEM;
	}
	for (; i < ilk_own.count && ilk_orc_address(&ilk_own.ip[i]) < ilk_arena; i++)
		ilk_table_add(&table, ilk_orc_address(&ilk_own.ip[i]), ilk_own.orc[i]);
	ilk_table_add_arena(&table);
	for (; i < ilk_own.count; i++)
		ilk_table_add(&table, ilk_orc_address(&ilk_own.ip[i]), ilk_own.orc[i]);
	ilk_table_use(&table);
	ilk_published = table;
	ilk_table_free(&old);
	ilk_rows_changed = false;
	return 0;
}

#else

void ilk_unwind_init(void)
{
}

void ilk_unwind_exit(void)
{
}

int ilk_unwind_read(struct ilk_block *block, const struct ilk_arena_write *request,
		    const struct ilk_row *rows)
{
	return request->row_count ? -EINVAL : 0;
}

int ilk_unwind_publish(void)
{
	return 0;
}

#endif
