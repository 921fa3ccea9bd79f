/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Reproducible pseudo-random numbers (xorshift64*). */
#include "assay.h"

u64 roll(struct dice *dice)
{
	u64 x = dice->state ? dice->state : 0x9e3779b97f4a7c15ull;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	dice->state = x;
	return x * 0x2545f4914f6cdd1dull;
}

u64 below(struct dice *dice, u64 limit)
{
	return limit ? (roll(dice) >> 11) % limit : 0;
}

bool one_in(struct dice *dice, u64 n)
{
	return below(dice, n) == 0;
}
