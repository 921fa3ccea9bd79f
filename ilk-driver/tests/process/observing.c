// Programs that observe their own code, registers or addresses, one for each name: each prints what it saw.
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

static void written(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int i = 0; i < 3; i++) {
		returning(code, 100 + i);
		printf("%d\n", ((function)code)());
	}
}

static void *calls(void *code)
{
	return (void *)(intptr_t)((function)code)();
}

static void written_by_another_thread(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		void *value;
		returning(code, 200 + i);
		pthread_create(&thread, NULL, calls, code);
		pthread_join(thread, &value);
		printf("%ld\n", (long)value);
	}
}

static void mapped_twice(void)
{
	int file = memfd_create("code", 0);
	if (ftruncate(file, PAGE))
		abort();
	unsigned char *write = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	unsigned char *execute = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
	for (int i = 0; i < 3; i++) {
		returning(write, 300 + i);
		printf("%d\n", ((function)execute)());
	}
}

static void protected_in_turns(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE);
	for (int i = 0; i < 3; i++) {
		mprotect(code, PAGE, PROT_READ | PROT_WRITE);
		returning(code, 400 + i);
		mprotect(code, PAGE, PROT_READ | PROT_EXEC);
		printf("%d\n", ((function)code)());
	}
}

// Increments the operand of an instruction of its own block, and executes that.
static void changes_itself(void)
{
	// inc dword [rip+1]; mov eax, 500; ret
	static const unsigned char bytes[] = {0xff, 0x05, 0x01, 0, 0, 0, 0xb8, 0xf4, 0x01, 0, 0, 0xc3};
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy(code, bytes, sizeof(bytes));
	for (int i = 0; i < 3; i++)
		printf("%d\n", ((function)code)());
}

// Writes past the end of one page: both halves of a store, and an instruction, are in two pages.
static void two_pages(void)
{
	unsigned char *code = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 5; i++) {
		returning(code + PAGE - 3, 600 + i);
		printf("%d\n", ((function)(code + PAGE - 3))());
		*(volatile uint64_t *)(code + PAGE - 2) += (uint64_t)1 << 8;
		printf("%d\n", ((function)(code + PAGE - 3))());
	}
}

// Code that is copied over code by one instruction, and data that are written next to code that executes.
static void copied_over(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC), new[64];
	// 1: inc dword [rip+0xff2 - 6]; dec edi; jnz 1b; mov eax, edi; ret
	static const unsigned char loop[] = {0xff, 0x05, 0xec, 0x0f, 0, 0, 0xff, 0xcf, 0x75, 0xf6, 0x89, 0xf8, 0xc3};
	for (int i = 0; i < 4; i++) {
		void *to = code, *from = new;
		size_t count = sizeof(new);
		memset(new, 0x90, sizeof(new));
		returning(new + 32, 650 + i);
		__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
		printf("%d\n", ((function)code)());
	}
	memcpy(code, loop, sizeof(loop));
	printf("%d\n", ((int (*)(int))code)(20));
	printf("%d\n", *(int *)(code + 0xff2));
}

static volatile int entered;

static void *waits_in(void *code)
{
	entered = 1;
	return (void *)(intptr_t)((function)code)();
}

// A loop that another thread ends by writing it.
static void ended_by_a_write(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int i = 0; i < 5; i++) {
		pthread_t thread;
		void *value;
		returning(code + 2, 700 + i);
		*(volatile uint16_t *)code = 0xfeeb; // jmp to itself
		entered = 0;
		pthread_create(&thread, NULL, waits_in, code);
		while (!entered)
			usleep(1000);
		usleep(i * 2000);
		*(volatile uint16_t *)code = 0x9090;
		pthread_join(thread, &value);
		printf("%ld\n", (long)value);
	}
}

static int writes_code(void *code)
{
	returning(code, 800);
	return 0;
}

// A process with the same memory writes code, and one with a copy of it.
static void written_by_children(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	char *stack = malloc(1 << 16);
	int status;
	returning(code, 1);
	printf("%d\n", ((function)code)());
	pid_t pid = clone(writes_code, stack + (1 << 16), CLONE_VM | SIGCHLD, code);
	waitpid(pid, &status, __WALL);
	printf("%d %d\n", ((function)code)(), status);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		returning(code, 70);
		_exit(((function)code)());
	}
	waitpid(pid, &status, 0);
	printf("%d %d\n", ((function)code)(), WEXITSTATUS(status));
}

