// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * Why a poke may not be done. Nothing is written from here.
 *
 * The kernel has functions that answer for one address by going through a whole
 * table, or through all of kallsyms. A batch has thousands of addresses: the tables of
 * what the kernel may rewrite, which never change for the core kernel, are
 * sorted here once, when the module is loaded. That makes a check 40 times shorter.
 */
#include <linux/jhash.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/sort.h>
#include <linux/static_call_types.h>
#include <asm/insn.h>

#include "ilk.h"

/*
 * Functions that are not on the kprobe blacklist and still not for us. Those on the path from
 * an int3 to ilk_die() or back (kprobes are served before it begins): a lone int3
 * in there would meet itself without end. And the return thunks outside the
 * range of thunks, which every ret of the kernel goes through.
 */
static const struct {
	const char *function;
	bool int3_only;
} ilk_denied[] = {
	{ "__rcu_read_lock", true },
	{ "__rcu_read_unlock", true },
	{ "rcu_read_unlock_special", true },
	{ "trace_hwlat_callback", true },
	{ "trace_osnoise_callback", true },
	{ "srso_alias_untrain_ret", false },
	{ "srso_alias_safe_ret", false },
};

/* A place the kernel itself rewrites: a jump label or a call to a static call. */
struct ilk_reserved {
	unsigned long addr;
	enum ilk_reason reason;
};
static struct ilk_reserved *ilk_reserved;
static size_t ilk_reserved_count;

/* Hashes of the names of the functions on the kprobe blacklist: some 400. */
static u32 ilk_black_names[8192];
static size_t ilk_black_count;

static int ilk_reserved_order(const void *a, const void *b)
{
	unsigned long one = ((const struct ilk_reserved *)a)->addr;
	unsigned long other = ((const struct ilk_reserved *)b)->addr;

	return one < other ? -1 : one > other;
}

int ilk_check_init(void)
{
	const struct kprobe_blacklist_entry *entry;
	const struct static_call_site *call;
	const struct jump_entry *label;
	char name[KSYM_SYMBOL_LEN];
	size_t i = 0;

	mutex_lock(ilk_sym.kprobe_mutex);
	list_for_each_entry(entry, ilk_sym.kprobe_blacklist, list) {
		sprint_symbol_no_offset(name, entry->start_addr);
		if (ilk_black_count < ARRAY_SIZE(ilk_black_names))
			ilk_black_names[ilk_black_count] = jhash(name, strlen(name), 0);
		ilk_black_count++;
	}
	mutex_unlock(ilk_sym.kprobe_mutex);
	if (ilk_black_count > ARRAY_SIZE(ilk_black_names)) {
		pr_err("the kprobe blacklist has more names than ilk has room for\n");
		return -E2BIG;
	}

	ilk_reserved_count = ilk_sym.jump_labels_end - ilk_sym.jump_labels +
			     (ilk_sym.static_calls_end - ilk_sym.static_calls);
	ilk_reserved = kvcalloc(ilk_reserved_count, sizeof(*ilk_reserved), GFP_KERNEL);
	if (!ilk_reserved)
		return -ENOMEM;
	for (label = ilk_sym.jump_labels; label < ilk_sym.jump_labels_end; label++, i++)
		ilk_reserved[i] = (struct ilk_reserved){ jump_entry_code(label), ILK_JUMP_LABEL };
	for (call = ilk_sym.static_calls; call < ilk_sym.static_calls_end; call++, i++)
		ilk_reserved[i] = (struct ilk_reserved){ (long)&call->addr + call->addr,
							 ILK_STATIC_CALL };
	sort(ilk_reserved, i, sizeof(*ilk_reserved), ilk_reserved_order, NULL);
	return 0;
}

void ilk_check_exit(void)
{
	kvfree(ilk_reserved);
}

static bool ilk_in_arena(unsigned long address)
{
	return address >= (unsigned long)ilk_arena && address < (unsigned long)ilk_arena_end;
}

static unsigned long ilk_jmp_target(unsigned long addr, const u8 *jmp)
{
	return addr + ILK_JMP + *(const s32 *)(jmp + 1);
}

/* Where the poke leads, for an install or a retarget. */
static enum ilk_reason ilk_check_detour(struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;

	if (poke->write[0] != ILK_JMP_OPCODE)
		return ILK_BAD_REQUEST;
	if (!ilk_in_arena(poke->detour) ||
	    ilk_jmp_target(poke->addr, poke->write) != poke->detour)
		return ILK_BAD_DETOUR;
	job->block = ilk_arena_block(poke->detour);
	return job->block ? ILK_OK : ILK_BAD_DETOUR;
}

