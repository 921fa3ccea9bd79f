/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * The arena as part of the module's text, so that a lookup of the module of an address finds it:
 * the unwinder's, above all. It has no bytes in ilk.ko, and is linked last (see Makefile), because
 * objtool would search it for functions.
 */
	.section .ilk_arena, "ax", @nobits
	.balign	4096
	.globl	ilk_arena_text
	.type	ilk_arena_text, @object
ilk_arena_text:
	.skip	ILK_ARENA_MIB << 20
	.size	ilk_arena_text, . - ilk_arena_text
	.globl	ilk_arena_text_end
ilk_arena_text_end:
