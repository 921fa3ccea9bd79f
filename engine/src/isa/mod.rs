//! The instruction set: decoding, effects on registers, encoding and relocation of x86-64 code.

pub(crate) mod abi;
pub(crate) mod decode;
pub(crate) mod effect;
pub(crate) mod encode;
pub(crate) mod memory;
mod registers;
pub mod relocate;
pub(crate) mod stack;

pub use abi::ARGUMENTS;
pub use encode::jump;
pub use registers::RegisterSet;
pub(crate) use registers::{BY_NUMBER, number_of};
