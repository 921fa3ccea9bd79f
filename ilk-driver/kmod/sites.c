// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The installed splices, and the primitives that write text.
 *
 * The sites are in a latch tree, which the int3 handler and the tracer's callback can search in any
 * context.
 */
#include <linux/cpu.h>
#include <linux/kdebug.h>
#include <asm/insn.h>
#include <asm/text-patching.h>

#include "ilk.h"

static struct latch_tree_root ilk_sites;
static bool ilk_stuck;	/* a splice could not be removed: the module stays loaded */

static __always_inline bool ilk_site_less(struct latch_tree_node *a, struct latch_tree_node *b)
{
	return container_of(a, struct ilk_site, node)->addr <
	       container_of(b, struct ilk_site, node)->addr;
}

/* The key is the range of addresses to find, both inclusive. */
static __always_inline int ilk_site_compare(void *key, struct latch_tree_node *node)
{
	const struct ilk_site *site = container_of(node, struct ilk_site, node);
	const unsigned long *range = key;

	if (range[1] < site->addr)
		return -1;
	return range[0] >= site->addr + site->span;
}

static const struct latch_tree_ops ilk_site_ops = {
	.less = ilk_site_less,
	.comp = ilk_site_compare,
};

/* Returns a site that shares a byte with the range from `first` to `last`. */
notrace struct ilk_site *ilk_site_find(unsigned long first, unsigned long last)
{
	unsigned long range[] = { first, last };
	struct latch_tree_node *node = latch_tree_find(range, &ilk_sites, &ilk_site_ops);

	return node ? container_of(node, struct ilk_site, node) : NULL;
}
NOKPROBE_SYMBOL(ilk_site_find);

void ilk_site_enter(struct ilk_site *site)
{
	lockdep_assert_held(&ilk_mutex);
	for (int i = 0; i < ARRAY_SIZE(site->blocks); i++)
		if (site->blocks[i])
			site->blocks[i]->pins++;
	latch_tree_insert(&site->node, &ilk_sites, &ilk_site_ops);
}

/* Called when its original bytes are restored: its bounce or host has one user less. */
void ilk_site_leave(struct ilk_site *site)
{
	lockdep_assert_held(&ilk_mutex);
	WARN_ON_ONCE(site->out);
	site->out = true;
	if (site->on)
		site->on->users--;
	site->on = NULL;
}

/* Called when no thread can be in the patch any more. */
void ilk_site_drop(struct ilk_site *site)
{
	lockdep_assert_held(&ilk_mutex);
	WARN_ON_ONCE(!site->out || site->users);
	for (int i = 0; i < ARRAY_SIZE(site->blocks); i++)
		if (site->blocks[i])
			site->blocks[i]->pins--;
	latch_tree_erase(&site->node, &ilk_sites, &ilk_site_ops);
	kfree_rcu(site, rcu);
}

/* Handles an int3: if it is a site's, execution continues in the patch. */
static notrace int ilk_die(struct notifier_block *block, unsigned long event, void *data)
{
	struct pt_regs *regs = ((struct die_args *)data)->regs;
	struct ilk_site *site;

	if (event != DIE_INT3 || user_mode(regs))
		return NOTIFY_DONE;
	site = ilk_site_find(regs->ip - 1, regs->ip - 1);
	if (!site || site->addr != regs->ip - 1)
		return NOTIFY_DONE;
	/* The int3 of another one than text_poke(): the thread executes the call all the same. */
	if (site->kind == ILK_CALL)
		int3_emulate_push(regs, site->addr + CALL_INSN_SIZE);
	regs->ip = READ_ONCE(site->detour);
	return NOTIFY_STOP;
}
NOKPROBE_SYMBOL(ilk_die);

struct notifier_block ilk_die_block = {
	.notifier_call = ilk_die,
	.priority = INT_MAX,
};

/*
 * The lock order is the kernel's own. With kprobe_mutex no kprobe is half installed: it is in the
 * kernel's table, or has not read the text yet. The locks are released between groups of pokes and
 * while waiting for tasks, so what depends on them is checked again with each hold: a kprobe that is
 * disabled is in the table alone, and has a copy of what it found in the text.
 */
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
 * Queues a write. A thread that reaches the bytes during the write continues at the detour, as by
 * the instruction of the splice: poke_int3_handler() emulates a call with its push. Fast when
 * called in order of addresses.
 */
void ilk_site_poke(const struct ilk_site *site, const u8 *bytes, u32 len)
{
	/* The kernel computes the target of an emulated branch from the end of the write. */
	s32 displacement = (s32)(site->detour - site->addr - len);
	u8 emulate[MAX_INSN_SIZE] = {
		site->kind == ILK_CALL ? CALL_INSN_OPCODE : JMP32_INSN_OPCODE
	};

	lockdep_assert_held(ilk_sym.text_mutex);
	memcpy(emulate + 1, &displacement, sizeof(displacement));
	ilk_call(ilk_sym.text_poke_queue, site->addr, (unsigned long)bytes, len,
		 (unsigned long)emulate, 0);
	cond_resched();
}

/* Applies queued writes; every CPU sees them when this returns. */
void ilk_poke_finish(void)
{
	lockdep_assert_held(ilk_sym.text_mutex);
	ilk_call(ilk_sym.text_poke_finish, 0, 0, 0, 0, 0);
}

u32 ilk_waits;

