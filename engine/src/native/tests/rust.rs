//! Object files made by the Rust compiler.

use super::*;

/// Compiler flags of [`example.rs`](../../../../instruments/native/example.rs).
pub(super) const FLAGS: &str = "--edition 2024 --crate-type lib --emit obj -C opt-level=2 -C panic=abort \
    -C relocation-model=static -C code-model=kernel -C no-redzone=yes -C force-unwind-tables=no";

/// The object of a file of Rust.
pub(super) fn compiled(file: &Path, also: &[&str]) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    let object = place.path().join("own.o");
    let mut rustc = Command::new("rustc");
    rustc.args(FLAGS.split_whitespace()).args(also);
    let done = rustc.arg("-o").arg(&object).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    std::fs::read(&object).unwrap()
}

/// A source with this line in its list, linked.
pub(super) fn loaded(line: &str, source: &str) -> Result<NativeCode, String> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("own.rs");
    let length = line.len() + 1;
    let whole = format!(
        "#![no_std]
        #[used] #[unsafe(link_section = \".gilk\")]
        static LIST: [u8; {length}] = *b\"{line}\\0\";
        {source}"
    );
    std::fs::write(&file, whole).unwrap();
    // As the target x86_64-unknown-none has it, which may not be installed: no vector registers.
    let object = compiled(
        &file,
        &["-C", "target-feature=+soft-float", "-A", "warnings"],
    );
    linked(&kernel(), &object, &|_| false)
}
