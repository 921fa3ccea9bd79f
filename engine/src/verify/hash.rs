//! Hash maps for addresses and indices, with an unspecified order of iteration.
//!
//! Their input is not hostile, so that the hash need not resist collisions.

/// A hash map keyed by integers.
pub(crate) use rustc_hash::FxHashMap as Map;
/// A hash set of integers.
pub(crate) use rustc_hash::FxHashSet as Set;
