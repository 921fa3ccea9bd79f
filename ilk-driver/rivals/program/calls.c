/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The measured system calls: those of lmbench's table, like JIFL's authors. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "own.h"

static int zero = -1, null = -1, ends[2] = { -1, -1 };

static void call_getpid(void)
{
	syscall(SYS_getpid);
}

static void call_null(void)
{
	syscall(SYS_getppid);
}

static void call_read(void)
{
	char byte;

	if (read(zero, &byte, 1) != 1)
		fail("/dev/zero cannot be read");
}

static void call_write(void)
{
	if (write(null, "", 1) != 1)
		fail("/dev/null cannot be written");
}

static void call_stat(void)
{
	struct stat about;

	if (stat("/dev/null", &about))
		fail("/dev/null cannot be looked at");
}

static void call_fstat(void)
{
	struct stat about;

	if (fstat(null, &about))
		fail("an open file cannot be looked at");
}

static void call_open_close(void)
{
	int file = open("/dev/null", O_RDONLY);

	if (file < 0 || close(file))
		fail("/dev/null cannot be opened and closed");
}

static void call_pipe(void)
{
	char byte = 0;

	if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1)
		fail("a pipe does not give back what it was given");
}

static void call_mmap(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		fail("a page cannot be mapped");
	*(volatile char *)page = 1;
	munmap(page, 4096);
}

/* select(2) on ten ends of one empty pipe. */
static void call_select(void)
{
	static int files[10];
	struct timeval now = { 0 };
	fd_set wanted;

	FD_ZERO(&wanted);
	for (int i = 0; i < 10; i++) {
		if (!files[i])
			files[i] = dup(ends[0]);
		if (files[i] < 0)
			fail("a pipe's end cannot be had ten times");
		FD_SET(files[i], &wanted);
	}
	if (select(files[9] + 1, &wanted, NULL, NULL, &now))
		fail("select reports a ready descriptor");
}

static void caught(int number)
{
	(void)number;
}

static void call_signal_install(void)
{
	struct sigaction action = { .sa_handler = caught };

	if (sigaction(SIGUSR1, &action, NULL))
		fail("a signal's handler cannot be installed");
}

static void call_signal_catch(void)
{
	static int installed;

	if (!installed)
		call_signal_install();
	installed = 1;
	if (kill(getpid(), SIGUSR1))
		fail("a signal cannot be sent");
}

static void call_fork(void)
{
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, NULL, 0) != child)
		fail("a child cannot be created");
}

call_fn call_named(const char *name)
{
	static const struct {
		const char *name;
		call_fn call;
	} calls[] = {
		{ "getpid", call_getpid },
		{ "null", call_null },
		{ "read", call_read },
		{ "write", call_write },
		{ "stat", call_stat },
		{ "fstat", call_fstat },
		{ "open-close", call_open_close },
		{ "pipe", call_pipe },
		{ "select", call_select },
		{ "signal-install", call_signal_install },
		{ "signal-catch", call_signal_catch },
		{ "mmap-touch-munmap", call_mmap },
		{ "fork", call_fork },
	};

	if (zero < 0) {
		zero = open("/dev/zero", O_RDONLY);
		null = open("/dev/null", O_WRONLY);
		if (zero < 0 || null < 0 || pipe(ends))
			fail("/dev/zero, /dev/null or a pipe cannot be opened");
	}
	for (unsigned int i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(calls[i].name, name))
			return calls[i].call;
	fail("there is no call %s", name);
}

static uint64_t ticks(void)
{
	unsigned int low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

uint64_t frequency(void)
{
	struct timespec begin, end;
	uint64_t first, nanoseconds;

	clock_gettime(CLOCK_MONOTONIC_RAW, &begin);
	first = ticks();
	usleep(200000);
	clock_gettime(CLOCK_MONOTONIC_RAW, &end);
	nanoseconds = (end.tv_sec - begin.tv_sec) * 1000000000ull + end.tv_nsec - begin.tv_nsec;
	return (ticks() - first) * 1000000000ull / nanoseconds;
}

uint64_t cheapest(call_fn call, long bursts, long calls, void (*between)(void))
{
	uint64_t least = UINT64_MAX;

	for (long i = 0; i < bursts; i++) {
		uint64_t begin = ticks();

		for (long n = 0; n < calls; n++)
			call();
		begin = ticks() - begin;
		least = begin < least ? begin : least;
		if (between)
			between();
	}
	return least;
}
