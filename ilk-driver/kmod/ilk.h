/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* What the files of ilk.ko share. What user space sees is in ilk_abi.h. */
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
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "ilk_abi.h"

#define ILK_JMP 5u	/* bytes of jmp rel32, the only branch this module writes */
#define ILK_JMP_OPCODE 0xe9

/* symbols.c: functions and data of the kernel that are not exported. */
struct ilk_symbols {
	void *text_poke_copy;
	void *text_poke_queue;
	void *text_poke_finish;
	void *alternatives_text_reserved;
	void *ftrace_text_reserved;
	void *get_kprobe;
	void *insn_decode;
	struct mutex *text_mutex;
	struct mutex *kprobe_mutex;
	struct list_head *kprobe_blacklist;
	struct jump_entry *jump_labels, *jump_labels_end;
	struct static_call_site *static_calls, *static_calls_end;
	char *stext, *etext;
	char *static_call_start, *static_call_end;	/* trampolines; optional */
	char *thunk_start, *thunk_end;			/* optional */
};
extern struct ilk_symbols ilk_sym;
int ilk_symbols_resolve(void);

/* call.S: calls one of them; unused arguments are zero. */
unsigned long ilk_call(void *function, unsigned long a, unsigned long b,
		       unsigned long c, unsigned long d, unsigned long e);

/* arena.c: what was written where in the arena, one block a write. */
struct ilk_block {
	struct interval_tree_node node;	/* first and last address */
	unsigned int pins;		/* splices that lead into it */
};
extern char ilk_arena[], ilk_arena_end[];
int ilk_arena_write(const struct ilk_arena_write *request);
struct ilk_block *ilk_arena_block(unsigned long address);
void ilk_arena_forget(void);

/* sites.c: the splices in place. */
struct ilk_site {
	struct latch_tree_node node;
	struct rcu_head rcu;
	struct ilk_block *block;	/* what `detour` lies in */
	unsigned long addr;
	unsigned long detour;
	u8 original[ILK_JMP];
	u8 jmp[ILK_JMP];
	bool out;			/* the original bytes are back */
};
struct ilk_site *ilk_site_find(unsigned long first, unsigned long last);
void ilk_site_enter(struct ilk_site *site);
void ilk_site_drop(struct ilk_site *site);
int ilk_sites_clear(void);
extern struct notifier_block ilk_die_block;
void ilk_text_lock(void);
void ilk_text_unlock(void);
void ilk_poke(unsigned long addr, const u8 *bytes, u32 len, const u8 *emulate);
void ilk_poke_finish(void);
void ilk_wait_for_tasks(void);

/* batch.c */
enum ilk_kind { ILK_INSTALL, ILK_RETARGET, ILK_REMOVE };
struct ilk_job {
	const struct ilk_poke *poke;
	enum ilk_kind kind;
	struct ilk_site *site;
	struct ilk_site *fresh;		/* the same while it is not in the tree */
	struct ilk_block *block;	/* where an install or retarget leads */
	struct ilk_block *left;		/* where a retarget led */
};
int ilk_batch_run(struct ilk_batch *batch);

/* check.c: why a poke may not be done. */
int ilk_check_init(void);
void ilk_check_exit(void);
enum ilk_reason ilk_check_fields(struct ilk_job *job);
enum ilk_reason ilk_check_text(const struct ilk_job *job);

/* ring.c: everything generated code writes to. */
int ilk_ring_init(void);
void ilk_ring_exit(void);
void ilk_ring_open(void);
void ilk_ring_zero_tables(void);
void ilk_ring_describe(struct ilk_info *info);
int ilk_ring_mmap(struct vm_area_struct *vma);
__poll_t ilk_ring_poll(struct file *file, poll_table *wait);
int ilk_ring_consume(const struct ilk_consume *request);
int ilk_ring_counters(const struct ilk_counters *request);
int ilk_ring_losses(const struct ilk_losses *request);

#endif
