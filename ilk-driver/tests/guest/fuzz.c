/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * fuzz: FUZZ_CALLS requests (1,000,000 by default) or as many as fit into FUZZ_SECONDS, out of
 * range, truncated, and valid ones with a changed field. Equal FUZZ_SEEDs yield equal requests.
 *
 * Code of an accepted request is executed, and the module cannot validate it. So requests that may
 * be accepted are in functions that are never called here (those of keyctl(2)); any other request
 * has at least one error.
 */
#include "assay.h"

#define SEEDS 64	/* valid pokes */
#define MOST 40		/* pokes of a batch */
#define ARENA_USED 65536u
#define FAULTING 32	/* instructions with an entry in the kernel's exception table */

static struct dice dice;
static struct ilk_poke corpus[SEEDS];
static size_t corpus_size;
static u64 cold_first, cold_last;
static u64 faulting[FAULTING];
static u8 *scratch;	/* target of the requests' pointers */
#define SCRATCH (1u << 20)
static u64 tally[ILK_INJECTED + 2], accepted, errors;

/* Returns a number that is likely to reveal errors. */
static u64 odd_number(void)
{
	u64 numbers[] = { 0, 1, 2, 5, 8, 255, 4095, 4096, 65535, 65536, 1u << 20, (1u << 20) + 1,
			  ~0u, 1ull << 31, 1ull << 32, 1ull << 47, 1ull << 63, ~0ull, ~0ull - 4,
			  stext, stext - 1, etext - 5, etext, info.arena, info.arena + info.arena_size,
			  info.arena_size, info.ring_base, info.timers, info.gs_head, cold_first,
			  (u64)scratch, (u64)scratch + SCRATCH - 8 };

	switch (below(&dice, 4)) {
	case 0:
		return roll(&dice);
	case 1:
		return roll(&dice) >> below(&dice, 64);
	case 2:
		return 1ull << below(&dice, 64);
	default:
		return numbers[below(&dice, sizeof(numbers) / sizeof(*numbers))] +
		       (one_in(&dice, 4) ? below(&dice, 16) : 0);
	}
}

