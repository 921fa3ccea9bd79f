/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pulsar, the workload of the GILK report (its section 5): rounds of forks whose children exit at
 * once, a sleep, then the collection of the children. A pre-hook on the function that serves fork
 * is hit in one group of 32 per round, and not in between.
 *
 * Usage: pulsar [MILLISECONDS [ROUNDS]]	(500 and 5 by default)
 *
 * Link it statically: the lab has no C library.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FORKS = 32 };

static long number(const char *text, const char *what, long least, long most)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < least || value > most) {
		fprintf(stderr, "pulsar: %s is \"%s\", but must be a number from %ld to %ld.\n",
			what, text, least, most);
		exit(2);
	}
	return value;
}

static void doze(long milliseconds)
{
	struct timespec left = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	while (nanosleep(&left, &left) && errno == EINTR)
		;
}

static void fork_all(pid_t children[FORKS])
{
	for (int i = 0; i < FORKS; i++) {
		children[i] = fork();
		if (!children[i])
			_exit(0);
		if (children[i] < 0) {
			fprintf(stderr, "pulsar: fork failed: %s.\n", strerror(errno));
			exit(1);
		}
	}
}

static void collect_all(const pid_t children[FORKS])
{
	for (int i = 0; i < FORKS; i++) {
		if (waitpid(children[i], NULL, 0) != children[i]) {
			fprintf(stderr, "pulsar: waitpid failed: %s.\n", strerror(errno));
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	long milliseconds = argc > 1 ? number(argv[1], "the sleep in milliseconds", 0, 3600000) : 500;
	long rounds = argc > 2 ? number(argv[2], "the number of rounds", 1, 1000000) : 5;
	pid_t children[FORKS];

	for (long round = 0; round < rounds; round++) {
		fork_all(children);
		doze(milliseconds);
		collect_all(children);
	}
	printf("pulsar: %ld forks in %ld rounds\n", rounds * FORKS, rounds);
	return 0;
}
