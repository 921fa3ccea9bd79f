/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Acts: does what the built-in tools watch, a known number of times, and prints that number or the
 * kernel's own account of it. Tests compare the results of the tools with this output.
 *
 * Usage: acts [memory]
 *
 * With the word it also lacks memory: a process of it is swapped out and in, and another one is ended by the kernel.
 * Prints lines "acts: SUBJECT NUMBER", all at the end.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { OPENS = 5, ABSENT = 3, STATS = 6, PROGRAMS = 3, KILLS = 7, SYNCS = 2, FSYNCS = 3, SETUIDS = 4,
       THREADS = 5, NAPS = 4, CONNECTIONS = 3, PORT = 5555, BACKLOG = 16, CLOSED_PORT = 5556, UMASKS = 9, FOLDERS = 2,
       WRITES = 6, READS = 4, BLOCK = 8192, WAITS = 20,
       PAGE = 4096, PERMITTED_PAGES = 1024, NEEDED_PAGES = 2048, SWAP_MIB = 16 };

static struct {
	const char *subject;
	long long number;
} account[64];
static int accounts;
static int folders_made;

static void note(const char *subject, long long number)
{
	account[accounts].subject = subject;
	account[accounts++].number = number;
}

static void need(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "acts: %s failed: %s.\n", what, strerror(errno));
		exit(1);
	}
}

/* Returns the number with index `field` in the line of a file that begins with `word`. */
static long long read_number(const char *path, const char *word, int field)
{
	char line[512];
	FILE *file = fopen(path, "r");
	long long number = -1;

	need(!!file, path);
	while (number < 0 && fgets(line, sizeof(line), file)) {
		char *rest = line + strlen(word);

		if (strncmp(line, word, strlen(word)))
			continue;
		for (int i = 0; i <= field; i++)
			number = strtoll(rest, &rest, 10);
	}
	fclose(file);
	return number;
}

static void nap(long milliseconds)
{
	struct timespec time = { .tv_nsec = milliseconds * 1000000 };

	nanosleep(&time, NULL);
}

static void make_folder(const char *path)
{
	need(!mkdir(path, 0700), path);
	folders_made++;
}

static void files(void)
{
	int in, out;
	struct stat found;

	for (int i = 0; i < OPENS; i++) {
		in = open("/proc/version", O_RDONLY);
		need(in >= 0, "open");
		close(in);
	}
	for (int i = 0; i < ABSENT; i++)
		need(open("/tmp/an-absent-file-of-acts", O_RDONLY) < 0, "an absent file");
	for (int i = 0; i < STATS; i++)
		need(stat("/tmp/absent", &found) < 0, "an absent name");
	for (int i = 0; i < FOLDERS; i++) {
		make_folder("/tmp/acts-folder");
		need(!rmdir("/tmp/acts-folder"), "the removal of a folder");
	}
	out = open("/tmp/acts-file", O_RDWR | O_CREAT, 0600);
	need(out >= 0, "a file");
	for (int i = 0; i < FSYNCS; i++)
		need(!fsync(out), "fsync");
	need(!fdatasync(out) && !syncfs(out), "fdatasync and syncfs");
	close(out);
	unlink("/tmp/acts-file");
	note("opens", OPENS);
	note("absent", ABSENT);
	note("stats", STATS);
	/* Each of mkdir(2) and rmdir(2) searches the name. */
	note("folders", 2 * FOLDERS);
}

static void *nothing(void *unused)
{
	return unused;
}

static void processes(void)
{
	long long before = read_number("/proc/stat", "processes", 0);
	pthread_t thread;

	for (int i = 0; i < THREADS; i++) {
		need(!pthread_create(&thread, NULL, nothing, NULL), "a thread");
		pthread_join(thread, NULL);
	}
	for (int i = 0; i < PROGRAMS; i++) {
		pid_t child = fork();

		need(child >= 0, "fork");
		if (!child) {
			execl("/bin/true", "true", NULL);
			_exit(1);
		}
		waitpid(child, NULL, 0);
	}
	for (int i = 0; i < KILLS; i++)
		need(!kill(getpid(), 0), "kill");
	for (int i = 0; i < SETUIDS; i++)
		need(!setuid(0), "setuid");
	need(!setreuid(0, 0) && !setresuid(0, 0, 0), "setreuid and setresuid");
	setfsuid(0);
	for (int i = 0; i < UMASKS; i++)
		umask(022);
	for (int i = 0; i < NAPS; i++)
		nap(3);
	note("threads", THREADS);
	note("programs", PROGRAMS);
	note("kills", KILLS);
	note("setuids", SETUIDS);
	note("changes", SETUIDS + 3);
	note("umasks", UMASKS);
	note("naps", NAPS);
	note("forks", read_number("/proc/stat", "processes", 0) - before);
}

