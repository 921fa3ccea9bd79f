//! Checks before parsing: invalid tokens, brackets that do not match, and limits. The limits bound the time and the
//! recursion of the parser.

use super::token::{Kind, Token};
use crate::Fault;
use crate::program::Span;

/// Most bytes of a source.
pub(crate) const BYTES: usize = 64 << 10;
/// Most tokens between two of `;`, `{` and `}`.
pub(crate) const STATEMENT: usize = 400;
/// Most brackets within brackets.
pub(crate) const DEPTH: usize = 24;

pub(super) fn too_long(text: &str) -> Option<Fault> {
    (text.len() > BYTES).then(|| {
        Fault::new(
            Span::default(),
            format!("The source has {} bytes; {BYTES} is the most.", text.len()),
        )
    })
}

pub(super) fn check(tokens: &[Token<'_>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut open: Vec<&Token<'_>> = Vec::new();
    let mut length = 0;
    for token in tokens {
        match token.kind {
            Kind::Bad => faults.push(bad(token)),
            Kind::Comment => continue,
            _ => {}
        }
        length += 1;
        if token.kind != Kind::Sign {
            continue;
        }
        match token.text {
            "(" | "[" | "{" => open.push(token),
            ")" | "]" | "}" => {
                let opening = match token.text {
                    ")" => "(",
                    "]" => "[",
                    _ => "{",
                };
                match open.pop() {
                    Some(last) if last.text == opening => {}
                    Some(last) => {
                        faults.push(
                            Fault::new(
                                token.span,
                                format!(
                                    "This `{}` does not close the `{}`.",
                                    token.text, last.text
                                ),
                            )
                            .help(format!("Write `{}` first.", closing(last.text))),
                        );
                        return faults;
                    }
                    None => {
                        faults.push(
                            Fault::new(
                                token.span,
                                format!("This `{}` closes nothing.", token.text),
                            )
                            .help(format!("Leave it out, or write `{opening}` before.")),
                        );
                        return faults;
                    }
                }
            }
            _ => {}
        }
        if open.len() > DEPTH {
            faults.push(Fault::new(
                token.span,
                format!("These are more than {DEPTH} brackets within each other."),
            ));
            return faults;
        }
        if matches!(token.text, ";" | "{" | "}") {
            length = 0;
        }
        if length > STATEMENT {
            break;
        }
    }
    if length > STATEMENT {
        let span = tokens.last().map_or(Span::default(), |token| token.span);
        faults.push(
            Fault::new(
                span,
                format!("A statement has more than {STATEMENT} words and signs."),
            )
            .help("Store parts of it in variables first."),
        );
        return faults;
    }
    // What is no token may have swallowed the bracket that closes.
    if let Some(last) = open.pop()
        && faults.is_empty()
    {
        faults.push(
            Fault::new(last.span, format!("This `{}` is not closed.", last.text))
                .help(format!("Write `{}` where it ends.", closing(last.text))),
        );
    }
    faults
}

fn closing(opening: &str) -> &'static str {
    match opening {
        "(" => ")",
        "[" => "]",
        _ => "}",
    }
}

fn bad(token: &Token<'_>) -> Fault {
    match token.text.chars().next() {
        Some('"') => Fault::new(token.span, "This string does not end on its line.")
            .help("Write `\"` at its end, and `\\\"` for one within it."),
        Some('/') => Fault::new(token.span, "This comment does not end.").help("Write `*/`."),
        Some('$') => Fault::new(token.span, "`$` begins nothing here.")
            .help("A hit has no variables: write the expression where it is needed, since it is computed once. What is kept until a return is declared before the probes: `call @name;`."),
        Some('\'') => Fault::new(token.span, "`'` begins nothing here.")
            .help("Write strings in double quotes, and a character as its number."),
        Some('#') => {
            Fault::new(token.span, "`#` begins nothing here.").help("Write comments after `//`.")
        }
        _ => Fault::new(token.span, format!("`{}` means nothing here.", token.text)),
    }
}
