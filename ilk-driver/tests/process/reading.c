/* Threads that pass pointers to a function, valid and others, which it does not follow itself: one with all signals
 * blocked, and two under a timer's signals. The program has a handler of its own faults. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

enum { THREADS = 3, CALLS = 20000, KINDS = 8 };

struct request {
	unsigned long size;
	const char *path;
};

static int begin[THREADS][2], end[THREADS][2];
static struct request requests[KINDS];
static const struct request *passed[KINDS];
static volatile unsigned long begun, handled, faults;
static unsigned long results;

/* The seventh argument is on the stack. */
__attribute__((noipa)) unsigned long handle(const struct request *request, unsigned long number, unsigned long a,
					    unsigned long b, unsigned long c, unsigned long d, unsigned long seventh)
{
	return number * 3 + seventh + a - b + c - d;
}

static void interrupted(int signal)
{
	__atomic_fetch_add(&begun, 1, __ATOMIC_RELAXED);
	/* Its argument is counted, too. */
	handle(&requests[0], 0, 0, 0, 0, 0, 1);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

/* A load that faults, and is repaired: the handler finds its address and the pointer. */
extern unsigned long load(const unsigned long *from);
__asm__(".globl load\n.type load, @function\nload: mov (%rdi), %rax\n ret\n.size load, .-load\n");

static unsigned long seven = 7;
static const unsigned long *const wrong = (const unsigned long *)0x1234;

static void repair(int signal, siginfo_t *info, void *context)
{
	if (info->si_addr != wrong || ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] != (greg_t)load)
		_exit(3);
	((ucontext_t *)context)->uc_mcontext.gregs[REG_RDI] = (greg_t)&seven;
	__atomic_fetch_add(&faults, 1, __ATOMIC_RELAXED);
}

static void *thread(void *argument)
{
	unsigned long number = (unsigned long)argument;
	sigset_t all;
	char byte;
	sigfillset(&all);
	if (!number)
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	while (read(begin[number][0], &byte, 1) == 1) {
		unsigned long sum = 0;
		for (unsigned long i = 0; i < CALLS; i++)
			sum += handle(passed[i % KINDS], i, 0, 1, 2, 3, i & 15);
		for (int i = 0; number && i < 100; i++)
			sum += load(wrong);
		__atomic_fetch_add(&results, sum, __ATOMIC_RELAXED);
		write(end[number][1], "", 1);
	}
	return NULL;
}

int main(void)
{
	struct sigaction action = { .sa_handler = interrupted, .sa_flags = SA_RESTART };
	struct itimerval timer = { { 0, 500 }, { 0, 500 } }, none = { { 0, 0 }, { 0, 0 } };
	size_t page = sysconf(_SC_PAGESIZE);
	pthread_t all[THREADS];
	char line[64], byte, *pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *file = tmpfile();
	char *ended;

	/* One page that can be read, and one that cannot. */
	mprotect(pages + page, page, PROT_NONE);
	if (ftruncate(fileno(file), 1))
		return 2;
	ended = mmap(NULL, 2 * page, PROT_READ, MAP_SHARED, fileno(file), 0);
	for (int i = 0; i < KINDS; i++) {
		requests[i].size = 10 + i;
		requests[i].path = i % 2 ? "/index" : "/";
		passed[i] = &requests[i];
	}
	passed[2] = NULL;
	passed[3] = (void *)(pages + page);
	/* Its first half alone can be read. */
	passed[4] = (void *)(pages + page - 4);
	passed[5] = (void *)0xffffffff81000000;
	/* After the end of its file. */
	passed[6] = (void *)(ended + page);
	sigaction(SIGALRM, &action, NULL);
	action.sa_sigaction = repair;
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGSEGV, &action, NULL);
	for (unsigned long i = 0; i < THREADS; i++) {
		if (pipe(begin[i]) || pipe(end[i]))
			return 2;
		pthread_create(&all[i], NULL, thread, (void *)i);
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		begun = handled = faults = results = 0;
		setitimer(ITIMER_REAL, &timer, NULL);
		for (int i = 0; i < THREADS; i++)
			write(begin[i][1], "", 1);
		for (int i = 0; i < THREADS; i++)
			read(end[i][0], &byte, 1);
		setitimer(ITIMER_REAL, &none, NULL);
		/* Handlers may still execute. */
		do
			usleep(20000);
		while (begun != handled);
		printf("%lx %lu %lu\n", results, handled, faults);
		fflush(stdout);
	}
	return 0;
}
