/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Selectors: loads segment registers with a descriptor of the process and removes the descriptor,
 * so that the kernel faults when it reloads them.
 *
 * Usage: selectors ROUNDS
 */
#include <asm/ldt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN 7	/* the first descriptor of the local table, for user mode */

static void describe(struct user_desc descriptor)
{
	/* 0x11: write an entry */
	if (syscall(SYS_modify_ldt, 0x11, &descriptor, sizeof(descriptor))) {
		perror("selectors: modify_ldt");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const struct user_desc data = { .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1 };
	const struct user_desc none = { .read_exec_only = 1, .seg_not_present = 1 };
	int rounds = argc == 2 ? atoi(argv[1]) : 1, left = 0;

	for (int i = 0; i < rounds; i++) {
		unsigned int ds, es;

		describe(data);
		asm volatile("mov %0, %%ds\n\tmov %0, %%es" : : "r" (OWN));
		describe(none);
		asm volatile("mov %%ds, %0\n\tmov %%es, %1" : "=r" (ds), "=r" (es));
		left += ds || es;
	}
	printf("selectors: %d rounds, %d left\n", rounds, left);
	return left != 0;
}
