//! Instructions that may be in a function, and those that may not.

use super::frame::assembled;

#[test]
fn what_changes_how_the_processor_works_is_refused_by_name() {
    let changes = "changes how the processor works";
    let saves = "what the kernel does not save";
    let leaves = "enters or leaves the kernel";
    for (instruction, name, why) in [
        ("wrgsbase %rdi", "wrgsbase", changes),
        ("wrfsbase %rdi", "wrfsbase", changes),
        ("lgs (%rdi), %eax", "lgs", changes),
        ("lfs (%rdi), %eax", "lfs", changes),
        ("lss (%rdi), %eax", "lss", changes),
        ("mov %edi, %ds", "mov", changes),
        ("mov %edi, %ss", "mov", changes),
        ("pop %fs", "pop", changes),
        ("pop %gs", "pop", changes),
        ("push %rdi; popfq", "popfq", changes),
        ("pushw %di; popfw", "popf", changes),
        ("std", "std", changes),
        ("cld", "cld", changes),
        ("enter $16, $0; leave", "enter", changes),
        ("sti", "sti", changes),
        ("cli", "cli", changes),
        ("hlt", "hlt", changes),
        ("in %dx, %al", "in", changes),
        ("out %al, %dx", "out", changes),
        ("swapgs", "swapgs", changes),
        ("stac", "stac", changes),
        ("clac", "clac", changes),
        ("wrmsr", "wrmsr", changes),
        ("xsetbv", "xsetbv", changes),
        ("mov %rdi, %cr4", "mov", changes),
        ("mov %rdi, %dr7", "mov", changes),
        ("lidt (%rdi)", "lidt", changes),
        ("invlpg (%rdi)", "invlpg", changes),
        ("wrpkru", "wrpkru", changes),
        ("ldmxcsr (%rdi)", "ldmxcsr", changes),
        ("monitor", "monitor", changes),
        ("mwait", "mwait", changes),
        ("umonitor %rdi", "umonitor", changes),
        ("umwait %edi", "umwait", changes),
        ("tpause %edi", "tpause", changes),
        ("fldcw (%rdi)", "fldcw", saves),
        ("emms", "emms", saves),
        ("vzeroupper", "vzeroupper", saves),
        ("fxrstor (%rdi)", "fxrstor", saves),
        ("xrstor (%rdi)", "xrstor", saves),
        ("clzero", "clzero", saves),
        ("vmcall", "vmcall", leaves),
        ("rdgsbase %rax", "rdgsbase", saves),
        ("incsspq %rdi", "incsspq", saves),
        ("syscall", "syscall", leaves),
        ("sysenter", "sysenter", leaves),
        ("sysretq", "sysret", leaves),
        ("iretq", "iretq", leaves),
        ("lretq", "retf", leaves),
        ("ret $8", "ret", leaves),
        ("int $0x80", "int", leaves),
        (".byte 0xf1", "int1", leaves),
        ("nop; int3", "int3", leaves),
        ("xbegin 1f; 1:", "xbegin", leaves),
        ("xabort $1", "xabort", saves),
        ("xend", "xend", ""),
        (".byte 0xce", "invalid", "is not an instruction"),
        ("ud2", "ud2", "stops the kernel"),
    ] {
        let body = format!("{instruction}; ret");
        let refused = assembled(&body).map(|_| instruction).unwrap_err();
        let by_name = refused.contains(&format!("({name}")) && refused.contains(why);
        assert!(by_name, "{instruction}\n{refused}");
    }
}

#[test]
fn what_computes_is_let_through() {
    for plain in [
        "rdpkru",
        "pause",
        "lfence",
        "mfence",
        "sfence",
        "prefetcht0 (%rdi)",
        "movnti %rdi, (%rsi)",
        "crc32q %rdi, %rax",
        "popcnt %rdi, %rax",
        "lzcnt %rdi, %rax",
        "tzcnt %rdi, %rax",
        "shlx %rdi, %rsi, %rax",
        "mulx %rdi, %rsi, %rax",
        "adcx %rdi, %rax",
        "cmovne %rdi, %rax",
        "lock cmpxchg16b (%r8)",
        "rdtsc",
        "rdtscp",
        "bswap %rax",
        "nopl 8(%rax)",
        "endbr64",
        "addq %rsi, %gs:(%rdi)",
    ] {
        // It reads and writes rbx too, and so does a transfer of 16 bytes.
        let body = format!("push %rbx; {plain}; pop %rbx; ret");
        assembled(&body)
            .map_err(|why| format!("{plain}: {why}"))
            .unwrap();
    }
}
