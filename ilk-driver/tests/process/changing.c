// Programs that write, map and unmap the code that they execute.
#include "cases.h"

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

static const struct named_case cases[] = {
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
	{"often", often},
	{"on-the-stack", on_the_stack},
};

CASES(cases)
