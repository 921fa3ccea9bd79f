/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * refusals: provokes every reason in ilk_abi.h for a refusal, by its cause in this kernel, and
 * checks that nothing is written.
 */
#include <linux/capability.h>

#include "assay.h"

static struct site hot;			/* an entry with several overwritten instructions */
static struct ilk_poke good;		/* a jump there, with a patch in the arena */
static struct site cut;			/* an entry whose splice leaves two bytes or more of an instruction */

/* Returns the reason to refuse a jump at an address, given the right expectation. */
static int trial(u64 address, u8 flags)
{
	struct ilk_poke poke = poke_of(ILK_JUMP, address, 5, good.target, flags);

	poke.expect[0] ^= 0xff;
	return do_batch(&poke, 1);
}

static void prepare(void)
{
	static const char *const busy[] = { "vfs_read", "vfs_write", "ksys_read", "ksys_write",
					    "vfs_open", "do_sys_openat2", "kernel_clone" };
	size_t i = 0;
	u8 code[PATCH_ROOM];
	u32 length;

	while (i < sizeof(busy) / sizeof(*busy) &&
	       !(site_at_entry(symbol(busy[i]), &hot) && hot.multi))
		i++;
	CHECK(i < sizeof(busy) / sizeof(*busy), "no busy function begins with known instructions");
	length = patch(code, info.arena, &hot, 0);
	CHECK(!write_arena(0, code, length), "the arena cannot be written");
	good = jump_to(&hot, info.arena);
	for (i = 0; i < function_count; i++)
		if (site_at_entry(functions[i].address, &cut) && cut.multi && cut.length > 6 &&
		    trial(cut.address, ILK_POKE_MULTI) == ILK_MISMATCH)
			return;
	CHECK(false, "no splice leaves two bytes of an instruction");
}

static bool refused_somewhere(const char *table, u64 entry_size, int wanted)
{
	int refused = 0;

	for (u64 i = 0; i < 100 && symbol(table); i++) {
		u64 address = relative(table, entry_size, i);

		if (!text_at(address))
			continue;
		for (u64 before = 0; before < 5; before++) {
			int reason = trial(address - before, ILK_POKE_MULTI);

			/* Other reasons may take precedence here and there. */
			CHECK(reason != ILK_MISMATCH && reason != ILK_OK,
			      "%llu bytes before an entry of %s: %s", (unsigned long long)before, table,
			      reason_name(reason));
			refused += reason == wanted;
		}
	}
	return refused > 0;
}

static void places(void)
{
	u64 past[] = { 0, 1, stext - 1, etext, etext - 5, info.arena, info.ring_base, ~0ull };

	for (size_t i = 0; i < sizeof(past) / sizeof(*past); i++)
		EXPECT(trial(past[i], 0), ILK_NOT_TEXT);
	EXPECT(trial(hot.address, ILK_POKE_MULTI), ILK_MISMATCH);
	EXPECT(trial(hot.address - 5, 0), ILK_FTRACE);
	EXPECT(trial(hot.address - 3, 0), ILK_FTRACE);
	/* Code that the tracer copies for its trampolines, and its call. */
	EXPECT(trial(symbol("ftrace_caller"), 0), ILK_FTRACE);
	EXPECT(trial(symbol("ftrace_call"), 0), ILK_FTRACE);
	EXPECT(trial(symbol("ftrace_regs_call"), 0), ILK_FTRACE);
	EXPECT(trial(symbol("exc_int3"), 0), ILK_BLACKLISTED);
	EXPECT(trial(symbol("entry_SYSCALL_64"), 0), ILK_BLACKLISTED);
	EXPECT(trial(symbol("notify_die") + 12, 0), ILK_BLACKLISTED);
	/* An int3 there would recurse; a jmp written in one step would not. */
	EXPECT(trial(symbol("__rcu_read_lock") + 12, ILK_POKE_MULTI), ILK_BLACKLISTED);
	EXPECT(trial(symbol("__rcu_read_lock") + 12, 0), ILK_MISMATCH);
	/* Notifiers of traps that are called before ilk's: the kernel's, and those of modules that were loaded before. */
	EXPECT(trial(symbol("hw_breakpoint_exceptions_notify") + 12, ILK_POKE_MULTI), ILK_BLACKLISTED);
	EXPECT(trial(symbol("hw_breakpoint_exceptions_notify") + 12, 0), ILK_MISMATCH);
	if (symbol("listener_first")) {
		EXPECT(trial(symbol("listener_first") + 12, ILK_POKE_MULTI), ILK_BLACKLISTED);
		EXPECT(trial(symbol("listener_last") + 12, ILK_POKE_MULTI), ILK_MISMATCH);
		printf("assay: a module's notifier refused\n");
	}
	EXPECT(trial(symbol("__SCT__might_resched"), 0), ILK_STATIC_CALL);
	CHECK(refused_somewhere("__start___jump_table", 16, ILK_JUMP_LABEL), "no jump label is refused");
	CHECK(refused_somewhere("__start_static_call_sites", 8, ILK_STATIC_CALL),
	      "no static call is refused");
	/* A kernel booted with one of several CPUs restores its lock prefixes with the second. */
	if (sysconf(_SC_NPROCESSORS_ONLN) == 1) {
		int refused = 0;

		for (u64 i = 0; i < 200; i++) {
			u64 address = relative("__smp_locks", 4, i);

			refused += text_at(address) && trial(address, 0) == ILK_ALTERNATIVE;
		}
		CHECK(refused > 50, "lock prefixes are refused %d times", refused);
		printf("assay: %d lock prefixes refused\n", refused);
	}
}

