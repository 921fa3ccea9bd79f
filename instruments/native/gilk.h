/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For instruments that are functions of an object file.
 *
 *	#include "gilk.h"
 *
 *	GILK_INSTRUMENT("pages(arg0, arg1) samples pages: How many pages a range of addresses touches.");
 *	gilk_word pages(gilk_word address, gilk_word length)
 *	{
 *		return (address % 4096 + length + 4095) / 4096;
 *	}
 *
 * A line of the list is a name, the function's parameters, `samples` and a unit if the returned value is
 * sampled, and after a colon a description. The function has the same name, with `_` for `-`. It is
 * called with up to six of:
 *
 *	arg0 … arg5	the arguments that the kernel's function was called with
 *	retval		what it returns, where it does
 *	reg(ax) …	a register, as the code at the hook has it
 *	id, block	the instrument's identifier, as samples have it, and its block's number
 *	counter		where its counter is: for gilk_count
 *
 * Compile it with
 *
 *	cc -c -O2 -mcmodel=kernel -mno-red-zone -mgeneral-regs-only -fno-pic -fno-jump-tables \
 *		-fno-stack-protector -fno-asynchronous-unwind-tables -fcf-protection=none
 *
 * and GCC, if there are large arrays, with -mstringop-strategy=loop too: string instructions are refused.
 *
 * It runs at every hit, in whatever the kernel is doing, interrupts and locked sections included: it must
 * not sleep, not wait for a lock, and not use an address that may not be there. Data that changes has no
 * place in it. It may call functions of the kernel by name, if all functions that they reach are known and have no
 * instruments in the session. Inline assembly has to name every register that it changes: a function from
 * which rbx, rbp, r12 to r15 or rsp may come back changed is refused. An index has to stay in its array: that
 * is not checked.
 *
 * In a process (`ilk process --native`, `ilk run --native`) a function of a file can *replace* one of the program or of
 * its libraries, or the result of one:
 *
 *	GILK_INSTRUMENT("few-bytes replaces: Fails where more than 1,000,000 bytes are requested.");
 *	void *few_bytes_original(unsigned long bytes);
 *	void *few_bytes(unsigned long bytes)
 *	{
 *		return bytes > 1000000 ? 0 : few_bytes_original(bytes);
 *	}
 *
 * It has the parameters and the result of the function that it replaces, which it calls by its own name and `_original`.
 * None of the above restricts it: it is compiled with `cc -c -O2 -fPIC`, has data that changes, and calls the functions
 * of the process by name. It may not have constructors or thread-local variables.
 */
#ifndef GILK_H
#define GILK_H

typedef unsigned long gilk_word;

#define GILK_PASTE(a, b) a##b
#define GILK_NAME(line) GILK_PASTE(gilk_line_, line)
#define GILK_INSTRUMENT(text) \
	static const char GILK_NAME(__LINE__)[] __attribute__((section(".gilk"), used)) = text

/* Adds to the counter of this CPU: one instruction, so that nothing comes between. */
static inline void gilk_count(gilk_word counter, gilk_word more)
{
	__asm__ volatile("addq %1, %%gs:(%0)" : : "r"(counter), "er"(more) : "memory", "cc");
}

#endif
