// Calls functions that object files replace, from threads and forked children, and knows each result with and without.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct truth {
	unsigned long plain, replaced, wrong;
};

static struct truth *truth;
static volatile int running;

/* It calls another object, so that its callers rely on the calling convention alone. */
__attribute__((noinline)) int price(int x)
{
	return getppid() < 0 ? -1 : x * 3 + 1;
}

/* Arguments on the stack, and in vector registers. */
__attribute__((noinline)) double far(int a, int b, int c, int d, int e, int f, int g, int h, double i, double j)
{
	return getppid() < 0 ? -1 : a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + i / j;
}

__attribute__((noinline)) int leaf(int x)
{
	return x * 2;
}

/* Its loop begins at its entry. */
int again(int x);
__asm__(".text\n"
	".globl again\n"
	".type again, @function\n"
	"again:\n"
	"	lea -1(%rdi), %edi\n"
	"	test %edi, %edi\n"
	"	jg again\n"
	"	mov %edi, %eax\n"
	"	ret\n"
	".size again, . - again\n");

static void judge(double result, double plain, double added)
{
	if (result == plain)
		__atomic_fetch_add(&truth->plain, 1, __ATOMIC_RELAXED);
	else if (result == plain + added)
		__atomic_fetch_add(&truth->replaced, 1, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(&truth->wrong, 1, __ATOMIC_RELAXED);
}

static void call(int times)
{
	for (int x = 0; x < times; x++) {
		judge(price(x), x * 3 + 1, 1000);
		judge(far(x, 1, 1, 1, 1, 1, 1, x, 1, 2), 9 * x + 27.5, 0.25);
	}
}

static void *forever(void *unused)
{
	while (running)
		call(100);
	return unused;
}

static int children(int count)
{
	int failed = 0;
	for (int child = 0; child < count; child++) {
		pid_t pid = fork();
		if (pid == 0) {
			call(1000);
			_exit(0);
		}
		int status = 1;
		waitpid(pid, &status, 0);
		failed += status != 0;
	}
	return failed;
}

int main(void)
{
	char line[32];
	pthread_t threads[3];
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		if (strcmp(line, "begin\n") == 0) {
			running = 1;
			for (int i = 0; i < 3; i++)
				pthread_create(&threads[i], NULL, forever, NULL);
		} else if (strcmp(line, "end\n") == 0) {
			running = 0;
			for (int i = 0; i < 3; i++)
				pthread_join(threads[i], NULL);
		} else if (strcmp(line, "children\n") == 0) {
			truth->wrong += children(20);
		} else if (strcmp(line, "call\n") == 0) {
			call(1000);
		} else if (strcmp(line, "others\n") == 0) {
			truth->wrong += leaf(4) != 8 || again(3) != 0;
		}
		if (truth->wrong != 0)
			fprintf(stderr, "%lu wrong results\n", truth->wrong);
		printf("%lu %lu\n", truth->plain, truth->replaced);
		fflush(stdout);
	}
	return truth->wrong != 0;
}
