/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* Declarations shared by the files of ilk.ko. The interface to user space is in ilk_abi.h. */
#ifndef ILK_H
#define ILK_H

#undef pr_fmt
#define pr_fmt(fmt) "ilk: " fmt

#include <linux/interval_tree.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/rbtree_latch.h>
#include <linux/err.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ilk_abi.h"

#define ILK_JMP 5u	/* bytes of jmp rel32, the longest write */
#define ILK_INT3 0xcc

/*
 * testing.c: the points at which a batch can be made to fail, with half of the step done: all before
 * the first write of step 4. After that the only possible failure is a foreign write to the text.
 */
enum ilk_fail_step {
	ILK_FAIL_PREPARE = 1,	/* while sites are created and inserted in the tree */
	ILK_FAIL_CONNECT,	/* while sites are connected to their bounces and hosts */
	ILK_FAIL_CHECK,		/* while the text is checked */
	ILK_FAIL_INT3S,		/* while int3s are written */
	ILK_FAIL_TRACER,	/* after the tracer branches to detours */
	ILK_FAIL_WAIT,		/* after the wait */
	ILK_FAIL_LOOK,		/* while the text is checked again */
};
#ifdef ILK_TESTING
bool ilk_failing(enum ilk_fail_step step);
void ilk_starve_begin(void);	/* a request begins */
bool ilk_starved(void);		/* the next allocation must fail */
bool ilk_hidden(const char *symbol);
#else
static inline bool ilk_failing(enum ilk_fail_step step)
{
	return false;
}
static inline void ilk_starve_begin(void)
{
}
static inline bool ilk_starved(void)
{
	return false;
}
static inline bool ilk_hidden(const char *symbol)
{
	return false;
}
#endif

/* Evaluates an allocation, which yields a pointer, unless it must fail. */
#define ILK_TRY(allocation) (ilk_starved() ? NULL : (allocation))
#define ILK_TRY_USER(copy) (ilk_starved() ? ERR_PTR(-ENOMEM) : (copy))

/* main.c: serializes the device's requests. */
extern struct mutex ilk_mutex;

/* symbols.c: functions and data of the kernel that are not exported. */
struct ilk_symbols {
	void *text_poke;
	void *text_poke_copy;
	void *text_poke_set;
	void *text_poke_queue;
	void *text_poke_finish;
	void *alternatives_text_reserved;		/* optional */
	void *ftrace_text_reserved;
	void *ftrace_location;
	void *set_memory_ro, *set_memory_rw, *set_memory_x, *set_memory_nx;
	void *execmem_alloc, *module_alloc;		/* one of them */
	void *near_free;
	void *get_kprobe;
	void *insn_decode;
	void *exception_entry;
	void *module_text;
	struct atomic_notifier_head *die_chain;		/* notifiers of traps */
	struct mutex *text_mutex;
	struct mutex *kprobe_mutex;
	struct list_head *kprobe_blacklist;
	struct jump_entry *jump_labels, *jump_labels_end;
	struct static_call_site *static_calls, *static_calls_end;
	char *stext, *etext;
	char *tracer_start, *tracer_end;		/* copied and rewritten by the function tracer */
	char *static_call_start, *static_call_end;	/* trampolines; optional */
	char *thunk_start, *thunk_end;			/* optional */
	int *orc_ip, *orc_ip_end;			/* the kernel's ORC table; optional */
	struct orc_entry *orc;
	unsigned int *orc_lookup, *orc_lookup_end;	/* index of the row of each block of text; optional */
	struct list_head *modules;			/* optional without live patches */
	void **live_patch;				/* the one in transition */
};
extern struct ilk_symbols ilk_sym;
int ilk_symbols_resolve(void);

/* call.S: calls such a function; unused arguments are zero. */
unsigned long ilk_call(void *function, unsigned long a, unsigned long b,
		       unsigned long c, unsigned long d, unsigned long e);

/* arena.c: a write to the arena. */
struct ilk_block {
	struct interval_tree_node node;	/* first and last address */
	unsigned int pins;		/* splices that branch into it */
	u32 row_count;
	struct ilk_unwind *rows;	/* unwind rows */
	u32 fault_count;
	struct ilk_fault *faults;	/* instructions that may fault */
};
extern unsigned long ilk_arena, ilk_arena_size;
extern struct rb_root_cached ilk_blocks;
int ilk_arena_init(void);
void ilk_arena_exit(void);
int ilk_arena_write(const struct ilk_arena_write *request, const void *code,
		    const struct ilk_row *rows, struct ilk_fault **faults);
struct ilk_block *ilk_arena_block(unsigned long address);
struct ilk_block *ilk_next_block(struct ilk_block *block);	/* in order of address; the first after NULL */
bool ilk_arena_is_text(void);
void ilk_arena_forget(void);
void *ilk_near_alloc(unsigned long size);
void ilk_near_free(void *memory);

/* unwind.c: unwind rows of the arena. */
extern bool ilk_unwinds;
void ilk_unwind_init(void);
void ilk_unwind_exit(void);
int ilk_unwind_read(struct ilk_block *block, const struct ilk_arena_write *request,
		    const struct ilk_row *rows);
int ilk_unwind_publish(void);

/* faults.c: exception table entries of the arena. */
void ilk_faults_init(void);
void ilk_faults_exit(void);
u32 ilk_faults_most(void);
int ilk_faults_read(struct ilk_block *block, const struct ilk_arena_write *request,
		    struct ilk_fault **array);
int ilk_faults_publish(void);
int ilk_faults_always(void);

/* user.c: the running process, for generated code. */
u64 ilk_users_address(void);

/* stack.c: stacks of the kernel, for generated code, and the table of all stacks. */
u64 ilk_stacks_address(void);
struct ilk_stack *ilk_stack_place(u64 id);
static __always_inline u64 ilk_stack_hash(u64 hash, u64 address)
{
	hash = (hash ^ address) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}
int ilk_stacks_check(const struct ilk_stacks *request);
int ilk_stacks(struct ilk_stacks *request, struct ilk_stack *out);
void ilk_stacks_forget(void);
void ilk_stacks_module(const struct module *module, bool leaves);

/*
 * sites.c: the installed splices. A site is in the tree from before its first write until after the
 * wait that follows its removal.
 */
struct ilk_job;
struct ilk_site {
	struct latch_tree_node node;
	struct rcu_head rcu;
	unsigned long addr;
	unsigned long detour;		/* target of an int3 or the tracer; equals `target` after the write */
	unsigned long target;
	struct ilk_block *blocks[2];	/* the blocks of detour and target; pinned */
	struct ilk_site *on;		/* the bounce that it branches to, or the host that it lies in */
	struct ilk_job *job;		/* its job in the current batch */
	u32 users;			/* sites that are `on` this one */
	u32 leaving;			/* those of them that the current batch removes */
	u8 kind;
	u8 len;				/* bytes written */
	u8 span;			/* bytes that no other poke may write */
	bool out;			/* the original bytes are restored */
	u8 original[ILK_JMP];
	u8 written[ILK_JMP];
	u64 filled;			/* bytes after the span that are int3 while it is installed */
	u8 under[];			/* the original text there, ilk_fill_len(filled) bytes */
};
struct ilk_site *ilk_site_find(unsigned long first, unsigned long last);
struct ilk_site *ilk_site_from(unsigned long address);	/* the first at or after it; with ilk_mutex */
void ilk_site_enter(struct ilk_site *site);
void ilk_site_leave(struct ilk_site *site);
void ilk_site_drop(struct ilk_site *site);
void ilk_site_poke(const struct ilk_site *site, const u8 *bytes, u32 len);
int ilk_sites_clear(void);
void ilk_sites_leave(const struct module *going);
extern struct notifier_block ilk_die_block;
void ilk_text_lock(void);
void ilk_text_unlock(void);
/* Most splices that are checked or written before ilk_text_unlock() lets others write text and register kprobes. */
#define ILK_CHUNK 512u
static inline u32 ilk_chunk_end(u32 first, u32 count)
{
	return min(first + ILK_CHUNK, count);
}
void ilk_poke_finish(void);
void ilk_wait_for_tasks(void);
extern u32 ilk_waits;		/* number of calls; protected by ilk_mutex */

/* fill.c: int3 over the rest of displaced instructions. */
#define ILK_FILL_MAX 64u	/* bits of `filled` */
static inline u32 ilk_fill_len(u64 filled)
{
	return fls64(filled);
}
void ilk_fill_keep(struct ilk_site *site);
bool ilk_fill_is(const struct ilk_site *site, bool filled);
void ilk_fill_write(const struct ilk_site *site, bool fill);

