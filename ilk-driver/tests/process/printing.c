// Calls a function from several threads, which move from CPU to CPU, and from handlers of signals. The nth call of a
// writer has arguments that follow from both numbers. Threads and forked children make so many calls each.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 4000, HANDLERS = 100 };

static const char *const names[] = { "", "a", "seven b", "eight by", "fifteen bytes..", "more than fifteen bytes" };

struct writer {
	long writer, calls;
};
static _Thread_local struct writer handled;

__attribute__((noipa)) void line(long writer, long serial, const char *name, long value)
{
	__asm__ volatile("" ::"r"(writer), "r"(serial), "r"(name), "r"(value) : "memory");
}

__attribute__((noipa)) void single(long value)
{
	__asm__ volatile("" ::"r"(value) : "memory");
}

static void print(struct writer *writer)
{
	long serial = writer->calls++;
	line(writer->writer, serial, names[(serial + writer->writer) % 6], serial * 7919 - writer->writer);
}

static void handler(int signal)
{
	(void)signal;
	if (handled.writer)
		print(&handled);
}

// Calls of handlers, which have all ended.
static long of_handlers[THREADS];

static void *work(void *number)
{
	struct writer own = { .writer = 1 + (long)number };
	handled.writer = HANDLERS + own.writer;
	for (long call = 0; call < CALLS; ++call) {
		print(&own);
		single(call);
		if (call % 16 == 0) {
			cpu_set_t set;
			CPU_ZERO(&set);
			CPU_SET((call / 16 + own.writer) % 2, &set);
			sched_setaffinity(0, sizeof(set), &set);
		}
		if (call % 64 == 0)
			usleep(1000);
	}
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, 0);
	of_handlers[(long)number] = handled.calls;
	return 0;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	int children = count > 1 ? atoi(arguments[1]) : 0;
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	// One handler at a time.
	sigfillset(&action.sa_mask);
	sigaction(SIGPROF, &action, 0);
	sigaction(SIGALRM, &action, 0);
	for (long n = 0; n < THREADS; ++n)
		pthread_create(&threads[n], 0, work, (void *)n);
	// The threads are given the signals of the clock.
	sigset_t clock;
	sigemptyset(&clock);
	sigaddset(&clock, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &clock, 0);
	struct itimerval often = { { 0, 700 }, { 0, 700 } };
	setitimer(ITIMER_REAL, &often, 0);
	setitimer(ITIMER_PROF, &often, 0);
	for (int child = 0; child < children; ++child)
		if (!fork()) {
			struct writer own = { .writer = 1000 + child };
			for (long call = 0; call < CALLS; ++call)
				print(&own);
			_exit(0);
		}
	for (int n = 0; n < THREADS; ++n)
		pthread_join(threads[n], 0);
	while (wait(0) > 0)
		;
	for (long n = 0; n < THREADS; ++n) {
		printf("writer %ld %d\n", 1 + n, CALLS);
		printf("writer %ld %ld\n", HANDLERS + 1 + n, of_handlers[n]);
	}
	for (int child = 0; child < children; ++child)
		printf("writer %d %d\n", 1000 + child, CALLS);
	return 0;
}
