// Loads and unloads two libraries in turns, and counts the calls of their functions, which the libraries count, too. The
// libraries take each other's addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>

unsigned long calls[2], sums[2], loads[2];
static char **paths;
static unsigned numbers[64];
static unsigned (*volatile in_handler)(const unsigned *);
static volatile unsigned long handled;

static void check(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s\n", what, dlerror());
		abort();
	}
}

static void *load(int which)
{
	void *library = dlopen(paths[which], RTLD_NOW | RTLD_LOCAL);
	check(library != NULL, paths[which]);
	return library;
}

static void *function(void *library)
{
	void *found = dlsym(library, "work");
	check(found != NULL, "work");
	return found;
}

static void use(void *library, int which, unsigned times)
{
	unsigned (*work)(const unsigned *) = function(library);
	for (unsigned i = 0; i < times; i++) {
		const unsigned *number = &numbers[i % 64];
		check(work(number) == *number * (which ? 5 : 3) + 1, "result");
		__atomic_fetch_add(&sums[which], *number, __ATOMIC_RELAXED);
	}
	__atomic_fetch_add(&calls[which], times, __ATOMIC_RELAXED);
}

static void unload(void *library)
{
	check(dlclose(library) == 0, "dlclose");
}

// Takes the addresses of a library that is unloaded, so that it is mapped elsewhere the next time.
static void unload_and_block(void *library)
{
	struct link_map *map = library;
	char *at = (char *)map->l_addr;
	unload(library);
	void *taken = mmap(at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	check(taken == at, "mmap");
}

static void *rounds(void *times)
{
	for (long i = 0; i < (long)times; i++) {
		void *first = load(i & 1);
		use(first, i & 1, 50);
		void *second = load(!(i & 1));
		use(second, !(i & 1), 70);
		unload(first);
		use(second, !(i & 1), 30);
		unload(second);
	}
	return NULL;
}

static void handle(int signal)
{
	if (!in_handler)
		return;
	in_handler(&numbers[7]);
	handled++;
}

int main(int count, char **arguments)
{
	pthread_t threads[4];
	paths = arguments + 1;
	for (unsigned i = 0; i < 64; i++)
		numbers[i] = i * i + 1;
	void *held = count > 3 ? load(0) : NULL;
	if (count > 4) {
		puts("ready");
		fflush(stdout);
		getchar();
	}
	// As many as before: calls of a library that is mapped from the start.
	if (held) {
		use(held, 0, 1000);
		unload(held);
	}
	rounds((void *)2L);
	for (int i = 0; i < 4; i++) {
		held = load(i & 1);
		use(held, i & 1, 100);
		unload_and_block(held);
	}
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, rounds, (void *)2L);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	// A signal's handler executes the library first.
	held = load(1);
	in_handler = function(held);
	signal(SIGALRM, handle);
	struct itimerval interval = { { 0, 1000 }, { 0, 1000 } };
	setitimer(ITIMER_REAL, &interval, NULL);
	while (handled < 2000)
		use(held, 1, 1);
	memset(&interval, 0, sizeof(interval));
	setitimer(ITIMER_REAL, &interval, NULL);
	in_handler = NULL;
	calls[1] += handled;
	sums[1] += handled * numbers[7];
	unload(held);
	for (int i = 0; i < 2; i++)
		printf("%lu %lu %lu\n", calls[i], sums[i], loads[i]);
	return 0;
}
