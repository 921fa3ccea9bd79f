//! Doc comments: how they begin, and that they say more than the item's name.

use std::collections::BTreeSet;

use super::Finding;

/// Words that a doc comment does not begin with: the result is a relative clause.
const BEGINNINGS: &[&str] = &[
    "What", "Whether", "Where", "Who", "Whose", "How", "Why", "Which", "When", "Of", "Nothing",
];

/// Function words.
const EMPTY: &[&str] = &[
    "a", "an", "the", "its", "of", "this", "that", "is", "for", "in",
];

/// Checks the doc comments of a Rust file.
pub(crate) fn check(path: &str, text: &str, findings: &mut BTreeSet<Finding>) {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let mut within = false;
    for (index, line) in lines.iter().enumerate() {
        let doc = line
            .strip_prefix("///")
            .or_else(|| line.strip_prefix("//!"));
        let Some(doc) = doc.filter(|doc| !doc.starts_with('/')) else {
            within = false;
            continue;
        };
        if within {
            continue;
        }
        within = true;
        let mut add = |message: String| {
            findings.insert(Finding {
                path: path.to_owned(),
                line: index + 1,
                message,
            });
        };
        let first = doc.split_whitespace().next().unwrap_or_default();
        if BEGINNINGS.contains(&first) {
            add(format!(
                "a doc comment begins with a verb or a noun, not with \"{first}\""
            ));
        }
        let rest = lines.get(index + 1..).unwrap_or_default();
        if let Some(name) = name_of_item(rest)
            && repeats(doc, name)
        {
            add(format!("this doc comment only repeats the name `{name}`"));
        }
    }
}

/// Returns the name of the item that follows a one-line doc comment.
fn name_of_item<'a>(rest: &[&'a str]) -> Option<&'a str> {
    let line = rest
        .iter()
        .find(|line| !line.starts_with("#[") && !line.is_empty())?;
    if line.starts_with("//") {
        return None;
    }
    let is_keyword = |word: &&str| {
        [
            "pub", "fn", "struct", "enum", "trait", "type", "const", "static", "unsafe", "mod",
        ]
        .contains(word)
            || word.starts_with("pub(")
    };
    let word = line.split_whitespace().find(|word| !is_keyword(word))?;
    let end = word
        .find(|next: char| !next.is_alphanumeric() && next != '_')
        .unwrap_or(word.len());
    word.get(..end).filter(|name| !name.is_empty())
}

/// Returns whether every word of a comment that means something stands in the name.
fn repeats(doc: &str, name: &str) -> bool {
    let of_name = super::words::humps(name);
    let mut words = doc
        .split(|next: char| !next.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .filter(|word| !EMPTY.contains(&word.as_str()))
        .peekable();
    words.peek().is_some()
        && words.all(|word| of_name.iter().any(|other| stem(other) == stem(&word)))
}

fn stem(word: &str) -> &str {
    word.strip_suffix('s').unwrap_or(word)
}
