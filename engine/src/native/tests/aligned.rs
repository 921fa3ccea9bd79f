//! Stacks that a function aligns.

use super::frame::{assembled, refused_by_both};
use super::*;

#[test]
fn what_compilers_align_is_followed() {
    let line = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");
        gilk_word leaf(gilk_word);
        static __attribute__((noinline)) void fill(gilk_word *to, gilk_word with) { *to = with; }";
    for source in [
        "gilk_word one(gilk_word it) {
            volatile gilk_word x[4] __attribute__((aligned(32)));
            x[it & 3] = it; return x[0] + x[1];
        }",
        "gilk_word one(gilk_word it) {
            gilk_word x[8] __attribute__((aligned(64)));
            for (int i = 0; i < 8; i++) x[i] = leaf(it + i);
            fill(x, it);
            for (int i = 7; i > 0; i--) x[i - 1] += leaf(x[i]);
            return x[it & 7] + it;
        }",
        "gilk_word one(gilk_word it) {
            struct { gilk_word a; char c[40]; } x __attribute__((aligned(128))), *p = &x;
            char c[24]; for (int i = 0; i < 24; i++) c[i] = leaf(i);
            x.a = it; fill(&p->a, c[it % 24]); x.c[it % 40] = 1;
            return x.a + x.c[leaf(it) % 40];
        }",
    ] {
        let code = loaded(&format!("{line}\n{source}")).unwrap();
        let text = &code.bytes[..code.text as usize];
        let decoded = iced_x86::Decoder::with_ip(64, text, AT.0, 0);
        let aligns = decoded.into_iter().any(|one| {
            one.mnemonic() == iced_x86::Mnemonic::And
                && one.op0_register() == iced_x86::Register::RSP
        });
        assert!(aligns, "{source}");
    }
    let rust = super::rust::loaded(
        "one(arg0) samples things: One.",
        "#[repr(align(64))] struct Line([u64; 8]);
        unsafe extern \"C\" { safe fn leaf(it: u64) -> u64; }
        #[unsafe(no_mangle)]
        pub extern \"C\" fn one(it: u64) -> u64 {
            let mut line = Line([0; 8]);
            for (number, one) in line.0.iter_mut().enumerate() { *one = leaf(it ^ number as u64); }
            let line = core::hint::black_box(&mut line);
            line.0.get((it & 7) as usize).copied().unwrap_or(0)
        }",
    );
    rust.unwrap();
}

#[test]
fn an_aligned_stack_is_bounded_and_given_back() {
    const ENTER: &str = "push %rbp; mov %rsp, %rbp; push %rbx; mov %rdi, %rbx";
    const LEAVE: &str = "lea -8(%rbp), %rsp; pop %rbx; pop %rbp; ret";
    let within = |body: &str| assembled(&format!("{ENTER}; {body}; {LEAVE}"));
    for fits in [
        "and $-32, %rsp; sub $32, %rsp; mov %rdi, (%rsp); mov %rdi, 24(%rsp)",
        "and $-32, %rsp; push %rdi; push %rsi; pop %rdx; call leaf",
        "sub $64, %rsp; and $-64, %rsp; movb $1, 63(%rsp)",
        "sub $64, %rsp; lea 31(%rsp), %rax; and $-32, %rax; mov %rdi, 24(%rax)",
        "and $-32, %rsp; sub $64, %rsp; mov %rdi, (%rsp,%rsi,8); mov %rdi, -72(%rbp)",
        // 1,000 and 15 are within what is allowed.
        "sub $984, %rsp; and $-16, %rsp",
    ] {
        within(fits)
            .map_err(|why| format!("{fits}: {why}"))
            .unwrap();
    }
    for (wrong, why) in [
        // It may have been aligned already.
        ("and $-32, %rsp; mov %rsi, (%rsp)", "RBX"),
        ("and $-32, %rsp; sub $32, %rsp; mov %rsi, 25(%rsp)", "RBX"),
        (
            "and $-32, %rsp; sub $32, %rsp; mov %rsi, 48(%rsp)",
            "writes over",
        ),
        (
            "sub $56, %rsp; lea 31(%rsp), %rax; and $-32, %rax; mov %rdi, 32(%rax)",
            "RBX",
        ),
        ("and $-32, %rsp; mov %rsi, -8(%rsp)", "-mno-red-zone"),
        ("and $-32, %rsp; mov %rsi, -24(%rbp)", "-mno-red-zone"),
        ("and $-1024, %rsp", "takes 1039 bytes of the stack"),
        ("sub $1000, %rsp; and $-16, %rsp", "takes 1031 bytes"),
        ("and $32, %rsp", "changes the stack pointer"),
        ("and %rdi, %rsp", "changes the stack pointer"),
        ("and $-32, %esp", "changes the stack pointer"),
        (
            "test %rdi, %rdi; je 1f; and $-32, %rsp; 1: nop",
            "by different ways",
        ),
    ] {
        let refused = within(wrong).map(|_| wrong).unwrap_err();
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
    for (wrong, why) in [
        ("and $-32, %rsp; ret", "where it was aligned to"),
        ("and $-32, %rsp; jmp leaf", "where it was aligned to"),
        (
            "push %rbx; and $-32, %rsp; pop %rbx; ret",
            "where it was aligned to",
        ),
        (
            "push %rbx; and $-32, %rsp; pop %rbx; pop %rbx; ret",
            "takes more",
        ),
        // What it pushes there is not followed.
        (
            "push %rbp; mov %rsp, %rbp; and $-32, %rsp; push %rbx; xor %ebx, %ebx; pop %rbx; leave; ret",
            "RBX",
        ),
    ] {
        let refused = refused_by_both(wrong);
        assert!(refused.contains(why), "{wrong}\n{refused}");
    }
}