/* Waits for a processor, next to a process for each that never sleeps. */
static void wait_for_processors(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	pid_t busy[64];
	char name[16];
	long long before, after, attempt = 0;

	for (long i = 0; i < count && i < 64; i++) {
		busy[i] = fork();
		need(busy[i] >= 0, "fork");
		if (!busy[i])
			for (;;)
				;
	}
	/* The name is changed where no wait was accounted between. An attempt with one leaves it to a name of its own. */
	do {
		prctl(PR_SET_NAME, "acts");
		nap(3);
		snprintf(name, sizeof(name), "waiter%lld", ++attempt);
		before = read_number("/proc/self/schedstat", "", 1);
		prctl(PR_SET_NAME, name);
	} while (read_number("/proc/self/schedstat", "", 1) != before);
	for (int i = 0; i < WAITS; i++)
		nap(1);
	after = read_number("/proc/self/schedstat", "", 1);
	prctl(PR_SET_NAME, "acts");
	note("processors", count);
	note("attempt", attempt);
	note("waits", WAITS);
	note("waited", after - before);
	note("waited-at-most", read_number("/proc/self/schedstat", "", 1) - before);
	for (long i = 0; i < count && i < 64; i++) {
		kill(busy[i], SIGKILL);
		waitpid(busy[i], NULL, 0);
	}
}

/* Waits until no socket has the port but those of clients, which the kernel keeps for a minute. */
static void await_last_acknowledgements(void)
{
	char line[512];
	unsigned int port;
	int open;

	do {
		FILE *file = fopen("/proc/net/tcp", "r");

		need(!!file, "/proc/net/tcp");
		open = 0;
		while (fgets(line, sizeof(line), file))
			open += sscanf(line, " %*d: %*8x:%4x", &port) == 1 && port == PORT;
		fclose(file);
		nap(10);
	} while (open);
}

static void connections(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct ifreq loopback = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	long long received = 0;

	need(listener >= 0 && !ioctl(listener, SIOCSIFFLAGS, &loopback), "the loopback interface");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(!bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	need(!listen(listener, BACKLOG), "listen");
	for (int i = 0; i < CONNECTIONS; i++) {
		int client = socket(AF_INET, SOCK_STREAM, 0), server;
		struct tcp_info state;
		socklen_t size = sizeof(state);
		char text[64];

		need(!connect(client, (struct sockaddr *)&address, sizeof(address)), "connect");
		server = accept(listener, NULL, NULL);
		need(server >= 0, "accept");
		need(write(client, "acts acts acts", 14) == 14, "a write to a socket");
		close(client);
		while (read(server, text, sizeof(text)) > 0)
			;
		need(!getsockopt(server, IPPROTO_TCP, TCP_INFO, &state, &size), "TCP_INFO");
		received += (long long)state.tcpi_bytes_received;
		close(server);
	}
	close(listener);
	await_last_acknowledgements();
	note("connections", CONNECTIONS);
	note("received", received);
}

static long long sent_again(void)
{
	/* The line of numbers, of which the first is 1, is after one of names. */
	return read_number("/proc/net/snmp", "Tcp: 1 ", 10);
}

/* Connects twice to a socket that keeps one connection, and waits until the second request was repeated. */
static void sent_twice(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(CLOSED_PORT) };
	int listener = socket(AF_INET, SOCK_STREAM, 0), clients[2];
	long long before = sent_again();

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	need(!bind(listener, (struct sockaddr *)&address, sizeof(address)), "bind");
	need(!listen(listener, 0), "listen");
	for (int i = 0; i < 2; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		need(connect(clients[i], (struct sockaddr *)&address, sizeof(address)) && errno == EINPROGRESS,
		     "a connection in progress");
	}
	while (sent_again() == before)
		nap(50);
	for (int i = 0; i < 2; i++)
		close(clients[i]);
	close(listener);
	note("sent-again", sent_again() - before);
	note("requests", CONNECTIONS + 2);
}

/* Requests of a block device, if there is one: null_blk. */
static void blocks(void)
{
	static const char stat_file[] = "/sys/block/nullb0/stat";
	static char block[BLOCK] __attribute__((aligned(4096)));
	int device = open("/dev/nullb0", O_RDWR | O_DIRECT);
	long long reads, writes, sectors;

	if (device < 0)
		return;
	reads = read_number(stat_file, "", 0);
	writes = read_number(stat_file, "", 4);
	sectors = read_number(stat_file, "", 2) + read_number(stat_file, "", 6);
	for (int i = 0; i < WRITES; i++)
		need(pwrite(device, block, BLOCK, (off_t)i * BLOCK) == BLOCK, "a write of blocks");
	for (int i = 0; i < READS; i++)
		need(pread(device, block, BLOCK, (off_t)i * BLOCK) == BLOCK, "a read of blocks");
	close(device);
	/* Dirty pages, for the writing back. */
	device = open("/dev/nullb0", O_WRONLY);
	need(device >= 0 && write(device, block, BLOCK) == BLOCK, "a buffered write");
	for (int i = 0; i < SYNCS; i++)
		sync();
	close(device);
	note("device-reads", read_number(stat_file, "", 0) - reads);
	note("device-writes", read_number(stat_file, "", 4) - writes);
	/* Of 512 bytes. Dirty pages are written in one request, or in several. */
	note("device-sectors", read_number(stat_file, "", 2) + read_number(stat_file, "", 6) - sectors);
	note("syncs", SYNCS + FSYNCS + 2);
	note("fsyncs", FSYNCS);
}

