/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the files of this program share. */
#ifndef OWN_H
#define OWN_H

#include <stdbool.h>
#include <stdint.h>

/* Says why on standard error and ends the program. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* calls.c: what is measured */
typedef void (*call_fn)(void);
call_fn call_named(const char *name);
/* Ticks that the cheapest of `bursts` times `calls` calls took; `between` runs behind each. */
uint64_t cheapest(call_fn call, long bursts, long calls, void (*between)(void));

/* files.c: files of the kernel */
/* Writes, and says whether that was taken. */
bool try_write(const char *path, const char *text);
void write_or_fail(const char *path, const char *text);
char *read_whole(const char *path, long *length);
/* The tracer's directory, mounted. */
const char *tracing(const char *file);
/* Lets the kernel turn kprobes into jumps, or turns all back. */
void optimise(bool on);
/* Waits until a kprobe is a jump, or is none; false if it never gets there. */
bool is_optimised(uint64_t address, bool wanted);

/* bpf.c */
enum bpf_work { BPF_EMPTY, BPF_COUNT, BPF_RINGBUF, BPF_WORKS };
extern const char *const bpf_work_names[BPF_WORKS];
/* Attached until closed: to the entry of one of the functions, or as a probe at an address. */
int bpf_fentry(enum bpf_work work, const char *const *functions);
int bpf_kprobe(enum bpf_work work, uint64_t address);
/* Makes room in the ring that BPF_RINGBUF writes to. */
void bpf_drain(void);

#endif
