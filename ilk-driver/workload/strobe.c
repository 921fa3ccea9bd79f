/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Strobe: calls one cheap system call (getppid) in a loop and prints its cost in ticks of the time
 * stamp counter. The increase by an instrument is the cost of one hit.
 *
 * Usage: strobe [BURSTS [CALLS]]	(200 bursts of 1000 calls by default)
 *
 * The cheapest burst is one without an interrupt. If the counter counts instructions it is exactly
 * the same every time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long long ticks(void)
{
	unsigned int low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (unsigned long long)high << 32 | low;
}

static unsigned long long burst(long calls)
{
	unsigned long long begin = ticks();

	for (long i = 0; i < calls; i++)
		syscall(SYS_getppid);
	return ticks() - begin;
}

int main(int argc, char **argv)
{
	long bursts = argc > 1 ? atol(argv[1]) : 200;
	long calls = argc > 2 ? atol(argv[2]) : 1000;
	unsigned long long cheapest = ~0ULL;

	if (bursts < 1 || calls < 1) {
		fprintf(stderr, "strobe: bursts and calls must be positive numbers.\n");
		return 2;
	}
	for (long i = 0; i < bursts; i++) {
		unsigned long long took = burst(calls);

		if (took < cheapest)
			cheapest = took;
	}
	printf("strobe: %ld calls took %llu ticks\n", calls, cheapest);
	return 0;
}
