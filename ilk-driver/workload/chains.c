/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Chains: reads /dev/zero byte by byte while the kernel's profiler interrupts it and unwinds its
 * stack, and prints the callers in the kernel.
 *
 * Usage: chains SECONDS FROM TO		(addresses, hexadecimal)
 *
 * Prints a line for each list of callers: the interrupted address if between FROM and TO, else 0;
 * the number of samples; and the return addresses, innermost first.
 */
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGES 64
#define DEEPEST 48
#define MOST 4096

struct chain {
	unsigned long long callers[DEEPEST];
	unsigned long long inside;	/* the interrupted address, or 0 */
	int depth;
	long count;
};

static struct chain chains[MOST];
static int known;
static unsigned long long from, to;
static long lost;

/* PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN: ip, entries, entries. */
static void note(const unsigned long long *sample)
{
	struct chain now = { .count = 1 };

	if (sample[0] >= from && sample[0] < to)
		now.inside = sample[0];
	for (unsigned long long i = 0; i < sample[1] && now.depth < DEEPEST; i++) {
		unsigned long long caller = sample[2 + i];

		/* Without context marks and the interrupted address. */
		if (caller < PERF_CONTEXT_MAX && caller != sample[0])
			now.callers[now.depth++] = caller;
	}
	for (int i = 0; i < known; i++)
		if (chains[i].inside == now.inside && chains[i].depth == now.depth &&
		    !memcmp(chains[i].callers, now.callers, sizeof(now.callers))) {
			chains[i].count++;
			return;
		}
	if (known == MOST)
		lost++;
	else
		chains[known++] = now;
}

static void drain(struct perf_event_mmap_page *page)
{
	static unsigned long long record[1 << 13];
	const char *data = (const char *)page + getpagesize();
	unsigned long size = PAGES * getpagesize();
	unsigned long long head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);

	while (page->data_tail < head) {
		unsigned long long tail = page->data_tail;
		struct perf_event_header header;

		/* Records begin at multiples of 8 and may wrap around the end. */
		memcpy(&header, data + tail % size, sizeof(header));
		for (unsigned int i = 0; i < header.size; i += 8)
			memcpy(record + i / 8, data + (tail + i) % size, 8);
		if (header.type == PERF_RECORD_SAMPLE)
			note(record + 1);
		else
			lost += header.type == PERF_RECORD_LOST;
		__atomic_store_n(&page->data_tail, tail + header.size, __ATOMIC_RELEASE);
	}
}

int main(int argc, char **argv)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(attributes),
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = 100000,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_CALLCHAIN,
		.exclude_user = 1,
		.exclude_callchain_user = 1,
	};
	time_t end = time(NULL) + (argc > 1 ? atol(argv[1]) : 5);
	struct perf_event_mmap_page *page;
	int event, zero = open("/dev/zero", O_RDONLY);
	char byte;

	if (argc < 4) {
		fprintf(stderr, "chains: give seconds and two addresses.\n");
		return 2;
	}
	from = strtoull(argv[2], NULL, 16);
	to = strtoull(argv[3], NULL, 16);
	event = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0 || zero < 0) {
		perror("chains: the kernel's profiler or /dev/zero");
		return 1;
	}
	page = mmap(NULL, (1 + PAGES) * getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, event, 0);
	if (page == MAP_FAILED) {
		perror("chains: the profiler's memory");
		return 1;
	}
	while (time(NULL) < end) {
		for (int i = 0; i < 1000; i++)
			if (read(zero, &byte, 1) != 1)
				return 1;
		drain(page);
	}
	ioctl(event, PERF_EVENT_IOC_DISABLE, 0);
	drain(page);
	for (int i = 0; i < known; i++) {
		printf("chain %llx %ld", chains[i].inside, chains[i].count);
		for (int j = 0; j < chains[i].depth; j++)
			printf(" %llx", chains[i].callers[j]);
		printf("\n");
	}
	printf("chains: %ld lost\n", lost);
	return 0;
}
