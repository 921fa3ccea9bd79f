/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Assay: sends requests to /dev/ilk that no agent sends, and compares the results with ilk_abi.h.
 * It executes in the lab, alone, and needs no information about the kernel: it determines its sites
 * itself (sites.c).
 */
#ifndef ASSAY_H
#define ASSAY_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ilk_abi.h"

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

/* main.c */
void failed(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#define CHECK(condition, ...)                                      \
	do {                                                       \
		if (!(condition))                                  \
			failed(__FILE__, __LINE__, __VA_ARGS__);   \
	} while (0)
double now(void);
int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Returns a number from an environment variable, or a default. */
u64 setting(const char *name, u64 usual);

/* random.c: reproducible pseudo-random numbers. */
struct dice {
	u64 state;
};
u64 roll(struct dice *dice);
u64 below(struct dice *dice, u64 limit);
bool one_in(struct dice *dice, u64 n);

/* kernel.c: the kernel's symbols and memory. */
extern u64 stext, etext;
extern u8 *text;			/* all of the text as it was at the start */
void kernel_read(void);
u64 symbol(const char *name);		/* 0 if missing */
void peek(u64 address, void *into, size_t size);
u64 relative(const char *table, u64 entry_size, u64 index);	/* target of the relative address at an entry's start */
u8 *text_now(void);			/* freed by the caller */
bool text_is_whole(void);		/* prints the bytes that differ from the start */
const u8 *text_at(u64 address);		/* as it was at the start; NULL outside */
struct function {
	u64 address;
	const char *name;
};
extern struct function *functions;	/* of the text, by address */
extern size_t function_count;

/* device.c: a function per request. */
extern struct ilk_info info;
extern int device;
extern u64 near_counters, far_counters;	/* gs: offsets of the counters of banks 0 and 1 */
void device_open(void);
void device_close(void);
int write_arena(u64 offset, const void *code, u32 length);	/* 0 or an errno */
extern struct ilk_batch answer;					/* of the last batch */
int do_batch(const struct ilk_poke *pokes, u32 count);		/* a reason, or a negative errno */
u32 begin_session(void);					/* returns how the last one ended: enum ilk_end */
u64 counted(u32 slot);						/* counter of bank 0, all CPUs */
const char *reason_name(int reason);
void expect_reason(const char *file, int line, int is, int wanted);
#define EXPECT(is, wanted) expect_reason(__FILE__, __LINE__, is, wanted)

/* sites.c: possible splices, and code for them. */
#define PATCH_ROOM 40u
struct site {
	u64 address;
	u8 length;	/* of the whole instructions that a jmp covers */
	bool multi;
	bool call;	/* the instruction is a call, which is emulated */
	bool called;	/* and its splice is a call again */
};
bool site_at_entry(u64 function, struct site *site);
size_t calls(struct site *sites, size_t most);
u64 function_end(u64 address);
size_t entries(struct site *sites, size_t most);
/* Builds a site's code for the arena at `at`, which counts in counter `slot` of bank 0, or not if that is negative. */
u32 patch(u8 *code, u64 at, const struct site *site, int slot);
struct ilk_poke jump_to(const struct site *site, u64 target);
struct ilk_poke poke_of(u8 kind, u64 address, u8 length, u64 target, u8 flags);
struct ilk_poke removal_of(const struct ilk_poke *poke);
/* Writes the patches of all sites to the arena, from `offset` on; `pokes` branch to them. */
void write_patches(const struct site *sites, size_t count, u64 offset, struct ilk_poke *pokes);
/* Keeps the sites that the module accepts, by address, without overlaps. */
size_t admitted(struct site *sites, size_t count);

/* churn.c */
void churn_start(void);
void churn_stop(void);

/* The available tests. */
void refusals(void);
void faults(void);
void fuzz(void);
void rollback(void);
void starve(void);
void soak(void);

#endif
