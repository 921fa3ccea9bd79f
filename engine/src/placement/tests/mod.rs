mod bytes;
mod kernel;
mod random_code;
pub(crate) mod walk;

/// A failed check.
type Wrong = String;

macro_rules! check {
    ($what:expr, $($say:tt)+) => { if !$what { return Err(format!($($say)+)); } };
}
use check;
