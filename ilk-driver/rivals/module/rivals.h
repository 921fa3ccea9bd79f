/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* The requests of the program to rivals.ko, by ioctl on /dev/rivals. */
#ifndef RIVALS_H
#define RIVALS_H

#include <linux/types.h>
#include <linux/ioctl.h>

enum rivals_kind {
	RIVALS_KPROBE,		/* handlers that do nothing */
	RIVALS_KPROBE_COUNT,	/* handlers that count, each in a word of its own */
	RIVALS_KRETPROBE,
	RIVALS_FTRACE,		/* a callback on the function with the given tracer's call */
};

struct rivals_request {
	__u32 kind;
	__u32 count;		/* addresses */
	__u64 addresses;	/* u64[count] */
	__u32 registered;	/* out: number of registered probes */
	__u32 refused;		/* out: number of refused ones */
	__u64 hits;		/* RIVALS_REMOVE, out: hits of counting handlers */
	__u64 nanoseconds;	/* out: duration */
};

/* One set at a time: a RIVALS_REMOVE must precede the next RIVALS_PLACE; closing the file performs one. */
#define RIVALS_PLACE	_IOWR('R', 0, struct rivals_request)
#define RIVALS_REMOVE	_IOWR('R', 1, struct rivals_request)

#endif
