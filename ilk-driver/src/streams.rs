//! Standard error as a place for remarks, which a reader may leave before the end: `ilk functions 2>&1 | head`.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes a remark to standard error, and ends its last line. [`note!`](crate::note) formats it.
///
/// The macros of the standard library panic where nothing can be written. A remark that no reader gets is no reason to
/// end a run or an agent.
pub fn note(remark: Arguments<'_>) {
    let text = remark.to_string();
    let end = if text.ends_with('\n') || text.is_empty() {
        ""
    } else {
        "\n"
    };
    let _no_reader = write!(std::io::stderr(), "{text}{end}");
}

/// Formats a remark and writes it to standard error, with [`streams::note`](crate::streams::note).
#[macro_export]
macro_rules! note {
    ($($text:tt)*) => {
        $crate::streams::note(format_args!($($text)*))
    };
}
