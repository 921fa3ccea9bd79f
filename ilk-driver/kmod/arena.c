// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The arena: memory for code, within +-2 GiB of the kernel's text, executable and read-only, filled
 * with int3. It is part of the module's text (arena_text.S), so that stacks can be unwound through
 * it; if another size is requested, it is memory from the modules' range.
 *
 * Each write is recorded as a block; a splice may only branch into a block, and pins all of it as
 * long as a thread may execute there. Writes are serialized by the device's mutex.
 */
#if __has_include(<linux/execmem.h>)
#include <linux/execmem.h>
#else
#define EXECMEM_MODULE_DATA 0	/* execmem_alloc does not exist either */
#endif

#include "ilk.h"

static unsigned int arena_mib;
module_param(arena_mib, uint, 0444);
MODULE_PARM_DESC(arena_mib,
		 "MiB for patches (1 to 512), through which stacks are not unwound; "
		 "0, the default: the arena of ilk.ko itself");

/* Absent if ilk.ko was linked without arena_text.o. */
extern u8 ilk_arena_text[] __weak, ilk_arena_text_end[] __weak;

unsigned long ilk_arena, ilk_arena_size;
static bool ilk_arena_allocated;
struct rb_root_cached ilk_blocks = RB_ROOT_CACHED;

static int ilk_arena_alloc(void)
{
	unsigned long pages;
	int err;

	ilk_arena_size = (unsigned long)arena_mib << 20;
	pages = ilk_arena_size >> PAGE_SHIFT;
	ilk_arena = (unsigned long)ILK_TRY(ilk_near_alloc(ilk_arena_size));
	if (!ilk_arena) {
		pr_err("no memory for an arena of %u MiB: lower arena_mib\n", arena_mib);
		return -ENOMEM;
	}
	ilk_arena_allocated = true;
	memset((void *)ilk_arena, ILK_INT3, ilk_arena_size);
	err = (int)ilk_call(ilk_sym.set_memory_ro, ilk_arena, pages, 0, 0, 0);
	if (!err)
		err = (int)ilk_call(ilk_sym.set_memory_x, ilk_arena, pages, 0, 0, 0);
	if (err)
		ilk_arena_exit();
	return err;
}

int ilk_arena_init(void)
{
	if (arena_mib > 512) {
		pr_err("arena_mib=%u is not in 0 to 512\n", arena_mib);
		return -EINVAL;
	}
	if (!arena_mib && !ilk_arena_text)
		arena_mib = 16;
	if (arena_mib)
		return ilk_arena_alloc();
	ilk_arena = (unsigned long)ilk_arena_text;
	ilk_arena_size = ilk_arena_text_end - ilk_arena_text;
	ilk_call(ilk_sym.text_poke_set, ilk_arena, ILK_INT3, ilk_arena_size, 0, 0);
	ilk_unwind_init();
	ilk_faults_init();
	return 0;
}

void ilk_arena_exit(void)
{
	unsigned long pages = ilk_arena_size >> PAGE_SHIFT;

	ilk_unwind_exit();
	ilk_faults_exit();
	if (!ilk_arena_allocated)
		return;
	ilk_call(ilk_sym.set_memory_nx, ilk_arena, pages, 0, 0, 0);
	ilk_call(ilk_sym.set_memory_rw, ilk_arena, pages, 0, 0, 0);
	ilk_near_free((void *)ilk_arena);
}

/*
 * Allocates writable memory from the modules' range, of the type of modules' data: memory for their
 * text is read-only from the start since 6.16.
 */
void *ilk_near_alloc(unsigned long size)
{
	if (ilk_sym.execmem_alloc)
		return (void *)ilk_call(ilk_sym.execmem_alloc, EXECMEM_MODULE_DATA, size, 0, 0, 0);
	return (void *)ilk_call(ilk_sym.module_alloc, size, 0, 0, 0, 0);
}

void ilk_near_free(void *memory)
{
	ilk_call(ilk_sym.near_free, (unsigned long)memory, 0, 0, 0, 0);
}

struct ilk_block *ilk_arena_block(unsigned long address)
{
	struct interval_tree_node *node;

	node = interval_tree_iter_first(&ilk_blocks, address, address);
	return node ? container_of(node, struct ilk_block, node) : NULL;
}

struct ilk_block *ilk_next_block(struct ilk_block *block)
{
	struct interval_tree_node *node;

	node = block ? interval_tree_iter_next(&block->node, 0, ULONG_MAX) :
		       interval_tree_iter_first(&ilk_blocks, 0, ULONG_MAX);
	return node ? container_of(node, struct ilk_block, node) : NULL;
}

/* Returns whether a lookup of an address in the arena finds this module. */
bool ilk_arena_is_text(void)
{
	return !ilk_arena_allocated;
}

static void ilk_block_free(struct interval_tree_node *node)
{
	struct ilk_block *block = container_of(node, struct ilk_block, node);

	interval_tree_remove(node, &ilk_blocks);
	kvfree(block->rows);
	kvfree(block->faults);
	kfree(block);
}

static bool ilk_arena_pinned(unsigned long first, unsigned long last)
{
	struct interval_tree_node *node;

	for (node = interval_tree_iter_first(&ilk_blocks, first, last); node;
	     node = interval_tree_iter_next(node, first, last))
		if (container_of(node, struct ilk_block, node)->pins)
			return true;
	return false;
}

/* The arrays were copied from user memory, with as many elements as the request says. */
int ilk_arena_write(const struct ilk_arena_write *request, const void *code,
		    const struct ilk_row *rows, struct ilk_fault **faults)
{
	struct interval_tree_node *node;
	unsigned long first, last;
	struct ilk_block *block;
	int err;

	lockdep_assert_held(&ilk_mutex);
	if (request->offset > ilk_arena_size - request->len)
		return -EINVAL;
	first = ilk_arena + request->offset;
	last = first + request->len - 1;
	if (ilk_arena_pinned(first, last))
		return -EBUSY;

	block = ILK_TRY(kzalloc(sizeof(*block), GFP_KERNEL));
	if (!block)
		return -ENOMEM;
	block->node.start = first;
	block->node.last = last;
	err = ilk_unwind_read(block, request, rows);
	if (!err)
		err = ilk_faults_read(block, request, faults);
	if (err) {
		kvfree(block->rows);
		kfree(block);
		return err;
	}
	/* A partly overwritten block is no valid branch target. */
	while ((node = interval_tree_iter_first(&ilk_blocks, first, last)))
		ilk_block_free(node);
	ilk_call(ilk_sym.text_poke_copy, first, (unsigned long)code, request->len, 0, 0);
	interval_tree_insert(&block->node, &ilk_blocks);
	return 0;
}

/* Drops every block without pins; no thread executes in those any more. */
void ilk_arena_forget(void)
{
	struct interval_tree_node *node, *next;

	for (node = interval_tree_iter_first(&ilk_blocks, 0, ULONG_MAX); node; node = next) {
		next = interval_tree_iter_next(node, 0, ULONG_MAX);
		if (!container_of(node, struct ilk_block, node)->pins)
			ilk_block_free(node);
	}
}
