//! Syntax highlighting.

use super::token::{Kind, tokens};
use super::words::{self, WordKind};
use crate::program::Span;

/// The kind of a stretch of a source, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A word of the language.
    Keyword,
    /// A kind of hook.
    Hook,
    /// A value of the machine, arguments among them.
    Input,
    /// A word before brackets.
    Function,
    /// The name of an integer type.
    Type,
    /// `@name`.
    Variable,
    /// Any other name: of a field, of a function, of what types name.
    Name,
    /// A literal number.
    Number,
    /// A string.
    Text,
    /// An operator or a bracket.
    Sign,
    /// Text from `//` to the end of a line, or within `/* */`.
    Comment,
    /// Characters without a meaning.
    Bad,
}

/// The stretches of any text, in order, right or wrong. White space is in none of them.
#[must_use]
pub fn highlight(text: &str) -> Vec<(Span, Class)> {
    let tokens = tokens(text);
    let mut before = None;
    tokens
        .iter()
        .zip(tokens.iter().skip(1).map(Some).chain([None]))
        .map(|(token, next)| {
            let field = before
                .replace(token.text)
                .is_some_and(|text| matches!(text, "." | "->" | "struct" | "union" | "enum" | ":"));
            let class = match token.kind {
                Kind::Variable => Class::Variable,
                Kind::Number => Class::Number,
                Kind::Text => Class::Text,
                Kind::Sign => Class::Sign,
                Kind::Comment => Class::Comment,
                Kind::Bad => Class::Bad,
                Kind::Name if field => Class::Name,
                Kind::Name => name(token.text, next.map(|next| next.text)),
            };
            (token.span, class)
        })
        .collect()
}

fn name(text: &str, next: Option<&str>) -> Class {
    let argument = text
        .strip_prefix("arg")
        .is_some_and(|digits| !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit()));
    // The next token distinguishes the uses of a word.
    let called = next == Some("(");
    let declares = next.is_some_and(|next| next.starts_with('@') || next == "s64" || next == "u64");
    match words::find(text).map(|word| word.kind) {
        _ if argument => Class::Input,
        Some(WordKind::Input) if declares => Class::Keyword,
        Some(WordKind::Function) if !called => Class::Keyword,
        Some(WordKind::Keyword) => Class::Keyword,
        Some(WordKind::Hook) => Class::Hook,
        Some(WordKind::Input) => Class::Input,
        Some(WordKind::Function) => Class::Function,
        Some(WordKind::Type) => Class::Type,
        None => Class::Name,
    }
}
