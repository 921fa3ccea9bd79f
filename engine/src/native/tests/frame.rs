//! The stack and the callee-saved registers of native functions.

use super::*;

/// The only instrument of a file, of these instructions.
pub(super) fn assembled(instructions: &str) -> Result<NativeCode, String> {
    beside(instructions, "")
}

/// Returns the reason why a function is refused, by the planner and by the verifier.
pub(super) fn refused_by_both(instructions: &str) -> String {
    let refused = assembled(instructions).map(|_| instructions).unwrap_err();
    verified(&source(instructions, ""))
        .map(|()| instructions)
        .unwrap_err();
    refused
}

/// Beside another function.
fn beside(instructions: &str, other: &str) -> Result<NativeCode, String> {
    loaded(&source(instructions, other))
}

fn source(instructions: &str, other: &str) -> String {
    format!(
        "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");\n{}\n{other}",
        function("one", instructions),
    )
}

fn function(name: &str, instructions: &str) -> String {
    let instructions = instructions.replace(';', "\\n");
    format!(
        "__asm__(\".text\\n.globl {name}\\n.type {name}, @function\\n{name}: {instructions}\\n\");"
    )
}

#[test]
fn what_callers_count_on_has_its_value_again() {
    for fits in [
        "ret",
        "push %rbx; xor %ebx, %ebx; pop %rbx; ret",
        "push %rbp; mov %rsp, %rbp; push %r12; sub $24, %rsp; mov $1, %r12d; mov %rdi, -24(%rbp); mov -8(%rbp), %r12; leave; ret",
        "push %rbp; mov %rsp, %rbp; push %rbx; push %r15; mov $7, %bl; xor %r15, %r15; lea -16(%rbp), %rsp; pop %r15; pop %rbx; pop %rbp; ret",
        "sub $16, %rsp; mov %rbx, 8(%rsp); mov %rdi, %rbx; mov %rbx, (%rsp); mov 8(%rsp), %rbx; add $16, %rsp; ret",
        "add $-128, %rsp; mov %rdi, (%rsp); sub $-128, %rsp; ret",
        "lea -32(%rsp), %rsp; lea 32(%rsp), %rsp; ret",
        "mov %r14, %rax; mov %rdi, %r14; mov %rax, %r14; ret",
        "push $5; pushfq; pop %rax; pop %rdx; ret",
        "test %rdi, %rdi; je 1f; push %rbx; mov $0, %ebx; pop %rbx; 1: ret",
        "1: dec %rdi; jne 1b; ret",
        "push %rbx; mov %rdi, %rbx; sub $8, %rsp; call leaf; add $8, %rsp; pop %rbx; ret",
        "jmp leaf",
    ] {
        assembled(fits)
            .map_err(|why| format!("{fits}: {why}"))
            .unwrap();
    }
    for (wrong, why) in [
        ("xor %ebx, %ebx; ret", "one+0x2 returns where RBX"),
        ("mov $1, %bpl; ret", "RBP"),
        ("movzbl %dil, %r12d; ret", "R12"),
        ("cmp %rsi, %rdi; cmove %rsi, %r13; ret", "R13"),
        ("xchg %rdi, %r14; ret", "R14"),
        ("push %rbx; push %rax; pop %rbx; pop %rax; ret", "RBX"),
        (
            "push %rbx; mov $1, %ebx; movb $1, 3(%rsp); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; lock incl (%rsp); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; .byte 0x26; movb $1, 3(%rsp); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; add $8, %rsp; sub $8, %rsp; pop %rbx; ret",
            "RBX",
        ),
        ("test %rdi, %rdi; je 1f; mov $0, %r15; 1: ret", "R15"),
        // What is called may change it.
        (
            "mov %rbx, %rcx; mov $1, %ebx; call leaf; mov %rcx, %rbx; ret",
            "RBX",
        ),
        ("xor %ebx, %ebx; jmp leaf", "RBX"),
        ("push %rax; ret", "8 bytes left"),
        ("push %rax; jmp leaf", "8 bytes left"),
        ("pop %rax; push %rax; ret", "takes more from the stack"),
        ("leave; ret", "changes the stack pointer"),
        (
            "test %rdi, %rdi; je 1f; push %rax; 1: ret",
            "by different ways",
        ),
        ("1: push %rax; jmp 1b", "by different ways"),
        ("mov %rdi, %rsp; ret", "changes the stack pointer"),
        (
            "sub %rdi, %rsp; add %rdi, %rsp; ret",
            "changes the stack pointer",
        ),
        ("and $-16, %rsp; ret", "where it was aligned to"),
        ("xchg %rsp, %rax; ret", "changes the stack pointer"),
        (
            "mov %rsp, %rcx; 1: loop 1b; mov %rcx, %rsp; ret",
            "changes the stack pointer",
        ),
        ("push %ax; pop %ax; ret", "changes the stack pointer"),
        ("mov %rdi, (%rsp); ret", "writes over"),
        ("mov %rsp, %rax; mov %rdi, 8(%rax); ret", "writes over"),
    ] {
        let refused = refused_by_both(wrong);
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
    for (wrong, why) in [
        ("mov %rdi, -8(%rsp); ret", "-mno-red-zone"),
        (
            "jmp 1f; .byte 0xb8; 1: .byte 0x90, 0x90, 0x90, 0x90; ret",
            "no instruction begins there",
        ),
    ] {
        let refused = assembled(wrong).map(|_| wrong).unwrap_err();
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
}

#[test]
fn a_clobber_that_the_compiler_does_not_know_is_found_in_a_function_of_c() {
    let source = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");
        gilk_word one(gilk_word it) { __asm__ volatile(\"xor %%ebx, %%ebx\" : : : REST); return it; }";
    let refused = loaded(&source.replace(": REST", "")).unwrap_err();
    assert!(refused.contains("RBX"), "{refused}");
    loaded(&source.replace("REST", "\"rbx\"")).unwrap();
}

#[test]
fn the_stack_is_counted_however_it_is_taken() {
    for takes in [
        "sub $1032, %rsp; add $1032, %rsp; ret",
        "add $-1032, %rsp; sub $-1032, %rsp; ret",
        "lea -1032(%rsp), %rsp; lea 1032(%rsp), %rsp; ret",
        "push %rbp; mov %rsp, %rbp; lea -1024(%rbp), %rsp; leave; ret",
        "sub $516, %rsp; call two; add $516, %rsp; ret",
    ] {
        let two = function("two", "sub $504, %rsp; add $504, %rsp; ret");
        let refused = beside(takes, &two).map(|_| takes).unwrap_err();
        assert!(
            refused.contains("bytes of the stack, and 1024"),
            "{takes}\n{refused}"
        );
    }
    // Twice the same bytes are the same bytes.
    let twice = "sub $600, %rsp; add $600, %rsp; sub $600, %rsp; add $600, %rsp; ret";
    assembled(twice).unwrap();
    let two = function("two", "sub $504, %rsp; add $504, %rsp; ret");
    beside("sub $512, %rsp; call two; add $512, %rsp; ret", &two).unwrap();
}

#[test]
fn a_loop_at_the_start_is_no_call_of_itself() {
    assembled("1: dec %rdi; jne 1b; ret").unwrap();
    beside("dec %rdi; jne one; ret", "").unwrap();
    let two = function("two", "sub $8, %rsp; call one; add $8, %rsp; ret");
    for calls in ["call one; ret", "call two; ret", "jmp two"] {
        let refused = beside(calls, &two).map(|_| calls).unwrap_err();
        assert!(refused.contains("may call itself"), "{calls}\n{refused}");
    }
}
