// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The splices in place, and the few primitives that write text.
 *
 * The sites stand in a latch tree, which the int3 handler can search whatever it
 * interrupts. A site is in it from before its first byte is written until after the
 * wait that follows its removal.
 */
#include <linux/cpu.h>
#include <linux/kdebug.h>

#include "ilk.h"

static struct latch_tree_root ilk_sites;
static bool ilk_stuck;	/* a splice could not be taken out: the module is kept */

static __always_inline bool ilk_site_less(struct latch_tree_node *a, struct latch_tree_node *b)
{
	return container_of(a, struct ilk_site, node)->addr <
	       container_of(b, struct ilk_site, node)->addr;
}

/* The key is the address of the first and of the last byte looked for. */
static __always_inline int ilk_site_compare(void *key, struct latch_tree_node *node)
{
	unsigned long addr = container_of(node, struct ilk_site, node)->addr;
	const unsigned long *range = key;

	if (range[1] < addr)
		return -1;
	return range[0] >= addr + ILK_JMP;
}

static const struct latch_tree_ops ilk_site_ops = {
	.less = ilk_site_less,
	.comp = ilk_site_compare,
};

/* A site that shares a byte with those from `first` to `last`. */
notrace struct ilk_site *ilk_site_find(unsigned long first, unsigned long last)
{
	unsigned long range[] = { first, last };
	struct latch_tree_node *node = latch_tree_find(range, &ilk_sites, &ilk_site_ops);

	return node ? container_of(node, struct ilk_site, node) : NULL;
}
NOKPROBE_SYMBOL(ilk_site_find);

void ilk_site_enter(struct ilk_site *site)
{
	site->block->pins++;
	latch_tree_insert(&site->node, &ilk_sites, &ilk_site_ops);
}

/* To be called when no thread can be in the code patch any more. */
void ilk_site_drop(struct ilk_site *site)
{
	site->block->pins--;
	latch_tree_erase(&site->node, &ilk_sites, &ilk_site_ops);
	kfree_rcu(site, rcu);
}

/* A thread met an int3: if it is one of ours, it goes on in the code patch. */
static notrace int ilk_die(struct notifier_block *block, unsigned long event, void *data)
{
	struct pt_regs *regs = ((struct die_args *)data)->regs;
	struct ilk_site *site;

	if (event != DIE_INT3 || user_mode(regs))
		return NOTIFY_DONE;
	site = ilk_site_find(regs->ip - 1, regs->ip - 1);
	if (!site || site->addr != regs->ip - 1)
		return NOTIFY_DONE;
	regs->ip = site->detour;
	return NOTIFY_STOP;
}
NOKPROBE_SYMBOL(ilk_die);

struct notifier_block ilk_die_block = {
	.notifier_call = ilk_die,
	.priority = INT_MAX,
};

/* The order is the kernel's own. With kprobe_mutex no kprobe is half set. */
void ilk_text_lock(void)
{
	mutex_lock(ilk_sym.kprobe_mutex);
	cpus_read_lock();
	mutex_lock(ilk_sym.text_mutex);
}

void ilk_text_unlock(void)
{
	mutex_unlock(ilk_sym.text_mutex);
	cpus_read_unlock();
	mutex_unlock(ilk_sym.kprobe_mutex);
}

/*
 * Queues one write. A thread that comes by while it happens takes `emulate`, a jmp,
 * or `bytes` where that is NULL. Fast when called in order of addresses.
 */
void ilk_poke(unsigned long addr, const u8 *bytes, u32 len, const u8 *emulate)
{
	ilk_call(ilk_sym.text_poke_queue, addr, (unsigned long)bytes, len,
		 (unsigned long)emulate, 0);
	cond_resched();
}

/* Carries out what is queued; every CPU sees it when this returns. */
void ilk_poke_finish(void)
{
	ilk_call(ilk_sym.text_poke_finish, 0, 0, 0, 0, 0);
}

/*
 * Returns when every thread has left the code it was in: rude waits for each CPU to
 * schedule, the other for each thread to sleep of its own will or be in user space.
 */
void ilk_wait_for_tasks(void)
{
	synchronize_rcu_tasks_rude();
	synchronize_rcu_tasks();
}

/*
 * Whether the original may be written: our jmp is there, or the original, with or
 * without the int3 of a batch that could not be taken back.
 */
static bool ilk_site_ours(const struct ilk_site *site)
{
	const u8 *text = (const u8 *)site->addr;

	return !memcmp(text, site->jmp, ILK_JMP) ||
	       ((text[0] == 0xcc || text[0] == site->original[0]) &&
		!memcmp(text + 1, site->original + 1, ILK_JMP - 1));
}

static struct ilk_site *ilk_site_of(struct rb_node *node)
{
	return node ? container_of(node, struct ilk_site, node.node[0]) : NULL;
}

/*
 * Takes every splice out. One that someone else has written over (a kprobe was set
 * on it) stays, and the module stays loaded; the next call tries again.
 */
int ilk_sites_clear(void)
{
	struct ilk_site *site, *next;
	struct rb_node *first = rb_first(&ilk_sites.tree[0]);
	u32 stuck = 0;

	if (!first)
		return 0;

	ilk_text_lock();
	for (site = ilk_site_of(first); site; site = ilk_site_of(rb_next(&site->node.node[0]))) {
		site->out = ilk_site_ours(site);
		if (site->out)
			ilk_poke(site->addr, site->original, ILK_JMP, site->jmp);
	}
	ilk_poke_finish();
	ilk_text_unlock();
	ilk_wait_for_tasks();

	for (site = ilk_site_of(first); site; site = next) {
		next = ilk_site_of(rb_next(&site->node.node[0]));
		if (site->out)
			ilk_site_drop(site);
		else
			stuck++;
	}
	if (stuck)
		pr_warn("%u splices were overwritten by someone else and stay\n", stuck);
	if (stuck && !ilk_stuck)
		__module_get(THIS_MODULE);
	if (!stuck && ilk_stuck)
		module_put(THIS_MODULE);
	ilk_stuck = stuck;
	return stuck ? -EBUSY : 0;
}
