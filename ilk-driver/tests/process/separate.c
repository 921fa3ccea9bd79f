// Functions whose names are in no dynamic symbol table: static ones, one of two names, and one in a thread.
#include <pthread.h>
#include <stdio.h>

static volatile long sum;

__attribute__((noipa)) static void work(long number)
{
	sum += number;
}

// The shorter name without underscores is the one that is shown.
__attribute__((noipa)) void __calls_work(long number)
{
	for (long i = 0; i < number; i++) {
		work(i);
		sum++;
	}
}

void calls(long number) __attribute__((alias("__calls_work")));

static void *in_thread(void *number)
{
	calls(*(long *)number);
	sum++;
	return NULL;
}

int main(void)
{
	char line[16];
	long number = 10;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, in_thread, &number) != 0)
			return 1;
		pthread_join(thread, NULL);
	}
	printf("%ld\n", sum);
	return 0;
}
