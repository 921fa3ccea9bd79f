/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * The interface of ilk.ko and the agent, defined here in C and in ilk-driver/src/agent/abi.rs in
 * Rust; a test checks that both are equal.
 *
 * Every struct has the same size and offsets on both sides, every reserved
 * field must be zero, and every pointer is passed as a u64.
 *
 * One file may be open at a time (a second open fails with EBUSY, also while the splices of the
 * last owner are being removed); the opener needs CAP_SYS_MODULE. Until ILK_IOC_INFO has succeeded,
 * all other requests fail with EPROTO. A request with a field out of range fails with EINVAL, one
 * with an invalid pointer with EFAULT.
 */
#ifndef ILK_ABI_H
#define ILK_ABI_H

#include <linux/types.h>
#include <linux/ioctl.h>

#define ILK_ABI_VERSION 15u
#define ILK_MAX_POKES (1u << 20)	/* pokes in one batch */
#define ILK_MAX_PUSHED 4096u
#define ILK_MAX_FAULTS 65536u	/* instructions of the arena that may fault, including the module's own */
#define ILK_MAX_TRACEPOINTS 64u	/* tracepoints that are on at a time */
#define ILK_STACKS 4096u		/* stacks whose frames are kept */
#define ILK_STACK_DEPTH 126u	/* frames of a stack */
#define ILK_POKE_MAX 8u		/* size of a poke's byte arrays, of which at most 5 bytes are used */

/*
 * A slot of a ring: half a cache line. It holds a sample once its mark is written.
 *   mark   the head by which the slot was reserved, written last
 *   value  the measured value
 *   tsc    the time
 *   id     the instrument's identifier
 * The sample with serial number n of a CPU is in slot n % slots. Serial numbers begin at `slots`,
 * so the zeroes of a new ring are never mistaken for a sample.
 */
struct ilk_slot {
	__u64 mark;
	__u64 value;
	__u64 tsc;
	__u64 id;
};

/*
 * Addresses of per-CPU words and tables for generated code. A gs_* field is an offset to be used as
 * gs:[offset].
 *
 * head: serial number of the next sample << (32 - slots_log2) | cpu. The word contains the CPU so
 *       that a thread that migrates between the read and the reservation fails its cmpxchg. The
 *       CPU is below the serial number, so that the low half, rotated left by slots_log2, has CPU
 *       and slot side by side: the index of the slot among those of all rings. No CPU uses the
 *       upper two of its bits, which the rotation places above the slot's offset in multiples of
 *       eight.
 * limit: the value of head at which the ring is full. A ring that overwrites its oldest samples
 *       has a limit that no head reaches; in a ring that is off, head and limit have the same
 *       value of no CPU.
 * The ring of a CPU starts at ring_base + (cpu << stride_log2), stride_log2 = slots_log2 + 5. User
 * space maps all of them at once: offset 0, cpus << stride_log2 bytes, PROT_READ, not inherited by
 * fork.
 *
 * gs_head, gs_limit, gs_lost_*, gs_current, gs_cpu and the counters of bank 0 fit in a disp32.
 * Those of other banks and ring_base do not. `timers` is within +-2 GiB of the arena.
 *
 * nsecs: address of a word, s64: the nanoseconds of CLOCK_MONOTONIC are nsecs_factor * tsc >> 32 (of
 *       the product of 128 bits) plus this word, modulo 2^64. The word is written whenever the
 *       kernel updates its time, which is at every tick of a machine that is not idle. Between, the
 *       sum differs from the kernel's clock by what the rate of that has changed since open(), and
 *       what the factor is off by, over the time since the update: 1 ns a tick of 4 ms by 0.25 ppm.
 * nsecs_factor: the rate of that clock at open(); 0 if the TSC's rate is unknown.
 *
 * stacks: address of a function that reads the kernel's stack, to be called from the arena after two
 *       words are pushed. The first, the extent, has in its lower 16 bits how many bytes the patch has
 *       pushed before it, above the frame of the original instruction, and from bit 16 on the most
 *       frames, 1 to ILK_STACK_DEPTH. The second is the address of the original instruction; rbp has
 *       the value that it has there. The function replaces the extent by the number of the stack, a
 *       hash of its addresses that is not 0, and leaves every other register, the flags and all other
 *       memory of generated code as they are. It may be called wherever generated code may execute,
 *       except in the kernel's handlers of faults: it calls no function of the kernel, and reads the
 *       stack by loads that may fault. 0 if `unwinds` is 0.
 * users: address of a function that reads the running process, to be called from the arena after three
 *       words are pushed: the argument, the offset of a counter, to be used as gs:[offset], and the
 *       request: one of enum ilk_user, and from bit 8 on a byte that says which part. The function
 *       replaces the argument by what it has read, or by 0 if that cannot be read, and then adds 1 to
 *       the counter. It leaves every other register, the flags and all other memory of generated code
 *       as they are, and may be called where `stacks` may be. 0 if `stacks` is 0.
 */
