// Loads and unloads a library, and counts the calls of its function and its loads, which the library counts, too.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned long calls, loads;
static const char *path;
static volatile int running;

static void check(int right)
{
	if (!right) {
		fprintf(stderr, "%s\n", dlerror());
		abort();
	}
}

static void *load(void)
{
	void *library = dlopen(path, RTLD_NOW);
	check(library != NULL);
	return library;
}

static void use(void *library, unsigned times)
{
	unsigned (*work)(unsigned) = dlsym(library, "work");
	check(work != NULL);
	for (unsigned x = 0; x < times; x++)
		check(work(x) == (x % 5 ? x * 7 + 3 : x / 5));
	__atomic_fetch_add(&calls, times, __ATOMIC_RELAXED);
}

static void *rounds(void *times)
{
	for (long i = 0; i < (long)times; i++) {
		void *library = load();
		use(library, 100);
		check(dlclose(library) == 0);
		usleep(200);
	}
	return NULL;
}

static void *forever(void *unused)
{
	while (running)
		rounds((void *)1L);
	return unused;
}

int main(int count, char **arguments)
{
	char line[64];
	pthread_t threads[4];
	void *held = NULL;

	path = arguments[1];
	if (count > 2)
		held = load();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "use\n")) {
			use(held, 1000);
		} else if (!strcmp(line, "release\n")) {
			check(dlclose(held) == 0);
		} else if (!strcmp(line, "alone\n")) {
			rounds((void *)3L);
		} else if (!strcmp(line, "together\n")) {
			for (int i = 0; i < 4; i++)
				pthread_create(&threads[i], NULL, rounds, (void *)5L);
			for (int i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		} else if (!strcmp(line, "begin\n")) {
			running = 1;
			for (int i = 0; i < 4; i++)
				pthread_create(&threads[i], NULL, forever, NULL);
		} else if (!strcmp(line, "end\n")) {
			running = 0;
			for (int i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		} else if (!strcmp(line, "fork\n")) {
			pid_t child = fork();
			if (child == 0) {
				rounds((void *)2L);
				_exit(0);
			}
			int status;
			check(waitpid(child, &status, 0) == child && status == 0);
		}
		printf("%lu %lu\n", calls, loads);
		fflush(stdout);
	}
	return 0;
}