// Code that is unmapped, moved, and mapped again at the same address.
static void mapped_again(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	for (int i = 0; i < 3; i++) {
		returning(code, 900 + i);
		printf("%d\n", ((function)code)());
		unsigned char *other = pages(PROT_READ | PROT_WRITE);
		munmap(other, PAGE);
		unsigned char *moved = mremap(code, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other);
		returning(moved, 910 + i);
		printf("%d\n", ((function)moved)());
		munmap(moved, PAGE);
		void *again = mmap(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		printf("%d\n", again == code);
	}
}

// Three mappings, one of which is made after the code was executed.
static void mapped_later(void)
{
	int file = memfd_create("code", 0);
	if (ftruncate(file, 2 * PAGE))
		abort();
	unsigned char *write = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	unsigned char *execute = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, PAGE);
	unsigned char *other = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, file, PAGE);
	for (int i = 0; i < 3; i++) {
		returning(write + PAGE, 1000 + i);
		printf("%d %d\n", ((function)execute)(), ((function)other)());
		unsigned char *later = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, PAGE);
		returning(later, 1010 + i);
		printf("%d %d\n", ((function)execute)(), ((function)other)());
		munmap(later, PAGE);
	}
}

static volatile int is_over;

// Calls code that stays mapped.
static void *calls_on(void *code)
{
	intptr_t wrong = 0;
	do
		wrong += ((function)code)() != 11;
	while (!is_over);
	return (void *)wrong;
}

// Two pages of code, the first of which branches to the second from its byte 64.
static int code_file(int number)
{
	unsigned char bytes[2 * PAGE] = {0};
	int32_t distance = PAGE - 64 - 5;
	returning(bytes, 10 * number + 1);
	bytes[64] = 0xe9;
	memcpy(bytes + 65, &distance, 4);
	returning(bytes + PAGE, 10 * number + 2);
	int file = memfd_create("code", 0);
	if (file < 0 || write(file, bytes, sizeof(bytes)) != sizeof(bytes))
		abort();
	return file;
}

static void maps(unsigned char *at, unsigned long bytes, int file, long offset)
{
	int flags = MAP_PRIVATE | MAP_FIXED;
	if (mmap(at, bytes, PROT_READ | PROT_EXEC, flags, file, offset) != at)
		abort();
}

static void calls_all(unsigned char *code)
{
	int first = ((function)code)(), branch = ((function)(code + 64))();
	printf("%d %d %d\n", first, branch, ((function)(code + PAGE))());
}