struct ilk_info {
	__u32 abi;		/* in: the caller's version; out: the module's */
	__u32 size;		/* out: sizeof(struct ilk_info) */
	__u32 cpus;		/* number of rings: nr_cpu_ids */
	__u32 slots_log2;
	__u32 stride_log2;
	__u32 tsc_khz;
	__u64 arena;		/* address of the arena, executable, within +-2 GiB of text */
	__u64 arena_size;
	__u64 ring_base;
	__u64 gs_head;
	__u64 gs_limit;
	__u64 gs_lost_full;	/* hits lost because the ring was full or off */
	__u64 gs_current;	/* pointer to the running task_struct */
	__u64 timers;		/* address of the table of struct ilk_timer */
	__u32 timers_log2;
	__u32 counter_banks;
	__u32 unwinds;		/* 1 if the arena is the module's own text, so that rows are accepted; else 0 */
	__u32 task_pid;		/* offsets in a task_struct of pid, tgid and comm */
	__u32 task_tgid;
	__u32 task_comm;
	__u64 gs_cpu;		/* the CPU's number: 32 bits */
	__u64 nsecs;
	__u64 nsecs_factor;
	__u32 faults;		/* limit on instructions that may fault, of all writes together */
	__u32 modules;		/* number of modules unloaded since this one was loaded; wraps */
	__u64 stacks;
	__u64 users;
	char release[64];	/* kernel release that the module was built for */
};

/* A read of the running process. The argument is an address of the process, but for its stack. */
enum ilk_user {
	ILK_USER_BYTES,		/* 1, 2, 4 or 8 bytes, as many as the part says, extended with zeroes */
	ILK_USER_TEXT,		/* part 0 or 1: of the first 16 bytes of a text, which are 0 after its end, the
				 * first or second eight; the last one is 0xff if none of them ends it */
	ILK_USER_NAME,		/* number of a stack of one frame, the address */
	ILK_USER_STACK		/* number of the process's stack by frame pointers, of at most so many frames */
};

/*
 * An entry of the table of thread and call variables, found by hashing its owner's key: a thread's
 * key is current | number (0..63). An entry with 0 in both words is free. Generated code claims an
 * entry by cmpxchg, with bit 62 of the key inverted while it writes.
 */
struct ilk_timer {
	__u64 owner;
	__u64 kept;
};

/*
 * Copies code into the arena. The bytes of one call are a *block*. A detour must lie in a block,
 * and a splice pins the whole block that it branches to until it is removed or retargeted: a write
 * that overlaps a pinned block fails with EBUSY. So each patch is written completely, in one call;
 * a call may contain many patches. A write over part of an unpinned block drops all of that block.
 * No alignment is required.
 */
struct ilk_arena_write {
	__u64 offset;
	__u64 data;
	__u64 rows;		/* struct ilk_row[row_count] */
	__u64 faults;		/* struct ilk_fault[fault_count] */
	__u32 len;
	__u32 row_count;	/* 0 if `unwinds` of struct ilk_info is 0 */
	__u32 fault_count;
	__u32 reserved;
};

/*
 * The kernel's reaction to a fault of the instruction at `offset` (in the write, rising). With
 * `original`, the same as for a fault of that instruction of its text, of which this one is a copy.
 * Without, execution continues at `fixup` with unchanged registers after a fault on an unmapped
 * kernel address or a non-canonical address; an access to user space is a bug of the code and an
 * oops, as anywhere in the kernel.
 */
