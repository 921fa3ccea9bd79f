//! Sections and references that cannot be linked, and functions of the kernel that may not be called.

use iced_x86::code_asm::registers::eax;

use super::*;
use crate::kernel::fixture::{FTRACE_NOP, TEXT};

/// Links an object whose bytes are changed first: the `alignment` of a section, or an offset of its relocation.
fn patched(source: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<NativeCode, String> {
    let mut bytes = compiled(&format!(
        "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");\n{source}"
    ));
    change(&mut bytes);
    linked(&kernel(), &bytes, &|_| false)
}

fn word(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

/// The headers of an object's sections of one type (System V gABI, 4): offsets into the file.
fn headers(bytes: &[u8], kind: u8) -> Vec<usize> {
    let start = word(bytes, 0x28);
    let count = usize::from(bytes[0x3c]);
    let all = (0..count).map(|number| start + number * 64);
    all.filter(|&at| bytes[at + 4] == kind).collect()
}

const CALLS: &str =
    "gilk_word above(gilk_word); gilk_word one(gilk_word it) { return above(it) + 1; }";

#[test]
fn what_lies_nowhere_is_refused_and_nothing_aborts() {
    for align in [4096, 1 << 40, 1 << 63] {
        let refused = patched(CALLS, |bytes| {
            // Sections with bits of the program.
            for at in headers(bytes, 1) {
                bytes[at + 48..at + 56].copy_from_slice(&u64::to_le_bytes(align));
            }
        });
        let refused = refused.unwrap_err();
        assert!(
            refused.contains(".text") && refused.contains(&align.to_string()),
            "{refused}"
        );
    }
    for offset in [u64::MAX, u64::MAX - 3, u64::MAX / 2, 1 << 20] {
        let refused = patched(CALLS, |bytes| {
            // Relocations with addends.
            for at in headers(bytes, 4) {
                let first = word(bytes, at + 24);
                bytes[first..first + 8].copy_from_slice(&offset.to_le_bytes());
            }
        });
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("its reference to"),
            "{offset:#x}: {refused}"
        );
    }
}

#[test]
fn references_that_no_kernel_has_are_refused() {
    for (source, why) in [
        (
            "gilk_word one(gilk_word it) { gilk_word to; \
             __asm__(\"mov above@GOTPCREL(%%rip), %0\" : \"=r\"(to)); return to; }",
            "of a kind that is not for kernels",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__(\".pushsection .note.own,\\\"a\\\",@note\\nelsewhere: .quad 1\\n.popsection\\nmov elsewhere(%%rip), %0\" : \"=r\"(it)); return it; }",
            "which is not code or a constant of its own",
        ),
    ] {
        let refused = patched(source, |_| ()).unwrap_err();
        assert!(refused.contains(why), "{source}\n{refused}");
    }
}

#[test]
fn code_stays_in_its_own_text() {
    for (body, why) in [
        ("jmp .+0x1000; ret", "which is not code of its own"),
        ("nop", "runs off its end"),
    ] {
        let refused = super::frame::assembled(body).unwrap_err();
        assert!(refused.contains(why), "{body}\n{refused}");
    }
}

/// Returns the reason why the first function of a kernel may not be called.
fn uncalled(kernel: &Fixture) -> String {
    let image = kernel.image();
    callee::find(&image, "first", &|_| false).unwrap_err()
}

#[test]
fn functions_that_may_lead_anywhere_are_not_called() {
    let mut chain = Fixture::new().compiled("first", |a| a.jmp(Fixture::address(1)));
    for number in 1..70 {
        chain = chain.compiled(&format!("next_{number}"), |a| match number {
            69 => a.ret(),
            _ => a.jmp(Fixture::address(number + 1)),
        });
    }
    let refused = uncalled(&chain);
    assert!(refused.contains("more than 64 functions"), "{refused}");

    let plain = || Fixture::new().compiled("first", |a| a.jmp(Fixture::address(1)));
    let mut forbidden = plain().compiled("second", |a| a.ret());
    forbidden
        .blacklist
        .push((Fixture::address(1), Fixture::address(1) + 16));
    let refused = uncalled(&forbidden);
    assert!(
        refused.contains("reaches second, which may not be called from everywhere"),
        "{refused}"
    );

    let outside = plain().compiled("second", |a| a.jmp(TEXT - 0x1_0000));
    let refused = uncalled(&outside);
    assert!(
        refused.contains("reaches second, which may not be called from everywhere (probed"),
        "{refused}"
    );

    // A call of what another tool has made, and a branch to what is no function's.
    let outside = Fixture::address(2) + 0x100;
    let called = plain().compiled("second", |a| {
        a.call(TEXT - 0x1_0000)?;
        a.ret()
    });
    let branched = plain().compiled("second", |a| {
        a.test(eax, eax)?;
        a.je(outside)?;
        a.ret()
    });
    let jumped = plain().compiled("second", |a| a.jmp(outside));
    for strays in [called, branched, jumped] {
        let strays = strays.compiled("third", |a| a.ret());
        let why = "it calls first, which reaches second, which branches out of the kernel's text";
        assert_eq!(uncalled(&strays), why);
        let source = CALLS.replace("above", "first");
        let object = compiled(&format!(
            "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");\n{source}"
        ));
        let refused = linked(&strays.image(), &object, &|_| false).unwrap_err();
        assert_eq!(refused, why);
    }

    // A static call, and one that is none now.
    for nothing in [false, true] {
        let mut decided = plain().compiled("second", |a| {
            if nothing {
                a.db(&FTRACE_NOP)?;
            } else {
                a.call(Fixture::address(2))?;
            }
            a.ret()
        });
        decided = decided.compiled("third", |a| a.ret());
        decided.static_calls.push(Fixture::address(1) + 5);
        decided.static_call_keys.push(Fixture::address(2));
        let refused = uncalled(&decided);
        assert!(
            refused.contains("second, which branches to an address that is computed"),
            "{refused}"
        );
    }
}
