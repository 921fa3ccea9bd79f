/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * What ilk.ko and the agent say to each other: one layout, written here in C
 * and in ilk-driver/src/agent/abi.rs in Rust, held equal by a test.
 *
 * Every struct has the same size and offsets on both sides, every reserved
 * field must be zero, and every pointer travels as a u64.
 *
 * One file may be open at a time (a second open gives EBUSY, also while the splices of
 * the last owner are still being taken out); the opener needs CAP_SYS_MODULE. Until
 * ILK_IOC_INFO has succeeded, all else gives EPROTO. A request with a field out of
 * range gives EINVAL, one that points nowhere EFAULT.
 */
#ifndef ILK_ABI_H
#define ILK_ABI_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define ILK_ABI_VERSION 7u
#define ILK_MAX_POKES (1u << 20)	/* pokes in one batch */
#define ILK_MAX_PUSHED 4096u
#define ILK_MAX_FAULTS 65536u	/* instructions of the arena that may fault, those of the module itself included */
#define ILK_POKE_MAX 8u		/* room for the bytes of one poke, of which 5 are used at most */

/*
 * A slot of a ring: half a cache line, and a sample when its mark is written.
 *   mark   the head by which it was reserved, written last
 *   value  what the instrument measured
 *   tsc    when
 *   id     instrument identifier
 * The sample with serial number n of a CPU is in slot n % slots. Serial numbers begin
 * at `slots`, so the zeroes of a fresh ring are never taken for a sample.
 */
struct ilk_slot {
	__u64 mark;
	__u64 value;
	__u64 tsc;
	__u64 id;
};

/*
 * Where generated code finds its per-CPU words and tables. A gs_* field is an
 * offset to be used as gs:[offset].
 *
 * head: serial number of the next sample << (32 - slots_log2) | cpu. The CPU is in the word
 *       so that a thread that migrates between reading and reserving fails its cmpxchg; below
 *       the serial number, so that its low half, rotated left by slots_log2, is CPU and slot
 *       side by side: the number of a slot among those of all rings. No CPU has the upper two
 *       of its bits, which rotated along are the eights in a slot's place.
 * limit: the value of head at which the ring is full. A ring that overwrites its oldest samples has
 *       one that no head reaches; in a ring that is off, head and limit are one value of no CPU.
 * The ring of a CPU starts at ring_base + (cpu << stride_log2), stride_log2 = slots_log2 + 5.
 * User space maps all of
 * them at once: offset 0, cpus << stride_log2 bytes, PROT_READ, not inherited by fork.
 *
 * gs_head, gs_limit, gs_lost_*, gs_current, gs_cpu and the counters of bank 0 fit a disp32. Those of other
 * banks and ring_base do not. `timers` is within +-2 GiB of the arena.
 */
struct ilk_info {
	__u32 abi;		/* in: the caller's version; out: the module's */
	__u32 size;		/* out: sizeof(struct ilk_info) */
	__u32 cpus;		/* rings there are: nr_cpu_ids */
	__u32 slots_log2;
	__u32 stride_log2;
	__u32 tsc_khz;
	__u64 arena;		/* address of the arena, executable, within +-2 GiB of text */
	__u64 arena_size;
	__u64 ring_base;
	__u64 gs_head;
	__u64 gs_limit;
	__u64 gs_lost_full;	/* hits not sampled: ring full, or off */
	__u64 gs_lost_unmatched;/* timer stops not sampled: no start of this thread found */
	__u64 gs_current;	/* pointer to the running task_struct */
	__u64 timers;		/* table of struct ilk_timer, address */
	__u32 timers_log2;
	__u32 counter_banks;
	__u32 unwinds;		/* 1 if the arena is the module's own text: rows are taken; else 0 */
	__u32 task_pid;		/* where a task_struct has its pid, tgid and comm */
	__u32 task_tgid;
	__u32 task_comm;
	__u64 gs_cpu;		/* number of the CPU: 32 bits */
	__u32 faults;		/* instructions that may fault, all writes together; 0: none is taken */
	__u32 modules;		/* modules that have been unloaded since this one was loaded; wraps */
	char release[64];	/* uname -r the module was built for */
};

/*
 * An entry of the table of what threads and calls keep, found by hashing its owner's key: a
 * thread's is current | number (0..63). Free is 0 in both words. Generated code makes an entry
 * its own by cmpxchg, busy while it writes (bit 62 of the key is the other way round).
 */
struct ilk_timer {
	__u64 owner;
	__u64 kept;
};

/*
 * Copies code into the arena. What one call writes is a *block*. A detour must lie in a
 * block, and a splice pins the whole block it leads to until it is taken out or
 * retargeted: a write that overlaps a pinned block gives EBUSY. So each code patch is
 * written whole, in one call; a call may hold many patches. Writing over part of a
 * block that is not pinned forgets all of it. No alignment is asked for.
 */