static void fields(void)
{
	struct ilk_poke poke, two[2];

#define REFUSED(change, reason)                     \
	do {                                        \
		poke = good;                        \
		change;                             \
		EXPECT(do_batch(&poke, 1), reason); \
	} while (0)
	REFUSED(poke.len = 2, ILK_BAD_REQUEST);
	REFUSED(poke.len = 6, ILK_BAD_REQUEST);
	REFUSED(poke.len = 0, ILK_BAD_REQUEST);
	REFUSED(poke.kind = ILK_KINDS, ILK_BAD_REQUEST);
	REFUSED(poke.flags |= 4, ILK_BAD_REQUEST);
	REFUSED(poke.reserved = 1, ILK_BAD_REQUEST);
	REFUSED(poke.flags = 0, ILK_BAD_REQUEST);	/* more than one instruction */
	REFUSED(poke.write[0] = 0xe8, ILK_BAD_DETOUR);
	REFUSED(poke.write[1] ^= 1, ILK_BAD_DETOUR);
	REFUSED(poke.detour = info.arena + info.arena_size, ILK_BAD_DETOUR);
	REFUSED(poke.detour = info.arena + 65536, ILK_BAD_DETOUR);
	REFUSED(poke.detour = stext, ILK_BAD_DETOUR);
	REFUSED(poke.expect[1] ^= 1, ILK_MISMATCH);
	REFUSED(poke = removal_of(&good), ILK_UNKNOWN_SPLICE);
	REFUSED(poke = poke_of(ILK_SHORT, hot.address, 2, hot.address + 64, ILK_POKE_MULTI),
		ILK_BAD_DETOUR);
	REFUSED(poke = poke_of(ILK_TRACER, hot.address, 0, good.target, 0), ILK_TRACER_REFUSED);
	/* A call over what is none, and one that would get an int3. */
	REFUSED(poke = poke_of(ILK_CALL, hot.address, 5, good.target, 0), ILK_BAD_REQUEST);
	REFUSED(poke = poke_of(ILK_CALL, hot.address, 5, good.target, ILK_POKE_MULTI),
		ILK_BAD_REQUEST);
	/* A bounce without its host. */
	REFUSED(poke = poke_of(ILK_BOUNCE, hot.address + 64, 5, good.target, 0);
		poke.host = hot.address, ILK_UNSUPPORTED);
	/* Half an instruction, and what is in no instruction of the site. */
	REFUSED(poke = jump_to(&cut, good.target); poke.filled = 1, ILK_BAD_REQUEST);
	REFUSED(poke = poke_of(ILK_BOUNCE, hot.address + 64, 5, good.target, 0); poke.filled = 1,
		ILK_BAD_REQUEST);
	REFUSED(poke = poke_of(ILK_TRACER, hot.address, 0, good.target, 0); poke.filled = 1,
		ILK_BAD_REQUEST);
	two[0] = two[1] = good;
	EXPECT(do_batch(two, 2), ILK_OVERLAP);
	CHECK(do_batch(two, ILK_MAX_POKES + 1) == -EINVAL, "a batch over the limit is not refused");
	CHECK(do_batch((void *)8, 4) == -EFAULT, "a batch at an invalid address is not refused");
	CHECK(do_batch((void *)stext, 4) == -EFAULT, "a batch from the kernel is not refused");
	answer.waits = 1;
	CHECK(ioctl(device, ILK_IOC_BATCH, &answer) && errno == EINVAL, "a field that must be 0");
	CHECK(ioctl(device, _IO('i', 77)) && errno == ENOTTY, "an unknown request");
}

