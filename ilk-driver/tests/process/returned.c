/* Threads that call one function: a call of the first changes the mappings of code again and again, for which all threads
 * leave the code cache, while those of the second return. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

enum { CHANGES = 40, CALLS = 3, PAGE = 4096 };

static volatile unsigned long calls;
static volatile int ended;

/* A page of code for itself. */
__attribute__((noipa, section(".text.page"), aligned(4096))) unsigned long inside(unsigned long number)
{
	return number * 3;
}

__attribute__((noipa, section(".text.page"), aligned(4096))) unsigned long after(unsigned long number)
{
	return number + 1;
}

static unsigned long change(void)
{
	unsigned long sum = 0;
	for (int i = 0; i < CHANGES; i++) {
		unsigned long until = calls + CALLS;
		if (mprotect((void *)inside, PAGE, PROT_READ) || mprotect((void *)inside, PAGE, PROT_READ | PROT_EXEC))
			return 0;
		sum += inside(i);
		while (calls < until)
			__builtin_ia32_pause();
	}
	return sum;
}

__attribute__((noipa)) unsigned long chosen(unsigned long (*function)(void), unsigned long number)
{
	return function ? function() : number;
}

static void *first(void *unused)
{
	unsigned long sum = chosen(change, 0);
	ended = 1;
	return (void *)sum;
}

int main(void)
{
	pthread_t thread;
	unsigned long sum = 0;
	void *changed;
	pthread_create(&thread, NULL, first, NULL);
	for (; !ended; calls++)
		sum += chosen(NULL, calls);
	pthread_join(thread, &changed);
	/* The results, and the number of calls of both threads. */
	printf("%d %d %lu\n", (unsigned long)changed == CHANGES * (CHANGES - 1) / 2 * 3, sum == calls * (calls - 1) / 2,
	       calls + 1);
	return 0;
}
