/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Rivals: the cost of the kernel's own ways of observing a function, in ticks of the time stamp
 * counter, for comparison with ilk's instruments. If the counter counts instructions, the figures
 * are instructions, the same every time.
 *
 *   rivals hit FUNCTION[,ALIAS] ENTRY TRACER SITE BURSTS CALLS
 *	each mechanism at the function that serves getpid. ENTRY is its address, TRACER that of
 *	the tracer's site in it, SITE that of an instruction that can be probed.
 *   rivals bpf BURSTS RUNS
 *	the work of each BPF program, on the kernel of this machine, without a module and unattached
 *   rivals trace CALL			addresses of functions that the system call passes through
 *   rivals time CALL BURSTS CALLS	the cheapest burst of the system call
 *   rivals points jumps|traps CALL BURSTS CALLS ADDRESS[,ADDRESS]... ...
 *	the same with a counting kprobe at each possible address
 *   rivals beside CALL CALLS FUNCTION[,ALIAS] ENTRY
 *	the counts of BPF programs at the function's entry, by fentry and by a kprobe, after that
 *	many calls
 *   rivals register jumps|traps ADDRESS[,ADDRESS]... ...
 *	the time to register kprobes and to remove them
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../module/rivals.h"
#include "own.h"

static int device = -1;

_Noreturn void fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("rivals: failed: ", stdout);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
	_exit(1);
}

static void load_module(void)
{
	int file = open("/lab/rivals.ko", O_RDONLY | O_CLOEXEC);

	if (file < 0)
		fail("/lab/rivals.ko is missing; this runs in the lab of `cargo xtask bench lab`");
	if (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST)
		fail("/lab/rivals.ko cannot be loaded: %s", strerror(errno));
	close(file);
	for (int tries = 0; device < 0 && tries < 100; tries++) {
		device = open("/dev/rivals", O_RDWR | O_CLOEXEC);
		if (device < 0)
			usleep(10000);
	}
	if (device < 0)
		fail("/dev/rivals cannot be opened: %s", strerror(errno));
}

static struct rivals_request place(unsigned int kind, const uint64_t *addresses, unsigned int count)
{
	struct rivals_request request = {
		.kind = kind,
		.count = count,
		.addresses = (uintptr_t)addresses,
	};

	if (ioctl(device, RIVALS_PLACE, &request))
		fail("the kernel refuses: %s", strerror(errno));
	return request;
}

static struct rivals_request take_out(void)
{
	struct rivals_request request = { 0 };

	if (ioctl(device, RIVALS_REMOVE, &request))
		fail("probes cannot be removed: %s", strerror(errno));
	return request;
}

struct hit {
	const char *functions[3];
	uint64_t entry, tracer, site;
	long bursts, calls;
};

static void measured(const struct hit *hit, const char *name, void (*between)(void))
{
	printf("rivals: %s: %ld calls took %llu ticks\n", name, hit->calls,
	       (unsigned long long)cheapest(call_named("getpid"), hit->bursts, hit->calls, between));
	fflush(stdout);
}

static void probe(const struct hit *hit, const char *name, unsigned int kind, uint64_t at)
{
	load_module();
	if (place(kind, &at, 1).refused)
		fail("no kprobe is permitted at %#llx", (unsigned long long)at);
	measured(hit, name, NULL);
}

static void jump_probe(const struct hit *hit, const char *name)
{
	load_module();
	optimise(true);
	if (place(RIVALS_KPROBE, &hit->site, 1).refused || !is_optimised(hit->site, true))
		fail("the kernel does not optimise the kprobe");
	measured(hit, name, NULL);
}

static void trap_probe(const struct hit *hit, const char *name)
{
	optimise(false);
	probe(hit, name, RIVALS_KPROBE, hit->site);
}

static void tracer_probe(const struct hit *hit, const char *name)
{
	probe(hit, name, RIVALS_KPROBE, hit->tracer);
}

static void return_probe(const struct hit *hit, const char *name)
{
	probe(hit, name, RIVALS_KRETPROBE, hit->entry);
}