// Files that are mapped over each other, in parts, with other protections, and elsewhere, while a thread executes a mapping of
// one of them.
static void mapped_files(void)
{
	int files[2] = {code_file(1), code_file(2)};
	unsigned char *code = mmap(NULL, 6 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *stays = code + 4 * PAGE;
	pthread_t thread;
	maps(stays, 2 * PAGE, files[0], 0);
	if (pthread_create(&thread, NULL, calls_on, stays))
		abort();
	for (int i = 0; i < 40; i++) {
		maps(code, 2 * PAGE, files[i & 1], 0);
		calls_all(code);
		maps(code + PAGE, PAGE, files[!(i & 1)], PAGE);
		calls_all(code);
	}
	maps(code, 2 * PAGE, files[0], 0);
	calls_all(code);
	mprotect(code + PAGE, PAGE, PROT_READ);
	printf("%d\n", ((function)code)());
	mprotect(code + PAGE, PAGE, PROT_READ | PROT_EXEC);
	calls_all(code);
	mprotect(code, PAGE, PROT_READ | PROT_WRITE);
	returning(code, 77);
	mprotect(code, PAGE, PROT_READ | PROT_EXEC);
	calls_all(code);
	if (mremap(code, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code + 2 * PAGE) == MAP_FAILED) {
		// Its two pages are two mappings.
		mremap(code, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code + 2 * PAGE);
		mremap(code + PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, code + 3 * PAGE);
	}
	calls_all(code + 2 * PAGE);
	munmap(code + 2 * PAGE, 2 * PAGE);
	maps(code + 2 * PAGE, 2 * PAGE, files[1], 0);
	calls_all(code + 2 * PAGE);
	is_over = 1;
	void *wrong;
	pthread_join(thread, &wrong);
	printf("%d\n", (int)(intptr_t)wrong);
}

// A loop of 2,000 calls that add 3.
static const unsigned char adding[] = {
	0x31, 0xc0,                   // xor eax, eax
	0xb9, 0xd0, 0x07, 0x00, 0x00, // mov ecx, 2000
	0xe8, 0x05, 0x00, 0x00, 0x00, // call to the addition
	0xff, 0xc9, 0x75, 0xf7, 0xc3, // dec ecx; jne to the call; ret
	0x83, 0xc0, 0x03, 0xc3,       // add eax, 3; ret
};

static void *adds(void *code)
{
	intptr_t wrong = 0;
	do
		wrong += ((function)code)() != 6000;
	while (!is_over);
	return (void *)wrong;
}

// Code that threads execute, while another file with the same bytes is mapped in its place.
static void replaced(void)
{
	int files[2];
	pthread_t all[3];
	intptr_t wrong = 0;
	for (int i = 0; i < 2; i++) {
		files[i] = memfd_create("code", 0);
		if (write(files[i], adding, sizeof(adding)) != sizeof(adding) || ftruncate(files[i], PAGE))
			abort();
	}
	unsigned char *code = pages(PROT_NONE);
	maps(code, PAGE, files[0], 0);
	for (int i = 0; i < 3; i++)
		if (pthread_create(&all[i], NULL, adds, code))
			abort();
	for (int i = 1; i <= 150; i++) {
		maps(code, PAGE, files[i & 1], 0);
		wrong += ((function)code)() != 6000;
	}
	is_over = 1;
	for (int i = 0; i < 3; i++) {
		void *of_thread;
		pthread_join(all[i], &of_thread);
		wrong += (intptr_t)of_thread;
	}
	printf("%d\n", (int)wrong);
}

static void often(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	long sum = 0;
	for (int i = 0; i < 5000; i++) {
		returning(code, i);
		sum += ((function)code)();
	}
	printf("%ld\n", sum);
}

static void on_the_stack(void)
{
	unsigned char code[16];
	uintptr_t page = (uintptr_t)code & -PAGE;
	mprotect((void *)page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
	returning(code, 1100);
	printf("%d\n", ((function)code)());
}

// A branch into the middle of an instruction: `mov eax, 0x06eb...` has `jmp +6` in its operand.
extern int overlapping_code(int);
__asm__(".text\n"
	".globl overlapping_code\n"
	"overlapping_code:\n"
	"	test %edi, %edi\n"
	"	jnz 1f+1\n"
	"1:	.byte 0xb8, 0xeb, 0x06, 0x90, 0x90\n" // mov eax, 0x909006eb
	"	ret\n"
	"	.byte 0x90, 0x90, 0x90\n"
	"	mov $77, %eax\n"
	"	ret\n");

static void overlapping(void)
{
	printf("%x %d\n", overlapping_code(0), overlapping_code(1));
}

static uint64_t seen[4];
static volatile int ticks;

static void kept(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	seen[0] = registers[REG_RIP];
	seen[1] = registers[REG_R12];
	seen[2] = (uint64_t)info->si_addr;
	seen[3] = registers[REG_RCX];
	ticks++;
	(void)signal;
}

static void handles(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
	sigaction(signal, &action, NULL);
}

extern void spins(volatile int *), spins_end(void);
__asm__(".text\n"
	"spins:\n"
	"	push %r12\n"
	"	mov $0x1234567, %r12d\n"
	"1:	cmpl $0, (%rdi)\n"
	"	jz 1b\n"
	"	pop %r12\n"
	"	ret\n"
	"spins_end:\n");

static void registers(void)
{
	struct itimerval soon = {.it_value = {0, 20000}};
	int right = 0;
	handles(SIGALRM, kept, 0);
	for (int i = 0; i < 5; i++) {
		ticks = 0;
		setitimer(ITIMER_REAL, &soon, NULL);
		spins(&ticks);
		right += seen[0] >= (uint64_t)spins && seen[0] < (uint64_t)spins_end && seen[1] == 0x1234567;
	}
	printf("%d\n", right);
}

static sigjmp_buf back;

static void jumps_back(int signal, siginfo_t *info, void *context)
{
	kept(signal, info, context);
	siglongjmp(back, signal);
}

extern void stores(volatile int *, uint64_t), stores_at(void);
__asm__(".text\n"
	"stores:\n"
	"	mov %rsi, %rcx\n"
	"stores_at:\n"
	"	movl $1, (%rdi)\n"
	"	ret\n");

static void faults(void)
{
	handles(SIGSEGV, jumps_back, 0);
	for (int i = 0; i < 3; i++) {
		if (!sigsetjmp(back, 1))
			stores((int *)(uintptr_t)(8 * i + 8), 11 + i);
		printf("%d %lu %lu\n", seen[0] == (uint64_t)stores_at, seen[2], seen[3]);
	}
}

static void own_faults(void)
{
	unsigned char *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	handles(SIGSEGV, jumps_back, 0);
	handles(SIGBUS, jumps_back, 0);
	for (int i = 0; i < 3; i++) {
		mprotect(code, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
		returning(code, 950 + i);
		printf("%d\n", ((function)code)());
		mprotect(code, PAGE, PROT_READ | PROT_EXEC);
		printf("%d\n", ((function)code)());
		int signal = sigsetjmp(back, 1);
		if (!signal)
			stores((int *)code, 11 + i);
		printf("%d %d %d\n", signal, seen[0] == (uint64_t)stores_at, seen[2] == (uint64_t)code);
	}
	int file = memfd_create("short", 0);
	int *bytes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	int signal = sigsetjmp(back, 1);
	if (!signal)
		stores(bytes, 1);
	printf("%d %d\n", signal, seen[2] == (uint64_t)bytes);
}

extern void traps(void), traps_at(void), refuses(void);
__asm__(".text\n"
	"traps:\n"
	"	int3\n"
	"traps_at:\n"
	"	ret\n"
	"refuses:\n"
	"	ud2\n");

static void exceptions(void)
{
	handles(SIGTRAP, kept, 0);
	// Its handler is there again each time.
	traps();
	traps();
	traps();
	printf("%d\n", seen[0] == (uint64_t)traps_at);
	handles(SIGILL, jumps_back, 0);
	if (!sigsetjmp(back, 1))
		refuses();
	printf("%d %d\n", seen[0] == (uint64_t)refuses, seen[2] == (uint64_t)refuses);
}

static void skips(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	registers[REG_RIP] += 2;
	registers[REG_RAX] = 55;
	(void)signal, (void)info;
}

extern int refused(void);
__asm__(".text\n"
	"refused:\n"
	"	mov $5, %eax\n"
	"	ud2\n"
	"	add $1, %eax\n"
	"	ret\n");

static void changed_contexts(void)
{
	handles(SIGILL, skips, 0);
	printf("%d %d\n", refused(), refused());
}

static volatile int shared;

static int begun(void *value)
{
	shared = (int)(intptr_t)value + 1;
	syscall(SYS_exit, 0);
	return 0;
}

static void raw_clone(void)
{
	char *stack = malloc(1 << 16);
	pid_t pid = clone(begun, stack + (1 << 16), CLONE_VM | SIGCHLD, (void *)41);
	int status;
	waitpid(pid, &status, __WALL);
	printf("%d %d\n", shared, status);
}

static void children(void)
{
	int status;
	pid_t child = vfork();
	if (child == 0) {
		execl("/bin/echo", "echo", "child", NULL);
		_exit(9);
	}
	waitpid(child, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	fflush(stdout);
	child = fork();
	if (child == 0) {
		printf("forked\n");
		fflush(stdout);
		_exit(4);
	}
	waitpid(child, &status, 0);
	printf("%d %d\n", WEXITSTATUS(status), system("exit 3") >> 8);
}

static void *writes_later(void *end)
{
	usleep(60000);
	if (write((int)(intptr_t)end, "x", 1) != 1)
		abort();
	return NULL;
}

static void restarted(void)
{
	int ends[2];
	char byte = 0;
	pthread_t thread;
	struct itimerval soon = {.it_value = {0, 20000}};
	sigset_t alarms;
	if (pipe(ends))
		abort();
	handles(SIGALRM, kept, SA_RESTART);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarms, NULL);
	pthread_create(&thread, NULL, writes_later, (void *)(intptr_t)ends[1]);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	setitimer(ITIMER_REAL, &soon, NULL);
	ssize_t count = read(ends[0], &byte, 1);
	printf("%zd %c %d\n", count, byte, ticks);
	pthread_join(thread, NULL);
	handles(SIGALRM, kept, 0);
	setitimer(ITIMER_REAL, &soon, NULL);
	count = read(ends[0], &byte, 1);
	printf("%zd %d %d\n", count, errno == EINTR, ticks);
}

static void names_itself(void)
{
	char path[256] = {0};
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		abort();
	printf("%s\n", path);
}

static int sums(struct dl_phdr_info *info, size_t size, void *sum)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		const unsigned char *at = (void *)(info->dlpi_addr + part->p_vaddr);
		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X) || info->dlpi_name[0])
			continue;
		for (size_t k = 0; k < part->p_memsz; k++)
			*(uint64_t *)sum = *(uint64_t *)sum * 31 + at[k];
	}
	(void)size;
	return 0;
}