static void write_text(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	need(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), path);
	close(file);
}

/* A disk of memory: the second one of null_blk, by its number or by the name of its folder. */
#define DISK "/dev/nullb1"
#define DISK_FOLDER "/tmp/acts-disks/nullb/nullb1"

/* Makes the disk, and writes what a swap area begins with. */
static void swap_area(void)
{
	static char page[PAGE];
	unsigned int *header = (unsigned int *)(page + 1024);
	char mebibytes[16];
	int device;

	make_folder("/tmp/acts-disks");
	need(!mount("none", "/tmp/acts-disks", "configfs", 0, NULL), "a mount of configfs");
	make_folder(DISK_FOLDER);
	snprintf(mebibytes, sizeof(mebibytes), "%d", SWAP_MIB);
	write_text(DISK_FOLDER "/size", mebibytes);
	write_text(DISK_FOLDER "/memory_backed", "1");
	write_text(DISK_FOLDER "/power", "1");
	header[0] = 1;
	header[1] = SWAP_MIB * (1024 * 1024 / PAGE) - 1;
	memcpy(page + PAGE - 10, "SWAPSPACE2", 10);
	device = open(DISK, O_WRONLY);
	need(device >= 0 && write(device, page, PAGE) == PAGE, "a swap area");
	close(device);
}

/* Starts a process that uses more memory than it is permitted, twice, and returns how it ended. */
static int use_too_much(void)
{
	int status;
	pid_t child = fork();

	need(child >= 0, "fork");
	if (!child) {
		char *memory = mmap(NULL, (size_t)NEEDED_PAGES * PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		need(memory != MAP_FAILED, "mmap");
		write_text("/tmp/acts-control/acts/cgroup.procs", "0");
		for (int i = 0; i < 2 * NEEDED_PAGES; i++)
			memory[(size_t)(i % NEEDED_PAGES) * PAGE]++;
		for (int i = 0; i < NEEDED_PAGES; i++)
			need(memory[(size_t)i * PAGE] == 2, "memory that was swapped");
		_exit(0);
	}
	waitpid(child, &status, 0);
	return status;
}

static void lack_memory(void)
{
	char most[32];
	long long swapped_in, ended;

	swap_area();
	make_folder("/tmp/acts-control");
	need(!mount("none", "/tmp/acts-control", "cgroup2", 0, NULL), "a mount of cgroup2");
	write_text("/tmp/acts-control/cgroup.subtree_control", "+memory");
	make_folder("/tmp/acts-control/acts");
	snprintf(most, sizeof(most), "%d", PERMITTED_PAGES * PAGE);
	write_text("/tmp/acts-control/acts/memory.max", most);

	swapped_in = read_number("/proc/vmstat", "pswpin ", 0);
	need(!swapon(DISK, 0), "swapon");
	need(use_too_much() == 0, "a process with swap");
	need(!swapoff(DISK), "swapoff");
	note("swapped-in", read_number("/proc/vmstat", "pswpin ", 0) - swapped_in);

	ended = read_number("/proc/vmstat", "oom_kill ", 0);
	need(use_too_much() == SIGKILL, "a process that the kernel ends");
	note("ended", read_number("/proc/vmstat", "oom_kill ", 0) - ended);

	need(!rmdir("/tmp/acts-control/acts") && !umount("/tmp/acts-control"), "the removal of a control group");
	need(!rmdir(DISK_FOLDER) && !umount("/tmp/acts-disks"), "the removal of a disk");
	need(!rmdir("/tmp/acts-control") && !rmdir("/tmp/acts-disks"), "the removal of folders");
}

int main(int count, char **words)
{
	need(count == 1 || (count == 2 && !strcmp(words[1], "memory")), "a usage other than acts [memory]");
	files();
	processes();
	wait_for_processors();
	connections();
	sent_twice();
	blocks();
	if (count == 2)
		lack_memory();
	note("folders-made", folders_made);
	for (int i = 0; i < accounts; i++)
		printf("acts: %s %lld\n", account[i].subject, account[i].number);
	return 0;
}
