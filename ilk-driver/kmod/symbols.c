// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * The one table of the kernel's symbols that this module cannot link to. Support for a new kernel
 * is a change here. The address of kallsyms_lookup_name comes from a kprobe; it may be after the
 * function's endbr64, which makes no difference for a call.
 */
#include "ilk.h"

struct ilk_symbols ilk_sym;

static const struct {
	const char *name;
	void **where;
	bool required;
	const char *former;	/* its name in older kernels */
} ilk_wanted[] = {
	{ "text_poke", &ilk_sym.text_poke, true },
	{ "text_poke_copy", &ilk_sym.text_poke_copy, true },
	{ "text_poke_set", &ilk_sym.text_poke_set, true },
	{ "smp_text_poke_batch_add", &ilk_sym.text_poke_queue, true, "text_poke_queue" },
	{ "smp_text_poke_batch_finish", &ilk_sym.text_poke_finish, true, "text_poke_finish" },
	{ "text_mutex", (void **)&ilk_sym.text_mutex, true },
	{ "_stext", (void **)&ilk_sym.stext, true },
	{ "_etext", (void **)&ilk_sym.etext, true },
	{ "insn_decode", &ilk_sym.insn_decode, true },
	{ "search_exception_tables", &ilk_sym.exception_entry, true },
	{ "__module_text_address", &ilk_sym.module_text, true },
	/* Gone in 7.3, which does not rewrite lock prefixes any more. */
	{ "alternatives_text_reserved", &ilk_sym.alternatives_text_reserved, false },
	{ "ftrace_text_reserved", &ilk_sym.ftrace_text_reserved, true },
	{ "ftrace_location", &ilk_sym.ftrace_location, true },
	{ "set_memory_ro", &ilk_sym.set_memory_ro, true },
	{ "set_memory_rw", &ilk_sym.set_memory_rw, true },
	{ "set_memory_x", &ilk_sym.set_memory_x, true },
	{ "set_memory_nx", &ilk_sym.set_memory_nx, true },
	/* The first takes a type as well as a size. */
	{ "execmem_alloc", &ilk_sym.execmem_alloc, false },
	{ "execmem_free", &ilk_sym.near_free, true, "module_memfree" },
	{ "die_chain", (void **)&ilk_sym.die_chain, true },
	{ "get_kprobe", &ilk_sym.get_kprobe, true },
	{ "kprobe_mutex", (void **)&ilk_sym.kprobe_mutex, true },
	{ "kprobe_blacklist", (void **)&ilk_sym.kprobe_blacklist, true },
	{ "__start___jump_table", (void **)&ilk_sym.jump_labels, true },
	{ "__stop___jump_table", (void **)&ilk_sym.jump_labels_end, true },
	{ "__start_static_call_sites", (void **)&ilk_sym.static_calls, true },
	{ "__stop_static_call_sites", (void **)&ilk_sym.static_calls_end, true },
	{ "ftrace_caller", (void **)&ilk_sym.tracer_start, true },
	{ "ftrace_regs_caller_end", (void **)&ilk_sym.tracer_end, true },
	{ "__static_call_text_start", (void **)&ilk_sym.static_call_start, false },
	{ "__static_call_text_end", (void **)&ilk_sym.static_call_end, false },
	{ "__indirect_thunk_start", (void **)&ilk_sym.thunk_start, false },
	{ "__indirect_thunk_end", (void **)&ilk_sym.thunk_end, false },
	{ "__start_orc_unwind_ip", (void **)&ilk_sym.orc_ip, false },
	{ "__stop_orc_unwind_ip", (void **)&ilk_sym.orc_ip_end, false },
	{ "__start_orc_unwind", (void **)&ilk_sym.orc, false },
	{ "orc_lookup", (void **)&ilk_sym.orc_lookup, false },
	{ "orc_lookup_end", (void **)&ilk_sym.orc_lookup_end, false },
#ifdef CONFIG_LIVEPATCH
	{ "modules", (void **)&ilk_sym.modules, true },
	{ "klp_transition_patch", (void **)&ilk_sym.live_patch, true },
#else
	{ "modules", (void **)&ilk_sym.modules, false },
#endif
};

static void *ilk_lookup(void *lookup, const char *name)
{
	if (!name || ilk_hidden(name))
		return NULL;
	return (void *)ilk_call(lookup, (unsigned long)name, 0, 0, 0, 0);
}

int ilk_symbols_resolve(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	int err = ilk_hidden(probe.symbol_name) ? -ENOENT : register_kprobe(&probe);
	void *lookup = probe.addr;

	if (err) {
		pr_err("kallsyms_lookup_name cannot be found with a kprobe (error %d)\n", err);
		return err;
	}
	unregister_kprobe(&probe);

	for (size_t i = 0; i < ARRAY_SIZE(ilk_wanted); i++) {
		const char *name = ilk_wanted[i].name;
		void *found = ilk_lookup(lookup, name);

		if (!found)
			found = ilk_lookup(lookup, ilk_wanted[i].former);
		if (!found && ilk_wanted[i].required) {
			pr_err("this kernel has no symbol %s, which ilk requires\n", name);
			return -ENOENT;
		}
		*ilk_wanted[i].where = found;
	}
	if (!ilk_sym.execmem_alloc)
		ilk_sym.module_alloc = ilk_lookup(lookup, "module_alloc");
	if (!ilk_sym.execmem_alloc && !ilk_sym.module_alloc) {
		pr_err("this kernel has no symbol execmem_alloc, which ilk requires\n");
		return -ENOENT;
	}
	if (!ilk_sym.alternatives_text_reserved)
		pr_info("this kernel has no symbol alternatives_text_reserved: splices at lock prefixes, which it should not rewrite, are not refused\n");
	return 0;
}
