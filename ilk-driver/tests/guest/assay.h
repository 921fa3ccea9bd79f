/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Assay: talks to /dev/ilk as no agent would, and holds what comes of it against what ilk_abi.h
 * says. It runs in the lab, alone, and needs to know nothing of the kernel that it runs on:
 * it finds sites by itself (sites.c).
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
/* A number of an environment variable, or what it is without. */
u64 setting(const char *name, u64 usual);

/* random.c: the same numbers for the same seed. */
struct dice {
	u64 state;
};
u64 roll(struct dice *dice);
u64 below(struct dice *dice, u64 limit);
bool one_in(struct dice *dice, u64 n);

/* kernel.c: what the kernel tells of itself. */
extern u64 stext, etext;
extern u8 *text;			/* all of the text as it was at the start */
void kernel_read(void);
u64 symbol(const char *name);		/* 0 if there is none */
void peek(u64 address, void *into, size_t size);
u64 relative(const char *table, u64 entry_size, u64 index);	/* what an entry begins with the distance to */
u8 *text_now(void);			/* to be freed */
bool text_is_whole(void);		/* tells of the bytes that are not as at the start */
const u8 *text_at(u64 address);		/* as it was at the start; NULL outside */
struct function {
	u64 address;
	const char *name;
};
extern struct function *functions;	/* of the text, by address */
extern size_t function_count;

/* device.c: one request each. */
extern struct ilk_info info;
extern int device;
extern u64 near_counters, far_counters;	/* gs: offsets of the counters of banks 0 and 1 */
void device_open(void);
void device_close(void);
int write_arena(u64 offset, const void *code, u32 length);	/* 0 or an errno */
extern struct ilk_batch answer;					/* of the last batch */
int do_batch(const struct ilk_poke *pokes, u32 count);		/* a reason, or a negative errno */
u64 counted(u32 slot);						/* counter of bank 0, all CPUs */
const char *reason_name(int reason);
void expect_reason(const char *file, int line, int is, int wanted);
#define EXPECT(is, wanted) expect_reason(__FILE__, __LINE__, is, wanted)

/* sites.c: where splices may be put, and code for them. */
#define PATCH_ROOM 40u
struct site {
	u64 address;
	u8 length;	/* of the whole instructions that a jmp covers */
	bool multi;
	bool call;	/* the instruction is a call, which is emulated */
};
bool site_at_entry(u64 function, struct site *site);
size_t calls(struct site *sites, size_t most);
size_t entries(struct site *sites, size_t most);
/* Code of a site for the arena at `at`, which counts in counter `slot` of bank 0, or not if that is negative. */
u32 patch(u8 *code, u64 at, const struct site *site, int slot);
struct ilk_poke jump_to(const struct site *site, u64 target);
struct ilk_poke poke_of(u8 kind, u64 address, u8 length, u64 target, u8 flags);
struct ilk_poke removal_of(const struct ilk_poke *poke);
/* Writes the patches of all sites to the arena, from `offset` on; `pokes` lead there. */
void write_patches(const struct site *sites, size_t count, u64 offset, struct ilk_poke *pokes);
/* Leaves of the sites those that the module would admit, by address, and none that overlap. */
size_t admitted(struct site *sites, size_t count);

/* churn.c */
void churn_start(void);
void churn_stop(void);

/* What can be asked for. */
void refusals(void);
void faults(void);
void fuzz(void);
void rollback(void);
void starve(void);
void soak(void);

#endif
