//! An instrument in Rust. Compile it with
//!
//! ```sh
//! rustc --edition 2024 --crate-type lib --emit obj -C opt-level=2 -C panic=abort -C relocation-model=static \
//!     -C code-model=kernel -C no-redzone=yes -C force-unwind-tables=no example.rs
//! ```
//!
//! Code with arrays or copies of structures needs `--target x86_64-unknown-none` too: on other targets these are
//! filled by vector registers, which are refused. Code that may panic is refused, for a panic would stop the
//! kernel: write `wrapping_add` and `get` instead of `+` and brackets. `gilk.h` describes the lines of the list.
#![no_std]

const LINE: &[u8; 72] = b"pages-in-rust(arg0, arg1) samples pages: How many pages a range touches\0";

#[used]
#[unsafe(link_section = ".gilk")]
static LIST: [u8; 72] = *LINE;

/// Returns the number of pages of 4096 bytes that a range of addresses touches.
#[unsafe(no_mangle)]
pub extern "C" fn pages_in_rust(address: u64, length: u64) -> u64 {
    (address % 4096).wrapping_add(length).wrapping_add(4095) / 4096
}
