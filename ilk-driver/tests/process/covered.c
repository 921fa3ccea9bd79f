// Work of many kinds, whose blocks the compiler counts too (--coverage): a switch, recursion, callbacks, longjmp,
// threads, and a handler of signals.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile unsigned long result;
static volatile sig_atomic_t signals;

static unsigned machine(const unsigned char *code, unsigned x)
{
	for (;; code++) {
		switch (*code) {
		case 0: return x;
		case 1: x += 3; break;
		case 2: x *= 5; break;
		case 3: x ^= x >> 7; break;
		case 4: if (x & 1) x++; break;
		case 5: x = x << 3 | x >> 29; break;
		case 6: x -= code[1]; code++; break;
		case 7: while (x > 100000) x /= 3; break;
		default: x = ~x;
		}
	}
}

static unsigned depth(unsigned n)
{
	return n < 2 ? n : depth(n - 1) + depth(n - 2);
}

static int order(const void *one, const void *other)
{
	unsigned a = *(const unsigned *)one, b = *(const unsigned *)other;
	return a < b ? -1 : a > b;
}

static jmp_buf back;

static void leave(unsigned n)
{
	if (n % 7 == 3)
		longjmp(back, 1 + n % 3);
	result += n;
}

static void jumps(void)
{
	for (volatile unsigned n = 0; n < 500; n++)
		switch (setjmp(back)) {
		case 0: leave(n); break;
		case 1: result += 2; break;
		default: result ^= 5;
		}
}

static void *work(void *argument)
{
	static const unsigned char code[] = { 1, 2, 3, 4, 5, 6, 9, 7, 2, 8, 4, 3, 0 };
	unsigned seed = (unsigned)(size_t)argument, words[400];
	for (int round = 0; round < 200; round++) {
		for (unsigned n = 0; n < 400; n++)
			words[n] = seed = machine(code + n % 8, seed * 1103515245 + 12345);
		qsort(words, 400, sizeof *words, order);
		__atomic_fetch_add(&result, words[seed % 400] + depth(seed % 12), __ATOMIC_RELAXED);
	}
	return NULL;
}

static void handler(int number)
{
	signals += number == SIGUSR1;
}

int main(void)
{
	char line[64];
	signal(SIGUSR1, handler);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		pthread_t threads[4];
		for (size_t n = 0; n < 4; n++)
			pthread_create(&threads[n], NULL, work, (void *)(n + 1));
		for (int n = 0; n < 50; n++)
			raise(SIGUSR1);
		jumps();
		for (int n = 0; n < 4; n++)
			pthread_join(threads[n], NULL);
		printf("%lu %d\n", result, (int)signals);
		fflush(stdout);
	}
	return 0;
}
