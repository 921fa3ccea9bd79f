/* Executes `function` a known number of times: by threads under a timer's signals, whose handler executes it, too; and
 * `deeper` to the ends of stacks. */
#include "overflowing.h"
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 3, CALLS = 300000 };

extern unsigned long function(unsigned long number), deeper(unsigned long number);

unsigned long depth;
static unsigned long results;
static volatile unsigned long handled;

static void interrupted(int signal)
{
	if (function(2) != FUNCTION_OF_2)
		_exit(3);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void *thread(void *unused)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < CALLS; i++)
		sum += function(i % 5);
	__atomic_fetch_add(&results, sum, __ATOMIC_RELAXED);
	return unused;
}

static void overflow(unsigned long round)
{
	deeper(1);
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupted, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, INTERVAL }, { 0, INTERVAL } }, none = { { 0, 0 }, { 0, 0 } };
	pthread_t all[THREADS];
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, thread, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	setitimer(ITIMER_REAL, &none, NULL);
	overflows();
	printf("%lx %lu handled %lu caught %lu deep\n", results, handled, caught, depth);
	return 0;
}
