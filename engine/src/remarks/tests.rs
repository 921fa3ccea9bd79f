use std::collections::BTreeMap;

use gilk_instruments::Types;
use iced_x86::code_asm::{CodeAssembler, *};
use iced_x86::{Code, IcedError, MemoryOperand};

use super::*;
use crate::cfg::Cfg;
use crate::code::FunctionId;
use crate::kernel::fixture::{DATA, Fixture};

/// Type data of `struct inner { long a; }`, `struct outer { int count; int flags; struct outer *next; struct inner in; }`
/// `void walk(struct outer *o, long n)` and `struct outer *made(void)`.
fn types() -> Types {
    let names = "\0int\0long\0inner\0a\0outer\0count\0flags\0next\0in\0walk\0o\0n\0made\0";
    let name = |text: &str| names.find(&format!("\0{text}\0")).unwrap() as u32 + 1;
    let kind = |kind: u32, count: u32| kind << 24 | count;
    let words = [
        vec![name("int"), kind(1, 0), 4, 1 << 24 | 32],
        vec![name("long"), kind(1, 0), 8, 1 << 24 | 64],
        vec![name("inner"), kind(4, 1), 8, name("a"), 2, 0],
        vec![
            name("outer"),
            kind(4, 4),
            24,
            name("count"),
            1,
            0,
            name("flags"),
            1,
            32,
            name("next"),
            5,
            64,
            name("in"),
            3,
            128,
        ],
        vec![0, kind(2, 0), 4],
        vec![0, kind(13, 2), 0, name("o"), 5, name("n"), 2],
        vec![name("walk"), kind(12, 1), 6],
        vec![0, kind(13, 0), 5],
        vec![name("made"), kind(12, 1), 8],
    ]
    .concat();
    let len = words.len() as u32 * 4;
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, len, len, names.len() as u32].iter().chain(&words) {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(names.bytes());
    Types::read(bytes).unwrap()
}

/// The remarks on the fields of a function, by the number of the instruction.
fn remarks(
    write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
) -> BTreeMap<usize, String> {
    let image = Fixture::new()
        .compiled("walk", write)
        .compiled("other", |a| a.ret())
        .compiled("made", |a| a.ret())
        .image();
    let cfg = Cfg::of(&image, FunctionId(0));
    assert_eq!(cfg.refusal, None);
    let mut texts = Vec::new();
    let types = types();
    Fields {
        image: &image,
        types: &types,
    }
    .remark(&cfg, &mut texts);
    let order: Vec<Addr> = cfg
        .blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .map(|instruction| Addr(instruction.ip()))
        .collect();
    let number = |at: Addr| order.iter().position(|&other| other == at).unwrap();
    texts
        .into_iter()
        .map(|(at, text)| (number(at), text))
        .collect()
}

fn are(remarks: &BTreeMap<usize, String>, wanted: &[(usize, &str)]) {
    let found: Vec<_> = remarks
        .iter()
        .map(|(at, text)| (*at, text.as_str()))
        .collect();
    assert_eq!(found, wanted);
}

#[test]
fn fields_are_followed_through_moves_and_loads() {
    let found = remarks(|a| {
        a.mov(rbx, rdi)?; // 1
        a.mov(eax, dword_ptr(rbx + 4))?;
        a.mov(rdx, qword_ptr(rbx + 8))?;
        a.mov(qword_ptr(rdx + 16), rsi)?;
        a.lea(rcx, qword_ptr(rbx + 16))?;
        a.add(rcx, -8)?;
        a.mov(rax, qword_ptr(rcx))?;
        a.mov(al, byte_ptr(rax + 5))?;
        a.mov(rax, qword_ptr(rbx + rsi * 8 + 8))?;
        a.mov(eax, dword_ptr(rsi))?;
        a.mov(eax, dword_ptr(rdi + 24))?;
        a.mov(eax, dword_ptr(rdi - 4))?;
        a.ret()
    });
    are(
        &found,
        &[
            (2, "outer->flags"),
            (3, "outer->next"),
            (4, "outer->in.a"),
            (5, "&outer->in"),
            (7, "outer->next"),
            (8, "part of outer->flags"),
        ],
    );
}

