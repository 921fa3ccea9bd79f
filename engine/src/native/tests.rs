//! Object files made by the compiler there is, linked to the fixture's kernel or refused.

use std::path::Path;
use std::process::Command;

use gilk_instruments::Definition;

use super::*;
use crate::kernel::fixture::Fixture;
use crate::verify::tests::natives::comes_back;

mod aligned;
mod frame;
mod instructions;
mod links;
mod rust;
mod stores;

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../instruments/native");

/// Compiles a source with the header in front of it.
pub(crate) fn compiled(source: &str) -> Vec<u8> {
    compiled_with(source, &[])
}

/// With further flags.
fn compiled_with(source: &str, also: &[&str]) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("own.c"), place.path().join("own.o"));
    std::fs::write(&from, format!("#include \"gilk.h\"\n{source}\n")).unwrap();
    let header = Path::new(HEADER);
    let done = Command::new("cc")
        .args(gilk_instruments::Native::C_FLAGS)
        .args(also)
        .arg("-I")
        .arg(header)
        .arg("-o")
        .arg(&to)
        .arg(&from)
        .output();
    let done = done.expect("these tests need a C compiler");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    std::fs::read(&to).unwrap()
}

pub(crate) fn definitions(source: &str) -> Vec<Definition> {
    Definition::natives("own.o", &compiled(source)).unwrap()
}

const AT: Addr = Addr(0xffff_ffff_c010_0000);

/// A kernel with a function that computes, one that calls it, and one that branches to a register's value.
fn kernel() -> Image {
    use iced_x86::code_asm::registers::*;
    let leaf = Fixture::address(0);
    Fixture::new()
        .compiled("leaf", |a| {
            a.lea(rax, iced_x86::code_asm::qword_ptr(rdi + rdi))?;
            a.ret()
        })
        .compiled("above", |a| {
            a.call(leaf)?;
            a.ret()
        })
        .compiled("wanders", |a| {
            a.call(rdi)?;
            a.ret()
        })
        .image()
}

fn loaded(source: &str) -> Result<NativeCode, String> {
    loaded_beside(source, None)
}

/// In a session with instruments in one function.
fn loaded_beside(source: &str, touched: Option<&str>) -> Result<NativeCode, String> {
    let image = kernel();
    let touched = touched.map(|name| image.function_named(name).unwrap().id);
    linked(&image, &compiled(source), &|id| Some(id) == touched)
}

fn linked(
    image: &Image,
    object: &[u8],
    touched: &dyn Fn(FunctionId) -> bool,
) -> Result<NativeCode, String> {
    let definitions = Definition::natives("own.o", object).unwrap();
    let native = definitions[0].native().unwrap();
    let code = load(native, image, AT, touched)?;
    comes_back(&code).map_err(|why| format!("only the verifier refuses it: {why}"))?;
    Ok(code)
}

/// Returns whether native code may call that function, in a session without other instruments.
pub(crate) fn may_be_called(image: &Image, name: &str) -> bool {
    callee::find(image, name, &|_| false).is_ok()
}

/// Returns the verifier's result for the frames of the same source, whatever else is wrong with it.
fn verified(source: &str) -> Result<(), String> {
    let definitions = definitions(source);
    let native = definitions[0].native().unwrap();
    let linked = link::link(native, &kernel(), AT, &|_| false)?;
    comes_back(&linked.code)
}

#[test]
fn code_and_constants_are_linked_to_each_other_and_to_the_kernel() {
    let code = loaded(
        "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");
        gilk_word above(gilk_word);
        static const gilk_word table[] = { 7, 11, 13, 17 };
        static __attribute__((noinline)) gilk_word inner(gilk_word it) { return table[it % 4] + it; }
        gilk_word one(gilk_word it) { return above(inner(it)) + 1; }",
    )
    .unwrap();
    let one = code.entry("one").unwrap();
    assert!(code.span().contains(one) && code.text > 0 && code.text < code.bytes.len() as u64);
    // The calls target the functions that they name, and the table is read at its address.
    let bytes = &code.bytes[..code.text as usize];
    let decoder = iced_x86::Decoder::with_ip(64, bytes, AT.0, iced_x86::DecoderOptions::NONE);
    let calls: Vec<u64> = decoder
        .into_iter()
        .filter(|one| one.is_call_near() || one.is_jmp_short_or_near())
        .map(|one| one.near_branch_target())
        .collect();
    assert!(calls.contains(&Fixture::address(1)), "{calls:x?}");
    assert!(
        calls.contains(&code.entry("inner").unwrap().0),
        "{calls:x?}"
    );
    let constants: Vec<u8> = [7_u64, 11, 13, 17]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    assert!(code.bytes.windows(32).any(|window| window == constants));
}

