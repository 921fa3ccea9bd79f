//! Samples that are text: `printf`, texts and names as values of `sample`.

use gilk_samples::texts::{Argument, Form, PrintedLine, PrintedPart, Texts};

use super::value::Value;
use super::{Checker, HookScope, build};
use crate::Fault;
use crate::program::{ActionKind, Expr, ExprKind, Half, Input, Span, Type};
use crate::source::ast::{self, Node};

/// Most words of a line's arguments: as many as have registers while the slots are reserved.
const WORDS: usize = 6;

/// The samples of a source up to now.
#[derive(Default)]
pub(super) struct Sampled {
    /// The formats of lines, and the place of the first.
    lines: Vec<PrintedLine>,
    line: Option<Span>,
    /// The place of the first number.
    number: Option<Span>,
    /// The texts of the values of all numbers; `None` if some have others.
    texts: Option<Texts>,
}

impl Sampled {
    /// Returns the texts of the samples.
    pub(super) fn texts(&self) -> Option<Texts> {
        match self.line {
            Some(_) => Some(Texts::Lines(self.lines.clone())),
            None => self.texts.clone(),
        }
    }

    /// Returns the fault of a source whose samples are lines and numbers.
    pub(super) fn mixed(&self) -> Option<Fault> {
        let (line, number) = (self.line?, self.number?);
        let later = if number.start > line.start {
            number
        } else {
            line
        };
        let fault = Fault::new(
            later,
            "The samples of an instrument are lines of text, or numbers.",
        );
        Some(fault.help(
            "Write the number with `printf(\"%d\", value)`, or make it an instrument of its own.",
        ))
    }

    /// Returns the place of a line.
    pub(super) fn line(&self) -> Option<Span> {
        self.line
    }
}

/// A part of a format: text, or the sign of a conversion with its argument's form apart from that.
enum Piece {
    Text(String),
    Conversion(char, Argument),
}