/*
 * Waits for quiescence: every thread has left the code that it was in. Tasks RCU waits for each
 * thread to sleep voluntarily or be in user space, except idle threads. Rude RCU waits for each CPU
 * to schedule, idle threads included; from about 6.13 it is a return on x86, since the idle loop
 * executes no instrumentable code while RCU is not watching. There, the synchronize_rcu() within
 * tasks RCU covers idle threads, whose code runs with preemption off. Neither covers a CPU
 * that starts and is not known to RCU yet: with this lock held, none is starting.
 */
void ilk_wait_for_tasks(void)
{
	lockdep_assert_held(&ilk_mutex);
	lockdep_assert_not_held(ilk_sym.kprobe_mutex);
	lockdep_assert_not_held(ilk_sym.text_mutex);
	ilk_waits++;
	synchronize_rcu_tasks_rude();
	cpus_read_lock();
	synchronize_rcu_tasks();
	cpus_read_unlock();
}

/*
 * Returns whether the original may be restored: the text is the written splice or the original,
 * with or without the int3 of a batch that could not be rolled back. No kprobe has a copy of the splice,
 * which it would execute after the patch is gone.
 */
static bool ilk_site_ours(const struct ilk_site *site)
{
	const u8 *text = (const u8 *)site->addr;

	if (ilk_kprobe_at(site->addr))
		return false;
	if (!ilk_fill_is(site, true) && !ilk_fill_is(site, false))
		return false;
	return !memcmp(text, site->written, site->len) ||
	       ((text[0] == ILK_INT3 || text[0] == site->original[0]) &&
		!memcmp(text + 1, site->original + 1, site->len - 1));
}

static struct ilk_site *ilk_site_of(struct rb_node *node)
{
	return node ? container_of(node, struct ilk_site, node.node[0]) : NULL;
}

static struct ilk_site *ilk_site_next(struct ilk_site *site)
{
	return ilk_site_of(site ? rb_next(&site->node.node[0]) : rb_first(&ilk_sites.tree[0]));
}

struct ilk_site *ilk_site_from(unsigned long address)
{
	struct rb_node *node = ilk_sites.tree[0].rb_node;
	struct ilk_site *first = NULL;

	lockdep_assert_held(&ilk_mutex);
	while (node) {
		struct ilk_site *site = ilk_site_of(node);

		if (site->addr >= address)
			first = site;
		node = site->addr >= address ? node->rb_left : node->rb_right;
	}
	return first;
}

/*
 * Removes the unmodified sites of these kinds that have no users; for an unloading module only its
 * own, including overwritten ones. Returns whether there was any.
 */
static bool ilk_clear_kinds(unsigned int kinds, const struct module *going)
{
	struct ilk_site *site = NULL;
	u32 done = 0;

	ilk_text_lock();
	while ((site = ilk_site_next(site))) {
		bool ours = site->kind == ILK_TRACER || ilk_site_ours(site);

		if (site->out || site->users || !(BIT(site->kind) & kinds))
			continue;
		if (going ? !within_module_core(site->addr, going) : !ours)
			continue;
		if (site->kind != ILK_TRACER && ours) {
			ilk_fill_write(site, false);
			ilk_site_poke(site, site->original, site->len);
		}
		ilk_site_leave(site);
		if (++done % ILK_CHUNK)
			continue;
		ilk_poke_finish();
		ilk_text_unlock();
		ilk_text_lock();
	}
	ilk_poke_finish();
	ilk_text_unlock();
	return done;
}

/* Bounces are removed after their users: no thread may be in a bounce when its bytes change. */
static void ilk_clear_all(const struct module *going)
{
	if (ilk_clear_kinds(BIT(ILK_SHORT), going))
		ilk_wait_for_tasks();
	ilk_clear_kinds(BIT(ILK_BOUNCE), going);
	ilk_clear_kinds(BIT(ILK_JUMP) | BIT(ILK_TRAP) | BIT(ILK_TRACER) | BIT(ILK_CALL), going);
}

/* Removes every splice in the text of an unloading module. */
void ilk_sites_leave(const struct module *going)
{
	struct ilk_site *site = NULL, *next;
	bool any = false;

	while ((site = ilk_site_next(site))) {
		if (!within_module_core(site->addr, going))
			continue;
		any = true;
		if (site->kind == ILK_TRACER)
			ilk_tracer_remove(&site->addr, 1);
	}
	if (any)
		ilk_clear_all(going);
	if (!any)
		return;
	ilk_wait_for_tasks();
	for (site = ilk_site_next(NULL); site; site = next) {
		next = ilk_site_next(site);
		if (site->out && within_module_core(site->addr, going))
			ilk_site_drop(site);
	}
}

/*
 * Removes every splice. One that was overwritten by something else (a kprobe set on it) stays with
 * the sites that it depends on, and the module stays loaded; the next call retries.
 */
int ilk_sites_clear(void)
{
	struct ilk_site *site = ilk_site_next(NULL), *next;
	u32 stuck = 0;

	lockdep_assert_held(&ilk_mutex);
	if (!site)
		return 0;

	ilk_tracer_clear();
	ilk_clear_all(NULL);
	ilk_wait_for_tasks();

	for (; site; site = next) {
		cond_resched();
		next = ilk_site_next(site);
		if (site->out)
			ilk_site_drop(site);
		else
			stuck++;
	}
	if (stuck)
		pr_warn("%u splices were overwritten by something else and stay\n", stuck);
	if (stuck && !ilk_stuck)
		__module_get(THIS_MODULE);
	if (!stuck && ilk_stuck)
		module_put(THIS_MODULE);
	ilk_stuck = stuck;
	return stuck ? -EBUSY : 0;
}
