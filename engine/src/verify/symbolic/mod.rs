//! Symbolic values, hash-consed, and their arithmetic.
//!
//! Proven: equality. A value that exceeds a limit is unknown.

pub(crate) mod arithmetic;
pub(crate) mod atom;
pub(crate) mod canonical;
pub(crate) mod interned;
pub(crate) mod sum;
pub(crate) mod value;
