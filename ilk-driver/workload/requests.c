/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Requests: requests the first page of a web server on this machine, sequentially, each time on a
 * new connection, and prints the cost in ticks of the time stamp counter.
 *
 * Usage: requests [COUNT [PORT]]	(200 and 80 by default)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef unsigned long long ticks_t;

static ticks_t ticks(void)
{
	unsigned int low, high;

	__asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
	return (ticks_t)high << 32 | low;
}

static void fail(const char *what)
{
	fprintf(stderr, "requests: %s: %s.\n", what, strerror(errno));
	exit(1);
}

static int reach(int port)
{
	struct sockaddr_in server = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int connection = socket(AF_INET, SOCK_STREAM, 0);

	if (connection < 0)
		fail("no socket");
	if (!connect(connection, (struct sockaddr *)&server, sizeof(server)))
		return connection;
	close(connection);
	return -1;
}

static void request(int port)
{
	static const char get[] = "GET / HTTP/1.0\r\n\r\n";
	char page[8192];
	ssize_t got, size = 0;
	int connection = reach(port);

	if (connection < 0)
		fail("the server does not answer");
	if (write(connection, get, sizeof(get) - 1) != sizeof(get) - 1)
		fail("the request cannot be sent");
	while ((got = read(connection, page, sizeof(page))) > 0)
		size += got;
	if (got < 0 || size < 100)
		fail("the server sent no page");
	close(connection);
}

static int ascending(const void *one, const void *other)
{
	ticks_t a = *(const ticks_t *)one, b = *(const ticks_t *)other;

	return a < b ? -1 : a > b;
}

int main(int count, char **words)
{
	long requests = count > 1 ? atol(words[1]) : 200;
	int port = count > 2 ? atoi(words[2]) : 80, connection = -1;
	ticks_t begin, last, *took;

	if (requests < 1 || requests > 1000000 || port < 1 || port > 65535) {
		fprintf(stderr, "requests: needs a count up to a million, and a port.\n");
		return 2;
	}
	took = calloc((size_t)requests, sizeof(*took));
	for (int tries = 0; tries < 100 && connection < 0; tries++) {
		connection = reach(port);
		if (connection < 0)
			usleep(50000);
	}
	if (connection < 0)
		fail("the server does not begin to answer");
	close(connection);
	request(port);
	begin = last = ticks();
	for (long i = 0; i < requests; i++) {
		request(port);
		took[i] = ticks() - last;
		last += took[i];
	}
	qsort(took, (size_t)requests, sizeof(*took), ascending);
	printf("requests: %ld requests took %llu ticks, median %llu, 99 percent below %llu\n", requests,
	       last - begin, took[requests / 2], took[requests - 1 - requests / 100]);
	return 0;
}