struct ilk_arena_write {
	__u64 offset;
	__u64 data;
	__u64 rows;		/* struct ilk_row[row_count] */
	__u64 faults;		/* struct ilk_fault[fault_count] */
	__u32 len;
	__u32 row_count;	/* 0 unless `unwinds` of struct ilk_info */
	__u32 fault_count;
	__u32 reserved;
};

/*
 * What the kernel does if the instruction at `offset` (of the write, rising) faults. With `original`, what it
 * does when the instruction of its text there does, whose copy this one is. Without, a thread goes
 * on at `fixup`, its registers as they are, when it touches a kernel address where nothing is, or one that is no
 * address; an address of user space is a mistake of the code, and ends it as any of the kernel's.
 */
struct ilk_fault {
	__u32 offset;
	__u32 fixup;		/* offset in the same write; 0 with `original` */
	__u64 original;		/* has an entry in the kernel's own exception table; or 0 */
};

/*
 * How to unwind a stack from code of the write, between `offset` (of the write, rising) and the next row:
 * as from the instruction of the kernel's text at `original`, below `pushed` more bytes on the stack. rbp
 * is as there too. The last row goes to the end of the write; before the first nothing is known.
 */
struct ilk_row {
	__u64 original;
	__u32 offset;
	__u32 pushed;		/* a multiple of 8, below ILK_MAX_PUSHED */
};

/* What is written, and how it leads to `target`. */
enum ilk_kind {
	ILK_JUMP,	/* jmp rel32; or its first bytes, if those that stand behind complete it */
	ILK_SHORT,	/* jmp rel8 to a bounce */
	ILK_BOUNCE,	/* jmp rel32 in bytes that nobody runs */
	ILK_TRAP,	/* an int3 that stays */
	ILK_TRACER,	/* nothing: the kernel's function tracer leads from its site `addr` */
	ILK_KINDS
};

#define ILK_POKE_MULTI 1u	/* more than one instruction of text is overwritten or restored */
#define ILK_POKE_REMOVE 2u	/* puts original bytes back */

/*
 * One poke.
 *   install   nothing is in place at `addr`; `expect` is the text, `write` leads to `target`. Without
 *             ILK_POKE_MULTI the first instruction there has `len` bytes or more, or is a ret or jmp
 *             with padding behind it.
 *   retarget  flags 0, and the kind in place at `addr`, which is not ILK_SHORT (its bounce is
 *             retargeted): as an install, but `expect` is what is in place.
 *   remove    ILK_POKE_REMOVE; `expect` is what is in place, `write` what the install
 *             expected. `detour`, `target` and `host` are not looked at.
 *
 * `len` is 5 for ILK_JUMP (3 or 4 where the text completes it), 2 for ILK_SHORT, 5 for ILK_BOUNCE, 1 for
 * ILK_TRAP, 0 for ILK_TRACER. An ILK_SHORT has its bounce as `target`, every other kind code in
 * the arena. An ILK_BOUNCE names as `host` the splice that keeps threads away from its bytes, 0 if they are
 * padding. A bounce must be in place before and after what leads over it, a host before and after
 * its bounces: by earlier batches, or in the same batch by a lower `rank`.
 */
struct ilk_poke {
	__u64 addr;
	__u64 detour;		/* in the arena: where a thread goes that comes by while bytes change */
	__u64 target;
	__u64 host;
	__u8 kind;
	__u8 len;
	__u8 flags;
	__u8 rank;
	__u32 reserved;
	__u8 expect[ILK_POKE_MAX];
	__u8 write[ILK_POKE_MAX];
};

/* Why a batch was refused. Nothing of a refused batch stays. */
enum ilk_reason {
	ILK_OK = 0,
	ILK_BAD_REQUEST,	/* a field out of range */
	ILK_NOT_TEXT,		/* no text of the kernel, nor of a module that is loaded and is not this one */
	ILK_BLACKLISTED,	/* on the kprobe blacklist, a thunk, or on the path of an int3 */
	ILK_JUMP_LABEL,
	ILK_STATIC_CALL,
	ILK_ALTERNATIVE,
	ILK_FTRACE,
	ILK_KPROBE,
	ILK_MISMATCH,		/* bytes are not those expected */
	ILK_OVERLAP,		/* two pokes of a batch, or a poke and a splice in place */
	ILK_NO_MEMORY,
	ILK_UNKNOWN_SPLICE,	/* removal or retarget of what is not in place */
	ILK_BAD_DETOUR,		/* not in a block of the arena, or `write` does not lead to `target` */
	ILK_UNSUPPORTED,	/* its bounce or its host is not in place before it */
	ILK_NEEDED,		/* something in place would lead over or lie in what is removed */
	ILK_TRACER_REFUSED,	/* no site of the function tracer, or someone else changes where it leads */
	ILK_INJECTED,		/* nothing is wrong: the module's parameter fail_step asks for a failure */
};

