/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Every other writer of the kernel's text, or user of it, in a loop and each in a process of its
 * own: a live patch, the function tracer, kprobes, static keys, CPU hotplug, modules.
 */
#include "assay.h"

#define TRACING "/sys/kernel/debug/tracing"

static const struct {
	const char *name;
	const char *on, *off;
	unsigned int pause;	/* between the two, in microseconds */
} sources[] = {
	{ "live patch", "insmod /lab/hush.ko", "/lab/unhush", 50000 },
	{ "tracer", "echo 'vfs_*' > " TRACING "/set_ftrace_filter; echo function > " TRACING "/current_tracer",
	  "echo nop > " TRACING "/current_tracer; echo > " TRACING "/set_ftrace_filter; echo > " TRACING "/trace",
	  30000 },
	/* None on a return: 6.1 warns about them whenever a live patch walks stacks (rethook.c). */
	{ "kprobes",
	  "echo 'p:churn_a vfs_read' > " TRACING "/kprobe_events; echo 'p:churn_b vfs_write' >> " TRACING
	  "/kprobe_events; echo 1 > " TRACING
	  "/events/kprobes/enable",
	  "echo 0 > " TRACING "/events/kprobes/enable; echo > " TRACING "/kprobe_events", 30000 },
	{ "static keys",
	  "echo 1 > /proc/sys/kernel/sched_schedstats; echo 1 > " TRACING "/events/sched/enable",
	  "echo 0 > /proc/sys/kernel/sched_schedstats; echo 0 > " TRACING "/events/sched/enable", 10000 },
	{ "processors", "echo 0 > /sys/devices/system/cpu/cpu1/online",
	  "echo 1 > /sys/devices/system/cpu/cpu1/online", 30000 },
	{ "modules", "insmod /lab/passer.ko", "rmmod passer", 10000 },
};
#define SOURCES (sizeof(sources) / sizeof(*sources))

static struct {
	u64 turns[SOURCES], failures[SOURCES];
	bool stop;
} *shared;
static pid_t children[SOURCES];

static void turn(size_t which)
{
	useconds_t rest = (useconds_t)setting("SOAK_PAUSE", 0) * 100;

	/* A signal in the middle would leave half of it installed. */
	while (!shared->stop) {
		int on = shell("(%s) 2>/dev/null", sources[which].on);
		int off;

		usleep(sources[which].pause + rest);
		off = shell("(%s) 2>/dev/null", sources[which].off);
		shared->turns[which]++;
		shared->failures[which] += on || off;
		usleep(sources[which].pause + rest);
	}
	_exit(0);
}

void churn_start(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	shell("echo 256 > " TRACING "/buffer_size_kb");
	for (size_t i = 0; i < SOURCES; i++) {
		if (sysconf(_SC_NPROCESSORS_CONF) == 1 && !strcmp(sources[i].name, "processors"))
			continue;
		children[i] = fork();
		if (!children[i])
			turn(i);
	}
}

void churn_stop(void)
{
	shared->stop = true;
	for (size_t i = 0; i < SOURCES; i++) {
		if (!children[i])
			continue;
		waitpid(children[i], NULL, 0);
		printf("assay: %s turned on and off %llu times, %llu failures\n", sources[i].name,
		       (unsigned long long)shared->turns[i], (unsigned long long)shared->failures[i]);
		CHECK(shared->turns[i] > 2 * shared->failures[i], "%s: it fails too often", sources[i].name);
	}
}
