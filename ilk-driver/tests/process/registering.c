/* Loads objects, registers them as compilers do for debuggers, and calls their functions: 300 times that of the first,
   400 that of the second, and so on. */
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct jit_code_entry {
	struct jit_code_entry *next, *previous;
	const char *object;
	uint64_t bytes;
};

struct {
	uint32_t version, action;
	struct jit_code_entry *relevant, *first;
} __jit_debug_descriptor = { 1, 0, 0, 0 };

__attribute__((noinline)) void __jit_debug_register_code(void) { __asm__ volatile(""); }

static void *loaded(const char *path)
{
	static char file[65536];
	FILE *from = fopen(path, "r");
	if (!from)
		exit(2);
	size_t bytes = fread(file, 1, sizeof(file), from);
	fclose(from);
	char *object = malloc(bytes);
	memcpy(object, file, bytes);
	Elf64_Ehdr *header = (Elf64_Ehdr *)object;
	Elf64_Shdr *sections = (Elf64_Shdr *)(object + header->e_shoff);
	const char *names = object + sections[header->e_shstrndx].sh_offset;
	void *code = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int n = 0; n < header->e_shnum; n++) {
		if (strcmp(names + sections[n].sh_name, ".text"))
			continue;
		memcpy(code, object + sections[n].sh_offset, sections[n].sh_size);
		sections[n].sh_addr = (uint64_t)code;
	}
	if (mprotect(code, 4096, PROT_READ | PROT_EXEC))
		exit(3);
	struct jit_code_entry *entry = calloc(1, sizeof(*entry));
	entry->next = __jit_debug_descriptor.first;
	if (entry->next)
		entry->next->previous = entry;
	entry->object = object;
	entry->bytes = bytes;
	__jit_debug_descriptor.first = __jit_debug_descriptor.relevant = entry;
	__jit_debug_descriptor.action = 1;
	__jit_debug_register_code();
	return code;
}

int main(int count, char **paths)
{
	int sum = 0;
	for (int n = 1; n < count; n++) {
		int (*function)(int) = (int (*)(int))loaded(paths[n]);
		for (int call = 0; call < 200 + 100 * n; call++)
			sum += function(1);
	}
	printf("%d\n", sum);
	return 0;
}