/* Refusals for an installed splice. */
static void in_place(void)
{
	struct ilk_poke out = removal_of(&good);
	u8 code[8] = { 0 };

	EXPECT(do_batch(&good, 1), ILK_OK);
	CHECK(answer.waits == 1, "%u waits for one splice", answer.waits);
	EXPECT(do_batch(&good, 1), ILK_OVERLAP);
	CHECK(write_arena(4, code, sizeof(code)) == EBUSY, "code in use is overwritten");
	out.write[1] ^= 1;
	EXPECT(do_batch(&out, 1), ILK_MISMATCH);
	out = removal_of(&good);
	out.expect[1] ^= 1;
	EXPECT(do_batch(&out, 1), ILK_MISMATCH);
	out = removal_of(&good);
	out.filled ^= 1;
	EXPECT(do_batch(&out, 1), ILK_BAD_REQUEST);
	out = removal_of(&good);
	EXPECT(do_batch(&out, 1), ILK_OK);
	CHECK(answer.waits == 1, "%u waits for one removal", answer.waits);
	CHECK(text_is_whole(), "the text is not restored");
}

/* A short jump over a bounce in the padding before a function. */
static void chain(void)
{
	struct ilk_poke pokes[2], out[2];
	u64 at = info.arena + 8192;
	u8 code[PATCH_ROOM];
	struct site site;
	size_t i;

	for (i = 0; i < function_count; i++) {
		const u8 *before = text_at(functions[i].address - 5);

		if (before && (*before == 0xcc || *before == 0x90) && !memcmp(before, before + 1, 4) &&
		    site_at_entry(functions[i].address, &site) && site.multi &&
		    trial(site.address, ILK_POKE_MULTI) == ILK_MISMATCH)
			break;
	}
	CHECK(i < function_count, "no function has padding before it");
	CHECK(!write_arena(8192, code, patch(code, at, &site, 1)), "the arena cannot be written");
	pokes[0] = poke_of(ILK_BOUNCE, functions[i].address - 5, 5, at, 0);
	pokes[1] = poke_of(ILK_SHORT, site.address, 2, pokes[0].addr, ILK_POKE_MULTI);
	pokes[1].detour = at;
	pokes[1].rank = 1;
	EXPECT(do_batch(&pokes[1], 1), ILK_UNSUPPORTED);
	pokes[0].rank = 1;
	EXPECT(do_batch(pokes, 2), ILK_UNSUPPORTED);
	pokes[0].rank = 0;
	EXPECT(do_batch(pokes, 2), ILK_OK);
	CHECK(answer.waits == 1, "%u waits for a short jump", answer.waits);
	out[0] = removal_of(&pokes[0]);
	out[1] = removal_of(&pokes[1]);
	EXPECT(do_batch(out, 1), ILK_NEEDED);
	out[0].rank = 2;
	EXPECT(do_batch(out, 2), ILK_NEEDED);
	out[0].rank = 0;
	EXPECT(do_batch(out, 2), ILK_OK);
	CHECK(answer.waits == 2, "%u waits to remove a short jump", answer.waits);
	CHECK(text_is_whole(), "the text is not restored");
}

