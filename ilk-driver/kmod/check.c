// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The reasons to refuse a poke. Nothing is written here.
 *
 * The kernel's functions for these checks walk a whole table, or all of kallsyms, for each address.
 * A batch has thousands of addresses. Therefore the tables of text that the kernel may rewrite,
 * which never change for the core kernel, are sorted here once, at load. That makes a check 40
 * times faster.
 */
#include <linux/jhash.h>
#include <linux/jump_label.h>
#include <linux/kallsyms.h>
#include <linux/sort.h>
#include <linux/static_call_types.h>
#include <asm/ftrace.h>
#include <asm/insn.h>
#include <asm/text-patching.h>

#include "ilk.h"

/*
 * Functions that are not on the kprobe blacklist and still refused. First, those on the path from
 * an int3 to ilk_die() or back (kprobes run before it): a lone int3 in them would recurse without
 * end. Second, the return thunks outside the range of thunks, which every ret of the kernel passes
 * through.
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
	{ "trace_clock_local", true },
	/* In 6.12, and not in 6.1, each call of a notifier has a tracepoint. */
	{ "__traceiter_notifier_run", true },
	{ "__traceiter_nmi_noise", true },
	{ "srso_alias_untrain_ret", false },
	{ "srso_alias_safe_ret", false },
};

/* Text that the kernel itself rewrites: a jump label or a call to a static call. */
struct ilk_reserved {
	unsigned long addr;
	enum ilk_reason reason;
};
static struct ilk_reserved *ilk_reserved;
static size_t ilk_reserved_count;

/* Hashes of the names of the functions on the kprobe blacklist, about 400. */
static u32 ilk_black_names[8192];
static size_t ilk_black_count;

/* Hashes of the names of the notifiers of traps that are called before ilk_die(), for each int3. */
static u32 ilk_notifiers[64];
static size_t ilk_notifier_count;

/* Returns the hash of a function's name. A part that gcc split off it has its name, a dot and a suffix. */
static u32 ilk_name_hash(const char *name)
{
	return jhash(name, strchrnul(name, '.') - name, 0);
}

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
		*strchrnul(name, ' ') = '\0';
		if (ilk_black_count < ARRAY_SIZE(ilk_black_names))
			ilk_black_names[ilk_black_count] = jhash(name, strlen(name), 0);
		ilk_black_count++;
	}
	mutex_unlock(ilk_sym.kprobe_mutex);
	if (ilk_black_count > ARRAY_SIZE(ilk_black_names)) {
		pr_err("the kprobe blacklist has more names than ilk's table\n");
		return -E2BIG;
	}

	ilk_reserved_count = ilk_sym.jump_labels_end - ilk_sym.jump_labels +
			     (ilk_sym.static_calls_end - ilk_sym.static_calls);
	ilk_reserved = ILK_TRY(kvcalloc(ilk_reserved_count, sizeof(*ilk_reserved), GFP_KERNEL));
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

/*
 * Finds the notifiers before ilk_die(), which is registered. There are no others later: of notifiers
 * with one priority the first that was registered is called first, and none has a higher one.
 */
int ilk_check_notifiers(void)
{
	const struct notifier_block *block;
	char name[KSYM_SYMBOL_LEN];
	size_t count = 0;

	rcu_read_lock();
	block = rcu_dereference(ilk_sym.die_chain->head);
	for (; block && block != &ilk_die_block; block = rcu_dereference(block->next)) {
		sprint_symbol_no_offset(name, (unsigned long)block->notifier_call);
		*strchrnul(name, ' ') = '\0';
		if (count < ARRAY_SIZE(ilk_notifiers))
			ilk_notifiers[count] = ilk_name_hash(name);
		count++;
	}
	rcu_read_unlock();
	if (!block) {
		pr_err("this kernel's list of notifiers of traps, die_chain, lacks ilk's\n");
		return -EINVAL;
	}
	if (count > ARRAY_SIZE(ilk_notifiers)) {
		pr_err("%zu notifiers of traps are called before ilk's, more than its table has\n", count);
		return -E2BIG;
	}
	ilk_notifier_count = count;
	return 0;
}

void ilk_check_exit(void)
{
	kvfree(ilk_reserved);
}

/*
 * Returns the length of the branch that `write` forms with the following text; 0 if it is not of
 * the poke's kind or does not branch to its target.
 */