#[test]
fn what_may_not_run_in_a_patch_is_refused_and_why() {
    let list = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");";
    for (source, why) in [
        (
            "static gilk_word seen; gilk_word one(gilk_word it) { return seen += it; }",
            "data that changes",
        ),
        (
            "gilk_word one(gilk_word it) { return ((gilk_word (*)(void))it)(); }",
            "branches to a computed address",
        ),
        (
            "gilk_word wanders(gilk_word); gilk_word one(gilk_word it) { return wanders(it) + 1; }",
            "wanders, which branches to an address that is computed",
        ),
        (
            "gilk_word absent(gilk_word); gilk_word one(gilk_word it) { return absent(it) + 1; }",
            "no function named \"absent\"",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"cli\"); return it; }",
            "changes how the processor works",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"pxor %xmm0, %xmm0\"); return it; }",
            "-mgeneral-regs-only",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"fninit\"); return it; }",
            "-mgeneral-regs-only",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"movq %%fs:40, %0\" : \"=r\"(it)); return it; }",
            "fs:",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"rep stosb\"); return it; }",
            "string instruction",
        ),
        (
            "gilk_word one(gilk_word it) { if (it) __builtin_trap(); return it; }",
            "stops the kernel",
        ),
        (
            "gilk_word one(gilk_word it) { volatile char room[4096]; room[it % 4096] = 1; return room[5]; }",
            "bytes of the stack",
        ),
        (
            "__attribute__((noinline)) gilk_word one(gilk_word it) { return it < 2 ? 1 : it * one(it / 2) + one(it - 2); }",
            "may call itself",
        ),
        (
            "gilk_word one(gilk_word it) { __asm__ volatile(\"syscall\"); return it; }",
            "enters or leaves the kernel",
        ),
    ] {
        let refused = loaded(&format!("{list}\n{source}")).unwrap_err();
        assert!(refused.contains(why), "{source}\n{refused}");
    }
}

#[test]
fn nothing_is_called_that_leads_to_an_instrument() {
    let source = "GILK_INSTRUMENT(\"one(arg0) samples things: One.\");
        gilk_word above(gilk_word); gilk_word one(gilk_word it) { return above(it) + 1; }";
    for (touched, why) in [
        ("above", "it calls above, which has instruments"),
        (
            "leaf",
            "it calls above, which reaches leaf, which has instruments",
        ),
    ] {
        let refused = loaded_beside(source, Some(touched)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    loaded_beside(source, Some("wanders")).unwrap();
}

#[test]
fn the_examples_in_c_and_rust_are_instruments() {
    let source = std::fs::read_to_string(Path::new(HEADER).join("example.c")).unwrap();
    let mut names: Vec<String> = definitions(&source)
        .into_iter()
        .map(|one| one.name)
        .collect();
    // Compilers have an order of their own.
    names.sort_unstable();
    assert_eq!(names, ["count-natively", "pages"]);
    let object = rust::compiled(&Path::new(HEADER).join("example.rs"), &[]);
    let definitions = Definition::natives("example.o", &object).unwrap();
    let [one] = definitions.as_slice() else {
        panic!("{definitions:?}")
    };
    assert_eq!(
        (one.name.as_str(), one.unit.as_str()),
        ("pages-in-rust", "pages")
    );
    let native = one.native().unwrap();
    let code = load(native, &kernel(), AT, &|_| false).unwrap();
    assert!(code.entry("pages_in_rust").is_some());
}
