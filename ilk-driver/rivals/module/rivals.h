/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* What the program asks of rivals.ko by ioctl on /dev/rivals. */
#ifndef RIVALS_H
#define RIVALS_H

#include <linux/types.h>
#include <linux/ioctl.h>

enum rivals_kind {
	RIVALS_KPROBE,		/* handlers that do nothing */
	RIVALS_KPROBE_COUNT,	/* handlers that count, each in a word of its own */
	RIVALS_KRETPROBE,
	RIVALS_FTRACE,		/* a callback on the one function whose tracer's site is given */
};

struct rivals_request {
	__u32 kind;
	__u32 count;		/* addresses */
	__u64 addresses;	/* u64[count] */
	__u32 registered;	/* out: how many of them could be probed */
	__u32 refused;		/* out: how many could not */
	__u64 hits;		/* RIVALS_REMOVE, out: what counting handlers counted */
	__u64 nanoseconds;	/* out: what it took */
};

/* One set at a time: the next RIVALS_PLACE, or closing the file, needs or does a RIVALS_REMOVE. */
#define RIVALS_PLACE	_IOWR('R', 0, struct rivals_request)
#define RIVALS_REMOVE	_IOWR('R', 1, struct rivals_request)

#endif