static u8 ilk_branch_span(const struct ilk_poke *poke)
{
	u8 opcode = poke->kind == ILK_SHORT ? JMP8_INSN_OPCODE :
		    poke->kind == ILK_CALL ? CALL_INSN_OPCODE : JMP32_INSN_OPCODE;
	u32 readable = ilk_readable(poke->addr);
	u8 bytes[MAX_INSN_SIZE];
	struct insn insn;

	memcpy(bytes, (const void *)poke->addr, readable);
	memcpy(bytes, poke->write, poke->len);
	if ((int)ilk_call(ilk_sym.insn_decode, (unsigned long)&insn, (unsigned long)bytes,
			  readable, INSN_MODE_KERN, 0) < 0)
		return 0;
		/* The one prefix that changes a jmp, on some processors. */
	for (int i = 0; i < insn.prefixes.nbytes && i < 4; i++)
		if (insn.prefixes.bytes[i] == 0x66)
			return 0;
	if (insn.opcode.nbytes != 1 || insn.opcode.bytes[0] != opcode ||
	    insn.length < poke->len || insn.length > ILK_POKE_MAX ||
	    poke->addr + insn.length + insn.immediate.value != poke->target)
		return 0;
	return insn.length;
}

/* Checks the target of an install or a retarget, and determines the length of its instruction. */
static enum ilk_reason ilk_check_target(struct ilk_job *job, u8 *span)
{
	const struct ilk_poke *poke = job->poke;

	job->blocks[0] = ilk_arena_block(poke->detour);
	job->blocks[1] = poke->kind == ILK_SHORT ? NULL : ilk_arena_block(poke->target);
	if (!job->blocks[0] || (poke->kind != ILK_SHORT && !job->blocks[1]))
		return ILK_BAD_DETOUR;
	if (poke->kind == ILK_TRACER)
		*span = MCOUNT_INSN_SIZE;
	else if (poke->kind == ILK_TRAP)
		*span = poke->write[0] == ILK_INT3;
	else
		*span = ilk_branch_span(poke);
	return *span ? ILK_OK : ILK_BAD_DETOUR;
}

/* Checks that the bytes to fill are of the same text, and in no splice. `first` is the first of them. */
static enum ilk_reason ilk_check_filled(const struct ilk_poke *poke, unsigned long first)
{
	unsigned long last = first + ilk_fill_len(poke->filled) - 1;

	if (!poke->filled)
		return ILK_OK;
	if (ilk_is_core(poke->addr) ? !ilk_is_core(last + MAX_INSN_SIZE) :
				      !ilk_module_of(poke->addr, last))
		return ILK_NOT_TEXT;
	for (unsigned long at = first; at <= last; at++)
		if (poke->filled >> (at - first) & 1 && ilk_site_find(at, at))
			return ILK_OVERLAP;
	return ILK_OK;
}

/* Determines the action of a poke from the installed sites, and checks everything but the text. */
enum ilk_reason ilk_check_fields(struct ilk_job *job, u8 *span)
{
	static const struct {
		u8 least, most;
		bool multi;
	} kinds[ILK_KINDS] = {
		[ILK_JUMP] = { 3, ILK_JMP, true },
		[ILK_SHORT] = { 2, 2, true },
		[ILK_BOUNCE] = { ILK_JMP, ILK_JMP, false },
		[ILK_TRAP] = { 1, 1, false },
		[ILK_TRACER] = { 0, 0, false },
		[ILK_CALL] = { CALL_INSN_SIZE, CALL_INSN_SIZE, false },
	};
	const struct ilk_poke *poke = job->poke;
	struct ilk_site *site;
	enum ilk_reason reason;

