// Counts its own calls of `counted`, and those of the children that it forks in several ways.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_TEXT (8 << 20)

struct truth {
	unsigned long parent, children, forked, changed, mapped;
	volatile int stay;
};

static struct truth *truth;
static pid_t parent;
static volatile int running;
// The text and the mappings at the start.
static char maps[1 << 16], *text;
static unsigned long length;

__attribute__((noipa)) unsigned counted(unsigned x)
{
	return x % 3 == 1 ? x * 3 + 1 : x / 2 + 7;
}

static void add(unsigned long *word, unsigned long more)
{
	__atomic_fetch_add(word, more, __ATOMIC_SEQ_CST);
}

static void call(unsigned times)
{
	for (unsigned x = 0; x < times; x++)
		if (counted(x) != (x % 3 == 1 ? x * 3 + 1 : x / 2 + 7))
			abort();
	add(getpid() == parent ? &truth->parent : &truth->children, times);
}

static void on_signal(int signal)
{
	call(signal % 3 + 1);
}

// Reads the mappings; calls `each` with each mapping with code that is not gilk's.
static void read_maps(char *to, size_t most, void (*each)(char *start, size_t bytes))
{
	FILE *file = fopen("/proc/self/maps", "r");
	size_t done = fread(to, 1, most - 1, file);
	to[done] = 0;
	fclose(file);
	for (char *line = to; *line; line = strchr(line, '\n') + 1) {
		unsigned long start, end;
		char flags[5], name[64] = "";
		if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %63s", &start, &end, flags, name) >= 3 &&
		    !strcmp(flags, "r-xp") && strncmp(name, "/memfd:gilk", 11))
			each((char *)start, end - start);
	}
}

static void keep(char *start, size_t bytes)
{
	if (length + bytes > MOST_TEXT)
		abort();
	memcpy(text + length, start, bytes);
	length += bytes;
}

static unsigned long compared;
static int differs;

static void compare(char *start, size_t bytes)
{
	if (compared + bytes > length || memcmp(text + compared, start, bytes))
		differs = 1;
	compared += bytes;
}

// Whether this process has the text of the start, and no mapping of another's.
static void check(void)
{
	char now[1 << 16];
	compared = differs = 0;
	read_maps(now, sizeof(now), compare);
	add(&truth->mapped, strstr(now, "gilk") != NULL);
	add(&truth->changed, differs || compared != length);
}

static void child(unsigned times)
{
	sigset_t blocked;
	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	if (sigismember(&blocked, SIGUSR1) || sigismember(&blocked, SIGTERM))
		abort();
	call(times);
	check();
	_exit(0);
}

static void ended(pid_t pid)
{
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status) {
		fprintf(stderr, "child %d ended with %x\n", pid, status);
		abort();
	}
	add(&truth->forked, 1);
}

static void forks(int times)
{
	for (int i = 0; i < times; i++) {
		pid_t pid = fork();
		if (pid == 0)
			child(1000);
		call(10);
		ended(pid);
	}
}

static void *forking(void *times)
{
	forks((unsigned long)times);
	return NULL;
}

static void *always_forking(void *unused)
{
	while (running)
		forks(1);
	return unused;
}

static void *calling(void *unused)
{
	while (running) {
		call(1000);
		sched_yield();
	}
	return unused;
}

// Signals for the process and its children, which have its group.
static void *signalling(void *unused)
{
	struct timespec moment = { 0, 1000000 };
	while (running) {
		kill(0, SIGUSR1);
		nanosleep(&moment, NULL);
	}
	return unused;
}

static void nested(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		pid_t inner = fork();
		if (inner == 0)
			child(100);
		ended(inner);
		child(100);
	}
	ended(pid);
}

// Children that share the memory of their parent until they execute a program or end, and calls of it.
static void sharing(void)
{
	extern char **environ;
	char *words[] = { "true", NULL };
	pid_t pid;
	if (posix_spawnp(&pid, "true", NULL, NULL, words, environ))
		abort();
	ended(pid);
	pid = vfork();
	if (pid == 0)
		_exit(0);
	ended(pid);
	if (system("exit 0"))
		abort();
	call(10);
}

// The program's own instruction for `fork`.
__attribute__((noinline, noclone)) static long by_instruction(void)
{
	long result;
	asm volatile("mov $57, %%eax; syscall" : "=a"(result) : : "rcx", "r11", "memory");
	return result;
}

// A child that shares memory and stack by its own instruction for `clone` (CLONE_VM, CLONE_VFORK and SIGCHLD), and ends.
__attribute__((noinline, noclone)) static long sharing_by_instruction(void)
{
	long result;
	asm volatile("mov $0x4111, %%edi; xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d;"
		     "mov $56, %%eax; syscall; test %%eax, %%eax; jne 1f; xor %%edi, %%edi; mov $60, %%eax; syscall; 1:"
		     : "=a"(result) : : "rcx", "r11", "rdi", "rsi", "rdx", "r10", "r8", "memory");
	return result;
}

// A child with a stack of its own, by the same instruction.
__attribute__((noinline, noclone)) static long apart_by_instruction(void)
{
	static char stack[4096] __attribute__((aligned(16)));
	long result;
	asm volatile("mov $17, %%edi; mov %1, %%rsi; xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d;"
		     "mov $56, %%eax; syscall; test %%eax, %%eax; jne 1f; xor %%edi, %%edi; mov $60, %%eax; syscall; 1:"
		     : "=a"(result) : "r"(stack + sizeof(stack)) : "rcx", "r11", "rdi", "rsi", "rdx", "r10", "r8", "memory");
	return result;
}

static void instructions(void)
{
	for (int i = 0; i < 3; i++) {
		long pid = by_instruction();
		if (pid == 0)
			child(1000);
		ended(pid);
		ended(sharing_by_instruction());
		ended(apart_by_instruction());
	}
}

static void staying(long (*start)(void))
{
	truth->stay = 1;
	pid_t pid = start();
	if (pid == 0) {
		call(1000);
		while (truth->stay)
			usleep(1000);
		child(1000);
	}
}

static long by_library(void)
{
	return fork();
}

// Not one that the C library makes.
static long by_number(void)
{
	return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pthread_t threads[6];

static void begin(int forking)
{
	running = 1;
	for (int i = 0; i < 6; i++) {
		void *(*start)(void *) = i == 0 ? signalling : i < 3 || !forking ? calling : always_forking;
		pthread_create(&threads[i], NULL, start, NULL);
	}
}

static void end(void)
{
	running = 0;
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
}

int main(void)
{
	char line[64];
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_t forkers[4];

	setpgid(0, 0);
	parent = getpid();
	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	text = mmap(NULL, MOST_TEXT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGUSR1, &action, NULL);
	read_maps(maps, sizeof(maps), keep);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "forks\n")) {
			forks(20);
		} else if (!strcmp(line, "threads\n")) {
			begin(0);
			for (int i = 0; i < 4; i++)
				pthread_create(&forkers[i], NULL, forking, (void *)15UL);
			for (int i = 0; i < 4; i++)
				pthread_join(forkers[i], NULL);
			end();
		} else if (!strcmp(line, "begin\n")) {
			begin(1);
		} else if (!strcmp(line, "end\n")) {
			end();
		} else if (!strcmp(line, "nested\n")) {
			nested();
		} else if (!strcmp(line, "sharing\n")) {
			sharing();
		} else if (!strcmp(line, "instructions\n")) {
			instructions();
		} else if (!strcmp(line, "stay\n")) {
			staying(by_library);
		} else if (!strcmp(line, "raw\n")) {
			staying(by_number);
		} else if (!strcmp(line, "join\n")) {
			truth->stay = 0;
			for (int status; wait(&status) > 0;)
				if (status)
					abort();
		}
		if (!strcmp(line, "found\n"))
			printf("%lu %lu\n", truth->changed, truth->mapped);
		else if (!strcmp(line, "forked\n"))
			printf("%lu 0\n", truth->forked);
		else
			printf("%lu %lu\n", truth->parent, truth->children);
		fflush(stdout);
	}
	return 0;
}