static void kprobes(void)
{
	const char *events = "/sys/kernel/debug/tracing";
	struct ilk_poke out = removal_of(&good);

	shell("echo 'p:assay 0x%llx' > %s/kprobe_events; echo 1 > %s/events/kprobes/assay/enable",
	      (unsigned long long)hot.address, events, events);
	EXPECT(do_batch(&good, 1), ILK_KPROBE);
	shell("echo 0 > %s/events/kprobes/assay/enable", events);
	EXPECT(do_batch(&good, 1), ILK_KPROBE);
	shell("echo > %s/kprobe_events", events);
	EXPECT(do_batch(&good, 1), ILK_OK);
	/*
	 * A kprobe on top of a splice keeps the splice installed, which is reported: also one that is not
	 * armed, and would execute its copy of the splice once it is.
	 */
	for (int armed = 0; armed < 2; armed++) {
		shell("echo 'p:assay 0x%llx' > %s/kprobe_events", (unsigned long long)hot.address, events);
		if (armed)
			shell("echo 1 > %s/events/kprobes/assay/enable", events);
		EXPECT(do_batch(&out, 1), ILK_KPROBE);
		CHECK(ioctl(device, ILK_IOC_RESET) && errno == EBUSY,
		      "a reset removes a splice under a kprobe");
		shell("echo 1 > %s/events/kprobes/assay/enable; cat /proc/version > /dev/null", events);
		shell("echo 0 > %s/events/kprobes/assay/enable; echo > %s/kprobe_events", events, events);
	}
	CHECK(!ioctl(device, ILK_IOC_RESET), "a reset without the kprobe: errno %d", errno);
}

/* Returns whether a kprobe is accepted at an address. */
static bool probed(u64 address)
{
	const char *events = "/sys/kernel/debug/tracing/kprobe_events";
	int failed = shell("echo 'p:assay 0x%llx' > %s 2>/dev/null", (unsigned long long)address, events);

	shell("echo > %s", events);
	return !failed;
}

/* Kprobes decode past a splice, and are refused in what it leaves of an instruction. */
static void filled(void)
{
	u64 at = info.arena + 12288;
	struct ilk_poke poke = jump_to(&cut, at), out = removal_of(&poke);
	u8 code[PATCH_ROOM];

	CHECK(!write_arena(12288, code, patch(code, at, &cut, 2)), "the arena cannot be written");
	CHECK(probed(cut.address + cut.length), "no kprobe is accepted there at all");
	EXPECT(do_batch(&poke, 1), ILK_OK);
	CHECK(probed(cut.address + cut.length), "a splice hides the instructions after it");
	CHECK(!probed(cut.address + 5), "a kprobe is accepted where it never fires");
	EXPECT(do_batch(&out, 1), ILK_OK);
	CHECK(text_is_whole(), "the text is not restored");
}

/* A live patch keeps splices by the tracer out of its functions, and removes all splices when it is loaded. */
static void live_patch(void)
{
	u64 function = symbol("version_proc_show");
	u64 tracer = function + (text_at(function)[0] == 0xf3 ? 4 : 0);
	struct ilk_poke poke = poke_of(ILK_TRACER, tracer, 0, good.target, 0), out;

	if (access("/lab/hush.ko", F_OK))
		return;
	CHECK(!shell("insmod /lab/hush.ko"), "the live patch cannot be loaded");
	CHECK(begin_session() == ILK_END_LIVE_PATCH, "a session without splices has not ended by a live patch");
	EXPECT(do_batch(&poke, 1), ILK_TRACER_REFUSED);
	CHECK(!shell("/lab/unhush"), "the live patch cannot be unloaded");
	poke.detour = poke.target = good.target;
	{
		/* A patch that continues where the tracer would. */
		u8 code[] = { 0xe9, 0, 0, 0, 0 };
		u64 at = info.arena + 4096;
		u32 distance = (u32)(tracer + 5 - (at + 5));

		memcpy(code + 1, &distance, sizeof(distance));
		CHECK(!write_arena(4096, code, sizeof(code)), "the arena cannot be written");
		poke.detour = poke.target = at;
	}
	EXPECT(do_batch(&poke, 1), ILK_OK);
	CHECK(!shell("insmod /lab/hush.ko"), "a splice is in the way of a live patch");
	out = removal_of(&poke);
	EXPECT(do_batch(&out, 1), ILK_OVER);
	EXPECT(do_batch(&good, 1), ILK_OVER);
	CHECK(begin_session() == ILK_END_LIVE_PATCH, "the session has not ended by a live patch");
	CHECK(begin_session() == ILK_END_NONE, "the session that began has ended");
	EXPECT(do_batch(&out, 1), ILK_UNKNOWN_SPLICE);
	CHECK(!shell("/lab/unhush"), "the live patch cannot be unloaded again");
	EXPECT(do_batch(&poke, 1), ILK_OK);
	EXPECT(do_batch(&out, 1), ILK_OK);
}

/* A thread that sleeps in pause(2), in the old function or in the new one of a live patch. */
static pid_t drowsing(void)
{
	pid_t child = fork();

	if (!child) {
		for (;;)
			syscall(SYS_pause);
	}
	usleep(200000);
	return child;
}

