//! Stores to the stack: by numbers, by an index, and by an address from elsewhere.

use super::frame::{assembled, refused_by_both};
use super::*;

#[test]
fn a_place_that_instructions_tell_is_known_however_it_is_made() {
    for (wrong, why) in [
        // The register that was saved, by another register than rsp.
        (
            "push %rbx; mov $1, %ebx; lea -8(%rsp), %rax; add $8, %rax; mov %rdi, (%rax); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; lea 16(%rsp), %rax; sub $16, %rax; mov %rdi, (%rax); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; mov %rsp, %rax; xchg %rax, %rcx; mov %rdi, (%rcx); pop %rbx; ret",
            "RBX",
        ),
        (
            "push %rbx; mov $1, %ebx; bts $3, (%rsp); pop %rbx; ret",
            "RBX",
        ),
        // A loop from there on.
        (
            "push %rbx; push %r12; mov %rsp, %rax; lea 1024(%rsp), %rdx; 1: movb $0, (%rax); inc %rax; cmp %rdx, %rax; jne 1b; pop %r12; pop %rbx; ret",
            "R12",
        ),
        // What has its value from elsewhere is no saved register.
        ("push %rbx; mov %gs:(%rsp), %rbx; add $8, %rsp; ret", "RBX"),
        ("push %rbx; mov 1(%rsp), %rbx; add $8, %rsp; ret", "RBX"),
        ("push %rbx; mov (%esp), %rbx; add $8, %rsp; ret", "RBX"),
        (
            "sub $8, %rsp; mov %ebx, (%rsp); mov $1, %ebx; mov (%rsp), %rbx; add $8, %rsp; ret",
            "RBX",
        ),
        (
            "sub $8, %rsp; mov %rbx, %gs:(%rsp); mov $1, %ebx; mov (%rsp), %rbx; add $8, %rsp; ret",
            "RBX",
        ),
        // Where it returns to.
        ("lea (%rsp), %rax; mov %rdi, (%rax); ret", "writes over"),
        (
            "mov %rsp, %rax; sub $8, %rax; mov %rdi, 8(%rax); ret",
            "writes over",
        ),
        ("mov %rsp, %rcx; xadd %rdi, (%rcx); ret", "writes over"),
        ("mov %rsp, %rcx; xchg %rdi, (%rcx); ret", "writes over"),
        ("mov %rsp, %r8; lock cmpxchg16b -8(%r8); ret", "writes over"),
        ("mov %rsp, %rcx; sete 7(%rcx); ret", "writes over"),
        ("mov %rsp, %rcx; incb (%rcx); ret", "writes over"),
        // Of a register of 32 bits nothing is an address.
        (
            "push %rbx; mov %esp, %ebx; mov %rbx, %rsp; pop %rbx; ret",
            "changes the stack pointer",
        ),
        ("mov %rbx, %rax; mov %edi, %ebx; mov %eax, %ebx; ret", "RBX"),
        ("mov %rbx, %rax; mov %ax, %bx; ret", "RBX"),
        ("mov %rbx, %rax; xadd %rax, %rbx; ret", "RBX"),
        ("bswap %rbx; ret", "RBX"),
        ("cpuid; ret", "RBX"),
        ("xchg %ebx, %eax; ret", "RBX"),
        ("xor %ebp, %ebp; ret", "RBP"),
        ("cmpxchg %rdi, %r12; ret", "R12"),
        ("sete %r13b; ret", "R13"),
        ("mulx %rdi, %r14, %rax; ret", "R14"),
        (
            "popq 8(%rdi); pushq 8(%rdi); ret",
            "changes the stack pointer",
        ),
        (
            "push %rbx; .byte 0x66, 0xc9; ret",
            "changes the stack pointer",
        ),
        ("push %rsp; pop %rsp; ret", "changes the stack pointer"),
    ] {
        let refused = refused_by_both(wrong);
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
    for fits in [
        "mov %rbx, %rax; mov %rdi, %rbx; xchg %rax, %rbx; ret",
        "push %rbx; mov %rsp, %rax; mov %rdi, %rbx; lea 8(%rax), %rax; mov -8(%rax), %rbx; mov %rax, %rsp; ret",
        "push %rdi; mov %rsp, %rax; btcq $3, (%rax); lock incq (%rax); pop %rax; ret",
        "pushq (%rdi); pop %rax; ret",
        "push %rbx; mov %rdi, %rbx; sub $16, %rsp; mov %rsp, %rax; bts %rdi, (%rax); add $16, %rsp; pop %rbx; ret",
        // A bit's number is an index: down from the end of what it is in.
        "push %rbx; mov %rdi, %rbx; sub $16, %rsp; lea 16(%rsp), %rax; bts %rdi, (%rax); add $16, %rsp; pop %rbx; ret",
        "cmp %rsi, %rdi; cmove %rbx, %rbx; ret",
        "mov %rdi, (%rsi); mov %rdi, %gs:(%rsi,%rdx); ret",
    ] {
        assembled(fits)
            .map_err(|why| format!("{fits}: {why}"))
            .unwrap();
    }
}

#[test]
fn an_index_is_refused_if_every_possible_target_is_outside_the_frame() {
    for wrong in [
        // A number in a register.
        "push %rbx; mov $1, %ebx; sub $64, %rsp; mov $8, %eax; mov %rdi, (%rsp,%rax,8); add $64, %rsp; pop %rbx; ret",
        "push %rbx; mov $1, %ebx; sub $64, %rsp; mov $64, %eax; add %rsp, %rax; mov %rdi, (%rax); add $64, %rsp; pop %rbx; ret",
        "push %rbx; mov $1, %ebx; mov $-64, %rax; movb $1, 64(%rsp,%rax); pop %rbx; ret",
        "push %rbx; mov $1, %ebx; mov %rsp, %rax; inc %rax; mov %dil, (%rax); pop %rbx; ret",
        "xor %eax, %eax; mov %rdi, (%rsp,%rax,2); ret",
        // Numbers that are not below 0, from where the register was saved on.
        "push %rbx; movzbl %dil, %eax; mov %rdi, (%rsp,%rax,8); pop %rbx; ret",
        "push %r12; push %rbx; mov %edi, %eax; mov %rdi, (%rsp,%rax,8); pop %rbx; pop %r12; ret",
        "push %rbx; and $63, %edi; lea (%rsp,%rdi), %rax; movb $1, (%rax); pop %rbx; ret",
        "push %rbx; shr $32, %rdi; movb $1, 3(%rsp,%rdi); pop %rbx; ret",
        "push %rax; mov %edi, %edi; movb $1, 8(%rsp,%rdi); pop %rax; ret",
        // One or the other, of two that are saved.
        "push %rbx; push %r12; mov %rsp, %rax; lea 8(%rsp), %rcx; test %rdi, %rdi; cmove %rcx, %rax; movq $0, (%rax); pop %r12; pop %rbx; ret",
    ] {
        let refused = assembled(wrong).map(|_| wrong).unwrap_err();
        let why = "writes over what its caller has on the stack, or what it has saved";
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
    let below = "mov $-8, %rax; mov %rdi, (%rsp,%rax); ret";
    let refused = assembled(below).unwrap_err();
    assert!(refused.contains("-mno-red-zone"), "{refused}");
    for fits in [
        "push %rbx; sub $64, %rsp; mov %rdi, (%rsp,%rsi,8); add $64, %rsp; pop %rbx; ret",
        "push %rbx; sub $64, %rsp; mov $7, %eax; mov %rdi, (%rsp,%rax,8); add $64, %rsp; pop %rbx; ret",
        "push %rbx; sub $64, %rsp; movzbl %dil, %eax; mov %rdi, (%rsp,%rax,8); add $64, %rsp; pop %rbx; ret",
        // From the end of the array, which is where the register was saved, down.
        "push %rbx; sub $64, %rsp; mov $-64, %rax; 1: movb $0, 64(%rsp,%rax); inc %rax; jne 1b; add $64, %rsp; pop %rbx; ret",
        "push %rbx; sub $64, %rsp; lea 64(%rsp), %rax; 1: dec %rax; movb $0, (%rax); cmp %rsp, %rax; jne 1b; add $64, %rsp; pop %rbx; ret",
        "push %rbx; sub $64, %rsp; lea 64(%rsp), %rax; neg %rdi; movb $0, (%rax,%rdi); add $64, %rsp; pop %rbx; ret",
        // Between two that are saved there is room.
        "push %rbx; push %rax; push %r12; mov %edi, %eax; movb $0, (%rsp,%rax); pop %r12; pop %rax; pop %rbx; ret",
    ] {
        assembled(fits)
            .map_err(|why| format!("{fits}: {why}"))
            .unwrap();
    }
}

/// Arrays, structures, loops and pointers on the stack, beside registers that are saved.
const LOCALS: &str = "
    struct pair { gilk_word a, b; unsigned short c[6]; };
    static __attribute__((noinline)) void swap(struct pair *it, gilk_word **p) {
        gilk_word a = it->a; it->a = it->b; it->b = a; ++*p;
    }
    gilk_word leaf(gilk_word);
    gilk_word one(gilk_word it) {
        unsigned table[16];
        struct pair pair = { it, it + 1, { 0 } };
        gilk_word room[9], *p = room, sum = 0;
        for (int i = 0; i < 16; i++) table[i] = 0;
        for (int i = 0; i < 100; i++) table[leaf(it + i) % 10]++;
        for (gilk_word *q = room + 9; q != room;) *--q = leaf(it);
        for (int i = 1; i < 9; i++)
            for (int j = i; j > 0 && room[j - 1] > room[j]; j--) {
                gilk_word other = room[j]; room[j] = room[j - 1]; room[j - 1] = other;
            }
        swap(&pair, &p); *p = it; pair.c[it % 6] = 3; room[(int)pair.a & 7] = 1;
        gilk_word *either = it & 4 ? &pair.a : &pair.b; *either += leaf(it);
        for (gilk_word i = 0; i < it % sizeof pair; i++) ((volatile char *)&pair)[i] = 7;
        for (int i = 0; i < 16; i++) sum += table[i] * i;
        return sum + pair.a * pair.c[2] + room[it % 9];
    }";

#[test]
fn arrays_and_structures_of_c_are_ordinary() {
    let line = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");";
    // GCC fills large arrays by a string instruction, unless a flag forbids it.
    let flagged = |source: &str| {
        let source = format!("{line}\n{source}");
        if let Ok(code) = loaded(&source) {
            return Ok(code);
        }
        let object = compiled_with(&source, &["-mstringop-strategy=loop"]);
        linked(&kernel(), &object, &|_| false)
    };
    flagged(LOCALS).unwrap();
    // An array that is filled in line, through a pointer to it.
    let fills = "gilk_word leaf(gilk_word); gilk_word one(gilk_word it) {
        char room[40]; __builtin_memset(room, (int)it, leaf(it) % 40);
        return room[it % 40];
    }";
    flagged(fills).unwrap();
}

#[test]
fn code_and_constants_are_not_written() {
    let line = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");";
    let named = "__attribute__((used)) static const gilk_word table[4] = { 1, 2, 3, 4 };";
    for writes in [
        "gilk_word one(gilk_word it) { *(volatile gilk_word *)&table[1] = it; return it; }",
        "gilk_word one(gilk_word it) { __asm__ volatile(\"lock incq table(%rip)\"); return it; }",
        "gilk_word one(gilk_word it) { __asm__ volatile(\"movb $1, one\"); return it; }",
    ] {
        let refused = loaded(&format!("{line}\n{named}\n{writes}"));
        let refused = refused.map(|_| writes).unwrap_err();
        assert!(
            refused.contains("writes to code or to a constant"),
            "{writes}\n{refused}"
        );
    }
    loaded(&format!(
        "{line}\n{named}\ngilk_word one(gilk_word it) {{ return *(volatile gilk_word *)&table[1] + table[it % 4]; }}"
    ))
    .unwrap();
}

#[test]
fn arrays_and_structures_of_rust_are_ordinary() {
    let code = super::rust::loaded(
        "one(arg0) samples things: One.",
        "#[repr(C)] struct Pair { a: u64, b: u64, c: [u16; 6] }
        unsafe extern \"C\" { safe fn leaf(it: u64) -> u64; }
        #[inline(never)]
        fn swap(it: &mut Pair) { core::mem::swap(&mut it.a, &mut it.b); }
        #[unsafe(no_mangle)]
        pub extern \"C\" fn one(it: u64) -> u64 {
            let mut table = [0_u32; 16];
            let mut pair = Pair { a: it, b: it ^ 1, c: [0; 6] };
            for i in 0..100 {
                let at = (leaf(it.wrapping_add(i)) % 10) as usize;
                if let Some(one) = table.get_mut(at) { *one = one.wrapping_add(1); }
            }
            for one in table.iter_mut().rev() { *one ^= leaf(u64::from(*one)) as u32; }
            swap(&mut pair);
            if let Some(one) = pair.c.get_mut((it % 6) as usize) { *one = 3; }
            let mut sum = pair.a.wrapping_add(u64::from(pair.c[2]));
            for (number, one) in table.iter().enumerate() {
                sum = sum.wrapping_add(u64::from(*one).wrapping_mul(number as u64));
            }
            sum
        }",
    );
    assert!(code.unwrap().entry("one").is_some());
}