/* Tells what a poke is by what is in place, and checks all but the text. */
enum ilk_reason ilk_check_fields(struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	bool remove = poke->flags & ILK_POKE_REMOVE;

	if (poke->len != ILK_JMP || poke->flags & ~(ILK_POKE_MULTI | ILK_POKE_REMOVE))
		return ILK_BAD_REQUEST;
	if (poke->addr < (unsigned long)ilk_sym.stext ||
	    poke->addr >= (unsigned long)ilk_sym.etext - ILK_JMP)
		return ILK_NOT_TEXT;

	job->site = ilk_site_find(poke->addr, poke->addr + ILK_JMP - 1);
	if (job->site && job->site->addr == poke->addr && remove) {
		job->kind = ILK_REMOVE;
		return memcmp(poke->write, job->site->original, ILK_JMP) ? ILK_MISMATCH : ILK_OK;
	}
	if (job->site && job->site->addr == poke->addr && !poke->flags) {
		job->kind = ILK_RETARGET;
		return ilk_check_detour(job);
	}
	if (remove)
		return ILK_UNKNOWN_SPLICE;
	if (job->site)
		return ILK_OVERLAP;
	job->kind = ILK_INSTALL;
	if (poke->expect[0] == ILK_JMP_OPCODE &&
	    ilk_in_arena(ilk_jmp_target(poke->addr, poke->expect)))
		return ILK_UNKNOWN_SPLICE;
	return ilk_check_detour(job);
}

static bool ilk_on_blacklist(unsigned long first, unsigned long last)
{
	const struct kprobe_blacklist_entry *entry;

	list_for_each_entry(entry, ilk_sym.kprobe_blacklist, list)
		if (first < entry->end_addr && last >= entry->start_addr)
			return true;
	return false;
}

/* Refusals by the function's name. What gcc split off a function has its name and a dot. */
static bool ilk_name_denied(unsigned long addr, bool int3)
{
	char name[KSYM_SYMBOL_LEN];
	char *dot;
	u32 hash;

	sprint_symbol_no_offset(name, addr);
	dot = strchrnul(name, '.');
	hash = jhash(name, dot - name, 0);
	for (size_t i = 0; *dot && i < ilk_black_count; i++)
		if (ilk_black_names[i] == hash)
			return true;
	*dot = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(ilk_denied); i++)
		if (!strcmp(name, ilk_denied[i].function))
			return int3 || !ilk_denied[i].int3_only;
	return false;
}

static enum ilk_reason ilk_check_reserved(unsigned long first, unsigned long last)
{
	size_t low = 0, high = ilk_reserved_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ilk_reserved[middle].addr + ILK_JMP <= first)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < ilk_reserved_count && ilk_reserved[low].addr <= last; low++) {
		u8 byte = *(const u8 *)ilk_reserved[low].addr;
		/* A jump label has two bytes, unless it is jmp rel32 or the nop of five. */
		bool small = ilk_reserved[low].reason == ILK_JUMP_LABEL &&
			     byte != ILK_JMP_OPCODE && byte != 0x0f;

		if (ilk_reserved[low].addr + (small ? 2 : ILK_JMP) > first)
			return ilk_reserved[low].reason;
	}
	return ILK_OK;
}

static bool ilk_kprobe_near(unsigned long addr)
{
	/* An optimized kprobe is a jmp of five bytes: it may begin before ours. */
	for (unsigned long at = addr - ILK_JMP + 1; at < addr + ILK_JMP; at++)
		if (ilk_call(ilk_sym.get_kprobe, at, 0, 0, 0, 0))
			return true;
	return false;
}

static bool ilk_within(unsigned long addr, const char *start, const char *end)
{
	return addr + ILK_JMP > (unsigned long)start && addr < (unsigned long)end;
}

/* The length of the instruction at `addr`, 0 if that is none. */
static u32 ilk_first_instruction(unsigned long addr)
{
	unsigned long left = (unsigned long)ilk_sym.etext - addr;
	struct insn insn;
	int err = (int)ilk_call(ilk_sym.insn_decode, (unsigned long)&insn, addr,
				min_t(unsigned long, left, MAX_INSN_SIZE), INSN_MODE_KERN, 0);

	return err < 0 ? 0 : insn.length;
}

/* What only the text can tell; with ilk_text_lock() held. */
enum ilk_reason ilk_check_text(const struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	unsigned long addr = poke->addr, last = addr + ILK_JMP - 1;

	if (job->kind == ILK_INSTALL) {
		enum ilk_reason reason;

		if (ilk_on_blacklist(addr, last) ||
		    ilk_within(addr, ilk_sym.thunk_start, ilk_sym.thunk_end) ||
		    ilk_name_denied(addr, poke->flags & ILK_POKE_MULTI))
			return ILK_BLACKLISTED;
		if (ilk_within(addr, ilk_sym.static_call_start, ilk_sym.static_call_end))
			return ILK_STATIC_CALL;
		reason = ilk_check_reserved(addr, last);
		if (reason)
			return reason;
		if ((int)ilk_call(ilk_sym.alternatives_text_reserved, addr, last + 1, 0, 0, 0))
			return ILK_ALTERNATIVE;
		if ((int)ilk_call(ilk_sym.ftrace_text_reserved, addr, last, 0, 0, 0))
			return ILK_FTRACE;
	}
	if (ilk_kprobe_near(addr))
		return ILK_KPROBE;
	if (memcmp((void *)addr, poke->expect, ILK_JMP))
		return ILK_MISMATCH;
	if (job->kind == ILK_INSTALL && !(poke->flags & ILK_POKE_MULTI) &&
	    ilk_first_instruction(addr) < ILK_JMP)
		return ILK_BAD_REQUEST;
	return ILK_OK;
}
