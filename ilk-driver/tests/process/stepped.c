/* Calls of a function whose first instruction is executed in the original code while accesses are recorded. */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

extern unsigned long stepped(unsigned long at);
__asm__(".globl stepped\n.type stepped, @function\nstepped: mov %gs:(%rdi), %rax\n ret\n.size stepped, .-stepped\n");

static unsigned long words[20];

int main(void)
{
	unsigned long sum = 0;
	for (unsigned long i = 0; i < 20; i++)
		words[i] = i;
	/* ARCH_SET_GS */
	if (syscall(SYS_arch_prctl, 0x1001, words))
		return 2;
	for (unsigned long i = 0; i < 20; i++)
		sum += stepped(8 * i);
	printf("%lu\n", sum);
	return 0;
}