/*
 * Pokes in any order; they are carried out like this:
 *   1. All is checked. A refusal ends here.
 *   2. Every install with ILK_POKE_MULTI and every trap gets an int3, and every tracer is
 *      registered, by rising rank: all of them lead to `detour`.
 *   3. If there were int3s: a wait until no thread is between the instructions overwritten, and a look
 *      whether the text is still as left. If not, what was done is taken back.
 *   4. Installs and retargets are written, by rising rank; each rank after every CPU sees those below.
 *   5. Removals are written, by falling rank, with a wait behind a rank that led over bounces, until no
 *      thread is in those.
 *   6. Such a wait, if there was a retarget or removal.
 * The ioctl returns 0 whether the batch was carried out or refused: see `reason`. When it returns, no
 * thread is in a patch that nothing leads to any more.
 *
 * ILK_MISMATCH is given for a removal too if someone else wrote over the splice while the batch was under way.
 * That one, and what it needs, stays until ILK_IOC_RESET or close.
 *
 * When a module is unloaded, the splices in its text come out before it goes. Whoever looked at modules when
 * another number of them had been unloaded may not know whose text an address is: pokes outside the kernel's own
 * text are then left out, and counted, unless what they are about is still in place.
 */
struct ilk_batch {
	__u64 pokes;
	__u32 count;
	__u32 failed;		/* out: index of the poke refused */
	__u32 reason;		/* out: enum ilk_reason */
	__u32 waits;		/* in: 0; out: how often it waited for all threads */
	__u32 modules;		/* in: `modules` of struct ilk_info when the client looked at modules' text */
	__u32 gone;		/* in: 0; out: pokes left out */
	__u64 tsc_begin;	/* out: when the first byte was written */
	__u64 tsc_end;		/* out: when every CPU sees the last */
};

/* A bank of counters: a per-CPU array of u64. */
struct ilk_bank {
	__u32 bank;		/* in */
	__u32 slots;		/* out: counters in it */
	__u64 gs;		/* out: offset of the first, to be used as gs:[offset] */
	__u64 shared;		/* out: address of the first of CPU 0, for words that all CPUs write */
};

struct ilk_counters {
	__u32 bank;
	__u32 first;
	__u32 count;
	__u32 reserved;
	__u64 out;		/* u64[cpus][count] */
};

/* One for each CPU, written to `out` of struct ilk_losses. */
struct ilk_cpu_state {
	__u64 head;		/* serial number of the next sample, CPU bits taken off */
	__u64 lost_full;	/* hits not sampled: ring full */
	__u64 lost_unmatched;	/* timer stops not sampled */
	__u64 lost_off;		/* hits not sampled: ring off; one that the switch interrupts may be in the other */
};

struct ilk_losses {
	__u64 out;		/* struct ilk_cpu_state[cpus] */
	__u32 cpus;
	__u32 reserved;
};

/*
 * The reader has read every sample of `cpu` before serial number `tail`, which may not
 * go back nor past the head. poll() says readable while any head is as far past its tail as the
 * watermark asks, which is looked at every few milliseconds.
 */
struct ilk_consume {
	__u64 tail;
	__u32 cpu;
	__u32 reserved;
};

#define ILK_RINGS_OVERWRITE 1u	/* the oldest samples, else new ones are lost when a ring is full */
#define ILK_RINGS_OFF 2u	/* hits are counted as lost, and nothing else, until it is on again */

/*
 * How the rings of all CPUs take samples from now on. open() has them on, with flags 0 and a watermark of 1.
 * EBUSY for ILK_RINGS_OVERWRITE, or the end of it, while any splice is in place; what is unread is
 * forgotten then.
 *
 * A ring that overwrites is read when nobody writes: off, or without splices. The `slots` samples before the
 * head are there, except for those whose slot has another lap: a hit was interrupted between reserving
 * its slot and writing it for so long that the ring came around to that slot, and wrote over the
 * newer sample. That is the one way for nested hits to cost a sample.
 */
struct ilk_rings {
	__u32 flags;
	__u32 watermark;	/* samples of one ring to wake the reader for, 1 to slots */
	__u64 reserved;
};

#define ILK_IOC_INFO	_IOWR('i', 0, struct ilk_info)
#define ILK_IOC_ARENA	_IOW('i', 1, struct ilk_arena_write)
#define ILK_IOC_BATCH	_IOWR('i', 2, struct ilk_batch)
#define ILK_IOC_COUNTERS _IOWR('i', 3, struct ilk_counters)
#define ILK_IOC_LOSSES	_IOWR('i', 4, struct ilk_losses)
#define ILK_IOC_CONSUME	_IOW('i', 5, struct ilk_consume)
/*
 * Takes every splice out, zeroes counters, losses, timers. Rings go on, with what is unread
 * in them; it is open() that starts them afresh. EBUSY if someone else has written over
 * a splice: that one stays, and so does the module.
 */
#define ILK_IOC_RESET	_IO('i', 6)
#define ILK_IOC_BANK	_IOWR('i', 7, struct ilk_bank)
#define ILK_IOC_RINGS	_IOW('i', 10, struct ilk_rings)

#endif