static void checksum(void)
{
	uint64_t sum = 0;
	dl_iterate_phdr(sums, &sum);
	printf("%lx\n", sum);
}

static jmp_buf far;

static void deep(int depth)
{
	if (depth == 0)
		longjmp(far, 7);
	deep(depth - 1);
	__asm__ volatile("");
}

static void long_jumps(void)
{
	for (volatile int i = 0; i < 3; i++) {
		int value = setjmp(far);
		if (value == 0)
			deep(20);
		printf("%d\n", value);
	}
}

static void __attribute__((noinline)) traced(int depth)
{
	if (depth) {
		traced(depth - 1);
		__asm__ volatile("");
		return;
	}
	void *addresses[16];
	int inside = 0, count = backtrace(addresses, 16);
	for (int i = 0; i < count; i++) {
		Dl_info info;
		inside += dladdr(addresses[i], &info) && info.dli_fname != NULL;
	}
	printf("%d of %d\n", inside, count);
}

static void backtraces(void)
{
	traced(5);
}

static void alternate(void)
{
	stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&stack, NULL);
	handles(SIGSEGV, jumps_back, SA_ONSTACK);
	if (!sigsetjmp(back, 1))
		stores((int *)16, 3);
	printf("%lu %lu\n", seen[2], seen[3]);
	handles(SIGUSR1, kept, SA_ONSTACK);
	ticks = 0;
	raise(SIGUSR1);
	printf("%d\n", ticks);
}

