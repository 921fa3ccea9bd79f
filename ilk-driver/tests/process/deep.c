/* Stack overflows that the program handles: calls to the end of a thread's stack, where an instrument has no space. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 50 };

static sigjmp_buf back;
static volatile unsigned long depth, caught;

__attribute__((noipa)) unsigned long deep(unsigned long bytes, unsigned long a, unsigned long b, unsigned long c)
{
	volatile char used[16];
	used[bytes & 15] = 1;
	depth++;
	return deep(bytes + 1, b, c, a) + used[0] * (a + 3 * b + 5 * c);
}

static void overflown(int signal, siginfo_t *info, void *context)
{
	caught++;
	siglongjmp(back, 1);
}

static void *thread(void *unused)
{
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	sigaltstack(&stack, NULL);
	for (volatile int round = 0; round < ROUNDS; round++)
		if (!sigsetjmp(back, 1)) {
			/* The end is at another distance each time. */
			volatile char *used = __builtin_alloca(round * 8 + 1);
			used[0] = 1;
			deep(1, 2, 3, round);
		}
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = overflown, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	pthread_attr_t small;
	pthread_t one;
	sigaction(SIGSEGV, &action, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	pthread_create(&one, &small, thread, NULL);
	pthread_join(one, NULL);
	printf("%lu caught, %lu deep\n", caught, depth);
	return 0;
}