/* seen.c: what others can see of a session. */
void ilk_seen_init(void);
void ilk_seen_exit(void);
void ilk_seen_install(void);
void ilk_seen_end(void);

/* end.c: events that end every session. */
extern u32 ilk_ended;
extern u64 ilk_ended_tsc;
void ilk_end(enum ilk_end why);
bool ilk_is_over(void);
bool ilk_live_patching(void);
int ilk_end_init(void);
void ilk_end_exit(void);

/* modules.c: text of modules. Results are valid until ilk_mutex is released. */
extern u32 ilk_modules_gone;	/* number of unloaded modules */
extern struct notifier_block ilk_module_block;
struct module *ilk_module_of(unsigned long first, unsigned long last);
bool ilk_is_core(unsigned long address);
u32 ilk_readable(unsigned long address);

/* tracer.c: splices by the kernel's function tracer. */
int ilk_tracer_add(unsigned long *sites, u32 count);
void ilk_tracer_remove(unsigned long *sites, u32 count);
void ilk_tracer_clear(void);

/* batch.c */
enum ilk_action { ILK_INSTALL, ILK_RETARGET, ILK_REMOVE };
struct ilk_job {
	const struct ilk_poke *poke;
	struct ilk_site *site;
	struct ilk_block *blocks[2];	/* of a retarget: the new blocks; after the write the old ones */
	enum ilk_action action;
	bool ready;			/* connected with its site */
	bool begun;			/* an int3 or the tracer branches to the detour */
	bool done;			/* written */
};
int ilk_batch_run(struct ilk_batch *batch, const struct ilk_poke *pokes);

/*
 * steps.c: the writes of a batch. ilk_text_is_unchanged() and ilk_write_install() are called with
 * ilk_text_lock() held; the others take it, in chunks.
 */
enum ilk_reason ilk_write_int3s(struct ilk_job *jobs, u32 count, bool *any, u32 *at);
enum ilk_reason ilk_trace_all(struct ilk_job *jobs, u32 count, unsigned long *sites, u32 *at);
bool ilk_text_is_unchanged(const struct ilk_job *job);
void ilk_roll_back(struct ilk_job *jobs, u32 count);
void ilk_write_install(struct ilk_job *job);
enum ilk_reason ilk_write_removals(struct ilk_job *jobs, u32 first, u32 end, unsigned long *sites,
				   u32 *at);

/* check.c: the reasons to refuse a poke. */
int ilk_check_init(void);
int ilk_check_notifiers(void);		/* after ilk_die_block is registered */
void ilk_check_exit(void);
enum ilk_reason ilk_check_fields(struct ilk_job *job, u8 *span);
enum ilk_reason ilk_check_chain(const struct ilk_job *job);
enum ilk_reason ilk_check_text(const struct ilk_job *job);
bool ilk_kprobe_at(unsigned long addr);	/* with ilk_text_lock(), as the next */
bool ilk_kprobe_in(const struct ilk_job *job);

/* tracepoint.c: tracepoints that splices stand on. */
int ilk_tracepoint_on(const struct ilk_tracepoint *request);
void ilk_tracepoints_off(void);

/* clock.c: the kernel's monotonic clock, for generated code. */
int ilk_clock_open(void);
void ilk_clock_close(void);
void ilk_clock_describe(struct ilk_info *info);

/* ring.c: all data written by generated code. */
int ilk_ring_init(void);
void ilk_ring_exit(void);
int ilk_ring_alloc(void);
void ilk_ring_open(void);
void ilk_ring_zero_tables(void);
void ilk_ring_describe(struct ilk_info *info);
int ilk_ring_mmap(struct vm_area_struct *vma);
__poll_t ilk_ring_poll(struct file *file, poll_table *wait);
int ilk_ring_rings(const struct ilk_rings *request);
int ilk_ring_consume(const struct ilk_consume *request);
int ilk_ring_bank(struct ilk_bank *request);
int ilk_ring_counters_check(const struct ilk_counters *request);
void ilk_ring_counters(const struct ilk_counters *request, u64 *out);
void ilk_ring_losses(struct ilk_cpu_state *out);

#endif
