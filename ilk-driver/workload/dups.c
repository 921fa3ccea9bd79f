/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Dups: two processes, on a CPU each if possible, copy descriptors of one open file in a loop. Each
 * copy takes a reference by a cmpxchg, which fails if the other process was faster. It prints "dups
 * NUMBER" at the end, the sum of both.
 *
 * Usage: dups SECONDS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned long long copies(int file, int cpu, int seconds)
{
	unsigned long long done = 0;
	cpu_set_t own;
	time_t end = time(NULL) + seconds;

	CPU_ZERO(&own);
	CPU_SET(cpu, &own);
	/* With one CPU there is no contention. */
	sched_setaffinity(0, sizeof(own), &own);
	while (time(NULL) < end) {
		for (int i = 0; i < 64; i++, done++) {
			int copy = dup(file);

			if (copy < 0 || close(copy) < 0)
				fail("dup");
		}
	}
	return done;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 5;
	int file = open("/dev/null", O_RDONLY);
	int ways[2];
	unsigned long long all = 0, one;

	if (file < 0 || pipe(ways) < 0)
		fail("dups");
	for (int cpu = 0; cpu < 2; cpu++) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (!child) {
			one = copies(file, cpu, seconds);
			if (write(ways[1], &one, sizeof(one)) != sizeof(one))
				fail("write");
			_exit(0);
		}
	}
	for (int cpu = 0; cpu < 2; cpu++) {
		if (read(ways[0], &one, sizeof(one)) != sizeof(one))
			fail("read");
		all += one;
	}
	while (wait(NULL) > 0)
		;
	printf("dups %llu\n", all);
	return 0;
}
