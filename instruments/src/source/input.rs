//! The stream of tokens that the parsers share, and small steps on it.

use winnow::error::{ErrMode, ParserError};
use winnow::prelude::*;
use winnow::stream::{Stream, TokenSlice};
use winnow::token::any;

use super::ast::Named;
use super::token::{Kind, Token};
use crate::Fault;
use crate::program::Span;

/// Tokens without comments; the last one says where the text ends.
pub(super) type TokenInput<'t, 's> = TokenSlice<'t, Token<'s>>;
pub(super) type Parsed<T> = Result<T, ErrMode<Fault>>;

impl<'t, 's> ParserError<TokenInput<'t, 's>> for Fault {
    type Inner = Self;

    fn from_input(input: &TokenInput<'t, 's>) -> Self {
        let (span, found) = input.first().map_or((Span::default(), "the end"), |token| {
            (token.span, shown(token))
        });
        Self::new(span, format!("Something else is expected than {found}."))
    }

    fn into_inner(self) -> Result<Self::Inner, Self> {
        Ok(self)
    }
}

/// Returns the token's text for a message.
pub(super) fn shown<'s>(token: &Token<'s>) -> &'s str {
    if token.text.is_empty() {
        "the end"
    } else {
        token.text
    }
}

pub(super) fn stop<T>(fault: Fault) -> Parsed<T> {
    Err(ErrMode::Cut(fault))
}

/// The next token, which stays.
pub(super) fn ahead<'s>(input: &TokenInput<'_, 's>) -> Token<'s> {
    nth(input, 0)
}

pub(super) fn nth<'s>(input: &TokenInput<'_, 's>, index: usize) -> Token<'s> {
    input.get(index).or(input.last()).copied().unwrap_or(Token {
        kind: Kind::Comment,
        text: "",
        span: Span::default(),
    })
}

pub(super) fn ended(input: &TokenInput<'_, '_>) -> bool {
    input.eof_offset() <= 1
}

/// Takes the next token.
pub(super) fn take<'s>(input: &mut TokenInput<'_, 's>) -> Parsed<Token<'s>> {
    any.parse_next(input).copied()
}

/// Takes the next token if it is that sign or word.
pub(super) fn accept<'s>(input: &mut TokenInput<'_, 's>, sign: &str) -> Option<Token<'s>> {
    let token = ahead(input);
    token.is(sign).then(|| take(input).ok()).flatten()
}

/// Takes that sign, or says what it is expected for.
pub(super) fn expect<'s>(
    input: &mut TokenInput<'_, 's>,
    sign: &str,
    purpose: &str,
) -> Parsed<Token<'s>> {
    if let Some(token) = accept(input, sign) {
        return Ok(token);
    }
    let found = ahead(input);
    stop(Fault::new(
        found.span,
        format!(
            "A `{sign}` is expected here {purpose}, not `{}`.",
            shown(&found)
        ),
    ))
}

/// Takes a name.
pub(super) fn name(input: &mut TokenInput<'_, '_>, purpose: &str) -> Parsed<Named> {
    let token = ahead(input);
    if token.kind != Kind::Name {
        return stop(Fault::new(
            token.span,
            format!("{purpose} is expected here, not `{}`.", shown(&token)),
        ));
    }
    take(input)?;
    Ok(Named {
        text: token.text.to_owned(),
        span: token.span,
    })
}

/// The end of what was taken last.
pub(super) fn end_of_last(input: &TokenInput<'_, '_>) -> u32 {
    input
        .previous_tokens()
        .next()
        .map_or(0, |token| token.span.end)
}