/* Adjacent functions of one source file, which are never executed here; and pokes in them. */
static void prepare(void)
{
	static u8 code[ARENA_USED];
	u64 first = symbol("__x64_sys_add_key"), last = first;

	memset(code, 0xcc, sizeof(code));
	for (size_t i = 0; i < function_count; i++)
		if (!strncmp(functions[i].name, "keyctl_", 7) && functions[i].address > last &&
		    functions[i].address < first + 65536)
			last = functions[i].address;
	CHECK(first && last > first, "keyctl(2) is missing");
	cold_first = first;
	cold_last = last;
	CHECK(!write_arena(0, code, sizeof(code)), "the arena cannot be written");
	for (u64 i = 0; i < FAULTING; i++)
		faulting[i] = relative("__start___ex_table", 12, i);
	for (size_t i = 0; i < function_count && corpus_size + 4 < SEEDS; i++) {
		u64 address = functions[i].address, at = info.arena + corpus_size * 256;
		struct site site;

		if (address < first || address > last || !site_at_entry(address, &site))
			continue;
		corpus[corpus_size++] = jump_to(&site, at);
		corpus[corpus_size++] = poke_of(ILK_TRACER, site.address - 5, 0, at, 0);
		corpus[corpus_size] = poke_of(ILK_BOUNCE, address - 5, 5, at, 0);
		corpus[corpus_size].host = one_in(&dice, 2) ? site.address : 0;
		corpus[corpus_size + 1] = poke_of(ILK_SHORT, site.address + 8, 2, address - 5,
						  ILK_POKE_MULTI);
		corpus[corpus_size + 1].detour = at;
		corpus[++corpus_size].rank = 1;
		corpus_size++;
	}
	CHECK(corpus_size > 20, "only %zu valid pokes", corpus_size);
	scratch = mmap(NULL, SCRATCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Makes the branch target its `target`, so that more than ILK_BAD_DETOUR is tested. */
static void lead(struct ilk_poke *poke)
{
	u8 flags = poke->flags, rank = poke->rank, length = poke->len;
	u64 host = poke->host, detour = poke->detour;

	*poke = poke_of(poke->kind, poke->addr, length > 8 ? 5 : length, poke->target, flags);
	poke->rank = rank;
	poke->host = host;
	poke->detour = detour;
}

static bool is_cold(u64 address)
{
	return address >= cold_first && address <= cold_last;
}

/* Returns whether this poke would change text that is or may be executed. */
static bool is_dangerous(const struct ilk_poke *poke)
{
	/* With the longest splice, and all that it may fill. */
	bool cold = is_cold(poke->addr) && is_cold(poke->addr + ILK_POKE_MAX + 64);

	if (cold || poke->flags & ILK_POKE_REMOVE || !text_at(poke->addr))
		return false;
	if (poke->kind == ILK_TRACER)
		return true;
	return poke->len <= 8 && !memcmp(text_at(poke->addr), poke->expect, poke->len);
}

static void change(struct ilk_poke *poke)
{
	switch (below(&dice, 17)) {
	case 0:
		poke->addr = odd_number();
		break;
	case 1:
		poke->addr = stext + below(&dice, etext - stext);
		break;
	case 2:
	case 3:
		poke->addr = cold_first + below(&dice, cold_last - cold_first);
		lead(poke);
		break;
	case 4:
		poke->detour = odd_number();
		break;
	case 5:
		poke->detour = info.arena + below(&dice, ARENA_USED);
		break;
	case 6:
		poke->target = odd_number();
		break;
	case 7:
		poke->target = info.arena + below(&dice, ARENA_USED);
		if (one_in(&dice, 2))
			lead(poke);
		break;
	case 8:
		poke->host = one_in(&dice, 2) ? odd_number() : corpus[below(&dice, corpus_size)].addr;
		break;
	case 9:
		poke->kind = (u8)(one_in(&dice, 2) ? below(&dice, 6) : roll(&dice));
		break;
	case 10:
		poke->len = (u8)(one_in(&dice, 2) ? below(&dice, 9) : roll(&dice));
		break;
	case 11:
		poke->flags = (u8)(one_in(&dice, 2) ? below(&dice, 4) : roll(&dice));
		break;
	case 12:
		poke->rank = (u8)roll(&dice);
		break;
	case 13:
		poke->reserved = (u32)roll(&dice);
		break;
	case 14:
		poke->filled = one_in(&dice, 2) ? roll(&dice) : (1ull << below(&dice, 12)) - 1;
		break;
	case 15:
		poke->expect[below(&dice, 8)] ^= (u8)(1u << below(&dice, 8));
		break;
	default:
		poke->write[below(&dice, 8)] ^= (u8)(1u << below(&dice, 8));
	}
}

static int batch(void)
{
	struct ilk_poke *pokes = (struct ilk_poke *)scratch;
	u32 count = (u32)below(&dice, one_in(&dice, 8) ? MOST : 5);
	/* Waits take long: few batches may get that far. */
	bool whole = one_in(&dice, 2500);
	struct ilk_batch request = { .pokes = (u64)scratch, .count = count };
	int result;

	for (u32 i = 0; i < count; i++) {
		pokes[i] = corpus[below(&dice, corpus_size)];
		if (one_in(&dice, 4))
			pokes[i] = removal_of(&pokes[i]);
		for (u64 changes = whole ? one_in(&dice, 6) : below(&dice, 6) / 4; changes; changes--)
			change(&pokes[i]);
		if (is_dangerous(&pokes[i])) {
			if (pokes[i].kind == ILK_TRACER || !pokes[i].len || pokes[i].len > 8)
				pokes[i].reserved = 1;
			else
				pokes[i].expect[0] ^= 0x55;
		}
	}
	/* Usually makes the last one wrong, in another bit than above. */
	if (!whole && count) {
		if (pokes[count - 1].kind == ILK_TRACER)
			pokes[count - 1].len = 1;
		else
			pokes[count - 1].expect[0] ^= 0xaa;
	}
	if (one_in(&dice, 32))
		request.pokes = odd_number();
	if (one_in(&dice, 4) && request.pokes != (u64)scratch)
		request.count = (u32)odd_number();
	if (one_in(&dice, 32))
		request.waits = (u32)odd_number();
	result = ioctl(device, ILK_IOC_BATCH, &request);
	if (!result && request.reason < sizeof(tally) / sizeof(*tally))
		tally[request.reason]++;
	return result || request.reason;
}

static int arena(void)
{
	struct ilk_arena_write request = { .offset = below(&dice, ARENA_USED), .data = (u64)scratch };
	struct ilk_row rows[4] = {};
	struct ilk_fault faults[4] = {};

	request.len = (u32)below(&dice, one_in(&dice, 64) ? 8192 : 64);
	if (one_in(&dice, 3))
		request.offset = odd_number();
	if (one_in(&dice, 4))
		request.data = odd_number();
	if (one_in(&dice, 64))
		request.len = (u32)odd_number() >> (one_in(&dice, 2) ? 0 : 8);
	request.rows = (u64)rows;
	request.row_count = (u32)below(&dice, 4);
	for (u32 i = 0; i < request.row_count; i++) {
		rows[i].original = stext + below(&dice, etext - stext);
		rows[i].offset = (u32)(4 * i + below(&dice, 6));
		rows[i].pushed = (u32)(8 * below(&dice, 5));
	}
	if (one_in(&dice, 8))
		rows[0].original = odd_number();
	if (one_in(&dice, 8))
		rows[0].pushed = (u32)odd_number();
	if (one_in(&dice, 16))
		request.rows = odd_number();
	if (one_in(&dice, 16))
		request.row_count = (u32)odd_number();
	request.faults = (u64)faults;
	request.fault_count = (u32)below(&dice, 4);
	for (u32 i = 0; i < request.fault_count; i++) {
		faults[i].offset = (u32)(4 * i + below(&dice, 6));
		faults[i].fixup = (u32)below(&dice, 64);
		if (one_in(&dice, 3)) {
			faults[i].original = faulting[below(&dice, FAULTING)] + one_in(&dice, 8);
			faults[i].fixup *= one_in(&dice, 8);
		}
	}
	if (one_in(&dice, 16))
		request.faults = odd_number();
	if (one_in(&dice, 16))
		request.fault_count = (u32)odd_number();
	if (one_in(&dice, 64))
		request.reserved = (u32)odd_number();
	return ioctl(device, ILK_IOC_ARENA, &request);
}

static int tables(void)
{
	struct ilk_counters counters = { .bank = (u32)below(&dice, info.counter_banks + 1),
					 .first = (u32)below(&dice, 5000),
					 .count = (u32)below(&dice, 600), .out = (u64)scratch };
	struct ilk_losses losses = { .out = (u64)scratch, .cpus = info.cpus };
	struct ilk_consume consume = { .tail = odd_number(), .cpu = (u32)below(&dice, info.cpus + 2) };
	struct ilk_bank bank = { .bank = (u32)below(&dice, info.counter_banks + 3) };
	struct ilk_rings rings = { .flags = (u32)below(&dice, 5),
				   .watermark = (u32)below(&dice, (2ull << info.slots_log2)) };
	__u64 *fields[] = { &counters.out, &losses.out, &consume.tail, &rings.reserved };
	__u32 *small[] = { &counters.bank, &counters.first, &counters.count, &counters.reserved,
			 &losses.cpus, &losses.reserved, &consume.cpu, &consume.reserved, &bank.bank,
			 &rings.flags, &rings.watermark };

	if (one_in(&dice, 2))
		*fields[below(&dice, 4)] = odd_number();
	if (one_in(&dice, 2))
		*small[below(&dice, 11)] = (u32)odd_number();
	switch (below(&dice, 5)) {
	case 0:
		return ioctl(device, ILK_IOC_COUNTERS, &counters);
	case 1:
		return ioctl(device, ILK_IOC_LOSSES, &losses);
	case 2:
		return ioctl(device, ILK_IOC_CONSUME, &consume);
	case 3:
		return ioctl(device, ILK_IOC_RINGS, &rings);
	default:
		return ioctl(device, ILK_IOC_BANK, &bank);
	}
}

/* A random request. A batch and a write to the arena may not be generated like this. */
static int nonsense(void)
{
	u64 words[64];
	u32 command = (u32)(one_in(&dice, 3) ? roll(&dice) :
					       _IOC(below(&dice, 4), 'i', below(&dice, 12),
						    below(&dice, 200)));

	for (size_t i = 0; i < 64; i++)
		words[i] = odd_number();
	if (command == ILK_IOC_RESET || command == ILK_IOC_BATCH)
		command ^= 0x100;
	return ioctl(device, command, one_in(&dice, 2) ? (u64)words : odd_number());
}

static int mapping(void)
{
	size_t size = (size_t)info.cpus << info.stride_log2;
	u64 length = one_in(&dice, 2) ? size : odd_number() & 0xfffffff;
	int protection = (int)below(&dice, 8);
	void *at = mmap(NULL, length, protection, one_in(&dice, 2) ? MAP_SHARED : MAP_PRIVATE,
			device, one_in(&dice, 2) ? 0 : (off_t)(odd_number() & ~4095ull));

	if (at == MAP_FAILED)
		return -1;
	if (protection & PROT_READ)
		(void)*(volatile u8 *)at;
	mprotect(at, length, PROT_READ | PROT_WRITE);
	return munmap(at, length);
}

static int one(u64 number)
{
	if (number % 20000 == 19999) {
		device_close();	/* with any splices installed */
		device_open();
		return 0;
	}
	if (number % 20000 == 9999)
		return ioctl(device, ILK_IOC_RESET);
	switch (below(&dice, 16)) {
	case 0:
	case 1:
	case 2:
		return arena();
	case 3:
	case 4:
	case 5:
	case 6:
		return tables();
	case 7:
	case 8:
	case 9:
		return nonsense();
	case 10:
		return one_in(&dice, 20) ? mapping() : tables();
	default:
		return batch();
	}
}

void fuzz(void)
{
	u64 seed = setting("FUZZ_SEED", 1), most = setting("FUZZ_CALLS", 1000000);
	double until = now() + (double)setting("FUZZ_SECONDS", 1u << 30);
	u64 number;

	dice.state = seed;
	device_open();
	prepare();
	printf("assay: fuzz with seed %llu, %zu valid pokes\n", (unsigned long long)seed, corpus_size);
	for (number = 0; number < most; number++) {
		if (number % 1024 == 0 && now() > until)
			break;
		/* If everything ends, the console has the last call. */
		if (number % 100000 == 0)
			printf("assay: seed %llu, call %llu\n", (unsigned long long)seed,
			       (unsigned long long)number);
		if (one(number))
			errors++;
		else
			accepted++;
	}
	printf("assay: %llu calls with seed %llu: %llu accepted, %llu refused; batches:",
	       (unsigned long long)number, (unsigned long long)seed, (unsigned long long)accepted,
	       (unsigned long long)errors);
	for (int i = 0; i <= ILK_INJECTED; i++)
		if (tally[i])
			printf(" %s %llu", reason_name(i), (unsigned long long)tally[i]);
	printf("\n");
	CHECK(!ioctl(device, ILK_IOC_RESET), "a reset: errno %d", errno);
	CHECK(text_is_whole(), "the text is not restored after a reset");
	device_close();
}
