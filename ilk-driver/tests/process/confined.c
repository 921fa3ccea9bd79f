// Confines itself while it is instrumented: by filters of system calls that end it for reads of its memory and removals of
// mappings, or for all calls but a few.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

struct request {
	unsigned long size;
};

// Calls the kernel as glibc 2.41 does where a call may wait: the number is on the stack.
long stacked(long first, long second, long third, long fourth, long fifth, long sixth, long number);
__asm__(".text\n"
	".globl stacked\n"
	".type stacked, @function\n"
	"stacked:\n"
	"	.cfi_startproc\n"
	"	mov %rcx, %r10\n"
	"	mov 8(%rsp), %rax\n"
	"	syscall\n"
	"	ret\n"
	"	.cfi_endproc\n"
	".size stacked, .-stacked\n");

static volatile int over;
static unsigned long called[2];

__attribute__((noipa)) unsigned long handle(const struct request *request)
{
	return request->size + 1;
}

static unsigned long calls(unsigned long count)
{
	struct request request = { 3 };
	unsigned long sum = 0;

	while (count--)
		sum += handle(&request);
	return sum;
}

static void *others(void *number)
{
	struct request request = { 5 };

	while (!over) {
		handle(&request);
		called[(long)number]++;
	}
	return NULL;
}

// Ends the process for reads of memory and removals of mappings.
static struct sock_filter forbidding[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 2, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};
static struct sock_fprog program = { sizeof(forbidding) / sizeof(*forbidding), forbidding };

static void confine(const char *way)
{
	long done = -1;

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (!strcmp(way, "prctl")) {
		done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	} else if (!strcmp(way, "strict")) {
		done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	} else if (!strcmp(way, "syscall")) {
		done = syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
	} else if (!strcmp(way, "threads")) {
		done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
	} else if (!strcmp(way, "stacked")) {
		done = stacked(SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0, 0, 0, SYS_seccomp);
	} else if (!strcmp(way, "inline")) {
		__asm__ volatile("syscall"
				 : "=a"(done)
				 : "0"((long)SYS_seccomp), "D"((long)SECCOMP_SET_MODE_FILTER), "S"(0L), "d"(&program)
				 : "rcx", "r11", "memory");
	}
	if (done)
		abort();
}

static void say(const char *name, unsigned long number)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%s %lu\n", name, number);

	if (write(1, line, length) != length)
		abort();
}

// A line is read without a buffer: stdio might allocate.
static int line(char *text, size_t size)
{
	size_t length = 0;

	while (length + 1 < size && stacked(0, (long)(text + length), 1, 0, 0, 0, SYS_read) == 1)
		if (text[length++] == '\n') {
			text[length - 1] = 0;
			return 1;
		}
	return 0;
}

int main(void)
{
	char text[64];
	pthread_t threads[2];
	int begun = 0;

	if (write(1, "ready\n", 6) != 6)
		abort();
	while (line(text, sizeof(text))) {
		if (!strcmp(text, "calls")) {
			say("calls", calls(1000));
		} else if (!strcmp(text, "others")) {
			for (; begun < 2; begun++)
				pthread_create(&threads[begun], NULL, others, (void *)(long)begun);
			say("others", 2);
		} else if (!strcmp(text, "join")) {
			over = 1;
			while (begun)
				pthread_join(threads[--begun], NULL);
			say("join", called[0] + called[1]);
		} else if (!strcmp(text, "forbidden")) {
			syscall(SYS_process_vm_readv, getpid(), NULL, 0L, NULL, 0L, 0L);
			say("forbidden", 0);
		} else {
			confine(text);
			say(text, calls(1000));
		}
	}
	// No destructor executes: the strict mode forbids exit_group.
	syscall(SYS_exit, 0);
}
