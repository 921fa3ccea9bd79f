/* A loop whose accesses are known, while signals and faults interrupt it at any instruction. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { ROUNDS = 1000, SIGNALS = 200 };

static unsigned long table[ROUNDS + 8];
static unsigned long handled[8];
static volatile long signals;

extern char first[], half[], quarter[], faulting[], last[];
void walk(unsigned long rounds, unsigned long *table, unsigned long *bad);
__asm__("walk:     push %rbx\n"
        "          mov %rsi, %rbx\n"
        "1:\n"
        "first:    mov (%rsi), %rax\n"
        "          add %rax, 8(%rsi)\n"
        "          test $1, %dil\n"
        "          jz 2f\n"
        "half:     mov %rax, 16(%rsi)\n"
        "          test $2, %dil\n"
        "          jz 2f\n"
        "quarter:  push %rax\n"
        "          pop %rax\n"
        "2:        mov %rbx, %r8\n"
        "          test $63, %edi\n"
        "          cmovz %rdx, %r8\n"
        "faulting: mov 24(%r8), %rax\n"
        "last:     mov %rax, 32(%rsi, %rdi, 8)\n"
        "          dec %rdi\n"
        "          jnz 1b\n"
        "          pop %rbx\n"
        "          ret\n");

static void interrupted(int signal) {
    signals++;
    for (int i = 0; i < 8; i++)
        handled[i] += signal + i;
}

static void faulted(int signal, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    registers[REG_R8] = registers[REG_RBX];
}

int main(void) {
    stack_t stack = { .ss_sp = malloc(1 << 16), .ss_size = 1 << 16 };
    sigaltstack(&stack, 0);
    struct sigaction action = { .sa_handler = interrupted, .sa_flags = SA_ONSTACK | SA_RESTART };
    sigaction(SIGUSR1, &action, 0);
    action.sa_sigaction = faulted;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, 0);
    pid_t parent = getpid(), child = fork();
    if (child == 0)
        while (getppid() == parent && kill(parent, SIGUSR1) == 0)
            usleep(150);
    long calls = 0;
    for (; signals < SIGNALS; calls++)
        walk(ROUNDS, table, (unsigned long *)4096);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
    printf("%lx %lx %lx %lx %lx %lx %ld\n", (long)first, (long)half, (long)quarter, (long)faulting, (long)last,
           (long)table, calls);
    return 0;
}
