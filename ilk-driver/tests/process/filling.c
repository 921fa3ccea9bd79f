/* A thread fills a file, which is mapped, byte by byte; what was stored is in the file however the process ends. It begins at
   a first line of input, and a second one ends the process. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CELLS = 32, BYTES = 1 << 26 };

static unsigned char *table;

extern char stores[], stored[];
void fill(unsigned char *table, unsigned long rounds);
/* One block, in which a thread is nearly all the time. */
__asm__("fill:   mov $3, %r8d\n"
        "        mov %rdi, %r9\n"
        "        or $1, %r9\n"
        "stores:\n"
        ".set cell, 0\n"
        ".rept 32\n"
        "        movb $1, cell(%rdi)\n"
        "        mov %r9, %rax\n"
        "        xor %edx, %edx\n"
        "        div %r8\n"
        "        xor %edx, %edx\n"
        "        div %r8\n"
        "        xor %edx, %edx\n"
        "        div %r8\n"
        ".set cell, cell + 1\n"
        ".endr\n"
        "stored: add $32, %rdi\n"
        "        dec %rsi\n"
        "        jnz stores\n"
        "        ret\n");

static void *fills(void *unused) {
    fill(table, BYTES / CELLS);
    pause();
    return unused;
}

int main(int count, char **words) {
    char line[16];
    int file = open(words[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    pthread_t thread;
    if (file < 0 || ftruncate(file, BYTES))
        return 1;
    table = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    printf("%lx %lx %lx\n", (long)table, (long)stores, (long)stored);
    fflush(stdout);
    if (table == MAP_FAILED || !fgets(line, sizeof(line), stdin))
        return 1;
    pthread_create(&thread, NULL, fills, NULL);
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    _exit(5);
}
