// Calls itself in five threads, in forked children and in the handler of a timer, and prints the sums that variables of
// calls and of threads give, and the calls that know the number of their
// thread; others know the time.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct sums {
	_Atomic unsigned long calls, arguments, depths, handled, named;
} static *sums;

static __thread unsigned depth;

__attribute__((noinline)) unsigned work(unsigned n)
{
	volatile unsigned result = n;
	depth++;
	sums->calls++;
	sums->arguments += n;
	sums->depths += depth;
	if (n > 1)
		result += work(n / 2);
	if (n % 3 == 2)
		result += work(n / 3);
	depth--;
	return result;
}

// In the handler depths are another number, so it has a function of its own.
__attribute__((noinline)) unsigned handled(unsigned n)
{
	sums->handled += n;
	asm volatile("");
	return n;
}

// Is called with the number of its thread.
__attribute__((noinline)) long named(long thread)
{
	sums->named++;
	asm volatile("");
	return thread;
}

// Is called with the time, in nanoseconds.
__attribute__((noinline)) unsigned long timed(unsigned long now)
{
	asm volatile("");
	return now;
}

static void handler(int number)
{
	handled(number);
}

static void *works(void *argument)
{
	for (unsigned n = 0; n < 3000; n++)
		work(n % 200);
	struct timespec now;
	for (unsigned n = 0; n < 100; n++) {
		named(syscall(SYS_gettid));
		clock_gettime(CLOCK_MONOTONIC, &now);
		timed(now.tv_sec * 1000000000UL + now.tv_nsec);
	}
	return argument;
}

int main(int count, char **arguments)
{
	int flags = MAP_SHARED | MAP_ANONYMOUS;
	sums = mmap(0, sizeof *sums, PROT_READ | PROT_WRITE, flags, -1, 0);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &action, 0);
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
	setitimer(ITIMER_REAL, &often, 0);
	pthread_t threads[4];
	for (int n = 0; n < 4; n++)
		pthread_create(&threads[n], 0, works, 0);
	for (int n = count > 1 ? atoi(arguments[1]) : 0; n > 0; n--)
		if (fork() == 0) {
			works(0);
			_exit(0);
		}
	works(0);
	for (int n = 0; n < 4; n++)
		pthread_join(threads[n], 0);
	while (wait(0) > 0)
		;
	struct itimerval never = { 0 };
	setitimer(ITIMER_REAL, &never, 0);
	printf("expected calls %lu\nexpected arguments %lu\n", sums->calls, sums->arguments);
	printf("expected depths %lu\nexpected handled %lu\n", sums->depths, sums->handled);
	printf("expected named %lu\n", sums->named);
	return 0;
}
