/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sites that need no decoder for their proof: the instructions after the tracer's five bytes at the
 * entry of a function, if they are moves and similar ones and nothing in the function can branch
 * into them; and five bytes that call exactly the first byte of a function.
 */
#include "assay.h"

static const u8 tracer_nop[] = { 0x0f, 0x1f, 0x44, 0x00, 0x00 };
static const u8 endbr[] = { 0xf3, 0x0f, 0x1e, 0xfa };

/* Returns the number of bytes after the opcode: modrm, sib and displacement; 0 for a rip-relative operand. */
static u8 operand(const u8 *modrm)
{
	u8 mod = *modrm >> 6, rm = *modrm & 7;
	u8 length = 1;

	if (mod == 3)
		return length;
	if (rm == 4) {
		length++;
		if (mod == 0 && (modrm[1] & 7) == 5)
			length += 4;
	} else if (mod == 0 && rm == 5) {
		return 0;
	}
	return (u8)(length + (mod == 1 ? 1 : mod == 2 ? 4 : 0));
}

/* Returns the length of a position-independent instruction; 0 if unknown. */
static u8 movable(const u8 *at)
{
	/* mov, lea and arithmetic on registers and memory. */
	static const u8 plain[] = { 0x89, 0x8b, 0x8d, 0x31, 0x33, 0x85, 0x39, 0x3b, 0x01, 0x03,
				    0x29, 0x2b, 0x21, 0x23, 0x09, 0x0b, 0x63, 0x88, 0x84 };
	u8 rex = (at[0] & 0xf0) == 0x40, op = at[rex], length = operand(at + rex + 1);

	if (at[0] == 0x65 && at[1] == 0x48 && at[2] == 0x8b && (at[3] & 0xc7) == 0x04 && at[4] == 0x25)
		return 9;	/* mov reg, gs:[disp32] */
	if (op >= 0x50 && op <= 0x57)
		return (u8)(rex + 1);	/* push */
	if (op >= 0xb8 && op <= 0xbf && (at[0] & 0xf8) != 0x48)
		return (u8)(rex + 5);	/* mov reg, imm32 */
	if (!length)
		return 0;
	if (memchr(plain, op, sizeof(plain)))
		return (u8)(rex + 1 + length);
	if (op == 0x83 || op == 0x80)
		return (u8)(rex + 2 + length);	/* with imm8 */
	if (op == 0x81 || (op == 0xc7 && at[rex + 1] >> 3 == 0x18))
		return (u8)(rex + 5 + length);	/* with imm32 */
	return 0;
}

