/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * soak: SOAK_CYCLES batches in and out (60 by default), or as many as fit into SOAK_SECONDS, while
 * two threads pass through all of their sites, entries of functions and calls in them, pausing for SOAK_PAUSE microseconds each round.
 * Every SOAK_KILL cycles the owner is killed at a random moment. With SOAK_CHURN every other writer
 * of the kernel's text runs concurrently (churn.c). Each thread checks the results of its calls,
 * each counter must have counted, and at the end the text is byte for byte as before.
 */
#include "assay.h"

#define MOST_SITES 160
#define MOST_CALLS 500000

static const char *const hot[] = {
	"vfs_read",	   "vfs_write",		"ksys_read",	   "ksys_write",	 "rw_verify_area",
	"__x64_sys_umask", "__x64_sys_getppid", "do_sys_openat2",  "do_filp_open",	 "path_openat",
	"vfs_open",	   "do_dentry_open",	"filp_close",	   "__fput",		 "vfs_statx",
	"pipe_read",	   "pipe_write",	"do_pipe2",	   "create_pipe_files",	 "alloc_empty_file",
	"do_nanosleep",	   "hrtimer_nanosleep", "hrtimer_start_range_ns", "schedule",	 "try_to_wake_up",
	"seq_read_iter",   "version_proc_show", "do_mmap",	   "do_munmap",		 "handle_mm_fault",
	"read_zero",	   "write_null",	"fsnotify",	   "security_file_permission",
	"do_futex",	   "futex_wait",	"futex_wake",	   "kmem_cache_alloc",	 "kmem_cache_free",
	"generic_file_read_iter", "vma_merge",	"dput",		   "mntput",		 "link_path_walk",
};

static struct site sites[MOST_SITES];
static struct ilk_poke pokes[MOST_SITES], out[MOST_SITES];
static u32 count;
static volatile bool stop;
static useconds_t rest;
static u64 ended;	/* sessions, by live patches */
static u64 rounds[2];
static u64 hits[MOST_SITES];

/* Performs one round through everything, with known results. */
static void round_of_calls(u64 number)
{
	char bytes[64];
	int file, ends[2];
	struct timespec moment = { .tv_nsec = 1000 };
	void *memory;

	CHECK(umask(022) == 022, "umask");
	CHECK(syscall(SYS_getppid) == getppid(), "getppid");
	file = open("/dev/zero", O_RDWR);
	CHECK(file >= 0 && read(file, bytes, sizeof(bytes)) == sizeof(bytes) && !bytes[63], "zeroes");
	CHECK(write(file, bytes, sizeof(bytes)) == sizeof(bytes), "a write");
	close(file);
	CHECK(!pipe(ends) && write(ends[1], "gilk", 4) == 4 && read(ends[0], bytes, 64) == 4 &&
		      !memcmp(bytes, "gilk", 4), "a pipe");
	close(ends[0]);
	close(ends[1]);
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED && !*(volatile char *)memory && !munmap(memory, 8192), "memory");
	if (number % 8)
		return;
	file = open("/proc/version", O_RDONLY);
	CHECK(file >= 0 && read(file, bytes, sizeof(bytes)) > 0 &&
		      (!memcmp(bytes, "Linux version", 13) || !memcmp(bytes, "hush\n", 5)), "the version");
	close(file);
	nanosleep(&moment, NULL);
}