static void loads(void)
{
	for (int i = 0; i < 3; i++) {
		void *library = dlopen("libm.so.6", RTLD_NOW);
		double (*cosine)(double) = dlsym(library, "cos");
		printf("%.3f\n", cosine(i));
		dlclose(library);
	}
}

static void *counts(void *sum)
{
	for (int i = 0; i < 100000; i++)
		__atomic_fetch_add((long *)sum, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void threads(void)
{
	pthread_t many[8];
	long sum = 0;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 8; i++)
			pthread_create(&many[i], NULL, counts, &sum);
		for (int i = 0; i < 8; i++)
			pthread_join(many[i], NULL);
	}
	printf("%ld\n", sum);
}

static void *pauses(void *unused)
{
	pause();
	return unused;
}

static void cancelled(void)
{
	pthread_t thread;
	void *value;
	pthread_create(&thread, NULL, pauses, NULL);
	usleep(10000);
	pthread_cancel(thread);
	pthread_join(thread, &value);
	printf("%d\n", value == PTHREAD_CANCELED);
}

static int turns;

static void turn(void)
{
	printf("turn %d\n", ++turns);
}

static void switched(void)
{
	ucontext_t one, two;
	getcontext(&two);
	two.uc_stack.ss_sp = malloc(1 << 16);
	two.uc_stack.ss_size = 1 << 16;
	two.uc_link = &one;
	makecontext(&two, turn, 0);
	swapcontext(&one, &two);
	printf("%d\n", turns);
}

static void killed(void)
{
	fflush(stdout);
	raise(SIGKILL);
}

static void aborted(void)
{
	fflush(stdout);
	abort();
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{"written", written},
	{"written-by-another-thread", written_by_another_thread},
	{"mapped-twice", mapped_twice},
	{"protected-in-turns", protected_in_turns},
	{"changes-itself", changes_itself},
	{"two-pages", two_pages},
	{"copied-over", copied_over},
	{"ended-by-a-write", ended_by_a_write},
	{"written-by-children", written_by_children},
	{"mapped-again", mapped_again},
	{"mapped-files", mapped_files},
	{"replaced", replaced},
	{"mapped-later", mapped_later},
	{"own-faults", own_faults},
	{"often", often},
	{"on-the-stack", on_the_stack},
	{"overlapping", overlapping},
	{"registers", registers},
	{"faults", faults},
	{"exceptions", exceptions},
	{"changed-contexts", changed_contexts},
	{"raw-clone", raw_clone},
	{"children", children},
	{"restarted", restarted},
	{"names-itself", names_itself},
	{"checksum", checksum},
	{"long-jumps", long_jumps},
	{"backtraces", backtraces},
	{"alternate-stack", alternate},
	{"loads", loads},
	{"threads", threads},
	{"cancelled", cancelled},
	{"switched", switched},
	{"killed", killed},
	{"aborted", aborted},
};

int main(int count, char **arguments)
{
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (count < 2)
			puts(cases[i].name);
		else if (!strcmp(arguments[1], cases[i].name))
			cases[i].run();
	}
	return 0;
}
