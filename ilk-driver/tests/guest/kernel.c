/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The kernel's symbols from /proc/kallsyms, and its memory from /proc/kcore. */
#include <elf.h>

#include "assay.h"

u64 stext, etext;
u8 *text;
struct function *functions;
size_t function_count;

static char *kallsyms;
static int kcore = -1;
static Elf64_Phdr segments[64];
static int segment_count;

static void stop(const char *what)
{
	printf("assay: FAILED: %s\n", what);
	exit(1);
}

static void read_kallsyms(void)
{
	size_t room = 24u << 20, length;
	FILE *file = fopen("/proc/kallsyms", "r");

	kallsyms = malloc(room);
	if (!file || !kallsyms)
		stop("/proc/kallsyms cannot be read");
	length = fread(kallsyms, 1, room - 1, file);
	kallsyms[length] = '\0';
	fclose(file);
}

u64 symbol(const char *name)
{
	char wanted[160];
	char *at;

	snprintf(wanted, sizeof(wanted), " %s\n", name);
	at = strstr(kallsyms, wanted);
	if (!at) {
		/* A module's name follows. */
		snprintf(wanted, sizeof(wanted), " %s\t", name);
		at = strstr(kallsyms, wanted);
	}
	if (!at)
		return 0;
	while (at > kallsyms && at[-1] != '\n')
		at--;
	return strtoull(at, NULL, 16);
}

void peek(u64 address, void *into, size_t size)
{
	for (int i = 0; i < segment_count; i++) {
		const Elf64_Phdr *segment = &segments[i];
		u64 offset = segment->p_offset + (address - segment->p_vaddr);

		if (segment->p_type != PT_LOAD || address < segment->p_vaddr ||
		    address + size > segment->p_vaddr + segment->p_memsz)
			continue;
		while (size) {
			ssize_t got = pread(kcore, into, size, (off_t)offset);

			if (got <= 0)
				stop("/proc/kcore cannot be read");
			into = (u8 *)into + got;
			offset += (u64)got;
			size -= (size_t)got;
		}
		return;
	}
	stop("/proc/kcore lacks the requested memory");
}

u64 relative(const char *table, u64 entry_size, u64 index)
{
	u64 at = symbol(table) + index * entry_size;
	int32_t distance;

	peek(at, &distance, sizeof(distance));
	return at + (u64)(int64_t)distance;
}

const u8 *text_at(u64 address)
{
	return address >= stext && address < etext ? text + (address - stext) : NULL;
}

static int by_address(const void *one, const void *other)
{
	u64 a = ((const struct function *)one)->address, b = ((const struct function *)other)->address;

	return a < b ? -1 : a > b;
}

static void read_functions(void)
{
	size_t room = 1u << 18;
	char *line = kallsyms;

	functions = calloc(room, sizeof(*functions));
	while (*line && function_count < room) {
		char *end = strchr(line, '\n');
		char *name = NULL;
		u64 address = strtoull(line, &name, 16);

		if (!end)
			break;
		if ((name[1] == 't' || name[1] == 'T') && address >= stext && address < etext) {
			functions[function_count].address = address;
			functions[function_count++].name = name + 3;
		}
		line = end + 1;
	}
	qsort(functions, function_count, sizeof(*functions), by_address);
}

void kernel_read(void)
{
	Elf64_Ehdr header;

	read_kallsyms();
	stext = symbol("_stext");
	etext = symbol("_etext");
	kcore = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
	if (!stext || kcore < 0 || pread(kcore, &header, sizeof(header), 0) != sizeof(header))
		stop("the kernel provides neither its symbols nor its memory");
	segment_count = header.e_phnum < 64 ? header.e_phnum : 64;
	if (pread(kcore, segments, (size_t)segment_count * sizeof(*segments),
		  (off_t)header.e_phoff) <= 0)
		stop("/proc/kcore has no segments");
	text = malloc(etext - stext);
	peek(stext, text, etext - stext);
	read_functions();
}

u8 *text_now(void)
{
	u8 *present = malloc(etext - stext);

	peek(stext, present, etext - stext);
	return present;
}

bool text_is_whole(void)
{
	u8 *present = text_now();
	int different = 0;

	for (u64 i = 0; i < etext - stext; i++)
		if (present[i] != text[i] && different++ < 8)
			printf("assay: at %llx is %02x instead of %02x\n",
			       (unsigned long long)(stext + i), present[i], text[i]);
	free(present);
	return different == 0;
}