impl Checker<'_> {
    /// Checks `sample(value)`.
    pub(super) fn sample(
        &mut self,
        value: &ast::ExprNode,
        scope: &HookScope<'_>,
    ) -> Result<ActionKind, Fault> {
        let span = value.span;
        let value = self.value(value, scope)?;
        if matches!(value, Value::Comm(_) | Value::Memory(..)) {
            let argument = Argument::plain(Form::Text);
            let words = self.words(value)?;
            return Ok(self.line(vec![PrintedPart::Argument(argument)], words, span));
        }
        let names = self.value_names(&value);
        let number = self.number(value)?;
        let texts = if number.is_stack() {
            Some(Texts::Stacks)
        } else {
            (!names.is_empty()).then_some(Texts::Names(names))
        };
        let sampled = &mut self.sampled;
        if sampled.number.is_none() {
            sampled.texts = texts;
        } else if sampled.texts != texts {
            sampled.texts = None;
        }
        sampled.number = Some(span);
        Ok(ActionKind::Sample(number))
    }

    /// Checks `printf("format", arguments)`.
    pub(super) fn printf(
        &mut self,
        format: &ast::ExprNode,
        arguments: &[ast::ExprNode],
        scope: &HookScope<'_>,
    ) -> Result<ActionKind, Fault> {
        let Node::Text(text) = &format.node else {
            return Err(
                Fault::new(format.span, "The format of `printf` is a string.")
                    .help("Write `printf(\"%s %d\", comm, arg1)`."),
            );
        };
        let pieces = pieces(text, format.span)?;
        let conversions = pieces
            .iter()
            .filter(|piece| matches!(piece, Piece::Conversion(..)))
            .count();
        if conversions != arguments.len() {
            let what = format!(
                "Conversions of the format: {conversions}; arguments: {}.",
                arguments.len()
            );
            return Err(Fault::new(format.span, what)
                .help("Each `%d`, `%s` … takes one; `%%` is a percent sign."));
        }
        let mut arguments = arguments.iter();
        let (mut parts, mut words) = (Vec::new(), Vec::new());
        for piece in pieces {
            match (piece, arguments.as_slice()) {
                (Piece::Text(text), _) => parts.push(PrintedPart::Text(text)),
                (Piece::Conversion(sign, argument), [first, ..]) => {
                    arguments.next();
                    let (form, own) = self.of_line(sign, first, scope)?;
                    words.extend(own);
                    parts.push(PrintedPart::Argument(Argument { form, ..argument }));
                }
                // Their number was compared.
                (Piece::Conversion(..), []) => break,
            }
        }
        if words.len() > WORDS {
            let what = format!(
                "The arguments have {} words; {WORDS} is the most.",
                words.len()
            );
            return Err(Fault::new(format.span, what).help(
                "A text has two words, a number one. Write a second `printf` for the rest.",
            ));
        }
        Ok(self.line(parts, words, format.span))
    }

    /// Returns the action of a line: its number among the source's lines, and the words of its arguments.
    fn line(&mut self, parts: Vec<PrintedPart>, words: Vec<Expr>, span: Span) -> ActionKind {
        let sampled = &mut self.sampled;
        let number = build::constant(sampled.lines.len() as u64, Type::U64, span);
        sampled.lines.push(PrintedLine(parts));
        sampled.line.get_or_insert(span);
        let list = std::iter::once(number).chain(words).collect();
        ActionKind::Sample(Expr {
            kind: ExprKind::List(list),
            ty: Type::U64,
            span,
        })
    }

    /// Returns the form and the words of an argument.
    fn of_line(
        &mut self,
        sign: char,
        argument: &ast::ExprNode,
        scope: &HookScope<'_>,
    ) -> Result<(Form, Vec<Expr>), Fault> {
        let value = self.value(argument, scope)?;
        let form = match sign {
            's' => self.text_form(&value)?,
            'd' | 'i' => Form::Signed,
            'u' => Form::Unsigned,
            'x' => Form::Hexadecimal,
            'X' => Form::Capitals,
            'o' => Form::Octal,
            'p' => Form::Pointer,
            _ => Form::Character,
        };
        if form != Form::Text && matches!(value, Value::Comm(_) | Value::Memory(..)) {
            let what = format!("`%{sign}` shows a number, and this is text.");
            return Err(Fault::new(argument.span, what).help("Write `%s`."));
        }
        Ok((form, self.words(value)?))
    }

    /// Returns the form of `%s` for a value.
    fn text_form(&mut self, value: &Value) -> Result<Form, Fault> {
        let names = self.value_names(value);
        match value {
            Value::Comm(_) | Value::Memory(..) => Ok(Form::Text),
            Value::Symbol(_) => Ok(Form::Symbol),
            Value::Number(expr, _) if expr.is_stack() => Ok(Form::Stack),
            _ if !names.is_empty() => Ok(Form::Names(names)),
            other => Err(Fault::new(other.span(), "`%s` shows text, and this is a number.").help(
                "Write `%d` or `%x`, `str(pointer)` for text in memory, or `ksym(address)` for a function's name.",
            )),
        }
    }

    /// Returns the words of an argument.
    fn words(&mut self, value: Value) -> Result<Vec<Expr>, Fault> {
        Ok(match value {
            Value::Comm(span) => {
                let half = |half| self.of_running(Input::Comm(half), span);
                [Half::First, Half::Second].map(half).to_vec()
            }
            Value::Memory(text, span) => self.text_words(&text, span).to_vec(),
            value => vec![self.number(value)?],
        })
    }
}

/// Splits a format at its conversions.
fn pieces(format: &str, span: Span) -> Result<Vec<Piece>, Fault> {
    let wrong = |what: String| {
        Err(Fault::new(span, what).help(
            "Conversions are `%d`, `%u`, `%x`, `%X`, `%o`, `%p`, `%c` and `%s`, with a width as in `%-16s` and `%08x`.",
        ))
    };
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut argument = Argument::plain(Form::Signed);
        while let Some(flag) = letters.next_if(|flag| matches!(flag, '-' | '0')) {
            match flag {
                '-' => argument.left = true,
                _ => argument.zeroes = true,
            }
        }
        while let Some(digit) = letters.next_if(char::is_ascii_digit) {
            let digit = digit.to_digit(10).map_or(0, |digit| digit as u16);
            argument.width = argument.width.saturating_mul(10).saturating_add(digit);
        }
        // Lengths of C: a value has its own.
        while letters
            .next_if(|length| matches!(length, 'h' | 'l'))
            .is_some()
        {}
        if argument.width > 255 {
            return wrong("A width is 255 at most.".to_owned());
        }
        match letters.next() {
            Some(sign @ ('d' | 'i' | 'u' | 'x' | 'X' | 'o' | 'p' | 'c' | 's')) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Conversion(sign, argument));
            }
            Some(sign) => return wrong(format!("`%{sign}` is no conversion.")),
            None => return wrong("The format ends within a conversion.".to_owned()),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}
