/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
#include <linux/linkage.h>
#include <asm/unwind_hints.h>

/*
 * unsigned long ilk_call(void *function, a, b, c, d, e)
 *
 * Calls a function at an address by returning to it. An indirect call or jump would fault under
 * IBT: kernels from 6.2 on overwrite the endbr64 of functions whose address is not taken, and the
 * functions that this module looks up by name are of that kind.
 */
SYM_FUNC_START(ilk_call)
	pushq	%rdi
	UNWIND_HINT_FUNC	/* as if our caller had called the function */
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	%r8, %rcx
	movq	%r9, %r8
	RET
SYM_FUNC_END(ilk_call)
