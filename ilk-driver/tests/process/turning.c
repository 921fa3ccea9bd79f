/* Branches that change rcx, and blocks that end without a branch, executed a known number of times: by threads under a
 * timer's signals, whose handler executes them, too, and at the ends of stacks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 3, CALLS = 300000, ROUNDS = 50 };

/* jrcxz, loop, and a block that ends without a branch: the flags of its last instruction are read after it. */
extern unsigned long turning(unsigned long number);
__asm__(".globl turning\n.type turning, @function\n"
	"turning: mov %rdi, %rcx\n xor %eax, %eax\n jrcxz 2f\n"
	"1: add $7, %rax\n loop 1b\n"
	"inc %rax\n cmp $3, %rdi\n"
	"2: setb %dl\n movzbl %dl, %edx\n add %rdx, %rax\n ret\n.size turning, .-turning\n");

/* Its first block ends without a branch. */
extern unsigned long deeper(unsigned long number);
__asm__(".globl deeper\n.type deeper, @function\n"
	"deeper: incq depth(%rip)\n"
	"2: test %rdi, %rdi\n jz 1f\n call deeper\n inc %rax\n ret\n"
	"1: inc %rdi\n jmp 2b\n.size deeper, .-deeper\n");

unsigned long depth;
static unsigned long results, caught;
static volatile unsigned long handled;
static sigjmp_buf back;

static void interrupted(int signal)
{
	if (turning(2) != 16)
		_exit(3);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static void overflown(int signal)
{
	caught++;
	siglongjmp(back, 1);
}

static void *thread(void *unused)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < CALLS; i++)
		sum += turning(i % 5);
	__atomic_fetch_add(&results, sum, __ATOMIC_RELAXED);
	return unused;
}

static void *overflowing(void *unused)
{
	stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
	sigaltstack(&stack, NULL);
	for (volatile int round = 0; round < ROUNDS; round++)
		if (!sigsetjmp(back, 1)) {
			/* The end is at another distance each time. */
			volatile char *used = __builtin_alloca(round * 8 + 1);
			used[0] = 1;
			deeper(1);
		}
	return unused;
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupted, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, 600 }, { 0, 600 } }, none = { { 0, 0 }, { 0, 0 } };
	pthread_t all[THREADS];
	pthread_attr_t small;
	sigaction(SIGALRM, &action, NULL);
	action.sa_handler = overflown;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGSEGV, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&all[i], NULL, thread, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
	setitimer(ITIMER_REAL, &none, NULL);
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	pthread_create(&all[0], &small, overflowing, NULL);
	pthread_join(all[0], NULL);
	printf("%lx %lu handled %lu caught %lu deep\n", results, handled, caught, depth);
	return 0;
}