	if (poke->kind >= ILK_KINDS || poke->len < kinds[poke->kind].least ||
	    poke->len > kinds[poke->kind].most || poke->reserved ||
	    poke->flags & ~(ILK_POKE_MULTI | ILK_POKE_REMOVE) ||
	    (poke->flags & ILK_POKE_MULTI && !kinds[poke->kind].multi) ||
	    (poke->filled && (poke->kind == ILK_BOUNCE || poke->kind == ILK_TRACER)))
		return ILK_BAD_REQUEST;
	/* Only over another call is the return address that it pushes the original one. */
	if (poke->kind == ILK_CALL && poke->expect[0] != CALL_INSN_OPCODE)
		return ILK_BAD_REQUEST;
	if (poke->addr >= (unsigned long)ilk_sym.etext - 2 * MAX_INSN_SIZE && ilk_is_core(poke->addr))
		return ILK_NOT_TEXT;
	if (!ilk_is_core(poke->addr) && !ilk_site_find(poke->addr, poke->addr) &&
	    !ilk_module_of(poke->addr, poke->addr + max_t(u8, poke->len, 1) - 1))
		return ILK_NOT_TEXT;

	if (poke->flags & ILK_POKE_REMOVE) {
		site = ilk_site_find(poke->addr, poke->addr);
		if (!site || site->addr != poke->addr || site->kind != poke->kind)
			return ILK_UNKNOWN_SPLICE;
		job->action = ILK_REMOVE;
		job->site = site;
		if (poke->filled != site->filled)
			return ILK_BAD_REQUEST;
		return poke->len != site->len || memcmp(poke->write, site->original, site->len) ?
		       ILK_MISMATCH : ILK_OK;
	}
	reason = ilk_check_target(job, span);
	if (reason)
		return reason;
	site = ilk_site_find(poke->addr, poke->addr + *span - 1);
	if (!site)
		return ilk_check_filled(poke, poke->addr + *span);
	if (site->addr != poke->addr || site->kind != poke->kind || poke->flags)
		return ILK_OVERLAP;
	job->action = ILK_RETARGET;
	job->site = site;
	return poke->kind == ILK_SHORT || poke->len != site->len || poke->filled != site->filled ?
	       ILK_BAD_REQUEST : ILK_OK;
}

/* Checks that a bounce or host is installed before its users and removed after them. */
enum ilk_reason ilk_check_chain(const struct ilk_job *job)
{
	const struct ilk_site *on = job->site->on;
	const struct ilk_job *other = on ? on->job : NULL;

	if (job->action != ILK_RETARGET && other && other->action == job->action &&
	    other->poke->rank >= job->poke->rank)
		return job->action == ILK_REMOVE ? ILK_NEEDED : ILK_UNSUPPORTED;
	if (job->action == ILK_REMOVE && job->site->users != job->site->leaving)
		return ILK_NEEDED;
	return ILK_OK;
}

static bool ilk_on_blacklist(unsigned long first, unsigned long last)
{
	const struct kprobe_blacklist_entry *entry;

	lockdep_assert_held(ilk_sym.kprobe_mutex);
	list_for_each_entry(entry, ilk_sym.kprobe_blacklist, list)
		if (first < entry->end_addr && last >= entry->start_addr)
			return true;
	return false;
}

/*
 * Returns whether a function is a thunk of indirect branches or returns: kernels from 6.12 on have no
 * symbols for the bounds of thunks (arch/x86/lib/retpoline.S).
 */
static bool ilk_is_thunk(const char *name)
{
	return str_has_prefix(name, "__x86_indirect_") || strstr(name, "return_thunk") ||
	       str_has_prefix(name, "srso_") || str_has_prefix(name, "retbleed_");
}

/*
 * Refuses by the function's name. A part that gcc split off a function has the function's name with
 * a dot and a suffix; a space and the module follow the name of a module's function.
 */
static bool ilk_name_denied(unsigned long addr, bool int3)
{
	char name[KSYM_SYMBOL_LEN];
	char *dot;
	u32 hash;

	sprint_symbol_no_offset(name, addr);
	*strchrnul(name, ' ') = '\0';
	dot = strchrnul(name, '.');
	hash = ilk_name_hash(name);
	for (size_t i = 0; *dot && i < ilk_black_count; i++)
		if (ilk_black_names[i] == hash)
			return true;
	for (size_t i = 0; int3 && i < ilk_notifier_count; i++)
		if (ilk_notifiers[i] == hash)
			return true;
	*dot = '\0';
	if (!ilk_sym.thunk_start && ilk_is_thunk(name))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(ilk_denied); i++)
		if (!strcmp(name, ilk_denied[i].function))
			return int3 || !ilk_denied[i].int3_only;
	return false;
}

