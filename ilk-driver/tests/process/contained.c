// Executes its work in PID namespaces, as containers do: the first process of one, and a later one. Threads call `work`
// with their number and that of their process, as they know them.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noipa)) long work(long thread, long process) { return thread + process; }

static pthread_barrier_t lines;

static void *calls(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&lines);
		for (int done = 0; done < 100; done++)
			work(gettid(), getpid());
		pthread_barrier_wait(&lines);
	}
	return unused;
}

// Answers each line with one, when all threads have called 100 times.
static int answers(int threads)
{
	char line[16];
	pthread_t thread;
	pthread_barrier_init(&lines, NULL, threads + 1);
	for (int started = 0; started < threads; started++)
		pthread_create(&thread, NULL, calls, NULL);
	printf("ready %d\n", getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		pthread_barrier_wait(&lines);
		pthread_barrier_wait(&lines);
		for (int done = 0; done < 100; done++)
			work(gettid(), getpid());
		puts("done");
		fflush(stdout);
	}
	return 0;
}

// Arguments: the number of processes that are in the namespace before, and of further threads.
int main(int count, char **arguments)
{
	int status = 0, earlier = count > 1 ? atoi(arguments[1]) : 0, threads = count > 2 ? atoi(arguments[2]) : 0;
	if (unshare(CLONE_NEWPID)) {
		puts("not permitted");
		return 0;
	}
	pid_t first = fork();
	if (!first) {
		pid_t later = 0;
		for (int forked = 0; forked < earlier; forked++) {
			later = fork();
			if (!later && forked + 1 < earlier)
				_exit(0);
			if (!later)
				return answers(threads);
		}
		if (!later)
			return answers(threads);
		waitpid(later, &status, 0);
		return status != 0;
	}
	waitpid(first, &status, 0);
	return status != 0;
}
