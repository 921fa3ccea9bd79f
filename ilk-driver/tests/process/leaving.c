// Leaves a hit where an int3 is, by a handler that does not return, or by the end of the thread there; or returns to it
// late; a forked child leaves it, too. And calls.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static sigjmp_buf back;
static volatile int ends, waits;
static unsigned long calls;
__attribute__((noipa)) unsigned counted(unsigned n)
{
	return n % 3 == 1 ? n : n / 2;
}
static void call(unsigned n)
{
	calls++;
	counted(n);
}
static void on_trap(int number, siginfo_t *info, void *context)
{
	if (waits) {
		// The instruction is there again by then.
		usleep(600000);
		waits = 0;
		((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]--;
		return;
	}
	if (!ends)
		siglongjmp(back, number);
	ends = 0;
	syscall(SYS_exit, 0);
}
static void *ended(void *argument)
{
	call(2);
	return argument;
}
int main(void)
{
	char line[64];
	struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
	pid_t child = 0;
	pthread_t thread;
	pthread_attr_t detached;
	sigaction(SIGTRAP, &action, 0);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "jump\n") && !sigsetjmp(back, 1))
			call(1);
		if (!strcmp(line, "fork\n") && (child = fork()) == 0) {
			if (!sigsetjmp(back, 1))
				call(5);
			for (;;)
				pause();
		}
		if (!strcmp(line, "kill\n")) {
			kill(child, SIGKILL);
			waitpid(child, 0, 0);
		}
		if (!strcmp(line, "wait\n")) {
			waits = 1;
			call(4);
		}
		if (!strcmp(line, "end\n")) {
			ends = 1;
			pthread_create(&thread, &detached, ended, 0);
			while (ends)
				usleep(100);
			usleep(10000);
		}
		if (!strcmp(line, "call\n"))
			for (unsigned n = 0; n < 50000; n++)
				call(3);
		printf("%lu 0\n", calls);
		fflush(stdout);
	}
	return 0;
}
