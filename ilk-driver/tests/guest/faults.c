/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * faults: code in the arena reads invalid addresses and continues at its fixup, each time, also
 * while the module replaces its exception table.
 */
#include "assay.h"

#define LOAD 11u	/* offset of the load in the code before a patch, */
#define FIXUP 16u	/* its fixup, */
#define BEFORE 26u	/* and the start of the patch */

static struct site hot;
static volatile bool over;

static int write_faulting(u64 offset, const u8 *code, u32 length, struct ilk_fault *faults, u32 count)
{
	struct ilk_arena_write request = { .offset = offset, .data = (u64)code, .len = length,
					   .faults = (u64)faults, .fault_count = count };

	return ioctl(device, ILK_IOC_ARENA, &request) ? errno : 0;
}

/* A patch that reads `address`, counts in counter 1 if that faults, and in counter 0 in any case. */
static u32 reading(u8 *code, u64 at, u64 address)
{
	static const u8 begin[] = { 0x50, 0x48, 0xb8 };		/* push rax; mov rax, … */
	static const u8 load[] = { 0x48, 0x8b, 0x00, 0xeb, 0x09,	/* mov rax, [rax]; jmp over the next */
				   0x65, 0x48, 0xff, 0x04, 0x25 };	/* inc gs:… */
	u32 counter = (u32)near_counters + 8;

	memcpy(code, begin, sizeof(begin));
	memcpy(code + sizeof(begin), &address, sizeof(address));
	memcpy(code + LOAD, load, sizeof(load));
	memcpy(code + LOAD + sizeof(load), &counter, sizeof(counter));
	code[BEFORE - 1] = 0x58;				/* pop rax */
	return BEFORE + patch(code + BEFORE, at + BEFORE, &hot, 0);
}

static void *read_zeroes(void *unused)
{
	char byte;
	int zero;

	(void)unused;
	while (!over) {
		zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
		if (read(zero, &byte, 1) != 1)
			break;
		close(zero);
	}
	return NULL;
}

/* Replaces the table while threads fault all the time. */
static void faults_meanwhile(void)
{
	struct ilk_poke nothing = jump_to(&hot, info.arena);
	u8 code[64];

	memset(code, 0x90, sizeof(code));
	nothing.expect[0] ^= 0xff;
	for (u32 i = 0; i < 100; i++) {
		struct ilk_fault faults[3] = { { .offset = i % 8, .fixup = 60 },
					      { .offset = 20 + i % 8, .fixup = 61 },
					      { .offset = 50, .fixup = 62 } };

		CHECK(!write_faulting((1 + i % 7) << 16, code, sizeof(code), faults, 1 + i % 3),
		      "the arena cannot be written");
		/* Refused, but only after the table is replaced. */
		do_batch(&nothing, 1);
	}
}

static void reads_of(u64 address, bool faults, bool meanwhile)
{
	struct ilk_fault fault = { .offset = LOAD, .fixup = FIXUP };
	struct ilk_poke poke = jump_to(&hot, info.arena), removal = removal_of(&poke);
	pthread_t threads[2];
	u8 code[BEFORE + PATCH_ROOM];
	u32 length = reading(code, info.arena, address);
	u64 hits, faulted;

	CHECK(!ioctl(device, ILK_IOC_RESET), "counters cannot be zeroed");
	CHECK(!write_faulting(0, code, length, &fault, 1), "the arena cannot be written");
	over = false;
	EXPECT(do_batch(&poke, 1), ILK_OK);
	for (size_t i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, read_zeroes, NULL);
	if (meanwhile)
		faults_meanwhile();
	usleep(100000);
	over = true;
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	EXPECT(do_batch(&removal, 1), ILK_OK);
	hits = counted(0);
	faulted = counted(1);
	printf("assay: of %llu reads of %llx %llu faulted\n", (unsigned long long)hits,
	       (unsigned long long)address, (unsigned long long)faulted);
	CHECK(hits > 100 && faulted == (faults ? hits : 0), "reads do not fault as they should");
}

static void refused(void)
{
	u64 own = relative("__start___ex_table", 12, 0);
	struct ilk_fault late = { .offset = 8 }, nowhere = { .fixup = 8 };
	struct ilk_fault twice[2] = { { .offset = 1, .fixup = 2 }, { .offset = 1, .fixup = 3 } };
	struct ilk_fault like = { .original = symbol("vfs_read") }, good = { .original = own };
	struct ilk_fault both = { .fixup = 1, .original = own }, beside = { .original = own + 1 };
	struct ilk_arena_write request = { .len = 8, .reserved = 1 };
	u8 code[8] = { 0 };

	CHECK(write_faulting(0, code, sizeof(code), &late, 1) == EINVAL, "a fault after the end of the code");
	CHECK(write_faulting(0, code, sizeof(code), &nowhere, 1) == EINVAL, "a fixup after the end of the code");
	CHECK(write_faulting(0, code, sizeof(code), twice, 2) == EINVAL, "two faults at one offset");
	CHECK(write_faulting(0, code, sizeof(code), twice, 9) == EINVAL, "more faults than bytes");
	CHECK(write_faulting(0, code, sizeof(code), NULL, 1) == EFAULT, "an invalid pointer to faults");
	CHECK(write_faulting(0, code, sizeof(code), &like, 1) == EINVAL, "an original that cannot fault");
	CHECK(write_faulting(0, code, sizeof(code), &beside, 1) == EINVAL, "an original that is no instruction");
	CHECK(write_faulting(0, code, sizeof(code), &both, 1) == EINVAL, "a fixup and an original");
	CHECK(!write_faulting(0, code, sizeof(code), &good, 1), "an original that can fault");
	request.data = (u64)code;
	CHECK(ioctl(device, ILK_IOC_ARENA, &request) && errno == EINVAL, "a reserved field");
}

void faults(void)
{
	static const char *const busy[] = { "vfs_read", "ksys_read", "rw_verify_area",
					    "security_file_permission", "vfs_open",
					    "do_sys_openat2" };
	size_t i = 0;

	device_open();
	while (i < sizeof(busy) / sizeof(*busy) && !site_at_entry(symbol(busy[i]), &hot))
		i++;
	CHECK(i < sizeof(busy) / sizeof(*busy), "no busy function begins with known instructions");
	CHECK(info.faults, "nothing in the arena may fault");
	refused();
	reads_of(symbol("jiffies"), false, false);
	reads_of(0xffffff0000000000, true, false);	/* unmapped in the kernel's half */
	reads_of(0x8000000000000000, true, false);	/* non-canonical */
	reads_of(0xffffff0000000000, true, true);
	device_close();
}
