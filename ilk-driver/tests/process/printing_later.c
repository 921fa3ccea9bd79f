// Loads a library several times, and calls its function and one of its own from two threads each time, and once from a
// forked child, too. The nth call of a writer has arguments that follow from both numbers.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOADS = 3, CALLS = 500 };

static const char *const names[] = { "a", "seven b", "more than fifteen bytes" };
static long (*line)(long, long, const char *);

__attribute__((noipa)) long own(long writer, long serial)
{
	return 5 * writer + serial;
}

static void *work(void *number)
{
	long writer = (long)number;
	for (long serial = 0; serial < CALLS; serial++) {
		line(writer, serial, names[(writer + serial) % 3]);
		if (serial % 10 == 0)
			own(writer, serial);
		if (serial % 100 == 0)
			usleep(1000);
	}
	return 0;
}

int main(int count, char **arguments)
{
	(void)count;
	for (long load = 0; load < LOADS; load++) {
		pthread_t threads[2];
		pid_t child = -1;
		void *library = dlopen(arguments[1], RTLD_NOW);
		if (!library)
			abort();
		line = (long (*)(long, long, const char *))dlsym(library, "line");
		for (long n = 0; n < 2; n++)
			pthread_create(&threads[n], 0, work, (void *)(10 * load + n));
		if (load == 2 && !(child = fork())) {
			work((void *)100L);
			_exit(0);
		}
		for (long n = 0; n < 2; n++)
			pthread_join(threads[n], 0);
		if (child > 0)
			waitpid(child, 0, 0);
		dlclose(library);
	}
	return 0;
}