struct ilk_fault {
	__u32 offset;
	__u32 fixup;		/* offset in the same write; 0 with `original` */
	__u64 original;		/* has an entry in the kernel's own exception table; or 0 */
};

/*
 * The unwind row of the code between `offset` (in the write, rising) and the next row: that of the
 * instruction of the kernel's text at `original`, below `pushed` more bytes on the stack. rbp has
 * the same value as there. The last row extends to the end of the write; there is none before the
 * first.
 */
struct ilk_row {
	__u64 original;
	__u32 offset;
	__u32 pushed;		/* a multiple of 8, below ILK_MAX_PUSHED */
};

/* The kind of a splice, and its branch to `target`. */
enum ilk_kind {
	ILK_JUMP,	/* jmp rel32; or its first bytes, if the following text completes it */
	ILK_SHORT,	/* jmp rel8 to a bounce */
	ILK_BOUNCE,	/* jmp rel32 in bytes that no thread executes */
	ILK_TRAP,	/* a permanent int3 */
	ILK_TRACER,	/* no write: the kernel's function tracer, called at `addr`, branches to the patch */
	ILK_CALL,	/* call rel32 over a call rel32: the patch has the return address on the stack */
	ILK_KINDS
};

#define ILK_POKE_MULTI 1u	/* an install that overwrites more than one instruction of text */
#define ILK_POKE_REMOVE 2u	/* restores original bytes */

/*
 * One poke.
 *   install   no splice is installed at `addr`; `expect` is the text, `write` branches to `target`.
 *             Without ILK_POKE_MULTI the first instruction has `len` bytes or more, or is a ret or
 *             jmp followed by padding.
 *   retarget  flags 0, and the kind installed at `addr`, except ILK_SHORT (whose bounce is
 *             retargeted instead): like an install, but `expect` is the installed splice.
 *   remove    ILK_POKE_REMOVE; `expect` is the installed splice, `write` the bytes that the
 *             install expected. `detour`, `target` and `host` are ignored.
 *
 * `len` is 5 for ILK_JUMP (3 or 4 where the text completes it), 2 for ILK_SHORT, 5 for ILK_BOUNCE,
 * 1 for ILK_TRAP, 0 for ILK_TRACER, 5 for ILK_CALL, which never has ILK_POKE_MULTI. The `target` of an ILK_SHORT is its bounce, that of every other
 * kind is code in the arena. The `host` of an ILK_BOUNCE is the splice that keeps threads out of
 * its bytes, 0 if they are padding. A bounce must be installed before its users and removed after
 * them, and a host before and after its bounces: by other batches, or in the same batch by a lower
 * `rank`.
 *
 * `filled` are bytes of the displaced instructions: bit n stands for byte n after the branch (after
 * all of it, if the text completes it). They are int3 while the splice is installed, and then again
 * what they were. The last one ends an instruction: the first, without ILK_POKE_MULTI, unless the
 * splice is an ILK_TRAP. 0 for ILK_BOUNCE and ILK_TRACER; of a retarget and a removal as of the
 * install.
 */
struct ilk_poke {
	__u64 addr;
	__u64 detour;		/* in the arena: patch for threads that reach the splice while bytes change */
	__u64 target;
	__u64 host;
	__u64 filled;
	__u8 kind;
	__u8 len;
	__u8 flags;
	__u8 rank;
	__u32 reserved;
	__u8 expect[ILK_POKE_MAX];
	__u8 write[ILK_POKE_MAX];
};

/* Reasons for the refusal of a batch. A refused batch leaves no trace. */
enum ilk_reason {
	ILK_OK = 0,
	ILK_BAD_REQUEST,	/* a field out of range */
	ILK_NOT_TEXT,		/* not text of the kernel or of another loaded module */
	ILK_BLACKLISTED,	/* on the kprobe blacklist, a thunk, or on the path of an int3 */
	ILK_JUMP_LABEL,
	ILK_STATIC_CALL,
	ILK_ALTERNATIVE,
	ILK_FTRACE,
	ILK_KPROBE,
	ILK_MISMATCH,		/* the bytes differ from those expected */
	ILK_OVERLAP,		/* two pokes of a batch, or a poke and an installed splice */
	ILK_NO_MEMORY,
	ILK_UNKNOWN_SPLICE,	/* removal or retarget of a splice that is not installed */
	ILK_BAD_DETOUR,		/* not in a block of the arena, or `write` does not branch to `target` */
	ILK_UNSUPPORTED,	/* its bounce or host is not installed before it */
	ILK_NEEDED,		/* an installed splice depends on the removed one */
	ILK_TRACER_REFUSED,	/* no call of the function tracer, or another user redirects it */
	ILK_INJECTED,		/* no error: requested by the module's parameter fail_step */
	ILK_OVER,		/* the session is over: see struct ilk_state */
};

