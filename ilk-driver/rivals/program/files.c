/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Access to files of the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "own.h"

bool try_write(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_TRUNC);
	size_t length = strlen(text);
	bool done;

	if (file < 0)
		return false;
	done = write(file, text, length) == (ssize_t)length;
	return close(file) == 0 && done;
}

void write_or_fail(const char *path, const char *text)
{
	if (!try_write(path, text))
		fail("%s refuses \"%s\": %s", path, text, strerror(errno));
}

char *read_whole(const char *path, long *length)
{
	long size = 0, room = 1 << 16;
	char *bytes = malloc(room + 1);
	int file = open(path, O_RDONLY);

	if (file < 0)
		fail("%s cannot be opened: %s", path, strerror(errno));
	for (;;) {
		ssize_t got = read(file, bytes + size, room - size);

		if (got < 0)
			fail("%s cannot be read: %s", path, strerror(errno));
		if (got == 0)
			break;
		size += got;
		if (size == room)
			bytes = realloc(bytes, (room *= 2) + 1);
	}
	close(file);
	bytes[size] = 0;
	if (length)
		*length = size;
	return bytes;
}

const char *tracing(const char *file)
{
	static char path[256];

	if (access("/sys/kernel/tracing/trace", F_OK) &&
	    mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL))
		fail("the tracer's files cannot be mounted: %s", strerror(errno));
	snprintf(path, sizeof(path), "/sys/kernel/tracing/%s", file);
	return path;
}

void optimise(bool on)
{
	write_or_fail("/proc/sys/debug/kprobes-optimization", on ? "1" : "0");
}

/* The kernel lists a kprobe as optimised as soon as it intends to write the jump. */
#define WRITTEN_AFTER 1

bool is_optimised(uint64_t address, bool wanted)
{
	for (int tries = 0; tries < 100; tries++) {
		char *list = read_whole("/sys/kernel/debug/kprobes/list", NULL);
		bool optimised = false;

		for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n"))
			if (strtoull(line, NULL, 16) == address)
				optimised = strstr(line, "[OPTIMIZED]");
		free(list);
		if (optimised == wanted) {
			sleep(WRITTEN_AFTER);
			return true;
		}
		usleep(20000);
	}
	return false;
}
