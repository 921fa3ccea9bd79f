/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* /dev/ilk, a function per request. */
#include "assay.h"

struct ilk_info info;
int device = -1;
u64 near_counters, far_counters;
struct ilk_batch answer;

void device_open(void)
{
	struct ilk_bank bank = { .bank = 0 };
	double begin = now();

	/* The last owner may still be closing. */
	do {
		device = open("/dev/ilk", O_RDWR | O_CLOEXEC);
	} while (device < 0 && errno == EBUSY && now() - begin < 30);
	if (device < 0) {
		perror("assay: FAILED: /dev/ilk");
		exit(1);
	}
	memset(&info, 0, sizeof(info));
	info.abi = ILK_ABI_VERSION;
	CHECK(!ioctl(device, ILK_IOC_INFO, &info), "the module refuses the handshake: errno %d", errno);
	CHECK(!ioctl(device, ILK_IOC_BANK, &bank), "bank 0: errno %d", errno);
	near_counters = bank.gs;
	bank.bank = 1;
	CHECK(!ioctl(device, ILK_IOC_BANK, &bank), "bank 1: errno %d", errno);
	far_counters = bank.gs;
}

void device_close(void)
{
	close(device);
	device = -1;
}

int write_arena(u64 offset, const void *code, u32 length)
{
	struct ilk_arena_write request = { .offset = offset, .data = (u64)code, .len = length };

	return ioctl(device, ILK_IOC_ARENA, &request) ? errno : 0;
}

int do_batch(const struct ilk_poke *pokes, u32 count)
{
	memset(&answer, 0, sizeof(answer));
	answer.pokes = (u64)pokes;
	answer.count = count;
	if (ioctl(device, ILK_IOC_BATCH, &answer))
		return -errno;
	return (int)answer.reason;
}

u32 begin_session(void)
{
	struct ilk_state state = { .begin = 1 };
	int err = ioctl(device, ILK_IOC_STATE, &state);

	/* While a live patch is in transition. */
	for (int tries = 0; err && errno == EBUSY && tries < 1200; tries++) {
		usleep(50000);
		err = ioctl(device, ILK_IOC_STATE, &state);
	}
	CHECK(!err, "the state: errno %d", errno);
	return state.ended;
}

u64 counted(u32 slot)
{
	u64 values[256] = { 0 }, sum = 0;
	struct ilk_counters request = { .first = slot, .count = 1, .out = (u64)values };

	CHECK(info.cpus <= 256, "%u CPUs", info.cpus);
	CHECK(!ioctl(device, ILK_IOC_COUNTERS, &request), "counters: errno %d", errno);
	for (u32 cpu = 0; cpu < info.cpus; cpu++)
		sum += values[cpu];
	return sum;
}

const char *reason_name(int reason)
{
	static const char *const names[] = {
		"OK",	     "BAD_REQUEST",  "NOT_TEXT",   "BLACKLISTED",    "JUMP_LABEL",
		"STATIC_CALL", "ALTERNATIVE", "FTRACE",	   "KPROBE",	     "MISMATCH",
		"OVERLAP",   "NO_MEMORY",    "UNKNOWN_SPLICE", "BAD_DETOUR", "UNSUPPORTED",
		"NEEDED",    "TRACER_REFUSED", "INJECTED",   "OVER",
	};

	if (reason < 0)
		return strerror(-reason);
	return (size_t)reason < sizeof(names) / sizeof(*names) ? names[reason] : "?";
}

void expect_reason(const char *file, int line, int is, int wanted)
{
	if (is != wanted)
		failed(file, line, "%s (poke %u), and not %s", reason_name(is), answer.failed,
		       reason_name(wanted));
}
