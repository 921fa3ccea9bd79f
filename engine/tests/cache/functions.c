/* Functions that the code cache executes: each takes two numbers, and returns one that depends on all it did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>

typedef uint64_t u64;
#define KEEP __attribute__((noinline, noclone))

KEEP u64 loops(u64 n, u64 seed)
{
	u64 sum = seed;
	for (u64 i = 0; i < (n & 1023); i++) {
		sum = sum * 6364136223846793005u + 1442695040888963407u;
		__asm__ volatile("" : "+r"(sum));
	}
	return sum;
}

KEEP u64 fibonacci(u64 n, u64 unused)
{
	n &= 15;
	return n < 2 ? n + (unused & 1) : fibonacci(n - 1, unused) + fibonacci(n - 2, unused);
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
		case 5: sum += strlen("five"); break;
		case 6: sum = ~sum; break;
		case 7: sum |= b >> 3; break;
		case 8: sum += loops(b & 7, sum); break;
		case 9: sum /= (b & 7) + 1; break;
		case 11: sum += 11; break;
		case 12: sum = -sum; break;
		case 13: sum &= b | 0xff00ff; break;
		default: sum++; break;
		}
	}
	return sum;
}

static KEEP u64 one(u64 a) { return a + 1; }
static KEEP u64 two(u64 a) { return a * 5; }
static KEEP u64 three(u64 a) { return a ^ 0x1234; }
static u64 (*const table[])(u64) = { one, two, three };

KEEP u64 pointers(u64 a, u64 b)
{
	for (int i = 0; i < 20; i++)
		a = table[(a ^ b) % 3](a);
	return a;
}

static KEEP int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;
	return x < y ? -1 : x > y;
}

KEEP u64 sorted(u64 a, u64 b)
{
	u64 words[40], sum = 0;
	for (int i = 0; i < 40; i++)
		words[i] = a = a * 6364136223846793005u + b;
	qsort(words, 40, sizeof *words, compare);
	for (int i = 0; i < 40; i++)
		sum = sum * 31 + words[i];
	return sum;
}

static jmp_buf back;
static KEEP void thrown(u64 depth, int value)
{
	if (!depth)
		longjmp(back, value | 1);
	thrown(depth - 1, value);
	__asm__ volatile("");
}

KEEP u64 jumps(u64 a, u64 b)
{
	int value = setjmp(back);
	if (!value)
		thrown(a & 7, (int)b);
	return value;
}

static KEEP u64 summed(int count, ...)
{
	va_list list;
	u64 sum = 0;
	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum = sum * 7 + va_arg(list, u64);
	va_end(list);
	return sum;
}

KEEP u64 variadic(u64 a, u64 b) { return summed(8, a, b, a ^ b, a + b, a - b, a * b, 7ul, b); }

KEEP u64 printed(u64 a, u64 b)
{
	char text[200];
	u64 sum = 0;
	int length = snprintf(text, sizeof text, "%lu|%-20lx|%08.3f|%s|%e", a, b, (double)(int64_t)a / 3,
			      "text", (double)b * 1e-9);
	for (int i = 0; i < length; i++)
		sum = sum * 131 + (unsigned char)text[i];
	return sum + (u64)(strtod(text, 0) * 16);
}

KEEP u64 strings(u64 a, u64 b)
{
	char from[300], to[300];
	memset(from, (int)a, sizeof from);
	from[b % 200] = 'x';
	memcpy(to, from, sizeof from);
	to[299] = 0;
	char *found = memchr(to, 'x', sizeof to);
	return (u64)(found - to) * 1000 + (unsigned)memcmp(from, to, 100) + strnlen(to, 300);
}

KEEP u64 allocated(u64 a, u64 b)
{
	u64 sum = 0;
	char *parts[16];
	for (int i = 0; i < 16; i++) {
		parts[i] = malloc((a >> i) % 5000 + 1);
		parts[i][0] = (char)(b >> i);
	}
	for (int i = 15; i >= 0; i--) {
		sum = sum * 3 + (unsigned char)parts[i][0];
		free(parts[i]);
	}
	return sum;
}

KEEP u64 called(u64 a, u64 b) { return a + b + (u64)syscall(SYS_getppid); }

KEEP u64 where(u64 a, u64 b)
{
	u64 at;
	__asm__ volatile("lea -128(%%rsp), %%rsp\n call 1f\n1: pop %0\n lea 128(%%rsp), %%rsp" : "=r"(at));
	return at + a + b;
}

KEEP u64 counted_down(u64 a, u64 b)
{
	u64 left = (a & 63) + 1, sum = b;
	__asm__ volatile("1: add $3, %1\n rol $5, %1\n loop 1b\n jrcxz 2f\n xor %1, %1\n2:"
			 : "+c"(left), "+r"(sum) : : "cc");
	return sum + left;
}

/* Flags that live across branches and returns: a block that may not change them. */
__asm__(".globl carried\n.type carried, @function\ncarried:\n"
	"cmp %rsi, %rdi\n"
	"call 2f\n"
	"setc %al\n"
	"movzbl %al, %eax\n"
	"jmp 3f\n"
	"2: jmp 4f\n"
	"4: mov %rdi, %rax\n"
	"ret\n"
	"3: pushfq\n"
	"pop %rdx\n"
	"and $0x8d5, %edx\n"
	"lea (%rax,%rdx,2), %rax\n"
	"ret\n"
	".size carried, .-carried\n");
