/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * The arena as part of the module's text, and so found by whoever asks which module an
 * address is of: the unwinder, first of all. It has no bytes in ilk.ko, and is
 * linked to it last (see Makefile), for objtool would look for functions in it.
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
