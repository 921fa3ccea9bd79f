// Accesses of memory of every kind that is recorded: their addresses follow from the code, since its stack is its own.
.intel_syntax noprefix
.globl _start
.section .text
_start:
    lea rsp, [stack + 4096]
    mov eax, 218                // set_tid_address: a system call
    lea rdi, [value]
    syscall
    mov ecx, 1000
    lea rdi, [table]
    xor ebx, ebx
again:
    mov rax, [rdi + rbx*8]
    add [rdi + rbx*8 + 8], rax
    mov [rsp - 8], rax
    inc rbx
    and ebx, 63
    call leaf
    loop again
    // Branches that are taken and not, in the middle of what is recorded.
    mov ecx, 400
    lea rdi, [table]
branches:
    mov rax, [rdi + 8]
    test cl, 1
    jz even
    mov [rdi + rcx], rax
    test cl, 2
    jz even
    push rax
    add [rsp], rcx
    test cl, 4
    jnz odd
    pop rdx
    jmp even
odd:
    pop rdi
    lea rdi, [table]
even:
    add [rdi + rcx*2], cl
    dec ecx
    jnz branches
    // Every register is named in one block.
    mov rax, [value]
    mov rdx, [value]
    mov rsi, [value]
    mov rbp, [value]
    mov r8, [value]
    mov r9, [value]
    mov r10, [value]
    mov r11, [value]
    mov r12, [value]
    mov r13, [value]
    mov r14, [value]
    mov r15, [value]
    mov rbx, [value]
    mov rcx, [value]
    lea rax, [table]
    mov [rax], r15
    mov [rax + 8], r14b
    push [rax]
    pop [rax + 16]
    push 7
    pushfq
    popfq
    pop rcx
    xchg [rax], rcx
    lock xadd [rax + 24], ecx
    cmpxchg [rax + 32], rdx
    lea rax, [table]
    movdqu xmm0, [rax]
    movaps [rax + 64], xmm0
    cmovz rcx, [rax + 8]
    setz [rax + 9]
    movzx ecx, word ptr [rax + 2]
    // Strings, forwards, backwards and not at all.
    lea rsi, [table]
    lea rdi, [copy]
    mov ecx, 100
    rep movsb
    mov ecx, 5
    rep stosq
    std
    mov ecx, 3
    rep movsd
    cld
    xor ecx, ecx
    rep movsb
    movsq
    stosb
    lodsd
    mov al, 255
    mov ecx, 50
    lea rdi, [copy]
    repne scasb
    // An indirect call through memory, a jump through memory, a frame.
    lea rax, [leaf]
    mov [value], rax
    call [value]
    lea rax, [last]
    mov [value], rax
    jmp [value]
leaf:
    push rbp
    mov rbp, rsp
    sub rsp, 16
    mov [rsp], rax
    mov [rbp - 8], rax
    add rax, [rsp]
    leave
    ret
last:
    mov eax, 1                  // write
    mov edi, 1
    lea rsi, [text]
    mov edx, 5
    syscall
    mov eax, 231                // exit_group
    mov edi, 7
    syscall
.section .data
text: .ascii "done\n"
.balign 64
value: .quad 11
.balign 64
table: .fill 128, 8, 5
copy: .fill 256, 8, 0
more: .fill 256, 8, 0
.section .bss
.balign 64
stack: .skip 4096