static void callback(const struct hit *hit, const char *name)
{
	probe(hit, name, RIVALS_FTRACE, hit->tracer);
}

static void probe_event(const struct hit *hit, const char *name, bool jump)
{
	char text[64];

	optimise(jump);
	snprintf(text, sizeof(text), "p:gilk 0x%llx\n", (unsigned long long)hit->site);
	write_or_fail(tracing("kprobe_events"), text);
	write_or_fail(tracing("events/kprobes/gilk/enable"), "1");
	if (is_optimised(hit->site, jump))
		measured(hit, name, NULL);
	else
		printf("rivals: failed: the kernel uses another mechanism for the probe\n");
	write_or_fail(tracing("events/kprobes/gilk/enable"), "0");
	write_or_fail(tracing("kprobe_events"), "\n");
}

static void jump_event(const struct hit *hit, const char *name)
{
	probe_event(hit, name, true);
}

static void trap_event(const struct hit *hit, const char *name)
{
	probe_event(hit, name, false);
}

static void tracer(const struct hit *hit, const char *name, const char *which, const char *filter)
{
	const char *const *known = hit->functions;
	char line[128];

	/* A missing name is only refused at the end of its line; otherwise all functions are traced. */
	do {
		if (!*known)
			fail("the tracer does not know the function");
		snprintf(line, sizeof(line), "%s\n", *known++);
	} while (!try_write(tracing(filter), line));
	write_or_fail(tracing("current_tracer"), which);
	measured(hit, name, NULL);
	write_or_fail(tracing("current_tracer"), "nop");
	write_or_fail(tracing(filter), "\n");
}

static void function_tracer(const struct hit *hit, const char *name)
{
	tracer(hit, name, "function", "set_ftrace_filter");
}

static void graph_tracer(const struct hit *hit, const char *name)
{
	tracer(hit, name, "function_graph", "set_ftrace_filter");
}

#define BPF(name, work)                                                        \
	static void fentry_##name(const struct hit *hit, const char *title)    \
	{                                                                      \
		bpf_fentry(work, hit->functions);                              \
		measured(hit, title, work == BPF_RINGBUF ? bpf_drain : NULL);  \
	}                                                                      \
	static void bpf_probe_##name(const struct hit *hit, const char *title) \
	{                                                                      \
		optimise(true);                                                \
		bpf_kprobe(work, hit->site);                                   \
		if (!is_optimised(hit->site, true))                            \
			fail("the kernel does not optimise the kprobe"); \
		measured(hit, title, work == BPF_RINGBUF ? bpf_drain : NULL);  \
	}
BPF(empty, BPF_EMPTY)
BPF(count, BPF_COUNT)
BPF(ring, BPF_RINGBUF)
BPF(process, BPF_BY_PROCESS)
BPF(stack, BPF_BY_STACK)

static void bare(const struct hit *hit, const char *name)
{
	measured(hit, name, NULL);
}

/* Splits FUNCTION[,ALIAS]; the list ends with NULL. */
static void split(char *text, const char *functions[3])
{
	char *name = strtok(text, ",");

	for (unsigned int i = 0; name && i < 2; i++, name = strtok(NULL, ","))
		functions[i] = name;
}

