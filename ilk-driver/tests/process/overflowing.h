/* Stack overflows that the program handles: calls to the end of a thread's stack, where an instrument has no space. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 50 };

static sigjmp_buf back;
static unsigned long caught;

static void overflown(int signal)
{
	caught++;
	siglongjmp(back, 1);
}

/* Calls that do not end, in a round. */
static void overflow(unsigned long round);

static void *overflowing(void *unused)
{
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	sigaltstack(&stack, NULL);
	for (volatile int round = 0; round < ROUNDS; round++)
		if (!sigsetjmp(back, 1)) {
			/* The end is at another distance each time. */
			volatile char *used = __builtin_alloca(round * 8 + 1);
			used[0] = 1;
			overflow(round);
		}
	return unused;
}

/* Executes the rounds in a thread with a small stack. */
static void overflows(void)
{
	struct sigaction action = { .sa_handler = overflown, .sa_flags = SA_ONSTACK };
	pthread_attr_t small;
	pthread_t one;
	sigaction(SIGSEGV, &action, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	pthread_create(&one, &small, overflowing, NULL);
	pthread_join(one, NULL);
}
