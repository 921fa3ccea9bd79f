// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The module's unwinder in a process, for the native bench: its source, compiled by the kernel's makefiles, and linked at an
 * address of a process. The kernel's tables are mapped as far below their addresses as everything else of the bench.
 */
#define ILK_IN_A_PROCESS
#include "stack.c"

struct ilk_symbols ilk_sym;
bool ilk_unwinds = true;

static struct ilk_stack_table unwinder_table;

/* The kernel writes over its returns what its mitigations need; here they return. */
asm(".globl __x86_return_thunk\n"
    "__x86_return_thunk:\n"
    "	ret\n"
    "	int3\n");

/* The words of unwinder_begin(), in their order. */
struct unwinder_tables {
	char *stext, *etext;
	int *ip, *ip_end;
	struct orc_entry *orc;
	unsigned int *lookup, *lookup_end;
};

void unwinder_begin(const struct unwinder_tables *tables);
int unwinder_row(unsigned long address, s64 *row);
const struct ilk_stack *unwinder_stack(u32 place);

/* Chooses the tables, and forgets all stacks. */
void notrace unwinder_begin(const struct unwinder_tables *tables)
{
	ilk_sym.stext = tables->stext;
	ilk_sym.etext = tables->etext;
	ilk_sym.orc_ip = tables->ip;
	ilk_sym.orc_ip_end = tables->ip_end;
	ilk_sym.orc = tables->orc;
	ilk_sym.orc_lookup = tables->lookup;
	ilk_sym.orc_lookup_end = tables->lookup_end;
	for (u32 place = 0; place < ILK_STACK_SLOTS; place++)
		WRITE_ONCE(unwinder_table.ids[place], 0);
	for (u32 place = 0; place < ILK_STACKS; place++)
		WRITE_ONCE(unwinder_table.stacks[place].count, 0);
	atomic_set(&unwinder_table.used, 0);
	ilk_stack_table = &unwinder_table;
}

/* Reads the row of an address: the register of the frame's end and its offset, those of the saved rbp. Returns whether it is a call's. */
int notrace unwinder_row(unsigned long address, s64 *row)
{
	struct orc_entry orc;

	if (!ilk_orc_find(address, &orc) || ilk_orc_is_end(&orc) || orc.type != ILK_ORC_CALL)
		return 0;
	row[0] = orc.sp_reg;
	row[1] = orc.sp_offset;
	row[2] = orc.bp_reg;
	row[3] = orc.bp_offset;
	return 1;
}

/* Returns the stack of that number, in the order in which they were first seen, or NULL. */
const struct ilk_stack *notrace unwinder_stack(u32 place)
{
	return place < (u32)atomic_read(&unwinder_table.used) ? &unwinder_table.stacks[place] : NULL;
}
