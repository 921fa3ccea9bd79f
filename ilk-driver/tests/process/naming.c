// Calls a function from threads with names of their own, some of which change, and from forked children and theirs.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3 };

__attribute__((noipa)) void work(long pid, const char *name)
{
	__asm__ volatile("" ::"r"(pid), "r"(name) : "memory");
}

static void calls(long count, const char *name)
{
	prctl(PR_SET_NAME, name);
	while (count--)
		work(syscall(SYS_getpid), name);
}

static void *thread(void *number)
{
	long n = (long)number;
	char name[16];
	snprintf(name, sizeof(name), "thread %ld", n);
	calls(100 + n, name);
	// 15 bytes, the most.
	snprintf(name, sizeof(name), "renamed thread%ld", n % 10);
	calls(200 + n, name);
	return 0;
}

static void child(long count, int depth)
{
	fflush(stdout);
	if (fork()) {
		wait(0);
		return;
	}
	calls(count, "child");
	printf("expected pid %d %ld\n", (int)syscall(SYS_getpid), count);
	if (depth)
		child(count + 1, depth - 1);
	fflush(stdout);
	_exit(0);
}

int main(void)
{
	pthread_t threads[THREADS];
	long all = 50;
	calls(50, "main");
	for (long n = 0; n < THREADS; ++n)
		pthread_create(&threads[n], 0, thread, (void *)n);
	for (long n = 0; n < THREADS; ++n) {
		pthread_join(threads[n], 0);
		all += 300 + 2 * n;
		printf("expected comm thread %ld %ld\n", n, 100 + n);
		printf("expected comm renamed thread%ld %ld\n", n, 200 + n);
	}
	child(10, 2);
	child(20, 0);
	printf("expected comm main 50\nexpected comm child %d\n", 10 + 11 + 12 + 20);
	printf("expected pid %d %ld\n", (int)syscall(SYS_getpid), all);
	return 0;
}
