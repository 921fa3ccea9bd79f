// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The arena: memory for code, where modules have theirs and so within +-2 GiB of the kernel's
 * text, executable and read-only, int3 wherever nothing was written.
 *
 * Each write is remembered as a block; a splice may lead only into a block, and pins all of
 * it for as long as a thread may run there. Writes come with the device's mutex held.
 */
#include <linux/version.h>

#include "ilk.h"

static unsigned int arena_mib = 16;
module_param(arena_mib, uint, 0444);
MODULE_PARM_DESC(arena_mib, "MiB for code patches (1 to 512)");

unsigned long ilk_arena, ilk_arena_size;
static struct rb_root_cached ilk_blocks = RB_ROOT_CACHED;

int ilk_arena_init(void)
{
	bool typed = LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0);
	unsigned long pages;
	int err;

	if (arena_mib < 1 || arena_mib > 512) {
		pr_err("arena_mib=%u is not within 1 to 512\n", arena_mib);
		return -EINVAL;
	}
	ilk_arena_size = (unsigned long)arena_mib << 20;
	pages = ilk_arena_size >> PAGE_SHIFT;
	/* The type of modules' text is 0 where there are types. */
	ilk_arena = ilk_call(ilk_sym.code_alloc, typed ? 0 : ilk_arena_size,
			     typed ? ilk_arena_size : 0, 0, 0, 0);
	if (!ilk_arena) {
		pr_err("no memory for an arena of %u MiB: lower arena_mib\n", arena_mib);
		return -ENOMEM;
	}
	memset((void *)ilk_arena, ILK_INT3, ilk_arena_size);
	err = (int)ilk_call(ilk_sym.set_memory_ro, ilk_arena, pages, 0, 0, 0);
	if (!err)
		err = (int)ilk_call(ilk_sym.set_memory_x, ilk_arena, pages, 0, 0, 0);
	if (err)
		ilk_arena_exit();
	return err;
}

void ilk_arena_exit(void)
{
	unsigned long pages = ilk_arena_size >> PAGE_SHIFT;

	ilk_call(ilk_sym.set_memory_nx, ilk_arena, pages, 0, 0, 0);
	ilk_call(ilk_sym.set_memory_rw, ilk_arena, pages, 0, 0, 0);
	ilk_call(ilk_sym.code_free, ilk_arena, 0, 0, 0, 0);
}

struct ilk_block *ilk_arena_block(unsigned long address)
{
	struct interval_tree_node *node;

	node = interval_tree_iter_first(&ilk_blocks, address, address);
	return node ? container_of(node, struct ilk_block, node) : NULL;
}

static void ilk_block_free(struct interval_tree_node *node)
{
	interval_tree_remove(node, &ilk_blocks);
	kfree(container_of(node, struct ilk_block, node));
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

int ilk_arena_write(const struct ilk_arena_write *request)
{
	struct interval_tree_node *node;
	unsigned long first, last;
	struct ilk_block *block;
	void *code;

	if (request->reserved || !request->len || request->len > ilk_arena_size ||
	    request->offset > ilk_arena_size - request->len)
		return -EINVAL;
	first = ilk_arena + request->offset;
	last = first + request->len - 1;
	if (ilk_arena_pinned(first, last))
		return -EBUSY;

	block = kzalloc(sizeof(*block), GFP_KERNEL);
	if (!block)
		return -ENOMEM;
	code = vmemdup_user(u64_to_user_ptr(request->data), request->len);
	if (IS_ERR(code)) {
		kfree(block);
		return PTR_ERR(code);
	}
	/* What is left of a block written over in part is no code to lead to. */
	while ((node = interval_tree_iter_first(&ilk_blocks, first, last)))
		ilk_block_free(node);
	ilk_call(ilk_sym.text_poke_copy, first, (unsigned long)code, request->len, 0, 0);
	kvfree(code);

	block->node.start = first;
	block->node.last = last;
	interval_tree_insert(&block->node, &ilk_blocks);
	return 0;
}

/* Forgets every block no splice leads to; no thread runs in those any more. */
void ilk_arena_forget(void)
{
	struct interval_tree_node *node, *next;

	for (node = interval_tree_iter_first(&ilk_blocks, 0, ULONG_MAX); node; node = next) {
		next = interval_tree_iter_next(node, 0, ULONG_MAX);
		if (!container_of(node, struct ilk_block, node)->pins)
			ilk_block_free(node);
	}
}
