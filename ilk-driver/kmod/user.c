// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The running process, for generated code: ilk_user_entry (stack_entry.S) calls ilk_user_read() at a
 * hook, which may be anywhere that a splice may be. It reads memory as copy_from_user_nofault() does,
 * with page faults disabled, so that what is not mapped is not mapped in, and the load ends at its
 * fixup. But it calls no function of the kernel, so that it may be called where those are hooked.
 */
#include <linux/sched/task_stack.h>
#include <asm/asm.h>
#include <asm/processor-flags.h>
#include <asm/ptrace.h>
#include <asm/special_insns.h>

#include "ilk.h"

/* stack_entry.S */
void ilk_user_entry(void);
u64 ilk_user_read(u64 argument, u64 request, unsigned long counter);

/*
 * Returns whether the memory of the running process is what the processor translates addresses by. It
 * is not in kernel threads, which keep the tables of another process, and while those are switched.
 */
static __always_inline bool ilk_user_is_mapped(void)
{
	const struct mm_struct *mm = current->mm;

	return mm && (__native_read_cr3() & CR3_ADDR_MASK) == __phys_addr_nodebug((unsigned long)mm->pgd);
}

#define ILK_USER_LOAD(load)					\
	asm volatile("1:	" load "\n"			\
		     "	movl $1, %k[read]\n"			\
		     "2:\n"					\
		     _ASM_EXTABLE(1b, 2b)			\
		     : [value] "+r" (word), [read] "+r" (read)	\
		     : [address] "r" (address))

/* Reads 1, 2, 4 or 8 bytes, extended with zeroes. Returns whether they are there. */
static __always_inline bool ilk_user_peek(unsigned long address, u32 bytes, u64 *value)
{
	u64 word = 0, read = 0;

	if (address > LONG_MAX - sizeof(word))
		return false;
	/* A wrong prediction of the comparison loads nothing. */
	__uaccess_begin_nospec();
	if (bytes == 1)
		ILK_USER_LOAD("movzbl (%[address]), %k[value]");
	else if (bytes == 2)
		ILK_USER_LOAD("movzwl (%[address]), %k[value]");
	else if (bytes == 4)
		ILK_USER_LOAD("movl (%[address]), %k[value]");
	else
		ILK_USER_LOAD("movq (%[address]), %[value]");
	__uaccess_end();
	*value = word;
	return read;
}

