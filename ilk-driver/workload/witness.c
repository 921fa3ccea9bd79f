/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Witness: makes system calls that no other program in the lab makes, a known number of times with
 * known arguments, and prints its actions with their times by the time stamp counter. Tests compare
 * the results of instruments for the same calls with this output.
 *
 * Usage: witness
 *
 * Prints lines "SUBJECT NUMBERS ...", all at the end: printing is a system call, too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UMASKS = 40, COPIES = 12, ADVICES = 60, SLEEPERS = 4, SLEEPS = 2, CHAIN = 4, POLLS = 6, REMOTES = 20, FAULTS = 10 };

static char said[1 << 16];
static size_t length;
static pthread_mutex_t saying = PTHREAD_MUTEX_INITIALIZER;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list values;

	pthread_mutex_lock(&saying);
	va_start(values, format);
	length += vsnprintf(said + length, sizeof(said) - length, format, values);
	va_end(values);
	pthread_mutex_unlock(&saying);
}

static void need(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "witness: %s failed: %s.\n", what, strerror(errno));
		exit(1);
	}
}

static unsigned long long ticks(void)
{
	unsigned int low, high;

	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (unsigned long long)high << 32 | low;
}

/* umask(2) with a mark in r15, the first word of the registers that the kernel saves. */
static long umask_marked(long mask, unsigned long long mark)
{
	register unsigned long long r15 __asm__("r15") = mark;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_umask), "D"(mask), "r"(r15)
			 : "rcx", "r11", "memory");
	return result;
}

static void umasks(void)
{
	umask(0);
	say("umask-first %llu\n", ticks());
	for (int i = 1; i <= UMASKS; i++) {
		unsigned long long begun = ticks();
		long old = umask_marked(i * 9 & 0777, 0x5eed000000000000 + i);

		say("umask %llu %llu %ld %d\n", begun, ticks(), old, i);
	}
}

static void children(void)
{
	for (int i = 1; i <= 3; i++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (!child) {
			for (int call = 0; call < 5 * i; call++)
				umask(0);
			_exit(0);
		}
		need(waitpid(child, NULL, 0) == child, "waitpid");
		say("child %d %d\n", child, 5 * i);
	}
}

static void priorities(void)
{
	for (int i = 0; i < 7; i++)
		need(syscall(SYS_getpriority, 0, 0) == 20, "getpriority");
	for (int i = 0; i < 5; i++)
		need(syscall(SYS_getpriority, 99, 0) < 0 && errno == EINVAL, "getpriority of nothing");
	for (int i = 0; i < 3; i++)
		need(syscall(SYS_getpriority, 0, 4000000) < 0 && errno == ESRCH, "getpriority of a missing process");
	say("priorities 7 5 3\n");
}

static void copies(int from, int to)
{
	for (int i = 0; i < COPIES; i++) {
		loff_t source = 10 * i, target = 7 * i;
		ssize_t copied = syscall(SYS_copy_file_range, from, &source, to, &target, 100 + i, 0);

		need(copied == 100 + i, "copy_file_range");
		say("copy %d %d %d\n", 10 * i, 7 * i, 100 + i);
	}
/* Calls of copying's callee from other callers. */
	for (int i = 0; i < 25; i++) {
		char byte;

		need(pread(from, &byte, 1, i) == 1, "pread");
	}
}

/* Reads and writes of its own memory: one function of the kernel serves both, selected by its seventh argument. */
static void remote(void)
{
	char ours[8] = "witness", theirs[8];
	struct iovec local = { theirs, sizeof(theirs) }, there = { ours, sizeof(ours) };

	for (int i = 0; i < REMOTES; i++) {
		int writes = i % 3 == 2;
		long moved = syscall(writes ? SYS_process_vm_writev : SYS_process_vm_readv, getpid(), &local, 1L,
				     &there, 1L, 0L);

		need(moved == sizeof(ours), "process_vm_readv or process_vm_writev");
		say("remote %d\n", writes);
	}
}

static void advices(int file)
{
	for (int i = 0; i < ADVICES; i++) {
		long offset = 4096 * (i % 5 * (i % 5)), size = 1L << i % 16 | i;

		need(!posix_fadvise(file, offset, size, POSIX_FADV_NORMAL), "posix_fadvise");
		say("advice %ld %ld\n", offset, size);
	}
}

