/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
#include <linux/linkage.h>
#include <asm/processor-flags.h>
#include <asm/unwind_hints.h>

/* Saves the flags and what a function of C may change. */
.macro ILK_SAVE
	pushfq
	pushq	$X86_EFLAGS_FIXED	/* the direction is up, user memory is closed, interrupts are off */
	popfq
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	pushq	%rsi
	pushq	%rdi
	pushq	%r8
	pushq	%r9
	pushq	%r10
	pushq	%r11
.endm

.macro ILK_RESTORE
	popq	%r11
	popq	%r10
	popq	%r9
	popq	%r8
	popq	%rdi
	popq	%rsi
	popq	%rdx
	popq	%rcx
	popq	%rax
	popfq
.endm

/*
 * Reads the kernel's stack for generated code, which pushes two words and calls: the extent and then
 * the original instruction (`stacks` of struct ilk_info). The number of the stack replaces
 * the extent. Nothing else changes, neither a register nor a flag.
 */
SYM_FUNC_START(ilk_stack_entry)
	ILK_SAVE
	movq	88(%rsp), %rdi		/* the original instruction */
	movq	96(%rsp), %rsi		/* the extent */
	leaq	104(%rsp), %rdx		/* the stack pointer before both were pushed */
	movq	%rbp, %rcx
	call	ilk_stack_read
	movq	%rax, 96(%rsp)
	ILK_RESTORE
	RET
SYM_FUNC_END(ilk_stack_entry)

/*
 * Reads the running process for generated code, which pushes three words and calls: the argument, the
 * counter and the request (`users` of struct ilk_info). The result replaces the argument.
 */
SYM_FUNC_START(ilk_user_entry)
	ILK_SAVE
	movq	104(%rsp), %rdi		/* the argument */
	movq	88(%rsp), %rsi		/* the request */
	movq	96(%rsp), %rdx		/* the counter */
	call	ilk_user_read
	movq	%rax, 104(%rsp)
	ILK_RESTORE
	RET
SYM_FUNC_END(ilk_user_entry)
