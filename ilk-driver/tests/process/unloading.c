// Loads and unloads a library as often as its argument says, while another thread executes other code. The library and the
// program call each other, and both count.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 40

static volatile int running = 1;
static volatile unsigned sum;

static void check(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s\n", what, dlerror());
		abort();
	}
}

// Called by the library.
__attribute__((noipa)) unsigned step(unsigned x)
{
	return x * x + 1;
}

static int compare(const void *one, const void *other)
{
	return *(const int *)one - *(const int *)other;
}

// Executes code of the program and of the C library all the time.
static void *busy(void *unused)
{
	char text[64];
	do {
		int all[50];
		for (int i = 0; i < 50; i++)
			all[i] = (i * 37) % 50;
		qsort(all, 50, sizeof(all[0]), compare);
		snprintf(text, sizeof(text), "%d %g", all[7], all[9] / 4.0);
		check(!strcmp(text, "7 2.25"), text);
	} while (running);
	return unused;
}

__attribute__((noipa)) static void round_trip(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	check(library != NULL, path);
	unsigned (*work)(unsigned, unsigned (*)(unsigned)) = dlsym(library, "work");
	check(work != NULL, "work");
	for (unsigned i = 0; i < CALLS; i++)
		sum += work(i, step);
	check(dlclose(library) == 0, "dlclose");
}

int main(int count, char **arguments)
{
	pthread_t thread;
	pthread_create(&thread, NULL, busy, NULL);
	for (int i = atoi(arguments[2]); i > 0; i--)
		round_trip(arguments[1]);
	running = 0;
	pthread_join(thread, NULL);
	printf("%u\n", sum);
	return 0;
}