/* Returns the highest bit of each byte that is 0, and perhaps of bytes after the first of them. */
static __always_inline u64 ilk_zeroes(u64 word)
{
	return (word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull;
}

/* Reads eight bytes of a text, with zeroes after its end, beyond which nothing need be mapped. */
static __always_inline bool ilk_user_letters(unsigned long address, u64 *letters)
{
	u64 zeroes, letter;

	if (ilk_user_peek(address, sizeof(*letters), letters)) {
		zeroes = ilk_zeroes(*letters);
		*letters &= (zeroes & -zeroes) - 1;
		return true;
	}
	*letters = 0;
	for (u32 i = 0; i < sizeof(*letters); i++) {
		if (!ilk_user_peek(address + i, 1, &letter))
			return false;
		if (!letter)
			break;
		*letters |= letter << (8 * i);
	}
	return true;
}

static __always_inline bool ilk_user_text(unsigned long address, bool second, u64 *letters)
{
	if (!ilk_user_letters(address, letters))
		return false;
	if (!second)
		return true;
	if (ilk_zeroes(*letters)) {
		*letters = 0;
		return true;
	}
	if (!ilk_user_letters(address + sizeof(*letters), letters))
		return false;
	if (!ilk_zeroes(*letters))
		*letters |= 0xffull << 56;	/* the text continues */
	return true;
}

/* A frame of a process: the next instruction to execute, and the frame pointer. */
struct ilk_user_frame {
	u64 ip, bp;
	u32 word;	/* bytes of an address; 0 if there is no process */
};

/* Returns the frame with which the running process entered the kernel. */
static __always_inline struct ilk_user_frame ilk_user_frame(void)
{
	const struct pt_regs *regs = task_pt_regs(current);
	struct ilk_user_frame frame = {};

	/* The kernel's own threads have none, although they may work on the memory of a process. */
	if (current->flags & PF_KTHREAD || !current->mm || !user_mode((struct pt_regs *)regs))
		return frame;
	frame.ip = regs->ip;
	frame.bp = regs->bp;
	frame.word = user_64bit_mode((struct pt_regs *)regs) ? sizeof(u64) : sizeof(u32);
	return frame;
}

/* Returns what the number of a process's addresses begins with, so that no other process has the same. */
static __always_inline u64 ilk_user_seed(void)
{
	return ilk_stack_hash(current->tgid, (unsigned long)current->mm);
}

/* Makes an entry of the table readable, whose frames are written. */
static __always_inline void ilk_user_keep(struct ilk_stack *into, u64 id, u32 count)
{
	into->id = id;
	into->user = 1;
	into->pid = current->flags & PF_KTHREAD ? 0 : current->tgid;
	smp_store_release(&into->count, count);
}

/* Returns the number of a stack of at most `depth` frames. Keeps its addresses under `id` if there is room for them. */
static __always_inline u64 ilk_user_walk(u32 depth, struct ilk_stack *into, u64 id)
{
	struct ilk_user_frame frame = ilk_user_frame();
	bool mapped = ilk_user_is_mapped();
	u64 hash = frame.word ? ilk_user_seed() : 0;
	u32 count = 0;

	/* Without a process the only address is 0. */
	do {
		if (into)
			into->frames[count] = frame.ip;
		hash = ilk_stack_hash(hash, frame.ip);
		count++;
	} while (count < depth && frame.word && mapped &&
		 ilk_user_peek(frame.bp + frame.word, frame.word, &frame.ip) && frame.ip &&
		 ilk_user_peek(frame.bp, frame.word, &frame.bp));
	if (into)
		ilk_user_keep(into, id, count);
	return hash ? hash : 1;
}

static __always_inline u64 ilk_user_stack(u32 depth)
{
	struct ilk_stack *into;
	u64 id;

	depth = clamp_t(u32, depth, 1, ILK_STACK_DEPTH);
	id = ilk_user_walk(depth, NULL, 0);
	into = ilk_stack_place(id);
	/* If another thread changes the stack meanwhile, the number has the later addresses. */
	if (into)
		ilk_user_walk(depth, into, id);
	return id;
}

static __always_inline u64 ilk_user_name(u64 address)
{
	u64 hash = ilk_stack_hash(ilk_user_seed(), address);
	u64 id = hash ? hash : 1;
	struct ilk_stack *into = ilk_stack_place(id);

	if (into) {
		into->frames[0] = address;
		ilk_user_keep(into, id, 1);
	}
	return id;
}

/* Called by ilk_user_entry, with interrupts off: `users` of struct ilk_info is its contract. */
u64 notrace ilk_user_read(u64 argument, u64 request, unsigned long counter)
{
	u32 kind = request & 0xff, part = request >> 8 & 0xff;
	bool read = true;
	u64 value = 0;

	pagefault_disable();
	if (kind == ILK_USER_STACK)
		value = ilk_user_stack(part);
	else if (kind == ILK_USER_NAME)
		value = ilk_user_name(argument);
	else if (!ilk_user_is_mapped())
		read = false;
	else if (kind == ILK_USER_TEXT)
		read = ilk_user_text(argument, part, &value);
	else
		read = ilk_user_peek(argument, part, &value);
	pagefault_enable();
	if (read)
		return value;
	asm volatile("incq %%gs:(%[counter])" : : [counter] "r" (counter) : "memory");
	return 0;
}

NOKPROBE_SYMBOL(ilk_user_read);

u64 ilk_users_address(void)
{
	return ilk_stacks_address() ? (unsigned long)ilk_user_entry : 0;
}