static void *run(void *argument)
{
	u64 which = (u64)argument;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((int)which, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (u64 number = 0; !stop; number++) {
		round_of_calls(number);
		if (rest)
			usleep(rest);
		rounds[which]++;
	}
	return NULL;
}

static void load(void)
{
	device_open();
	write_patches(sites, count, 0, pokes);
	for (u32 i = 0; i < count; i++)
		out[i] = removal_of(&pokes[i]);
}

/* One of the sites may be blocked for a moment: by a kprobe, a patched function. */
static bool carried_out(const struct ilk_poke *batch, u64 *refused)
{
	for (int tries = 0; tries < 200; tries++) {
		int reason = do_batch(batch, count);

		if (reason == ILK_OK)
			return true;
		/* A live patch was loaded, which removes everything. */
		if (reason == ILK_OVER) {
			ended += begin_session() == ILK_END_LIVE_PATCH;
			if (batch == out)
				return true;
			continue;
		}
		if (reason != ILK_KPROBE) {
			CHECK(false, "a batch is refused: %s, poke %u", reason_name(reason), answer.failed);
			return false;
		}
		++*refused;
		usleep(20000);
	}
	CHECK(false, "a batch is refused forever");
	return false;
}

/* A separate owner, which installs and removes until it is killed. */
static void killed(struct dice *dice)
{
	pid_t child;
	int status;

	device_close();
	child = fork();
	if (!child) {
		load();
		for (;;) {
			do_batch(pokes, count);
			do_batch(out, count);
		}
	}
	usleep((useconds_t)(20000 + below(dice, 600000)));
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	CHECK(WIFSIGNALED(status), "the owner ended by itself");
	load();
}

/* Appends the calls in the hot functions, each of which a call of its patch replaces. */
static void find_calls(void)
{
	struct site *all = malloc(MOST_CALLS * sizeof(*all));
	size_t found = calls(all, MOST_CALLS);

	for (size_t i = 0; i < sizeof(hot) / sizeof(*hot); i++) {
		u64 first = symbol(hot[i]), end = first ? function_end(first) : 0;

		for (size_t n = 0; n < found && count < MOST_SITES; n++) {
			if (all[n].address < first || all[n].address >= end)
				continue;
			sites[count] = all[n];
			sites[count++].called = true;
		}
	}
	free(all);
}

static void find(void)
{
	device_open();
	for (size_t i = 0; i < sizeof(hot) / sizeof(*hot); i++)
		if (symbol(hot[i]) && site_at_entry(symbol(hot[i]), &sites[count]))
			count++;
	find_calls();
	count = (u32)admitted(sites, count);
	device_close();
}

void soak(void)
{
	u64 cycles = setting("SOAK_CYCLES", 60), every = setting("SOAK_KILL", 10);
	u64 kills = 0, refused = 0, multi = 0, done = 0;
	struct dice dice = { .state = setting("SOAK_SEED", 1) };
	pthread_t threads[2];
	double begin = now(), reported = begin, until = begin + (double)setting("SOAK_SECONDS", 1u << 30);
	u32 hit = 0, called = 0, hit_calls = 0;

	umask(022);
	rest = (useconds_t)setting("SOAK_PAUSE", 0);
	find();
	for (u32 i = 0; i < count; i++)
		multi += sites[i].multi;
	for (u32 i = 0; i < count; i++)
		called += sites[i].called;
	printf("assay: %u sites, %llu of them of several instructions, %u calls\n", count,
	       (unsigned long long)multi, called);
	CHECK(count > 10 + called && multi > 8 && called > 40, "too few sites");
	for (u64 i = 0; i < 2; i++)
		CHECK(!pthread_create(&threads[i], NULL, run, (void *)i), "no thread");
	if (setting("SOAK_CHURN", 0))
		churn_start();
	load();
	for (u64 cycle = 0; cycle < cycles && now() < until; cycle++) {
		if (!carried_out(pokes, &refused))
			break;
		usleep((useconds_t)below(&dice, 20000));
		if (!carried_out(out, &refused))
			break;
		done++;
		for (u32 i = 0; cycle % 8 == 7 && i < count; i++)
			hits[i] += counted(i % 512);
		if (every && cycle % every == every - 1) {
			killed(&dice);
			kills++;
		}
		if (now() > reported + 60) {
			reported = now();
			printf("assay: %llu cycles\n", (unsigned long long)done);
		}
	}
	for (u32 i = 0; i < count; i++) {
		bool is_hit = (hits[i] += counted(i % 512)) > 0;

		hit += is_hit && !sites[i].called;
		hit_calls += is_hit && sites[i].called;
	}
	if (setting("SOAK_CHURN", 0))
		churn_stop();
	device_close();
	stop = true;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(hit > (count - called) / 2, "only %u of %u entries were hit", hit, count - called);
	/* Many calls are on paths that a working kernel does not take. */
	CHECK(hit_calls > called / 4, "only %u of %u calls were hit", hit_calls, called);
	printf("assay: %llu cycles in %.0f s, %llu owners killed, %llu ended by live patches, %llu+%llu rounds, %u entries and %u calls hit, %llu batches delayed by a kprobe\n",
	       (unsigned long long)done, now() - begin, (unsigned long long)kills,
	       (unsigned long long)ended,
	       (unsigned long long)rounds[0], (unsigned long long)rounds[1], hit, hit_calls,
	       (unsigned long long)refused);
}
