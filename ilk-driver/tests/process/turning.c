/* Branches that change rcx, and blocks that end without a branch, executed a known number of times: by threads under a
 * timer's signals, whose handler executes them, too, and at the ends of stacks. */
#define function turning
#define FUNCTION_OF_2 16
/* Microseconds between two signals. */
#define INTERVAL 600
#include "ways.h"

/* jrcxz, loop, and a block that ends without a branch: the flags of its last instruction are read after it. */
__asm__(".globl turning\n.type turning, @function\n"
	"turning: mov %rdi, %rcx\n xor %eax, %eax\n jrcxz 2f\n"
	"1: add $7, %rax\n loop 1b\n"
	"inc %rax\n cmp $3, %rdi\n"
	"2: setb %dl\n movzbl %dl, %edx\n add %rdx, %rax\n ret\n.size turning, .-turning\n");

/* Its first block ends without a branch. */
__asm__(".globl deeper\n.type deeper, @function\n"
	"deeper: incq depth(%rip)\n"
	"2: test %rdi, %rdi\n jz 1f\n call deeper\n inc %rax\n ret\n"
	"1: inc %rdi\n jmp 2b\n.size deeper, .-deeper\n");
