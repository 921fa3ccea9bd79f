/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Declarations shared by the files of this program. */
#ifndef OWN_H
#define OWN_H

#include <stdbool.h>
#include <stdint.h>

/* Prints the reason to standard error and ends the program. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* calls.c: the measured calls */
typedef void (*call_fn)(void);
call_fn call_named(const char *name);
/* Returns the ticks of the time stamp counter in a second. */
uint64_t frequency(void);
/* Returns the ticks of the cheapest of `bursts` times `calls` calls; `between` is called after each. */
uint64_t cheapest(call_fn call, long bursts, long calls, void (*between)(void));

/* files.c: files of the kernel */
/* Writes, and returns whether that succeeded. */
bool try_write(const char *path, const char *text);
void write_or_fail(const char *path, const char *text);
char *read_whole(const char *path, long *length);
/* Returns the tracer's directory, mounted. */
const char *tracing(const char *file);
/* Enables or disables the optimisation of kprobes. */
void optimise(bool on);
/* Waits until a kprobe is optimised or not; returns false after a time limit. */
bool is_optimised(uint64_t address, bool wanted);

/* bpf.c */
enum bpf_work {
	BPF_EMPTY,
	BPF_COUNT,
	BPF_RINGBUF,
	BPF_BY_PROCESS,	/* a count of each process, in a hash table per CPU */
	BPF_BY_STACK,	/* a count of each stack of the kernel, in the same */
	BPF_WORKS
};
extern const char *const bpf_work_names[BPF_WORKS];
/* Attaches until closed: to the entry of one of the functions, or as a probe at an address. */
int bpf_fentry(enum bpf_work work, const char *const *functions);
int bpf_kprobe(enum bpf_work work, uint64_t address);
/* Loads a program that is not attached and performs the work so many times in a run; runs it. */
#define BPF_REPEATS 256
void bpf_repeated(enum bpf_work work);
void bpf_run(void);
/* The frames of the only stack that was kept by the program that was loaded last. */
unsigned int bpf_frames(void);
/* The map of the program that was attached last, a BPF_COUNT, and the count in it. */
int bpf_counts(void);
uint64_t bpf_count_in(int counts);
/* Empties the ring that BPF_RINGBUF writes to. */
void bpf_drain(void);

#endif
