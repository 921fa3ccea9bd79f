/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
#include <linux/linkage.h>
#include <linux/objtool.h>

/*
 * The arena: code patches are copied here. It is part of the module's text and not
 * allocated, so that it is executable and read-only from the start, lies
 * within +-2 GiB of the kernel's text, needs no allocator that is not exported, and
 * shows as ilk_arena+0x.. [ilk] in stack traces. int3 wherever nothing was written.
 */
#define ILK_ARENA_SIZE (1 << 20)

	.text
	.balign 64
	.globl ilk_arena
	.type ilk_arena, @object
ilk_arena:
	ANNOTATE_NOENDBR	/* jumped into, never called by pointer */
	.skip ILK_ARENA_SIZE, 0xcc
	.size ilk_arena, . - ilk_arena
	.globl ilk_arena_end
ilk_arena_end:
