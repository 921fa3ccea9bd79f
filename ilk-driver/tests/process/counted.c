// Counts its own calls of `counted`: threads, short-lived threads, forked children, and a handler of signals.
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct truth {
	unsigned long calls, odd, sum, returned;
	volatile int stay;
};

static struct truth *truth;
static volatile int running;

__attribute__((noipa)) unsigned counted(unsigned x)
{
	if (x % 3 == 1)
		return x * 3 + 1;
	return x / 2 + 7;
}

static unsigned expected(unsigned x)
{
	return x % 3 == 1 ? x * 3 + 1 : x / 2 + 7;
}

static void call(unsigned from, unsigned times)
{
	unsigned long odd = 0, sum = 0, returned = 0;
	double real = 0;
	for (unsigned x = from; x < from + times; x++) {
		if (counted(x) != expected(x)) {
			fprintf(stderr, "wrong result of %u\n", x);
			abort();
		}
		odd += x % 3 == 1;
		sum += x;
		returned += expected(x);
		real += x;
	}
	if (real != sum) {
		fprintf(stderr, "wrong sum from %u\n", from);
		abort();
	}
	__atomic_fetch_add(&truth->calls, times, __ATOMIC_RELAXED);
	__atomic_fetch_add(&truth->odd, odd, __ATOMIC_RELAXED);
	__atomic_fetch_add(&truth->sum, sum, __ATOMIC_RELAXED);
	__atomic_fetch_add(&truth->returned, returned, __ATOMIC_RELAXED);
}

static void on_alarm(int signal)
{
	call(signal, 3);
}

static void *thread(void *times)
{
	call(5, (unsigned long)times);
	return NULL;
}

static void *forever(void *unused)
{
	while (running)
		call(9, 1000);
	return unused;
}

static void migrate(int round)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(round % sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void load(int rounds)
{
	pthread_t threads[6], shorter;
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(2000000UL));
	for (int i = 0; i < rounds; i++) {
		migrate(i);
		pthread_create(&shorter, NULL, thread, (void *)100UL);
		pthread_join(shorter, NULL);
		if (i % 20 == 0) {
			pid_t child = fork();
			if (child == 0) {
				call(1, 1000);
				_exit(0);
			}
			waitpid(child, NULL, 0);
		}
	}
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
}

static void fork_children(void)
{
	truth->stay = 1;
	for (int i = 0; i < 3; i++) {
		if (fork() == 0) {
			while (truth->stay)
				call(1, 1000);
			_exit(0);
		}
	}
}

static void join_children(void)
{
	int status;
	truth->stay = 0;
	for (int i = 0; i < 3; i++)
		if (wait(&status) < 0 || status)
			abort();
}

static void be_traced(void)
{
	truth->stay = 1;
	if (fork() == 0) {
		truth->stay = ptrace(PTRACE_SEIZE, getppid(), 0, 0) ? 3 : 2;
		while (truth->stay == 2)
			usleep(1000);
		_exit(0);
	}
	while (truth->stay == 1)
		usleep(1000);
}

static void filter(void)
{
	struct sock_filter all[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 1, .filter = all };
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		abort();
}

int main(void)
{
	char line[64];
	pthread_t threads[4];
	struct itimerval interval = { { 0, 1000 }, { 0, 1000 } }, none = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	truth = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigaction(SIGALRM, &action, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "load\n")) {
			setitimer(ITIMER_REAL, &interval, NULL);
			load(400);
			setitimer(ITIMER_REAL, &none, NULL);
		} else if (!strcmp(line, "begin\n")) {
			running = 1;
			for (int i = 0; i < 4; i++)
				pthread_create(&threads[i], NULL, forever, NULL);
			setitimer(ITIMER_REAL, &interval, NULL);
		} else if (!strcmp(line, "end\n")) {
			setitimer(ITIMER_REAL, &none, NULL);
			running = 0;
			for (int i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		} else if (!strcmp(line, "fork\n")) {
			fork_children();
		} else if (!strcmp(line, "join\n")) {
			join_children();
		} else if (!strcmp(line, "traced\n")) {
			be_traced();
		} else if (!strcmp(line, "untraced\n")) {
			truth->stay = 0;
			wait(NULL);
		} else if (!strcmp(line, "exec\n")) {
			execl("/proc/self/exe", "counted", NULL);
			abort();
		} else if (!strcmp(line, "filter\n")) {
			filter();
		}
		if (!strcmp(line, "sums\n"))
			printf("%lu %lu\n", truth->sum, truth->returned);
		else
			printf("%lu %lu\n", truth->calls, truth->odd);
		fflush(stdout);
	}
	return 0;
}
