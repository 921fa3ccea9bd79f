// Programs that observe their own code, registers or addresses.
#include "cases.h"

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

// Call a function, through a register, with a stack of their own.
extern long calls_on_stack(unsigned char *, long (*)(void)), ends_calls_on_stack(void);
extern char the_call[], after_the_call[];
// Functions whose addresses have the same lowest 16 bits, and a change of no mapping.
extern long five(void), six(void), protects(void);
__asm__(".text\n"
	"calls_on_stack:\n"
	"	push %rbx\n"
	"	mov %rsp, %rbx\n"
	"	mov %rdi, %rsp\n"
	"	mov $0x1111, %ecx\n"
	"the_call:\n"
	"	call *%rsi\n"
	"after_the_call:\n"
	"	mov %rbx, %rsp\n"
	"	pop %rbx\n"
	"	ret\n"
	"ends_calls_on_stack:\n"
	"protects:\n"
	"	mov $10, %eax\n" // mprotect
	"	xor %edi, %edi\n"
	"	xor %esi, %esi\n"
	"	xor %edx, %edx\n"
	"	syscall\n"
	"	ret\n"
	"	.balign 65536\n"
	"five:\n"
	"	mov $5, %eax\n"
	"	ret\n"
	"	.balign 65536\n"
	"six:\n"
	"	mov $6, %eax\n"
	"	ret\n");

static void after_call(int signal, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	kept(signal, info, context);
	registers[REG_RIP] += after_the_call - the_call;
	registers[REG_RAX] = -1;
}

// A stack that ends where memory ends.
static unsigned char *short_stack(void)
{
	stack_t other = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	unsigned char *stack = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(stack + PAGE, PAGE, PROT_READ | PROT_WRITE);
	sigaltstack(&other, NULL);
	handles(SIGSEGV, after_call, SA_ONSTACK);
	return stack + PAGE;
}

// The code that stands for a call or a return needs more stack than they do.
static void short_stacks(void)
{
	unsigned char *stack = short_stack();
	for (int left = 0; left <= 256; left += 8) {
		printf("%d:", left);
		for (int i = 0; i < 3; i++) {
			printf(" %ld", calls_on_stack(stack + left, five));
			printf(" %ld", calls_on_stack(stack + left, six));
			printf(" %ld", calls_on_stack(stack + left, protects));
		}
		printf(" %d %d\n", ticks, seen[0] == (uint64_t)the_call && seen[2] == (uint64_t)stack - 8 && seen[3] == 0x1111);
	}
}

static volatile int is_over;

static void *writes_after_code(void *code)
{
	for (int i = 0; i < 1000 && !is_over; i++) {
		((volatile unsigned char *)code)[PAGE - 1] = i;
		usleep(100);
	}
	return NULL;
}

// Calls that fault, in code whose page another thread writes.
static void faulting_calls(void)
{
	unsigned char *stack = short_stack(), *code = pages(PROT_READ | PROT_WRITE | PROT_EXEC);
	long (*calls)(unsigned char *, long (*)(void)) = (void *)code;
	uint64_t call = (uint64_t)code + (the_call - (char *)calls_on_stack);
	int wrong = 0;
	pthread_t thread;
	memcpy(code, calls_on_stack, (char *)ends_calls_on_stack - (char *)calls_on_stack);
	pthread_create(&thread, NULL, writes_after_code, code);
	for (int i = 0; i < 1000; i++) {
		wrong += calls(stack, five) != -1 || seen[0] != call || seen[2] != (uint64_t)stack - 8 || seen[3] != 0x1111;
		wrong += calls(stack + PAGE, six) != 6;
	}
	is_over = 1;
	pthread_join(thread, NULL);
	printf("%d %d\n", wrong, ticks);
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

static const struct named_case cases[] = {
	{"own-faults", own_faults},
	{"overlapping", overlapping},
	{"registers", registers},
	{"faults", faults},
	{"exceptions", exceptions},
	{"changed-contexts", changed_contexts},
	{"short-stacks", short_stacks},
	{"faulting-calls", faulting_calls},
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

CASES(cases)
