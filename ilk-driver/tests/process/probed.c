// A program with static probes, written as SystemTap's sys/sdt.h writes them, that counts its own passes.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE(name, semaphore, arguments, ...)                                                     \
	__asm__ volatile(                                                                          \
		"990: nop\n"                                                                       \
		".pushsection .note.stapsdt, \"\", \"note\"\n"                                     \
		".balign 4\n"                                                                      \
		".4byte 992f-991f, 994f-993f, 3\n"                                                 \
		"991: .asciz \"stapsdt\"\n"                                                        \
		"992: .balign 4\n"                                                                 \
		"993: .8byte 990b\n"                                                               \
		".8byte _.stapsdt.base\n"                                                          \
		".8byte " semaphore "\n"                                                           \
		".asciz \"counted\"\n"                                                             \
		".asciz \"" name "\"\n"                                                            \
		".asciz \"" arguments "\"\n"                                                       \
		"994: .balign 4\n"                                                                 \
		".popsection\n"                                                                    \
		".ifndef _.stapsdt.base\n"                                                         \
		".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"        \
		".weak _.stapsdt.base\n"                                                           \
		".hidden _.stapsdt.base\n"                                                         \
		"_.stapsdt.base: .space 1\n"                                                       \
		".size _.stapsdt.base, 1\n"                                                        \
		".popsection\n"                                                                    \
		".endif\n" ::__VA_ARGS__)

#define THREADS 4
#define TURNS 200000

__attribute__((visibility("hidden"))) volatile unsigned short switched __attribute__((section(".probes")));

static unsigned long passes, guarded;

// The same probe at two places, with its arguments in other registers.
__attribute__((noinline)) static void up(unsigned long number, int negative)
{
	PROBE("pass", "0", "8@%0 -4@%1 -4@%2", "D"(number), "S"(negative), "n"(-7));
	__atomic_fetch_add(&passes, 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) static void down(unsigned long number, int negative)
{
	if (number & 1)
		PROBE("pass", "0", "8@%0 -4@%1 -4@%2", "b"(number), "c"(negative), "n"(-7));
	// A pass of the odd ones alone: control reaches this from elsewhere, too.
	__atomic_fetch_add(&passes, number & 1, __ATOMIC_RELAXED);
}

__attribute__((noinline)) static void guard(unsigned long number)
{
	if (__builtin_expect(switched, 0)) {
		PROBE("guarded", "switched", "8@%0", "r"(number));
		__atomic_fetch_add(&guarded, 1, __ATOMIC_RELAXED);
	}
}

__attribute__((noinline)) static void stored(unsigned long *number)
{
	PROBE("stored", "0", "8@%0 8@%1", "m"(*number), "r"(number));
	PROBE("named", "0", "8@%0", "m"(passes));
}

static void *work(void *arg)
{
	(void)arg;
	for (unsigned long i = 1; i <= TURNS; i++) {
		up(i, -(int)(i & 0xff));
		down(i, -(int)(i & 0xff));
		guard(i);
		stored(&i);
	}
	return NULL;
}

static void load(void)
{
	pthread_t threads[THREADS];

	passes = guarded = 0;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, NULL) != 0)
			exit(3);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu %lu\n", passes, guarded);
}

int main(void)
{
	int child[2] = {-1, -1}, answer[2];
	char line[64];

	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof line, stdin) != NULL) {
		if (strcmp(line, "load\n") == 0) {
			load();
		} else if (strcmp(line, "fork\n") == 0) {
			// A child that waits, and then reports its own semaphore.
			if (pipe(child) != 0 || pipe(answer) != 0)
				return 4;
			if (fork() == 0) {
				char byte;
				unsigned short value;

				if (read(child[0], &byte, 1) != 1)
					_exit(5);
				value = switched;
				_exit(write(answer[1], &value, sizeof value) != sizeof value);
			}
			puts("0 0");
		} else if (strcmp(line, "child\n") == 0) {
			unsigned short value = 0xffff;

			if (write(child[1], "x", 1) != 1 || read(answer[0], &value, sizeof value) != sizeof value)
				return 6;
			printf("%u %u\n", value, switched);
		} else if (strcmp(line, "other\n") == 0) {
			// As another tracer does.
			switched++;
			printf("%u 0\n", switched);
		}
	}
	return 0;
}
