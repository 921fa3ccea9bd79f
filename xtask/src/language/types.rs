//! A type's name is defined once in a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tokens::{Kind, Syntax, pieces};

/// Checks that no two files of one crate's sources define a type of the same name.
pub(crate) fn check<'a>(
    files: impl Iterator<Item = (&'a str, &'a str)>,
    findings: &mut BTreeSet<Finding>,
) {
    let mut defined: BTreeMap<(String, String), String> = BTreeMap::new();
    for (path, text) in files {
        let Some(owner) = crate_of(path) else {
            continue;
        };
        for (line, name) in definitions(text) {
            let position = format!("{path}:{line}");
            let key = (owner.clone(), name.clone());
            if let Some(first) = defined.get(&key) {
                findings.insert(Finding {
                    path: path.to_owned(),
                    line,
                    message: format!("the type `{name}` is defined in {first} too"),
                });
            } else {
                defined.insert(key, position);
            }
        }
    }
}

/// Returns the crate that a source file belongs to; a program below `src/bin` is a crate of its own.
fn crate_of(path: &str) -> Option<String> {
    let (package, within) = path.split_once("/src/")?;
    let program = within
        .strip_prefix("bin/")
        .and_then(|rest| rest.split('/').next());
    Some(match program {
        Some(program) => format!("{package}/{program}"),
        None => package.to_owned(),
    })
}

/// Returns the types that a file defines, with their lines. Associated types are not types of the crate.
fn definitions(text: &str) -> Vec<(usize, String)> {
    let mut definitions = Vec::new();
    for piece in pieces(text, Syntax::Rust) {
        if piece.kind != Kind::Code {
            continue;
        }
        let indented = piece.text.starts_with(' ');
        let mut words = piece.text.split_whitespace().peekable();
        while words.peek().is_some_and(|word| word.starts_with("pub")) {
            words.next();
        }
        let keyword = words.next().unwrap_or_default();
        let is_type = matches!(keyword, "struct" | "enum" | "union" | "trait")
            || (keyword == "type" && !indented);
        let name: String = words
            .next()
            .unwrap_or_default()
            .chars()
            .take_while(|next| next.is_alphanumeric() || *next == '_')
            .collect();
        if is_type && name.starts_with(char::is_uppercase) {
            definitions.push((piece.line, name));
        }
    }
    definitions
}
