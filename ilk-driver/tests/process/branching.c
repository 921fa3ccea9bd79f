/* A conditional branch whose two ways are taken a known number of times: by threads under a timer's signals, whose
 * handler takes one of them, too, and at the ends of stacks. */
#define function branching
#define FUNCTION_OF_2 -3ul
/* Microseconds between two signals. */
#define INTERVAL 300
#include "ways.h"

/* The flags of the comparison are read on both ways. */
__asm__(".globl branching\n.type branching, @function\n"
	"branching: cmp $3, %rdi\n jb 1f\n setz %al\n movzbl %al, %eax\n add %rdi, %rax\n ret\n"
	"1: sbb %rax, %rax\n sub %rdi, %rax\n ret\n.size branching, .-branching\n");

__asm__(".globl deeper\n.type deeper, @function\n"
	"deeper: incq depth(%rip)\n test %rdi, %rdi\n jz 1f\n call deeper\n inc %rax\n ret\n"
	"1: xor %eax, %eax\n ret\n.size deeper, .-deeper\n");
