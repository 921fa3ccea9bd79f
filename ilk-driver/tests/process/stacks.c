/* Calls one function by many ways, and prints each way as libgcc's unwinder sees it, with the number of calls:
 * "way: COUNT NAME+OFFSET;NAME+OFFSET…", the innermost first. Frames that are not of this program are "*". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64
#define FRAMES 256
#define EXPORTED __attribute__((noinline, visibility("default")))

static struct way {
	int frames;
	long calls;
	void *at[FRAMES];
} ways[MOST];
static int known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void name(FILE *out, void *at, int back)
{
	Dl_info info;

	if (dladdr((char *)at - back, &info) && info.dli_sname && strstr(info.dli_fname, "counted"))
		fprintf(out, "%s+%#lx", info.dli_sname, (long)((char *)at - (char *)info.dli_saddr));
	else
		fputs("*", out);
}

/* The way to here, from the caller of `work` on. */
static __attribute__((noinline)) void note(void *entry)
{
	void *at[FRAMES];
	int frames = backtrace(at, FRAMES);
	int first = 2; /* this function, and `work` */
	struct way *way = NULL;

	(void)entry;
	for (int i = 0; i < known && !way; i++)
		if (ways[i].frames == frames - first &&
		    !memcmp(ways[i].at, at + first, sizeof(void *) * (frames - first)))
			way = &ways[i];
	if (!way) {
		way = &ways[known++];
		way->frames = frames - first;
		memcpy(way->at, at + first, sizeof(void *) * (frames - first));
	}
	way->calls++;
}

EXPORTED int work(int x)
{
	note(&work);
	__asm__ volatile("");
	return 3 * x + 1;
}

EXPORTED int plain(int x)
{
	char space[400];

	__asm__ volatile("" ::"r"(space) : "memory");
	return work(x) + 1;
}

/* Its stack is aligned. */
EXPORTED int aligned(int x)
{
	char space[64] __attribute__((aligned(64)));

	__asm__ volatile("" ::"r"(space) : "memory");
	return plain(x) + 1;
}

/* Its frame has no constant size. */
EXPORTED int sized(int x)
{
	char *space = __builtin_alloca(16 * (x % 7) + 16);

	__asm__ volatile("" ::"r"(space) : "memory");
	return aligned(x) + 1;
}

/* A frame of several pages. */
EXPORTED int large(int x)
{
	char space[20000];

	__asm__ volatile("" ::"r"(space) : "memory");
	return sized(x) + 1;
}

EXPORTED int deep(int x)
{
	char space[8];

	__asm__ volatile("" ::"r"(space) : "memory");
	return (x == 0 ? work(x) : deep(x - 1)) + 1;
}

EXPORTED int order(const void *one, const void *other)
{
	return work(*(const int *)one) - work(*(const int *)other);
}

EXPORTED void handler(int number)
{
	plain(number);
}

EXPORTED void *thread(void *argument)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 50; i++)
		plain((int)(intptr_t)argument);
	pthread_mutex_unlock(&lock);
	return NULL;
}

EXPORTED void ways_of_a_thread(void)
{
	for (int i = 0; i < 100; i++) {
		int numbers[] = { 3, 1, 2 };

		plain(i);
		aligned(i);
		large(7 * i);
		qsort(numbers, 3, sizeof(int), order);
		raise(SIGUSR1);
		raise(SIGUSR2);
	}
	deep(20);
	deep(200);
}

int main(int count, char **arguments)
{
	static char other[65536];
	stack_t stack = { .ss_sp = other, .ss_size = sizeof(other) };
	struct sigaction action = { .sa_handler = handler };
	pthread_t threads[4];
	void *one[1];

	(void)arguments;
	backtrace(one, 1); /* loads libgcc */
	sigaltstack(&stack, NULL);
	sigaction(SIGUSR1, &action, NULL);
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR2, &action, NULL);
	if (count > 1) {
		pid_t child = fork();

		if (child > 0)
			return waitpid(child, &count, 0) != child || count;
	}
	ways_of_a_thread();
	if (access("libpassing.so", R_OK) == 0) {
		void *library = dlopen("./libpassing.so", RTLD_NOW);
		int (*passing)(int (*)(int), int) = dlsym(library, "passing");

		for (int i = 0; i < 100; i++)
			passing(plain, i % 10);
		dlclose(library);
	}
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < known; i++) {
		printf("way: %ld ", ways[i].calls);
		for (int j = 0; j < ways[i].frames; j++) {
			if (j)
				fputs(";", stdout);
			name(stdout, ways[i].at[j], 1);
		}
		puts("");
	}
	return 0;
}
