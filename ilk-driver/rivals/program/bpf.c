/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* BPF programs written by hand, loaded and attached by plain system calls. */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "own.h"

#define RING_BYTES (1u << 20)

const char *const bpf_work_names[BPF_WORKS] = {
	"empty", "per-CPU count", "ring buffer", "count by process", "count by stack"
};

/* Most keys of a hash table, and most stacks: as many as ilk keeps. */
#define KEYS 4096
/* Most frames of a stack (PERF_MAX_STACK_DEPTH). */
#define DEPTH 127

static int map = -1, stacks = -1;
static uint64_t *consumer, *producer;

static int bpf(int command, union bpf_attr *attributes)
{
	return syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

/* Returns the type of the function of that name, according to Documentation/bpf/btf.rst. */
static unsigned int btf_function(const char *name)
{
	static char *btf;
	static long length;
	const uint32_t *header, *type, *end;
	const char *names;

	if (!btf)
		btf = read_whole("/sys/kernel/btf/vmlinux", &length);
	header = (const uint32_t *)btf;
	type = (const uint32_t *)(btf + header[1] + header[2]);
	end = type + header[3] / 4;
	names = btf + header[1] + header[4];
	for (unsigned int id = 1; type < end; id++) {
		unsigned int kind = type[1] >> 24 & 31, members = type[1] & 0xffff;

		if (kind == 12 && !strcmp(names + type[0], name))
			return id;
		type += 3;
		switch (kind) {
		case 1: case 14: case 17:	/* integer, variable's linkage, tag of a declaration */
			type += 1;
			break;
		case 3:				/* array */
			type += 3;
			break;
		case 4: case 5: case 15: case 19: /* structure, union, section, enumeration of 64 bits */
			type += 3 * members;
			break;
		case 6: case 13:		/* enumeration, prototype */
			type += 2 * members;
			break;
		}
	}
	return 0;
}

static int make_map(enum bpf_work work)
{
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	if (work == BPF_RINGBUF) {
		attributes.map_type = BPF_MAP_TYPE_RINGBUF;
		attributes.max_entries = RING_BYTES;
	} else if (work == BPF_BY_PROCESS || work == BPF_BY_STACK) {
		attributes.map_type = BPF_MAP_TYPE_PERCPU_HASH;
		attributes.key_size = 8;
		attributes.value_size = 8;
		attributes.max_entries = KEYS;
	} else {
		attributes.map_type = BPF_MAP_TYPE_PERCPU_ARRAY;
		attributes.key_size = 4;
		attributes.value_size = 8;
		attributes.max_entries = 1;
	}
	return bpf(BPF_MAP_CREATE, &attributes);
}

static int make_stacks(void)
{
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.map_type = BPF_MAP_TYPE_STACK_TRACE;
	attributes.key_size = 4;
	attributes.value_size = 8 * DEPTH;
	attributes.max_entries = KEYS;
	return bpf(BPF_MAP_CREATE, &attributes);
}

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define MOV_IMM(d, i) INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define MOV_REG(d, s) INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define CALL(i) INSN(BPF_JMP | BPF_CALL, 0, 0, 0, i)
#define STORE(d, o, s) INSN(BPF_STX | BPF_MEM | BPF_DW, d, s, o, 0)
#define STORE_IMM(d, o, i) INSN(BPF_ST | BPF_MEM | BPF_DW, d, 0, o, i)
#define LOAD_FD(d, fd) INSN(BPF_LD | BPF_IMM | BPF_DW, d, BPF_PSEUDO_MAP_FD, 0, fd), INSN(0, 0, 0, 0, 0)
#define LOAD_MAP(d) LOAD_FD(d, map)
#define FRAME(d, o) MOV_REG(d, 10), INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, o)
#define LEAVE_IF_NULL(o) INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, o, 0)

static const struct bpf_insn leave[] = {
	MOV_IMM(0, 0),
	INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
};

/* Writes the code that counts the key in register 0; returns its length. */
static unsigned int count_key(struct bpf_insn *code)
{
	const struct bpf_insn count[] = {
		STORE(10, -8, 0),
		LOAD_MAP(1),
		FRAME(2, -8),
		CALL(BPF_FUNC_map_lookup_elem),
		LEAVE_IF_NULL(4),
		INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
		INSN(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, 1),
		STORE(0, 0, 1),
		INSN(BPF_JMP | BPF_JA, 0, 0, 9, 0),
		/* A new key. */
		STORE_IMM(10, -16, 1),
		LOAD_MAP(1),
		FRAME(2, -8),
		FRAME(3, -16),
		MOV_IMM(4, BPF_ANY),
		CALL(BPF_FUNC_map_update_elem),
	};

	memcpy(code, count, sizeof(count));
	return sizeof(count) / sizeof(count[0]);
}

/* Writes the code of `work`, and makes its maps; returns its length. Register 1 is the program's context. */
static unsigned int work_code(enum bpf_work work, struct bpf_insn *code)
{
	unsigned int length = 0;

	if (map >= 0)
		close(map);
	map = work == BPF_EMPTY ? -1 : make_map(work);
	if (work != BPF_EMPTY && map < 0)
		fail("a BPF map cannot be created: %s", strerror(errno));
	if (work == BPF_COUNT) {
		const struct bpf_insn count[] = {
			INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0),
			LOAD_MAP(1),
			FRAME(2, -4),
			CALL(BPF_FUNC_map_lookup_elem),
			LEAVE_IF_NULL(3),
			INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
			INSN(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, 1),
			STORE(0, 0, 1),
		};

		memcpy(code, count, sizeof(count));
		length = sizeof(count) / sizeof(count[0]);
	} else if (work == BPF_BY_PROCESS) {
		const struct bpf_insn process[] = {
			CALL(BPF_FUNC_get_current_pid_tgid),
			INSN(BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32),
		};

		memcpy(code, process, sizeof(process));
		length = 2;
		length += count_key(code + length);
	} else if (work == BPF_BY_STACK) {
		if (stacks >= 0)
			close(stacks);
		stacks = make_stacks();
		if (stacks < 0)
			fail("a BPF map of stacks cannot be created: %s", strerror(errno));
		const struct bpf_insn stack[] = {
			LOAD_FD(2, stacks),
			MOV_IMM(3, 0),
			CALL(BPF_FUNC_get_stackid),
		};

		memcpy(code, stack, sizeof(stack));
		length = sizeof(stack) / sizeof(stack[0]);
		length += count_key(code + length);
	} else if (work == BPF_RINGBUF) {
		/* The contents of ilk's samples: identifier, value, time. */
		const struct bpf_insn ring[] = {
			LOAD_MAP(1),
			MOV_IMM(2, 24),
			MOV_IMM(3, 0),
			CALL(BPF_FUNC_ringbuf_reserve),
			LEAVE_IF_NULL(8),
			MOV_REG(6, 0),
			CALL(BPF_FUNC_ktime_get_ns),
			STORE(6, 16, 0),
			STORE(6, 8, 0),
			STORE_IMM(6, 0, 7),
			MOV_REG(1, 6),
			MOV_IMM(2, BPF_RB_NO_WAKEUP),
			CALL(BPF_FUNC_ringbuf_submit),
		};
		long page = sysconf(_SC_PAGESIZE);

		memcpy(code, ring, sizeof(ring));
		length = sizeof(ring) / sizeof(ring[0]);
		consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
		producer = mmap(NULL, page, PROT_READ, MAP_SHARED, map, page);
		if (consumer == MAP_FAILED || producer == MAP_FAILED)
			fail("a BPF ring cannot be mapped: %s", strerror(errno));
	}
	return length;
}