/*
 * Pokes in any order; they are applied in these steps:
 *   1. Everything is checked. A refusal ends here.
 *   2. Every install with ILK_POKE_MULTI and every trap gets an int3, and every tracer is
 *      registered, by rising rank: all of them branch to `detour`.
 *   3. If there were int3s: a wait until no thread is between the overwritten instructions, and a
 *      check that the text is unchanged. If it has changed, everything is rolled back.
 *   4. Installs and retargets are written, by rising rank; each rank after every CPU sees the lower
 *      ones.
 *   5. Removals are written, by falling rank; after a rank that branched to bounces, with a wait
 *      until no thread is in those.
 *   6. Such a wait, if there was a retarget or removal.
 * The ioctl returns 0 whether the batch was applied or refused: see `reason`. When it returns, no
 * thread is in a patch that no splice branches to any more.
 *
 * A removal also fails with ILK_MISMATCH if the splice was overwritten by something else during the
 * batch. That splice and those that it depends on stay until ILK_IOC_RESET or close.
 *
 * When a module is unloaded, the splices in its text are removed before. A client that read modules
 * when a different number of them had been unloaded cannot know which module owns an address: its
 * pokes outside the kernel's own text are then left out and counted, except those of installed
 * splices.
 */
struct ilk_batch {
	__u64 pokes;
	__u32 count;
	__u32 failed;		/* out: index of the refused poke */
	__u32 reason;		/* out: enum ilk_reason */
	__u32 waits;		/* in: 0; out: number of waits for all threads */
	__u32 modules;		/* in: `modules` of struct ilk_info when the client read the modules' text */
	__u32 gone;		/* in: 0; out: pokes left out */
	__u64 tsc_begin;	/* out: time of the first write */
	__u64 tsc_end;		/* out: time when every CPU sees the last write */
};

/* A bank of counters: a per-CPU array of u64. */
struct ilk_bank {
	__u32 bank;		/* in */
	__u32 slots;		/* out: counters in it */
	__u64 gs;		/* out: offset of the first, to be used as gs:[offset] */
	__u64 shared;		/* out: address of the first one of CPU 0, for words shared by all CPUs */
};

struct ilk_counters {
	__u32 bank;
	__u32 first;
	__u32 count;
	__u32 reserved;
	__u64 out;		/* u64[cpus][count] */
};

/* The state of a CPU, written to `out` of struct ilk_losses. */
struct ilk_cpu_state {
	__u64 head;		/* serial number of the next sample, without the CPU's bits */
	__u64 lost_full;	/* hits lost because the ring was full */
	__u64 lost_off;		/* hits lost because the ring was off; one interrupted by the switch may count as full */
};

struct ilk_losses {
	__u64 out;		/* struct ilk_cpu_state[cpus] */
	__u32 cpus;
	__u32 reserved;
};

/*
 * Every sample of `cpu` before serial number `tail` was read; `tail` may not decrease nor pass the
 * head. poll() reports readable while any head is ahead of its tail by the watermark, which is
 * checked every few milliseconds.
 */
struct ilk_consume {
	__u64 tail;
	__u32 cpu;
	__u32 reserved;
};

#define ILK_RINGS_OVERWRITE 1u	/* a full ring overwrites its oldest samples instead of losing new ones */
#define ILK_RINGS_OFF 2u	/* hits are only counted as lost */

/*
 * Configures the rings of all CPUs. open() switches them on, with flags 0 and a watermark of 1. A
 * change of ILK_RINGS_OVERWRITE fails with EBUSY while any splice is installed; it discards unread
 * samples.
 *
 * An overwriting ring is read when nothing writes: off, or without splices. It holds the `slots`
 * samples before the head, except those in whose slot is a sample of another lap: a hit was
 * interrupted between the reservation of its slot and the write for so long that the ring wrapped
 * around to that slot, and then overwrote the newer sample. Nested hits cost a sample in no other
 * way.
 */
