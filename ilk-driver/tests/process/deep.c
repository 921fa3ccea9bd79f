/* Stack overflows that the program handles: calls to the end of a thread's stack, where an instrument has no space. */
#include "overflowing.h"

static volatile unsigned long depth;

__attribute__((noipa)) unsigned long deep(unsigned long bytes, unsigned long a, unsigned long b, unsigned long c)
{
	volatile char used[16];
	used[bytes & 15] = 1;
	depth++;
	return deep(bytes + 1, b, c, a) + used[0] * (a + 3 * b + 5 * c);
}

static void overflow(unsigned long round)
{
	deep(1, 2, 3, round);
}

int main(void)
{
	overflows();
	printf("%lu caught, %lu deep\n", caught, depth);
	return 0;
}
