/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Two instruments: one that counts, as `counter` does in the patch itself, and one that samples. */
#include "gilk.h"

GILK_INSTRUMENT("count-natively(counter): Counts hits by calling a function.");
void count_natively(gilk_word counter)
{
	gilk_count(counter, 1);
}

GILK_INSTRUMENT("pages(arg0, arg1) samples pages: How many pages a range of addresses touches.");
gilk_word pages(gilk_word address, gilk_word length)
{
	return (address % 4096 + length + 4095) / 4096;
}
