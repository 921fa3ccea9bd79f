/* Replacements: with data of their own, calls of the C library, and of the functions that they replace. */
#include "gilk.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

GILK_INSTRUMENT("raised replaces: Adds 1000 to a price.");
int raised_original(int x);
static int calls;
int raised(int x)
{
	char text[64];
	/* memset, memcpy and strlen are functions that the C library chooses (IFUNC). */
	memset(text, 0, sizeof text);
	if (__atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) == 1) {
		char *copy = malloc(64);
		snprintf(copy, 64, "the first argument is %d\n", x);
		memcpy(text, copy, strlen(copy) + 1);
		fputs(text, stderr);
		free(copy);
	}
	int (*volatile by_pointer)(int) = raised_original;
	return (x % 2 ? raised_original(x) : by_pointer(x)) + 1000;
}

GILK_INSTRUMENT("farther replaces: Adds a quarter.");
double farther_original(int a, int b, int c, int d, int e, int f, int g, int h, double i, double j);
static const double quarter[2] = {0.125, 0.25};
double farther(int a, int b, int c, int d, int e, int f, int g, int h, double i, double j)
{
	return farther_original(a, b, c, d, e, f, g, h, i, j) + quarter[c];
}

GILK_INSTRUMENT("few-bytes replaces: Fails where more than 1,000,000 bytes are requested.");
void *few_bytes_original(unsigned long bytes);
void *few_bytes(unsigned long bytes)
{
	return bytes > 1000000 ? NULL : few_bytes_original(bytes);
}

GILK_INSTRUMENT("nothing replaces: Does nothing.");
int nothing(void)
{
	return 0;
}