/* Returns whether text that the kernel rewrites at an address up to `last` extends to the byte `first`. */
static bool ilk_reaches(unsigned long addr, enum ilk_reason reason, unsigned long first)
{
	u8 byte = *(const u8 *)addr;
	/* A jump label has two bytes, unless it is a jmp rel32 or a nop of five bytes. */
	bool small = reason == ILK_JUMP_LABEL && byte != JMP32_INSN_OPCODE && byte != 0x0f;

	return addr + (small ? 2 : ILK_JMP) > first;
}

/* Checks a module's own tables, which are small; trampolines of its static calls only have names. */
static enum ilk_reason ilk_check_module(const struct module *module, unsigned long first,
					unsigned long last)
{
	char name[KSYM_SYMBOL_LEN];

	sprint_symbol_no_offset(name, first);
	if (str_has_prefix(name, "__SCT__"))
		return ILK_STATIC_CALL;
	for (u32 i = 0; i < module->num_jump_entries; i++) {
		unsigned long at = jump_entry_code(&module->jump_entries[i]);

		if (at <= last && at + ILK_JMP > first && ilk_reaches(at, ILK_JUMP_LABEL, first))
			return ILK_JUMP_LABEL;
	}
	for (int i = 0; i < module->num_static_call_sites; i++) {
		const struct static_call_site *call = &module->static_call_sites[i];
		unsigned long at = (long)&call->addr + call->addr;

		if (at <= last && at + ILK_JMP > first)
			return ILK_STATIC_CALL;
	}
	return ILK_OK;
}

static enum ilk_reason ilk_check_reserved(unsigned long first, unsigned long last)
{
	size_t low = 0, high = ilk_reserved_count;

	if (!ilk_is_core(first)) {
		const struct module *module = ilk_module_of(first, last);

		return module ? ilk_check_module(module, first, last) : ILK_NOT_TEXT;
	}

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ilk_reserved[middle].addr + ILK_JMP <= first)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < ilk_reserved_count && ilk_reserved[low].addr <= last; low++)
		if (ilk_reaches(ilk_reserved[low].addr, ilk_reserved[low].reason, first))
			return ilk_reserved[low].reason;
	return ILK_OK;
}

bool ilk_kprobe_at(unsigned long addr)
{
	lockdep_assert_held(ilk_sym.kprobe_mutex);
	return ilk_call(ilk_sym.get_kprobe, addr, 0, 0, 0, 0);
}

/* Returns whether a kprobe is in the bytes of a job, or may be optimized into them. */
bool ilk_kprobe_in(const struct ilk_job *job)
{
	unsigned long first = job->site->addr, end = first + job->site->span;

	if (job->poke->kind == ILK_TRACER)
		return false;
	/*
	 * An optimized kprobe is a jmp of five bytes, which may begin before the poke. None is optimized over
	 * a splice, which is a branch or an int3 (copy_optimized_instructions() in arch/x86/kernel/kprobes/opt.c).
	 */
	if (job->action == ILK_INSTALL)
		first -= ILK_JMP - 1;
	/* A retarget leaves what is filled. */
	if (job->action != ILK_RETARGET)
		end += ilk_fill_len(job->site->filled);
	for (; first < end; first++)
		if (ilk_kprobe_at(first))
			return true;
	return false;
}

static bool ilk_within(unsigned long first, unsigned long last, const char *start, const char *end)
{
	return last >= (unsigned long)start && first < (unsigned long)end;
}

static bool ilk_decode(unsigned long addr, struct insn *insn)
{
	return (int)ilk_call(ilk_sym.insn_decode, (unsigned long)insn, addr, ilk_readable(addr),
			     INSN_MODE_KERN, 0) >= 0;
}

static bool ilk_falls_through(const struct insn *insn)
{
	switch (insn->opcode.bytes[0]) {
	case RET_INSN_OPCODE:
	case JMP32_INSN_OPCODE:
	case JMP8_INSN_OPCODE:
		return false;
	case 0xff:	/* jmp through a register or memory */
		return X86_MODRM_REG(insn->modrm.bytes[0]) != 4;
	default:
		return true;
	}
}

static bool ilk_is_padding(const struct insn *insn)
{
	u8 opcode = insn->opcode.bytes[0];

	return opcode == ILK_INT3 || opcode == 0x90 ||
	       (opcode == 0x0f && insn->opcode.bytes[1] == 0x1f);
}

