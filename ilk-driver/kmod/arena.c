// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Writing code patches into the arena. Each write is remembered as a block; a
 * splice may lead only into a block, and pins all of it for as long as a
 * thread may run there. Everything here is called with the device's mutex held.
 */
#include "ilk.h"

static struct rb_root_cached ilk_blocks = RB_ROOT_CACHED;

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
	unsigned long size = ilk_arena_end - ilk_arena;
	struct interval_tree_node *node;
	unsigned long first, last;
	struct ilk_block *block;
	void *code;

	if (request->reserved || !request->len || request->len > size ||
	    request->offset > size - request->len)
		return -EINVAL;
	first = (unsigned long)ilk_arena + request->offset;
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