/* Loads code of a program of `kind`; `function` is the attachment of one for an entry. */
static int load_code(const struct bpf_insn *code, unsigned int length, int kind, unsigned int function)
{
	static char log[1 << 20];
	union bpf_attr attributes;
	int program;

	memset(&attributes, 0, sizeof(attributes));
	attributes.prog_type = kind;
	attributes.insns = (uintptr_t)code;
	attributes.insn_cnt = length;
	attributes.license = (uintptr_t) "GPL";
	attributes.log_buf = (uintptr_t)log;
	attributes.log_size = sizeof(log);
	attributes.log_level = 1;
	if (function) {
		attributes.expected_attach_type = BPF_TRACE_FENTRY;
		attributes.attach_btf_id = function;
	}
	program = bpf(BPF_PROG_LOAD, &attributes);
	if (program < 0)
		fail("a BPF program is refused: %s\n%s", strerror(errno), log);
	return program;
}

/* Loads a program of `kind` that performs `work`. */
static int load(enum bpf_work work, int kind, unsigned int function)
{
	struct bpf_insn code[32];
	unsigned int length = work_code(work, code);

	memcpy(code + length, leave, sizeof(leave));
	return load_code(code, length + 2, kind, function);
}

static int repeated = -1;

void bpf_repeated(enum bpf_work work)
{
	struct bpf_insn code[40] = { MOV_REG(9, 1), MOV_IMM(7, BPF_REPEATS), MOV_REG(1, 9) };
	unsigned int length = 3 + work_code(work, code + 3);
	const struct bpf_insn again[] = {
		INSN(BPF_ALU64 | BPF_SUB | BPF_K, 7, 0, 0, 1),
		/* Back to where register 1 is the context. */
		INSN(BPF_JMP | BPF_JNE | BPF_K, 7, 0, -(int)length, 0),
	};

	memcpy(code + length, again, sizeof(again));
	memcpy(code + length + 2, leave, sizeof(leave));
	if (repeated >= 0)
		close(repeated);
	repeated = load_code(code, length + 4, BPF_PROG_TYPE_RAW_TRACEPOINT, 0);
}