/* Returns whether `len` bytes are one instruction, or one that does not fall through and padding. */
static bool ilk_one_instruction(unsigned long addr, u32 len)
{
	struct insn insn;
	u32 at;

	if (!ilk_decode(addr, &insn))
		return false;
	if (insn.length < len && ilk_falls_through(&insn))
		return false;
	for (at = insn.length; at < len; at += insn.length)
		if (!ilk_decode(addr + at, &insn) || !ilk_is_padding(&insn))
			return false;
	return true;
}

/* Returns whether the bytes to fill end with an instruction that begins in or after the first one. */
static bool ilk_fills_whole(const struct ilk_site *site)
{
	unsigned long at = site->addr, end = at + site->span + ilk_fill_len(site->filled);
	struct insn insn;

	for (; at < end; at += insn.length)
		if (!ilk_decode(at, &insn))
			return false;
	return at == end;
}

/* Checks against text that the kernel itself writes or that must not be changed. */
static enum ilk_reason ilk_check_place(const struct ilk_poke *poke, unsigned long last)
{
	unsigned long addr = poke->addr;
	bool int3 = poke->flags & ILK_POKE_MULTI || poke->kind == ILK_TRAP;
	enum ilk_reason reason;

	/* No thread executes the bytes of a bounce. */
	if (poke->kind != ILK_BOUNCE &&
	    (ilk_on_blacklist(addr, last) || ilk_name_denied(addr, int3)))
		return ILK_BLACKLISTED;
	if (poke->kind == ILK_TRACER)
		return ilk_call(ilk_sym.ftrace_location, addr, 0, 0, 0, 0) == addr ?
		       ILK_OK : ILK_TRACER_REFUSED;
	if (ilk_within(addr, last, ilk_sym.thunk_start, ilk_sym.thunk_end))
		return ILK_BLACKLISTED;
	if (ilk_within(addr, last, ilk_sym.static_call_start, ilk_sym.static_call_end))
		return ILK_STATIC_CALL;
	if (ilk_within(addr, last, ilk_sym.tracer_start, ilk_sym.tracer_end))
		return ILK_FTRACE;
	reason = ilk_check_reserved(addr, last);
	if (reason)
		return reason;
	if (ilk_sym.alternatives_text_reserved &&
	    (int)ilk_call(ilk_sym.alternatives_text_reserved, addr, last + 1, 0, 0, 0))
		return ILK_ALTERNATIVE;
	if ((int)ilk_call(ilk_sym.ftrace_text_reserved, addr, last, 0, 0, 0))
		return ILK_FTRACE;
	return ILK_OK;
}

/* Performs the checks that depend on the text; with ilk_text_lock() held. */
enum ilk_reason ilk_check_text(const struct ilk_job *job)
{
	const struct ilk_poke *poke = job->poke;
	unsigned long addr = poke->addr, last = addr + job->site->span - 1;

	lockdep_assert_held(ilk_sym.text_mutex);
	/* A retarget leaves what is filled. */
	if (job->action != ILK_RETARGET)
		last += ilk_fill_len(job->site->filled);
	if (job->action == ILK_INSTALL) {
		enum ilk_reason reason = ilk_check_place(poke, last);

		if (reason)
			return reason;
	}
	if (poke->kind == ILK_TRACER)
		return ILK_OK;
	if (ilk_kprobe_in(job))
		return ILK_KPROBE;
	if (memcmp((void *)addr, poke->expect, poke->len))
		return ILK_MISMATCH;
	if (job->action == ILK_REMOVE)
		return ilk_fill_is(job->site, true) ? ILK_OK : ILK_MISMATCH;
	if (job->action == ILK_RETARGET)
		return ILK_OK;
	ilk_fill_keep(job->site);
	if (job->site->filled && !ilk_fills_whole(job->site))
		return ILK_BAD_REQUEST;
	if (poke->kind == ILK_TRAP)
		return ILK_OK;
	if (ilk_branch_span(poke) != job->site->span)
		return ILK_MISMATCH;
	if (poke->kind != ILK_BOUNCE && !(poke->flags & ILK_POKE_MULTI) &&
	    !ilk_one_instruction(addr, poke->len + ilk_fill_len(poke->filled)))
		return ILK_BAD_REQUEST;
	return ILK_OK;
}