#[test]
fn what_is_not_certain_is_not_said() {
    // A register that was changed, in part too, or that a call may change.
    let changed = remarks(|a| {
        a.mov(rbx, rdi)?; // 1
        a.mov(dil, 3)?;
        a.mov(eax, dword_ptr(rdi))?;
        a.xor(ebx, eax)?;
        a.mov(eax, dword_ptr(rbx))?;
        a.ret()
    });
    are(&changed, &[]);
    let called = remarks(|a| {
        a.mov(rbx, rdi)?; // 1
        a.mov(rax, rdi)?;
        a.call(Fixture::address(1))?;
        a.mov(ecx, dword_ptr(rbx))?;
        a.mov(ecx, dword_ptr(rax))?;
        a.call(rcx)?;
        a.mov(ecx, dword_ptr(rbx + 4))?;
        a.mov(ecx, dword_ptr(rdi + 4))?;
        a.ret()
    });
    are(&called, &[(4, "outer->count"), (7, "outer->flags")]);
    let returned = remarks(|a| {
        a.call(Fixture::address(2))?; // 1
        a.mov(ecx, dword_ptr(rax))?;
        a.mov(rbx, qword_ptr(rax + 8))?;
        a.call(Fixture::address(1))?;
        a.mov(ecx, dword_ptr(rax))?;
        a.mov(ecx, dword_ptr(rbx))?;
        a.ret()
    });
    are(
        &returned,
        &[(2, "outer->count"), (3, "outer->next"), (6, "outer->count")],
    );
    // Two ways that bring different values meet; a loop that walks a list brings the same type.
    let met = remarks(|a| {
        let (mut other, mut join) = (a.create_label(), a.create_label());
        a.mov(rax, rdi)?; // 1
        a.test(rsi, rsi)?;
        a.je(other)?;
        a.mov(rax, rsi)?; // 4
        a.jmp(join)?;
        a.set_label(&mut other)?;
        a.mov(ecx, dword_ptr(rax))?; // 6
        a.set_label(&mut join)?;
        a.mov(ecx, dword_ptr(rax))?; // 7
        a.mov(ecx, dword_ptr(rdi))?;
        a.ret()
    });
    are(&met, &[(6, "outer->count"), (8, "outer->count")]);
    let walked = remarks(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(ecx, dword_ptr(rdi + 4))?; // 1
        a.mov(rdi, qword_ptr(rdi + 8))?;
        a.test(rdi, rdi)?;
        a.jne(again)?;
        a.ret()
    });
    are(&walked, &[(1, "outer->flags"), (2, "outer->next")]);
    let counted = remarks(|a| {
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.mov(ecx, dword_ptr(rdi + 4))?;
        a.add(rdi, 24)?;
        a.dec(rsi)?;
        a.jne(again)?;
        a.ret()
    });
    are(&counted, &[]);
}

#[test]
fn functions_that_share_a_name_are_said_nothing_of() {
    let image = Fixture::new()
        .compiled("walk", |a| {
            a.mov(eax, dword_ptr(rdi)).and_then(|()| a.ret())
        })
        .compiled("walk", |a| a.ret())
        .image();
    let mut texts = Vec::new();
    let cfg = Cfg::of(&image, FunctionId(0));
    let types = types();
    Fields {
        image: &image,
        types: &types,
    }
    .remark(&cfg, &mut texts);
    assert_eq!(texts, []);
}

#[test]
fn texts_are_quoted() {
    let mut fixture = Fixture::new().compiled("f", |a| {
        a.mov(rdi, DATA)?;
        let far = MemoryOperand::with_base_displ(Register::RIP, (DATA + 16).cast_signed());
        a.add_instruction(Instruction::with2(Code::Lea_r64_m, Register::RSI, far)?)?;
        a.mov(rdx, DATA + 1)?;
        a.mov(rcx, DATA + 8)?;
        a.mov(eax, dword_ptr(rdi))?;
        a.ret()
    });
    let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
    fixture.pointers = vec![
        word(b"a \"b\"\n\0\0"),
        word(b"\xff\x01bad\0\0\0"),
        word(b"\x016levele"),
        word(b"d\0\0\0\0\0\0\0"),
    ];
    let image = fixture.image();
    let cfg = Cfg::of(&image, FunctionId(0));
    let remarks = Remarks::of(&image, &cfg);
    let texts: Vec<&str> = remarks.iter().map(|(_, text)| text).collect();
    assert_eq!(texts, [r#""a \"b\"\n""#, r#""leveled""#, r#"" \"b\"\n""#]);
    let (at, text) = remarks.iter().next().unwrap();
    assert_eq!(remarks.at(at), Some(text));
    assert_eq!(remarks.at(at.add(1)), None);
}