void bpf_run(void)
{
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.test.prog_fd = repeated;
	if (bpf(BPF_PROG_TEST_RUN, &attributes))
		fail("a BPF program cannot be run: %s", strerror(errno));
}

unsigned int bpf_frames(void)
{
	uint64_t frames[DEPTH] = { 0 };
	uint32_t key;
	unsigned int count = 0;
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	attributes.map_fd = stacks;
	attributes.next_key = (uintptr_t)&key;
	if (bpf(BPF_MAP_GET_NEXT_KEY, &attributes))
		fail("no stack was kept: %s", strerror(errno));
	memset(&attributes, 0, sizeof(attributes));
	attributes.map_fd = stacks;
	attributes.key = (uintptr_t)&key;
	attributes.value = (uintptr_t)frames;
	if (bpf(BPF_MAP_LOOKUP_ELEM, &attributes))
		fail("a stack cannot be read: %s", strerror(errno));
	while (count < DEPTH && frames[count])
		count++;
	return count;
}

int bpf_fentry(enum bpf_work work, const char *const *functions)
{
	unsigned int function = 0;
	union bpf_attr attributes;
	int program, link;

	for (; *functions && !function; functions++)
		function = btf_function(*functions);
	if (!function)
		fail("the kernel's types do not have the function");
	program = load(work, BPF_PROG_TYPE_TRACING, function);
	memset(&attributes, 0, sizeof(attributes));
	attributes.raw_tracepoint.prog_fd = program;
	link = bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes);
	if (link < 0)
		fail("a BPF program cannot be attached to the entry: %s", strerror(errno));
	close(program);
	return link;
}

int bpf_kprobe(enum bpf_work work, uint64_t address)
{
	struct perf_event_attr attributes;
	char *type = read_whole("/sys/bus/event_source/devices/kprobe/type", NULL);
	int program = load(work, BPF_PROG_TYPE_KPROBE, 0);
	int event;

	memset(&attributes, 0, sizeof(attributes));
	attributes.size = sizeof(attributes);
	attributes.type = atoi(type);
	free(type);
	attributes.config2 = address;
	event = syscall(SYS_perf_event_open, &attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
	if (event < 0 || ioctl(event, PERF_EVENT_IOC_SET_BPF, program) ||
	    ioctl(event, PERF_EVENT_IOC_ENABLE, 0))
		fail("a BPF program cannot be attached as a probe: %s", strerror(errno));
	close(program);
	return event;
}

int bpf_counts(void)
{
	int copy = dup(map);

	if (copy < 0)
		fail("a BPF map cannot be kept: %s", strerror(errno));
	return copy;
}

uint64_t bpf_count_in(int counts)
{
	/* The kernel writes a value for each possible CPU; it has at most 8,192. */
	static uint64_t values[8192];
	uint32_t key = 0;
	uint64_t sum = 0;
	union bpf_attr attributes;

	memset(&attributes, 0, sizeof(attributes));
	memset(values, 0, sizeof(values));
	attributes.map_fd = counts;
	attributes.key = (uintptr_t)&key;
	attributes.value = (uintptr_t)values;
	if (bpf(BPF_MAP_LOOKUP_ELEM, &attributes))
		fail("a BPF map cannot be read: %s", strerror(errno));
	for (unsigned int cpu = 0; cpu < sizeof(values) / sizeof(values[0]); cpu++)
		sum += values[cpu];
	return sum;
}

void bpf_drain(void)
{
	__atomic_store_n(consumer, __atomic_load_n(producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}
