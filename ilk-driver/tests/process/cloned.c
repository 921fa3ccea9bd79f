/* A program for the code cache: each case prints what it saw. An argument chooses one that changes code. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char __executable_start, etext;

static volatile sig_atomic_t ticks, strange;
static uint64_t text_start, text_end;

/* Returns whether an address is in code that the process had mapped before any cache. */
static int is_original(uint64_t at)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof line, maps)) {
		uint64_t start, end;
		if (sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= at && at < end)
			found = !strstr(line, "memfd:gilk");
	}
	fclose(maps);
	return found;
}

static uint64_t contexts[64];

static void tick(int signal, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
	contexts[ticks % 64] = (uint64_t)at->uc_mcontext.gregs[REG_RIP];
	ticks++;
	(void)signal, (void)info;
}

static sigjmp_buf back;
static uint64_t fault_at, fault_address;

static void faulted(int signal, siginfo_t *info, void *context)
{
	ucontext_t *at = context;
	fault_at = (uint64_t)at->uc_mcontext.gregs[REG_RIP];
	fault_address = (uint64_t)info->si_addr;
	siglongjmp(back, signal);
}

__attribute__((noinline)) static uint64_t work(uint64_t n)
{
	uint64_t sum = 1;
	for (uint64_t i = 0; i < n; i++)
		sum = sum * 6364136223846793005u + i % 7;
	return sum;
}

static void *thread(void *argument)
{
	uint64_t *sum = argument;
	for (int i = 0; i < 200; i++)
		*sum += work(500 + i) + strlen("thread");
	return NULL;
}

__attribute__((noinline)) static uint64_t text_sum(void)
{
	uint64_t sum = 0;
	for (const unsigned char *at = (void *)&__executable_start; at < (unsigned char *)&etext; at++)
		sum = sum * 31 + *at;
	return sum;
}

extern void bad_store(void);
__asm__(".globl bad_store\n.type bad_store, @function\nbad_store:\n mov $64, %eax\n bad_at: movl $1, (%rax)\n ret\n"
	".globl bad_at\n.size bad_store, .-bad_store\n");
extern char bad_at;

static void signals(void)
{
	struct sigaction action = { .sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
	uint64_t sum = 0;
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	while (ticks < 100)
		sum = work(1000);
	memset(&timer, 0, sizeof timer);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (int i = 0; i < 64; i++)
		strange += !is_original(contexts[i]);
	printf("signals: %lx, %d of another place\n", sum, (int)strange);
	action.sa_sigaction = faulted;
	sigaction(SIGSEGV, &action, NULL);
	if (!sigsetjmp(back, 1))
		bad_store();
	printf("fault: at %d, of %lx\n", fault_at == (uint64_t)&bad_at, fault_address);
}

static void threads(void)
{
	pthread_t all[8];
	uint64_t sums[8] = { 0 }, sum = 0;
	for (int i = 0; i < 8; i++)
		pthread_create(&all[i], NULL, thread, &sums[i]);
	for (int i = 0; i < 8; i++) {
		pthread_join(all[i], NULL);
		sum += sums[i];
	}
	printf("threads: %lx\n", sum);
}

static void children(void)
{
	int status = 0;
	fflush(stdout);
	pid_t child = fork();
	if (!child)
		_exit((int)(work(1000) & 63));
	waitpid(child, &status, 0);
	printf("fork: %d\n", WEXITSTATUS(status));
	fflush(stdout);
	printf("system: %d\n", system("true"));
}

/* Writes and executes a function, twice. */
static int changed(void *memory)
{
	unsigned char code[] = { 0xb8, 1, 0, 0, 0, 0xc3 };
	int sum = 0;
	for (int i = 1; i < 3; i++) {
		mprotect(memory, 4096, PROT_READ | PROT_WRITE);
		code[1] = (unsigned char)(10 * i);
		memcpy(memory, code, sizeof code);
		mprotect(memory, 4096, PROT_READ | PROT_EXEC);
		sum += ((int (*)(void))memory)();
	}
	return sum;
}

/* Writes a loop to one of some pages and executes it, again and again, interrupted by a timer, until its input ends. */
static void written_all_the_time(void)
{
	/* mov ecx, 100; dec ecx; jnz; mov eax, number; ret */
	static const unsigned char loop[] = { 0xb9, 100, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xb8, 0, 0, 0, 0, 0xc3 };
	struct sigaction action = { .sa_sigaction = tick, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval timer = { { 0, 1000 }, { 0, 1000 } };
	unsigned char *pages = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t wrong = 0;
	char byte;
	puts("ready");
	fflush(stdout);
	fcntl(0, F_SETFL, O_NONBLOCK);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (uint32_t number = 0; read(0, &byte, 1) != 0; number++) {
		unsigned char *page = pages + number % 64 * 4096;
		memcpy(page, loop, sizeof loop);
		memcpy(page + 10, &number, sizeof number);
		wrong += ((uint32_t (*)(void))page)() != number;
	}
	memset(&timer, 0, sizeof timer);
	setitimer(ITIMER_REAL, &timer, NULL);
	printf("%lu wrong\n", wrong);
	fflush(stdout);
}

static jmp_buf out;

/* Recursive; leaves by longjmp if its argument is greater than 14. */
__attribute__((noipa)) static uint64_t recursive(uint64_t n)
{
	if (n == 15)
		longjmp(out, 1);
	return n < 2 ? n : recursive(n - 1) + recursive(n - 2);
}

/* Calls a function six times, and may leave the fifth call in its middle. */
static void function_alone(int leaves)
{
	uint64_t sum = 0;
	for (int i = 10; i < 14; i++)
		sum += recursive(i);
	if (!setjmp(out))
		sum += recursive(leaves ? 20 : 14);
	sum += work(1000);
	sum += recursive(3);
	printf("recursive: %lx\n", sum);
}

int main(int count, char **arguments)
{
	int mode = count > 1 ? arguments[1][0] : 0;
	if (mode == 'f' || mode == 'l') {
		function_alone(mode == 'l');
		return 0;
	}
	if (mode == 'j') {
		written_all_the_time();
		return 0;
	}
	if (mode == 'w') {
		/* A function that is written before each call. */
		unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(code, "\xb8\0\0\0\0\xc3", 6);
		puts("ready");
		fflush(stdout);
		for (int i = 0;; i++) {
			if (getchar() < 0)
				return 0;
			code[1] = (unsigned char)i;
			printf("%d\n", ((int (*)(void))code)());
			fflush(stdout);
		}
	}
	if (mode == 'r') {
		puts("ready");
		fflush(stdout);
		for (;;) {
			int byte = getchar();
			if (byte < 0)
				return 0;
			printf("%lx\n", work(100000 + (unsigned)byte));
			fflush(stdout);
		}
	}
	printf("text: %lx\n", text_sum());
	signals();
	threads();
	children();
	if (mode == 'c') {
		void *memory = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		printf("changed: %d\n", changed(memory));
		memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memcpy(memory, "\xb8\x07\0\0\0\xc3", 6);
		printf("written: %d\n", ((int (*)(void))memory)());
	}
	printf("text: %lx\n", text_sum());
	return 3;
}
