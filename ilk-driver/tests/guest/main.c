/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Usage: assay refusals|faults|fuzz|rollback|soak…
 *
 * Each test is described in its file. The last line of the output is "assay: passed", or the number
 * of failed checks.
 */
#include "assay.h"

static int failures;

void failed(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	printf("assay: FAILED %s:%d: ", file, line);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	if (__atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) > 20) {
		printf("assay: too many failures\n");
		exit(1);
	}
}

double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int shell(const char *format, ...)
{
	char command[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	return system(command);
}

u64 setting(const char *name, u64 usual)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 0) : usual;
}

int main(int count, char **arguments)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {
		{ "refusals", refusals },
		{ "faults", faults },
		{ "fuzz", fuzz },
		{ "rollback", rollback },
		{ "starve", starve },
		{ "soak", soak },
	};
	int known = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	kernel_read();
	for (int i = 1; i < count; i++)
		for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
			if (!strcmp(arguments[i], all[k].name)) {
				double begin = now();

				printf("assay: %s\n", all[k].name);
				all[k].run();
				CHECK(text_is_whole(), "the text is not restored");
				printf("assay: %s took %.1f s\n", all[k].name, now() - begin);
				known++;
			}
	if (known != count - 1) {
		fprintf(stderr, "assay: unknown argument.\n");
		return 2;
	}
	if (failures)
		printf("assay: %d failures\n", failures);
	else
		printf("assay: passed\n");
	return failures != 0;
}