static void *sleeper(void *argument)
{
	long milliseconds = 20 * (1 + (long)argument);

	for (int i = 0; i < SLEEPS; i++) {
		struct timespec request = { 0, milliseconds * 1000000 }, before, after;
		unsigned long long begun, ended;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
		begun = ticks();
		need(!syscall(SYS_nanosleep, &request, NULL), "nanosleep");
		ended = ticks();
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
		say("sleep %llu %llu %ld %lld\n", begun, ended, milliseconds,
		    (after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec);
	}
	return NULL;
}

static void in_threads(void *(*function)(void *), int number)
{
	pthread_t threads[SLEEPERS];

	for (long i = 0; i < number; i++)
		need(!pthread_create(&threads[i], NULL, function, (void *)i), "pthread_create");
	for (int i = 0; i < number; i++)
		pthread_join(threads[i], NULL);
}

/* An epoll in an epoll in an epoll: the kernel polls them by recursion. */
static void nested(void)
{
	int inner = eventfd(1, 0), outer = -1;

	for (int i = 0; i < CHAIN; i++) {
		struct epoll_event event = { .events = EPOLLIN };

		outer = epoll_create1(0);
		need(outer >= 0 && !epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event), "epoll");
		inner = outer;
	}
	for (int i = 0; i < POLLS; i++) {
		struct epoll_event ready;
		unsigned long long begun = ticks();

		/* A poll(2) of the outermost polls each of them once. */
		need(epoll_wait(outer, &ready, 1, 0) == 1, "epoll_wait");
		say("nested %llu %llu %d\n", begun, ticks(), CHAIN - 1);
	}
}

/*
 * Writes to a file from unmapped memory, and from memory that is not yet present: in both cases the
 * function that touches it beforehand faults. In the first case it continues at a fixup.
 */
static void faults(int from, int to)
{
	for (int i = 1; i <= FAULTS; i++) {
		unsigned long long begun = ticks();

		need(syscall(SYS_pwrite64, to, 8L, i, 0L) < 0 && errno == EFAULT, "pwrite of nothing");
		say("faulted %llu %llu %d\n", begun, ticks(), i);
	}
	for (int i = 1; i <= FAULTS; i++) {
		char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, from, 0);
		unsigned long long begun = ticks();

		need(page != MAP_FAILED, "mmap");
		need(syscall(SYS_pwrite64, to, page, i, 0L) == i, "pwrite");
		say("served %llu %llu %d\n", begun, ticks(), i);
		need(!munmap(page, 4096), "munmap");
	}
}

/*
 * Two threads, on a CPU each, that hold the lock of their descriptor table most of the time: the
 * table is large, and all of it is marked each time.
 */
static void *spinner(void *argument)
{
	struct timespec now, end;
	cpu_set_t own;

	CPU_ZERO(&own);
	CPU_SET((long)argument, &own);
	/* With one CPU there is no contention. */
	sched_setaffinity(0, sizeof(own), &own);
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += 2;
	do {
		/* From the tenth on, closed by execve(2): close_range(2). */
		need(!syscall(436, 10, ~0U, 4), "close_range");
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	return NULL;
}

static void spins(int file)
{
	struct rlimit most = { 1 << 18, 1 << 18 };
	int last = (1 << 18) - 1;

	need(!setrlimit(RLIMIT_NOFILE, &most), "setrlimit");
	need(dup2(file, last) == last, "dup2");
	in_threads(spinner, 2);
	need(!close(last), "close");
}

static int contended;

static void *contender(void *argument)
{
	(void)argument;
	for (int i = 0; i < 20; i++) {
		need(!syscall(SYS_fallocate, contended, 0, 0, 4L << 20), "fallocate");
		need(!ftruncate(contended, 0), "ftruncate");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static char page[4096];
	/* `witness calls`: no threads, no faults, and no waits, for which it takes seconds. */
	int only_calls = argc == 2 && !strcmp(argv[1], "calls");
	int from = open("/tmp/witness-from", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int to = open("/tmp/witness-to", O_RDWR | O_CREAT | O_TRUNC, 0600);

	need(argc == 1 || only_calls, "the argument is not \"calls\"");
	need(from >= 0 && to >= 0 && write(from, page, sizeof(page)) == sizeof(page), "making files");
	contended = to;
	say("begun %d %llu\n", getpid(), ticks());
	umasks();
	children();
	priorities();
	copies(from, to);
	advices(from);
	if (!only_calls) {
		remote();
		in_threads(sleeper, SLEEPERS);
		nested();
		in_threads(contender, 2);
		faults(from, to);
		spins(from);
	}
	say("ended %llu\n", ticks());
	unlink("/tmp/witness-from");
	unlink("/tmp/witness-to");
	fputs(said, stdout);
	return 0;
}