/* Returns the end of the function that an address is in: the start of the next one. */
u64 function_end(u64 address)
{
	size_t low = 0, high = function_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (functions[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < function_count ? functions[low].address : etext;
}

/* Returns whether any bytes may be a jump into the range; conservative. */
static bool may_be_entered(u64 first, u64 last, u64 begin)
{
	u64 end = function_end(first);

	for (u64 at = begin; at + 6 < end && at + 6 < etext; at++) {
		const u8 *code = text_at(at);
		u64 to = at + 2 + (u64)(int64_t)(int8_t)code[1];
		int32_t distance;

		if ((code[0] == 0xeb || (code[0] & 0xf0) == 0x70 || (code[0] & 0xfc) == 0xe0) &&
		    to > first && to <= last)
			return true;
		if (code[0] != 0xe9 && (code[0] != 0x0f || (code[1] & 0xf0) != 0x80))
			continue;
		code += code[0] == 0x0f ? 2 : 1;
		memcpy(&distance, code, sizeof(distance));
		to = at + (u64)(code - text_at(at)) + 4 + (u64)(int64_t)distance;
		if (to > first && to <= last)
			return true;
	}
	return false;
}

bool site_at_entry(u64 function, struct site *site)
{
	const u8 *code = text_at(function);
	u8 length = 0;

	if (!code || function + 64 > etext)
		return false;
	if (!memcmp(code, endbr, sizeof(endbr))) {
		code += sizeof(endbr);
		function += sizeof(endbr);
	}
	if (memcmp(code, tracer_nop, sizeof(tracer_nop)))
		return false;
	code += sizeof(tracer_nop);
	*site = (struct site){ .address = function + sizeof(tracer_nop) };
	while (length < 5) {
		u8 next = movable(code + length);

		if (!next)
			return false;
		site->multi |= next < 5;
		length = (u8)(length + next);
	}
	site->length = length;
	return !may_be_entered(site->address, site->address + 4, function);
}

size_t entries(struct site *sites, size_t most)
{
	size_t count = 0;

	for (size_t i = 0; i < function_count && count < most; i++)
		if ((!i || functions[i].address != functions[i - 1].address) &&
		    site_at_entry(functions[i].address, &sites[count]))
			count++;
	return count;
}

static bool is_function(u64 address)
{
	size_t low = 0, high = function_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (functions[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < function_count && functions[low].address == address;
}

size_t calls(struct site *sites, size_t most)
{
	/* After one of these, e8 may be the operand of an instruction. */
	static const u8 before[] = { 0x01, 0x03, 0x09, 0x0b, 0x21, 0x23, 0x29, 0x2b, 0x31, 0x33, 0x38,
				     0x39, 0x3b, 0x63, 0x69, 0x6b, 0x80, 0x81, 0x83, 0x84, 0x85, 0x87,
				     0x88, 0x89, 0x8a, 0x8b, 0x8d, 0xaf, 0xb6, 0xb7, 0xbe, 0xbf, 0xc0,
				     0xc1, 0xd1, 0xd3, 0xf6, 0xf7, 0xff, 0xa4, 0xac, 0xa3, 0xab, 0xba };
	size_t count = 0;

	for (u64 at = stext + 1; at + 64 < etext && count < most; at++) {
		const u8 *code = text_at(at);
		int32_t distance;

		if (*code != 0xe8 || memchr(before, code[-1], sizeof(before)))
			continue;
		memcpy(&distance, code + 1, sizeof(distance));
		if (!is_function(at + 5 + (u64)(int64_t)distance))
			continue;
		sites[count++] = (struct site){ .address = at, .length = 5, .call = true };
		at += 4;
	}
	return count;
}

static u8 *put32(u8 *code, u64 value)
{
	u32 low = (u32)value;

	memcpy(code, &low, sizeof(low));
	return code + sizeof(low);
}

u32 patch(u8 *code, u64 at, const struct site *site, int slot)
{
	const u8 *original = text_at(site->address);
	u64 next = site->address + site->length;
	u8 *end = code;

	if (slot >= 0) {
		static const u8 increment[] = { 0x65, 0x48, 0xff, 0x04, 0x25 };

		memcpy(end, increment, sizeof(increment));
		end = put32(end + sizeof(increment), near_counters + 8u * (u32)slot);
	}
	if (site->call) {
		int32_t distance;

		memcpy(&distance, original + 1, sizeof(distance));
		if (!site->called) {
			*end++ = 0x68;	/* push */
			end = put32(end, next);
		}
		next += (u64)(int64_t)distance;
	} else {
		memcpy(end, original, site->length);
		end += site->length;
	}
	*end++ = 0xe9;
	end = put32(end, next - (at + (u64)(end - code) + 4));
	return (u32)(end - code);
}

struct ilk_poke poke_of(u8 kind, u64 address, u8 length, u64 target, u8 flags)
{
	struct ilk_poke poke = { .addr = address, .detour = target, .target = target,
				 .kind = kind, .len = length, .flags = flags };

	if (text_at(address))
		memcpy(poke.expect, text_at(address), length);
	if (kind == ILK_TRAP) {
		poke.write[0] = 0xcc;
	} else if (kind == ILK_SHORT) {
		poke.write[0] = 0xeb;
		poke.write[1] = (u8)(target - (address + 2));
	} else if (length) {
		poke.write[0] = kind == ILK_CALL ? 0xe8 : 0xe9;
		put32(poke.write + 1, target - (address + 5));
	}
	return poke;
}

struct ilk_poke jump_to(const struct site *site, u64 target)
{
	struct ilk_poke poke = poke_of(site->called ? ILK_CALL : ILK_JUMP, site->address, 5, target,
				       site->multi ? ILK_POKE_MULTI : 0);

	poke.filled = (1ull << (site->length - 5)) - 1;
	return poke;
}

struct ilk_poke removal_of(const struct ilk_poke *poke)
{
	struct ilk_poke removal = *poke;

	memcpy(removal.expect, poke->write, sizeof(removal.expect));
	memcpy(removal.write, poke->expect, sizeof(removal.write));
	removal.flags |= ILK_POKE_REMOVE;
	return removal;
}

void write_patches(const struct site *sites, size_t count, u64 offset, struct ilk_poke *pokes)
{
	u8 *code = malloc(count * PATCH_ROOM);

	memset(code, 0xcc, count * PATCH_ROOM);
	for (size_t i = 0; i < count; i++) {
		u64 at = info.arena + offset + i * PATCH_ROOM;

		patch(code + i * PATCH_ROOM, at, &sites[i], (int)(i % 512));
		pokes[i] = jump_to(&sites[i], at);
	}
	CHECK(!write_arena(offset, code, (u32)(count * PATCH_ROOM)),
	      "the arena cannot be written: errno %d", errno);
	free(code);
}

static int by_address(const void *one, const void *other)
{
	u64 a = ((const struct site *)one)->address, b = ((const struct site *)other)->address;

	return a < b ? -1 : a > b;
}

size_t admitted(struct site *sites, size_t count)
{
	size_t kept = 0;
	u8 code[PATCH_ROOM];

	qsort(sites, count, sizeof(*sites), by_address);
	CHECK(!write_arena(0, code, patch(code, info.arena, sites, 0)), "the arena cannot be written");
	for (size_t i = 0; i < count; i++) {
		struct ilk_poke trial = jump_to(&sites[i], info.arena);

		if (kept && sites[kept - 1].address + 5 > sites[i].address)
			continue;
		/* With a wrong expectation, which is checked last. */
		trial.expect[1] ^= 0xff;
		if (do_batch(&trial, 1) == ILK_MISMATCH)
			sites[kept++] = sites[i];
	}
	return kept;
}