static int hits(char **words)
{
	static const struct {
		const char *name;
		void (*run)(const struct hit *hit, const char *name);
	} all[] = {
		{ "nothing", bare },
		{ "ftrace callback, empty", callback },
		{ "kprobe as a jump, empty", jump_probe },
		{ "kprobe at the tracer's site, empty", tracer_probe },
		{ "kprobe as an int3, empty", trap_probe },
		{ "kretprobe, empty", return_probe },
		{ "kprobe event, as a jump", jump_event },
		{ "kprobe event, as an int3", trap_event },
		{ "function tracer", function_tracer },
		{ "function graph tracer", graph_tracer },
		{ "BPF fentry, empty", fentry_empty },
		{ "BPF fentry, per-CPU count", fentry_count },
		{ "BPF fentry, ring buffer", fentry_ring },
		{ "BPF fentry, count by process", fentry_process },
		{ "BPF fentry, count by stack", fentry_stack },
		{ "BPF kprobe as a jump, empty", bpf_probe_empty },
		{ "BPF kprobe as a jump, per-CPU count", bpf_probe_count },
		{ "BPF kprobe as a jump, ring buffer", bpf_probe_ring },
		{ "BPF kprobe as a jump, count by process", bpf_probe_process },
		{ "BPF kprobe as a jump, count by stack", bpf_probe_stack },
		{ "nothing, again", bare },
	};
	struct hit hit = {
		.entry = strtoull(words[1], NULL, 16),
		.tracer = strtoull(words[2], NULL, 16),
		.site = strtoull(words[3], NULL, 16),
		.bursts = atol(words[4]),
		.calls = atol(words[5]),
	};

	split(words[0], hit.functions);
	/* Each in a process of its own, so that its attachments end with it. */
	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t child = fork();

		if (child == 0) {
			printf("rivals: next: %s\n", all[i].name);
			all[i].run(&hit, all[i].name);
			fflush(stdout);
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			fail("a process for %s cannot be created", all[i].name);
	}
	return 0;
}

/* Runs of a program take turns with those of an empty one, so that what else the machine does falls on both. */
static int bpf_works(char **words)
{
	long bursts = atol(words[0]), runs = atol(words[1]);

	printf("rivals: frequency: %llu ticks a second\n", (unsigned long long)frequency());
	for (enum bpf_work work = BPF_COUNT; work < BPF_WORKS; work++) {
		void (*between)(void) = work == BPF_RINGBUF ? bpf_drain : NULL;
		uint64_t least[2] = { UINT64_MAX, UINT64_MAX };
		unsigned int frames = 0;

		for (long i = 0; i < bursts; i++) {
			for (int full = 0; full < 2; full++) {
				uint64_t took;

				bpf_repeated(full ? work : BPF_EMPTY);
				/* The first run makes the keys. */
				bpf_run();
				took = cheapest(bpf_run, runs, 1, full ? between : NULL);
				least[full] = took < least[full] ? took : least[full];
			}
			if (work == BPF_BY_STACK)
				frames = bpf_frames();
		}
		printf("rivals: %s: %d times take %llu ticks, and %llu without; %u frames\n",
		       bpf_work_names[work], BPF_REPEATS, (unsigned long long)least[1],
		       (unsigned long long)least[0], frames);
		fflush(stdout);
	}
	return 0;
}

static int trace(const char *name)
{
	call_fn call = call_named(name);
	char text[32], *line, *all;
	int on;

	for (int i = 0; i < 100; i++)
		call();
	snprintf(text, sizeof(text), "%d", getpid());
	write_or_fail(tracing("tracing_on"), "0");
	write_or_fail(tracing("set_ftrace_pid"), text);
	write_or_fail(tracing("trace_options"), "sym-addr");
	write_or_fail(tracing("trace_options"), "function-fork");
	write_or_fail(tracing("current_tracer"), "function");
	/* Kept open, so that little besides the call is traced. */
	on = open(tracing("tracing_on"), O_WRONLY);
	if (on < 0 || write(on, "1", 1) != 1)
		fail("the tracer cannot be switched on: %s", strerror(errno));
	for (int i = 0; i < 3; i++)
		call();
	if (write(on, "0", 1) != 1)
		fail("the tracer cannot be switched off: %s", strerror(errno));
	close(on);
	all = read_whole(tracing("trace"), NULL);
	write_or_fail(tracing("current_tracer"), "nop");
	write_or_fail(tracing("set_ftrace_pid"), "\n");
	write_or_fail(tracing("trace_options"), "nofunction-fork");
	write_or_fail(tracing("trace_options"), "nosym-addr");
	write_or_fail(tracing("tracing_on"), "1");
	for (line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
		char *caller = strstr(line, " <-"), *address;

		if (line[0] == '#' || !caller)
			continue;
		/* name <address> <-name <address> */
		*caller = 0;
		address = strrchr(line, '<');
		if (address)
			printf("rivals: function %llx\n", strtoull(address + 1, NULL, 16));
	}
	return 0;
}

