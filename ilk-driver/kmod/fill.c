// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0
/*
 * int3 over what a splice leaves of the instructions that it displaces.
 *
 * Half an instruction would hide the boundaries of all that follow: kprobes accept an address only if
 * decoding from the start of its function arrives at it (can_probe() in
 * arch/x86/kernel/kprobes/core.c). On an int3 that is not their own they refuse a probe
 * (__copy_instruction()), which would never fire here; and they would take bytes for their jump that
 * a patch returns to.
 *
 * No thread executes these bytes while the splice is in place, so they are written with a plain
 * text_poke(): after the splice, and restored before it. The int3 with which the write of a splice
 * begins and ends synchronizes every CPU before it can execute them again.
 *
 * All with text_mutex held.
 */
#include "ilk.h"

/*
 * Finds the next run of filled bytes from byte *at after the splice, and its length. Returns whether
 * there is one.
 */
static bool ilk_fill_run(const struct ilk_site *site, u32 *at, u32 *len)
{
	u64 rest = *at < ILK_FILL_MAX ? site->filled >> *at : 0;

	if (!rest)
		return false;
	*at += __ffs64(rest);
	rest = site->filled >> *at;
	*len = ~rest ? __ffs64(~rest) : ILK_FILL_MAX;
	return true;
}

static u8 *ilk_fill_text(const struct ilk_site *site, u32 at)
{
	return (u8 *)site->addr + site->span + at;
}

/* Keeps the text that will be filled. */
void ilk_fill_keep(struct ilk_site *site)
{
	lockdep_assert_held(ilk_sym.text_mutex);
	memcpy(site->under, ilk_fill_text(site, 0), ilk_fill_len(site->filled));
}

/* Returns whether the bytes are int3, or, if not `filled`, the text that was kept. */
bool ilk_fill_is(const struct ilk_site *site, bool filled)
{
	for (u32 at = 0, len; ilk_fill_run(site, &at, &len); at += len) {
		const u8 *text = ilk_fill_text(site, at);

		if (filled ? !!memchr_inv(text, ILK_INT3, len) : !!memcmp(text, site->under + at, len))
			return false;
	}
	return true;
}

/* Fills the bytes, or restores the text that was kept. */
void ilk_fill_write(const struct ilk_site *site, bool fill)
{
	u8 int3s[ILK_FILL_MAX];

	lockdep_assert_held(ilk_sym.text_mutex);
	memset(int3s, ILK_INT3, sizeof(int3s));
	for (u32 at = 0, len; ilk_fill_run(site, &at, &len); at += len)
		ilk_call(ilk_sym.text_poke, (unsigned long)ilk_fill_text(site, at),
			 (unsigned long)(fill ? int3s : site->under + at), len, 0, 0);
}
