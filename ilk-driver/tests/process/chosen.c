/* Threads that call a function a number of times that each has of its own, under signals whose handlers do so, too. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 3, CALLS = 2000000 };

static int begin[THREADS][2], end[THREADS][2];
static pid_t numbers[THREADS];
static unsigned long results;
static volatile int handled;

__attribute__((noipa)) unsigned counted(unsigned x)
{
	return x % 3 == 1 ? x * 3 + 1 : x / 2 + 7;
}

__attribute__((noipa)) unsigned long outer(unsigned long thread, unsigned long calls)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < calls; i++)
		sum += counted(thread);
	return sum;
}

/* A first instruction that faults, repaired by its handler: control comes back to it. */
extern unsigned long faulting(unsigned long *from);
__asm__(".globl faulting\n.type faulting, @function\nfaulting: mov (%rdi), %rax\n ret\n.size faulting, .-faulting\n");

/* A block that ends where another begins, in an instruction that is not copied. */
extern unsigned long falling(unsigned long from);
__asm__(".globl falling\n.type falling, @function\nfalling: mov %eax, %gs\n1: dec %rdi\n jnz 1b\n ret\n"
	".size falling, .-falling\n");

static unsigned long seven = 7;
static volatile unsigned long repaired;

static void repair(int signal, siginfo_t *info, void *context)
{
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RDI] = (greg_t)&seven;
	repaired++;
}

static void interrupted(int signal)
{
	/* Two threads may be interrupted at the same time. */
	__atomic_fetch_add(&handled, counted(100) == 301, __ATOMIC_RELAXED);
}

static void *thread(void *argument)
{
	unsigned long number = (unsigned long)argument;
	char byte;
	numbers[number] = (pid_t)syscall(SYS_gettid);
	write(end[number][1], "", 1);
	while (read(begin[number][0], &byte, 1) == 1) {
		__atomic_fetch_add(&results, outer(number, CALLS * (number + 1)), __ATOMIC_RELAXED);
		/* None of these calls are of the function `outer`. */
		for (int i = 0; i < 1000; i++)
			counted(50 + number);
		write(end[number][1], "", 1);
	}
	return NULL;
}

int main(void)
{
	pthread_t all[THREADS];
	char line[64], byte;
	struct sigaction action = { .sa_handler = interrupted, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, 500 }, { 0, 500 } }, none = { { 0, 0 }, { 0, 0 } };
	sigaction(SIGALRM, &action, NULL);
	action.sa_sigaction = repair;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGSEGV, &action, NULL);
	for (unsigned long i = 0; i < THREADS; i++) {
		pipe(begin[i]);
		pipe(end[i]);
		pthread_create(&all[i], NULL, thread, (void *)i);
		read(end[i][0], &byte, 1);
	}
	printf("ready %d %d %d\n", numbers[0], numbers[1], numbers[2]);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		handled = 0;
		setitimer(ITIMER_REAL, &timer, NULL);
		for (int i = 0; i < THREADS; i++)
			write(begin[i][1], "", 1);
		for (int i = 0; i < THREADS; i++)
			read(end[i][0], &byte, 1);
		setitimer(ITIMER_REAL, &none, NULL);
		unsigned long sum = 0;
		for (int i = 0; i < 100; i++)
			sum += faulting((unsigned long *)4096);
		printf("%lx %d %lu %lu\n", results, handled, sum, repaired);
		fflush(stdout);
	}
	return 0;
}