struct ilk_rings {
	__u32 flags;
	__u32 watermark;	/* number of samples in a ring that wakes the reader, 1 to slots */
	__u64 reserved;
};

/* Events at which the module removes every splice by itself. */
enum ilk_end {
	ILK_END_NONE = 0,
	ILK_END_LIVE_PATCH,	/* a live patch is being loaded, or is in transition */
	ILK_END_SLEEP,		/* the machine went to sleep, or hibernated */
	ILK_END_RESTART,	/* the machine restarts */
};

/*
 * The state of a session. After an end every batch is refused until the owner begins the next one. While a
 * live patch is being loaded or in transition, `begin` fails with EBUSY.
 */
struct ilk_state {
	__u32 begin;		/* in: 1 begins a session, 0 does not */
	__u32 ended;		/* out: enum ilk_end, of the session before if one begins */
	__u32 tsc_unstable;	/* out: 1 if the kernel does not trust the TSC */
	__u32 reserved;
	__u64 tsc;		/* out: the time of that end, after the last splice was removed; or 0 */
};

/*
 * Switches a tracepoint of the kernel itself, not of a module, on: every event then calls the
 * function __traceiter_NAME once, until ILK_IOC_TRACEPOINTS_OFF or close. Splices there count no
 * event before. Fails with ENOENT if there is none of that name, and with ENOSPC if
 * ILK_MAX_TRACEPOINTS are on.
 */
struct ilk_tracepoint {
	char name[64];		/* without its subsystem; ends with 0 */
};

/* A stack: the first `count` of the frames are the addresses, the hook's or the process's next one first. */
struct ilk_stack {
	__u64 id;		/* its number */
	__u32 count;
	__u16 user;		/* 1 if the addresses are of a process, else of the kernel */
	__u16 reserved;
	__u64 pid;		/* the process; 0 if there is none, and then the only address of a stack is 0 */
	__u64 frames[ILK_STACK_DEPTH];
};

/*
 * With `begin`, empties the table of stacks; generated code may call `stacks` and `users` of struct
 * ilk_info after that. Fails with EBUSY while any splice is installed, and with ENXIO if `stacks` is 0. Otherwise
 * reads the stacks from the one of index `first` on, in the order of their first hit; fails with ENXIO
 * if the table was not begun.
 */
struct ilk_stacks {
	__u64 out;		/* struct ilk_stack[count] */
	__u64 lost;		/* out: hits whose stack is not in the table, since it is full */
	__u32 first;
	__u32 count;		/* in: room; out: the number of stacks read */
	__u32 begin;
	__u32 reserved;
};

#define ILK_IOC_INFO	_IOWR('i', 0, struct ilk_info)
#define ILK_IOC_ARENA	_IOW('i', 1, struct ilk_arena_write)
#define ILK_IOC_BATCH	_IOWR('i', 2, struct ilk_batch)
#define ILK_IOC_COUNTERS _IOWR('i', 3, struct ilk_counters)
#define ILK_IOC_LOSSES	_IOWR('i', 4, struct ilk_losses)
#define ILK_IOC_CONSUME	_IOW('i', 5, struct ilk_consume)
/*
 * Removes every splice; zeroes counters, losses, timers. Rings stay on and keep unread samples;
 * open() resets them. Fails with EBUSY if a splice was overwritten by something else: that splice
 * stays installed, and the module stays loaded.
 */
#define ILK_IOC_RESET	_IO('i', 6)
#define ILK_IOC_BANK	_IOWR('i', 7, struct ilk_bank)
#define ILK_IOC_RINGS	_IOW('i', 8, struct ilk_rings)
#define ILK_IOC_STATE	_IOWR('i', 9, struct ilk_state)
#define ILK_IOC_TRACEPOINT _IOW('i', 10, struct ilk_tracepoint)
#define ILK_IOC_TRACEPOINTS_OFF _IO('i', 11)
#define ILK_IOC_STACKS	_IOWR('i', 12, struct ilk_stacks)

#endif