static uint64_t *addresses(char **words, unsigned int *count)
{
	uint64_t *all = NULL;

	*count = 0;
	for (; *words; words++) {
		for (char *word = strtok(*words, ","); word; word = strtok(NULL, ",")) {
			if (*count % 1024 == 0)
				all = realloc(all, (*count + 1024) * sizeof(*all));
			all[(*count)++] = strtoull(word, NULL, 16);
		}
	}
	return all;
}

/* The kernel optimises kprobes in batches, a few tens of milliseconds after the last registration. */
#define AT_ONCE 256

/* Returns the number of optimised kprobes once it is stable. */
static unsigned int settled(void)
{
	unsigned int before = ~0u, now = 0;

	while (now != before) {
		char *list, *at;

		before = now;
		now = 0;
		sleep(1);
		list = read_whole("/sys/kernel/debug/kprobes/list", NULL);
		for (at = list; (at = strstr(at, "[OPTIMIZED]")); at++)
			now++;
		free(list);
	}
	/* The kernel lists them as optimised in advance. */
	sleep(2 + now / AT_ONCE);
	return now;
}

static int points(char **words)
{
	call_fn call = call_named(words[1]);
	long bursts = atol(words[2]), calls = atol(words[3]);
	unsigned int count, jumps;
	uint64_t *all = addresses(words + 4, &count), took;
	struct rivals_request placed, removed;

	load_module();
	optimise(!strcmp(words[0], "jumps"));
	placed = place(RIVALS_KPROBE_COUNT, all, count);
	jumps = settled();
	took = cheapest(call, bursts, calls, NULL);
	removed = take_out();
	printf("rivals: %s: %u registered, %u refused, %u jumps, %llu hits, %ld calls took %llu ticks\n",
	       words[1], placed.registered, placed.refused, jumps, (unsigned long long)removed.hits,
	       calls, (unsigned long long)took);
	return 0;
}

static int registered(char **words)
{
	unsigned int count, jumps;
	uint64_t *all = addresses(words + 1, &count);
	struct rivals_request placed, removed;

	load_module();
	optimise(!strcmp(words[0], "jumps"));
	placed = place(RIVALS_KPROBE, all, count);
	jumps = settled();
	removed = take_out();
	printf("rivals: %u registered, %u refused, %u jumps, %llu ns to register, %llu ns to remove\n",
	       placed.registered, placed.refused, jumps, (unsigned long long)placed.nanoseconds,
	       (unsigned long long)removed.nanoseconds);
	return 0;
}

/* Counts calls of a function by two BPF programs while something else may count them. */
static int beside(char **words)
{
	call_fn call = call_named(words[0]);
	long calls = atol(words[1]);
	const char *functions[3] = { 0 };
	int entered, probed;

	split(words[2], functions);
	bpf_fentry(BPF_COUNT, functions);
	entered = bpf_counts();
	bpf_kprobe(BPF_COUNT, strtoull(words[3], NULL, 16));
	probed = bpf_counts();
	for (long i = 0; i < calls; i++)
		call();
	printf("rivals: fentry %llu\nrivals: kprobe %llu\n", (unsigned long long)bpf_count_in(entered),
	       (unsigned long long)bpf_count_in(probed));
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";

	if (count == 8 && !strcmp(what, "hit"))
		return hits(words + 2);
	if (count == 4 && !strcmp(what, "bpf"))
		return bpf_works(words + 2);
	if (count == 3 && !strcmp(what, "trace"))
		return trace(words[2]);
	if (count == 5 && !strcmp(what, "time")) {
		long calls = atol(words[4]);

		printf("rivals: %s: %ld calls took %llu ticks\n", words[2], calls,
		       (unsigned long long)cheapest(call_named(words[2]), atol(words[3]), calls, NULL));
		return 0;
	}
	if (count > 6 && !strcmp(what, "points"))
		return points(words + 2);
	if (count == 6 && !strcmp(what, "beside"))
		return beside(words + 2);
	if (count > 3 && !strcmp(what, "register"))
		return registered(words + 2);
	fprintf(stderr, "rivals: its first word is hit, bpf, trace, time, points, beside or register; see main.c.\n");
	return 2;
}
