// Cases of a program, one for each name: each prints what it saw.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096

typedef int (*function)(void);

// `mov eax, value; ret`
static void returning(unsigned char *at, uint32_t value)
{
	at[0] = 0xb8;
	memcpy(at + 1, &value, 4);
	at[5] = 0xc3;
}

static void *pages(int protection)
{
	void *at = mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		abort();
	return at;
}

static void handles(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	sigaction(signal, &action, NULL);
}

struct named_case {
	const char *name;
	void (*run)(void);
};

// Runs the case that is named, or prints the names of all.
static int run(const struct named_case *cases, size_t all, int count, char **arguments)
{
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	for (size_t i = 0; i < all; i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (!strcmp(arguments[1], cases[i].name))
			cases[i].run();
	}
	return 0;
}

#define CASES(cases) \
	int main(int count, char **arguments) \
	{ \
		return run(cases, sizeof(cases) / sizeof(*cases), count, arguments); \
	}
