/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Frames: opens files from chains of calls that are known, with paths that are, and with one that is not mapped.
 *
 * Usage: frames ROUNDS [wait]
 *
 * In each round:
 *   first, outer, middle, inner   opens /etc/inner, which is not there
 *   first, outer, inner           opens a longer path, which is not there
 *   first, edge, inner            opens /etc/edge, which ends with the last byte of a mapping
 *   first, nowhere, inner         opens what is not mapped, and gets EFAULT
 *   first, deep, deep, …          149 times, then inner, and opens /etc/deep
 * Prints "frames: ROUNDS rounds", or what went wrong; with `wait` it then waits to be killed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC optimize("no-omit-frame-pointer", "no-optimize-sibling-calls")

enum { PAGE = 4096, DEPTH = 149 };

#define FRAME __attribute__((noinline, noclone, no_icf))
/* What is done after a call keeps the call from being a jump. */
#define KEEP() asm volatile("" ::: "memory")

/* By its own instruction, so that the library has no frame. */
FRAME static long inner(const char *path)
{
	long result;

	/* It calls nothing, and would have no frame. */
	asm volatile("" : : "r" (__builtin_frame_address(0)));
	asm volatile("syscall"
		     : "=a" (result)
		     : "0" (SYS_openat), "D" (AT_FDCWD), "S" (path), "d" (O_RDONLY)
		     : "rcx", "r11", "memory");
	KEEP();
	return result;
}

FRAME static long middle(const char *path)
{
	long result = inner(path);

	KEEP();
	return result;
}

FRAME static long outer(const char *path)
{
	long result = path[5] == 'i' ? middle(path) : inner(path);

	KEEP();
	return result;
}

FRAME static long edge(const char *path)
{
	long result = inner(path);

	KEEP();
	return result;
}

FRAME static long nowhere(const char *path)
{
	long result = inner(path);

	KEEP();
	return result;
}

FRAME static long deep_from(const char *path, int depth)
{
	long result = depth > 1 ? deep_from(path, depth - 1) : inner(path);

	KEEP();
	return result;
}

FRAME static long deep(const char *path)
{
	long result = deep_from(path, DEPTH);

	KEEP();
	return result;
}

/* Calls with a frame pointer of 0, with which a chain ends, and below a red zone of its own. */
FRAME static long first(long (*function)(const char *), const char *path)
{
	long result;

	asm volatile("subq $128, %%rsp\n\t"
		     "pushq %%rbp\n\t"
		     "xorl %%ebp, %%ebp\n\t"
		     "call *%[function]\n\t"
		     "popq %%rbp\n\t"
		     "addq $128, %%rsp"
		     : "=a" (result), "+D" (path)
		     : [function] "b" (function)
		     : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

static void need(long result, long expected, const char *what)
{
	if (result != expected) {
		printf("frames: %s: %s instead of %s\n", what, strerror(-result), strerror(-expected));
		exit(1);
	}
}

int main(int count, char **words)
{
	int rounds = count > 1 ? atoi(words[1]) : 1;
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static const char path[] = "/etc/edge";
	char *last = pages + PAGE - sizeof(path);

	if (pages == MAP_FAILED || munmap(pages + PAGE, PAGE)) {
		perror("frames: mmap");
		return 1;
	}
	memcpy(last, path, sizeof(path));
	for (int round = 0; round < rounds; round++) {
		need(first(outer, "/etc/inner"), -ENOENT, "inner");
		need(first(outer, "/etc/a-path-of-more-than-fifteen-bytes"), -ENOENT, "a longer path");
		need(first(edge, last), -ENOENT, "edge");
		need(first(nowhere, pages + PAGE), -EFAULT, "nowhere");
		need(first(deep, "/etc/deep"), -ENOENT, "deep");
	}
	printf("frames: %d rounds\n", rounds);
	fflush(stdout);
	if (count > 2)
		pause();
	return 0;
}
