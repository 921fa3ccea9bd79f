/* Generates two functions, lists them in its perf map, and calls them a known number of times. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* mov eax, 7; ret, and lea eax, [rdi+1]; ret at the 16th byte. */
static const unsigned char code[] = "\xb8\x07\x00\x00\x00\xc3\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x8d\x47\x01\xc3";

int main(void)
{
	char path[64];
	unsigned char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return 2;
	memcpy(at, code, sizeof(code));
	if (mprotect(at, 4096, PROT_READ | PROT_EXEC))
		return 3;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(path, "w");
	if (!map)
		return 4;
	/* What stood there before. */
	fprintf(map, "%lx 20 old\n", (unsigned long)at);
	fprintf(map, "%lx 6 seven\n%lx 4 add one\n", (unsigned long)at, (unsigned long)at + 16);
	fclose(map);
	puts(path);
	int (*seven)(void) = (int (*)(void))at, (*add_one)(int) = (int (*)(int))(at + 16);
	int sum = 0;
	for (int call = 0; call < 500; call++)
		sum += seven();
	for (int call = 0; call < 700; call++)
		sum = add_one(sum);
	return sum == 500 * 7 + 700 ? 0 : 5;
}
