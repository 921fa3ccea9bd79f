/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>

/*
 * unsigned long ilk_call(void *function, a, b, c, d, e)
 *
 * Calls a function by its address by returning to it. An indirect call or jump
 * would fault under IBT: kernels from 6.2 on overwrite the endbr64 of functions whose
 * address nobody takes, and those are the ones this module looks up by name.
 */
SYM_FUNC_START(ilk_call)
	pushq	%rdi
	UNWIND_HINT_FUNC	/* as if the function had been called from our caller */
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %rcx
	movq	%r9, %r8
	RET
SYM_FUNC_END(ilk_call)
