//! Comments and strings, whose text is no statement.

/// Returns the length of the comment or string at the start of a text, if there is one.
pub(super) fn skipped(text: &str) -> Option<usize> {
    if let Some(comment) = text.strip_prefix("//") {
        return Some(2 + comment.find('\n').unwrap_or(comment.len()));
    }
    if let Some(comment) = text.strip_prefix("/*") {
        return Some(comment.find("*/").map_or(text.len(), |end| 2 + end + 2));
    }
    let inside = text.strip_prefix('"')?;
    let mut escaped = false;
    for (at, letter) in inside.char_indices() {
        match letter {
            '\n' => return Some(1 + at),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return Some(1 + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}
