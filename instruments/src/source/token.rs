//! Text to tokens. Every text has some: what is none is a token of its own kind, so that an editor
//! can colour what is being typed.

use winnow::combinator::{alt, opt, preceded, repeat};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::stream::LocatingSlice;
use winnow::token::{any, one_of, rest, take_until, take_while};

use crate::program::{Operator, Span};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A name or a word of the language.
    Name,
    /// `@name`.
    Variable,
    /// A number, right or wrong.
    Number,
    /// A string with its quotes.
    Text,
    /// An operator or a bracket.
    Sign,
    /// `// …` or `/* … */`.
    Comment,
    /// A string or comment without end, or a character that means nothing.
    Bad,
}

/// A word, a sign, a literal or a comment of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'s> {
    pub(crate) kind: Kind,
    pub(crate) text: &'s str,
    pub(crate) span: Span,
}

impl Token<'_> {
    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self.kind, Kind::Sign | Kind::Name) && self.text == sign
    }
}

/// Signs besides those of [`Operator::ALL`].
const SIGNS: [&str; 27] = [
    "<<=", ">>=", "->", "++", "--", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "~", "!", "=",
    "?", ":", ";", ",", ".", "(", ")", "{", "}", "[", "]",
];

type CharInput<'s> = LocatingSlice<&'s str>;
type Lexed<T> = Result<T, EmptyError>;

fn name<'s>(input: &mut CharInput<'s>) -> Lexed<&'s str> {
    (
        one_of(|c: char| c.is_ascii_alphabetic() || c == '_'),
        take_while(0.., |c: char| c.is_ascii_alphanumeric() || c == '_'),
    )
        .take()
        .parse_next(input)
}

fn comment<'s>(input: &mut CharInput<'s>) -> Lexed<(Kind, &'s str)> {
    alt((
        ("//", take_while(0.., |c| c != '\n'))
            .take()
            .map(|text| (Kind::Comment, text)),
        ("/*", take_until(0.., "*/"), "*/")
            .take()
            .map(|text| (Kind::Comment, text)),
        ("/*", rest).take().map(|text| (Kind::Bad, text)),
    ))
    .parse_next(input)
}

fn text<'s>(input: &mut CharInput<'s>) -> Lexed<(Kind, &'s str)> {
    let inside = repeat::<_, _, (), _, _>(
        0..,
        alt((
            take_while(1.., |c| !matches!(c, '"' | '\\' | '\n')).void(),
            ('\\', one_of(|c| c != '\n')).void(),
        )),
    );
    (
        '"',
        inside,
        // The backslash at a line's end belongs to the string that does not end.
        opt(alt(('"', '\\'))),
    )
        .take()
        .map(|text: &str| {
            let whole = text.len() > 1 && text.ends_with('"');
            (if whole { Kind::Text } else { Kind::Bad }, text)
        })
        .parse_next(input)
}

fn token<'s>(input: &mut CharInput<'s>) -> Lexed<(Kind, &'s str)> {
    alt((
        comment,
        text,
        name.map(|text| (Kind::Name, text)),
        ('@', opt(name)).take().map(|text| (Kind::Variable, text)),
        (
            one_of(|c: char| c.is_ascii_digit()),
            take_while(0.., |c: char| c.is_ascii_alphanumeric() || c == '_'),
        )
            .take()
            .map(|text| (Kind::Number, text)),
        sign.map(|text| (Kind::Sign, text)),
        any.take().map(|text| (Kind::Bad, text)),
    ))
    .parse_next(input)
}

fn sign<'s>(input: &mut CharInput<'s>) -> Lexed<&'s str> {
    let operators = Operator::ALL.iter().map(|operator| operator.sign);
    let known = SIGNS.into_iter().chain(operators);
    let longest = known
        .filter(|sign| input.starts_with(*sign))
        .max_by_key(|sign| sign.len());
    match longest {
        Some(mut sign) => sign.parse_next(input),
        None => Err(EmptyError),
    }
}

/// All tokens, comments among them. Together with the white space between them they are the text.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let blank = |c: char| c.is_whitespace();
    let mut input = LocatingSlice::new(text);
    let all: Lexed<Vec<Token<'_>>> = repeat(
        0..,
        preceded(take_while(0.., blank), token.with_span()).map(|((kind, text), range)| {
            let byte = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            Token {
                kind,
                text,
                span: Span {
                    start: byte(range.start),
                    end: byte(range.end),
                },
            }
        }),
    )
    .parse_next(&mut input);
    all.unwrap_or_default()
}

/// The number that a token says, or why it is none.
pub(crate) fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let (radix, digits) = match digits.get(..2) {
        Some("0x" | "0X") => (16, digits.get(2..).unwrap_or_default()),
        Some("0b" | "0B") => (2, digits.get(2..).unwrap_or_default()),
        Some("0o" | "0O") => (8, digits.get(2..).unwrap_or_default()),
        Some(two) if two.starts_with('0') && two.chars().all(|c| c.is_ascii_digit()) => {
            return Err(format!(
                "Write 0o{} for a number in base 8, or leave out the zero in front.",
                digits.trim_start_matches('0')
            ));
        }
        _ => (10, digits.as_str()),
    };
    u64::from_str_radix(digits, radix).map_err(|_| {
        if !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix)) {
            "The largest number is 0xffff_ffff_ffff_ffff.".to_owned()
        } else {
            "Write digits, as in 4096, 4_096, 0x1000, 0b1010 or 0o644.".to_owned()
        }
    })
}

/// Returns the text of a string token without its quotes.
pub(crate) fn unquote(text: &str) -> Result<String, char> {
    let inside = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text);
    let mut said = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        said.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(c @ ('"' | '\\')) => c,
                other => return Err(other.unwrap_or(' ')),
            },
            c => c,
        });
    }
    Ok(said)
}