/* Kills it, and returns how the session before has ended: the transition is complete then. */
static u32 woken(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return begin_session();
}

/* While a live patch is in transition there is no session, whether it is loaded or switched off. */
static void transition(void)
{
	const char *enabled = "/sys/kernel/livepatch/drowse/enabled";
	struct ilk_poke out = removal_of(&good);
	struct ilk_state state = { .begin = 1 };
	pid_t child;

	if (access("/lab/drowse.ko", F_OK))
		return;
	child = drowsing();
	EXPECT(do_batch(&good, 1), ILK_OK);
	CHECK(!shell("insmod /lab/drowse.ko"), "a splice is in the way of a live patch");
	EXPECT(do_batch(&good, 1), ILK_OVER);
	CHECK(ioctl(device, ILK_IOC_STATE, &state) && errno == EBUSY, "a session begins in a transition");
	state.begin = 0;
	CHECK(!ioctl(device, ILK_IOC_STATE, &state) && state.ended == ILK_END_LIVE_PATCH && state.tsc,
	      "the state does not name the live patch and its time");
	CHECK(woken(child) == ILK_END_LIVE_PATCH, "the session has not ended by a live patch");
	EXPECT(do_batch(&good, 1), ILK_OK);

	child = drowsing();
	CHECK(!shell("echo 0 > %s", enabled), "the live patch cannot be switched off");
	memset(&state, 0, sizeof(state));
	CHECK(!ioctl(device, ILK_IOC_STATE, &state) && state.ended == ILK_END_LIVE_PATCH,
	      "a live patch that is switched off is not noticed");
	EXPECT(do_batch(&good, 1), ILK_OVER);
	CHECK(woken(child) == ILK_END_LIVE_PATCH, "the session has not ended again");
	EXPECT(do_batch(&out, 1), ILK_UNKNOWN_SPLICE);
	CHECK(!shell("i=0; until rmmod drowse 2>/dev/null; do i=$((i + 1)); [ $i -lt 300 ] || exit 1; usleep 100000; done"),
	      "the live patch cannot be unloaded");
	CHECK(text_is_whole(), "the text is not restored");
}

static void owners(void)
{
	int second = open("/dev/ilk", O_RDWR), status;
	pid_t child;

	CHECK(second < 0 && errno == EBUSY, "a second owner is not refused");
	device_close();
	device = open("/dev/ilk", O_RDWR);
	CHECK(ioctl(device, ILK_IOC_RESET) && errno == EPROTO, "a request before the handshake");
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, device, 0) == MAP_FAILED && errno == EPROTO,
	      "a mapping before the handshake");
	memset(&info, 0, sizeof(info));
	info.abi = ILK_ABI_VERSION + 1;
	CHECK(ioctl(device, ILK_IOC_INFO, &info) && errno == EPROTO && info.abi == ILK_ABI_VERSION,
	      "another version is not refused");
	device_close();

	child = fork();
	if (!child) {
		struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
		struct __user_cap_data_struct data[2];

		syscall(SYS_capget, &header, data);
		data[0].effective &= ~(1u << CAP_SYS_MODULE);
		syscall(SYS_capset, &header, data);
		_exit(open("/dev/ilk", O_RDWR) < 0 && errno == EPERM ? 0 : 1);
	}
	waitpid(child, &status, 0);
	CHECK(!status, "an owner without CAP_SYS_MODULE is not refused");
	device_open();
}

/* Locks the kernel down, which cannot be undone: this must be the last test. */
static void locked_down(void)
{
	const char *lockdown = "/sys/kernel/security/lockdown";

	device_close();
	if (!getenv("LOCKDOWN"))
		return;
	CHECK(!shell("echo integrity > %s", lockdown), "the kernel cannot be locked down");
	CHECK(open("/dev/ilk", O_RDWR) < 0 && errno == EPERM, "the device of a locked-down kernel can be opened");
	CHECK(!shell("dmesg | grep -q 'ilk: this kernel is locked down'"), "and the log has no reason");
}

void refusals(void)
{
	device_open();
	prepare();
	places();
	fields();
	CHECK(text_is_whole(), "a refused poke was written");
	in_place();
	chain();
	kprobes();
	filled();
	live_patch();
	transition();
	owners();
	locked_down();
}
