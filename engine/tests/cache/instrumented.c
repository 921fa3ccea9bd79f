/* Functions whose calls and blocks are known by their results. */
#include <stdint.h>

typedef uint64_t u64;
#define KEEP __attribute__((noinline, noclone))

KEEP u64 fibonacci(u64 n, u64 unused)
{
	n &= 15;
	return n < 2 ? n + (unused & 1) : fibonacci(n - 1, unused) + fibonacci(n - 2, unused);
}

/* The red zone is in use, and flags live across the loop's blocks. */
KEEP u64 mixed(u64 a, u64 b)
{
	u64 words[8], sum = 0;
	for (int i = 0; i < 8; i++)
		words[i] = a = a * 6364136223846793005u + b;
	for (u64 i = 0; i < (b & 63); i++) {
		if (words[i & 7] & 1)
			sum += words[(i + 3) & 7];
		else if (words[i & 7] & 2)
			sum ^= b;
		sum = sum << 7 | sum >> 57;
	}
	return sum;
}

KEEP u64 switched(u64 a, u64 b)
{
	u64 sum = 0;
	for (int i = 0; i < 16; i++) {
		switch ((a >> (4 * i)) & 15) {
		case 0: sum += b; break;
		case 1: sum ^= b << 1; break;
		case 2: sum -= b; break;
		case 3: sum = sum << 7 | sum >> 57; break;
		case 4: sum *= 3; break;
		case 5: sum += fibonacci(5, b); break;
		case 6: sum = ~sum; break;
		case 9: sum /= (b & 7) + 1; break;
		default: sum++; break;
		}
	}
	return sum;
}

/* Every register has a value. */
KEEP u64 full(u64 a, u64 b)
{
	u64 r[14];
	for (int i = 0; i < 14; i++)
		r[i] = (a >> i) * (b | 1);
	for (int i = 0; i < (int)(b & 7); i++) {
		u64 first = r[0];
		for (int k = 0; k < 13; k++)
			r[k] = r[k + 1] ^ (r[k] << 3);
		r[13] = first + a;
	}
	u64 sum = 0;
	for (int i = 0; i < 14; i++)
		sum = sum * 31 + r[i];
	return sum;
}

/* Branches that have no near form, some of which change rcx, and blocks that end without a branch, with flags that are
 * read after it. */
u64 looping(u64 a, u64 b);
__asm__(".text\n.globl looping\n.type looping, @function\n"
	"looping: mov %rdi, %rax\n mov %esi, %ecx\n and $7, %ecx\n jrcxz 2f\n"
	"1: add %rcx, %rax\n test $1, %al\n jz 3f\n lea 3(%rax), %rax\n"
	"3: loop 1b\n"
	"2: mov %esi, %ecx\n shr $3, %ecx\n and $7, %ecx\n inc %ecx\n cmp %rdi, %rsi\n"
	"4: setb %dl\n movzbl %dl, %edx\n add %rdx, %rax\n test $6, %al\n loopne 4b\n"
	"jecxz 5f\n add $5, %rax\n cmp %eax, %eax\n loope 4b\n"
	"5: ret\n.size looping, .-looping\n");
