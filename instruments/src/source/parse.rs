//! The parser, from tokens to the syntax tree. After a fault it continues with the next statement or probe, so that
//! all faults are reported at once.

use winnow::error::ErrMode;
use winnow::stream::TokenSlice;

use super::advice::{no_item, no_statement};
use super::ast::{Declaration, ExprNode, Header, Named, Node, ProbeNode, Statement, StatementKind};
use super::expression::expression;
use super::input::{
    Parsed, TokenInput, accept, ahead, end_of_last, ended, expect, name, nth, shown, stop, take,
};
use super::token::{Kind, Token, number, unquote};
use super::words;
use crate::Fault;
use crate::fault::nearest;
use crate::program::{Hook, Scope, Span};

/// Most statements that `unroll` repeats to.
const MOST_UNROLLED: u64 = 64;

/// The parts of a source.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Parts {
    pub(crate) header: Option<Header>,
    pub(crate) declarations: Vec<Declaration>,
    pub(crate) probes: Vec<ProbeNode>,
}

/// Parses tokens that [`structure`](super::structure) found nothing wrong with.
pub(super) fn parse(tokens: &[Token<'_>], end: u32) -> (Parts, Vec<Fault>) {
    let mut stream: Vec<Token<'_>> = tokens
        .iter()
        .filter(|token| token.kind != Kind::Comment)
        .copied()
        .collect();
    stream.push(Token {
        kind: Kind::Comment,
        text: "",
        span: Span { start: end, end },
    });
    let mut input = TokenSlice::new(&stream);
    let mut parts = Parts::default();
    let mut faults = Vec::new();
    while !ended(&input) {
        if let Err(error) = item(&mut input, &mut parts, &mut faults) {
            faults.extend(inner(error));
            skip_item(&mut input);
        }
    }
    (parts, faults)
}

fn inner(error: ErrMode<Fault>) -> Option<Fault> {
    match error {
        ErrMode::Cut(fault) | ErrMode::Backtrack(fault) => Some(fault),
        ErrMode::Incomplete(_) => None,
    }
}

/// Skips to the end of the statement or probe: past its `;` or braces.
fn skip_item(input: &mut TokenInput<'_, '_>) {
    let mut depth = 0u32;
    while !ended(input) {
        let Ok(token) = take(input) else { return };
        match token.text {
            "{" => depth += 1,
            "}" if depth <= 1 => return,
            "}" => depth -= 1,
            ";" if depth == 0 => return,
            _ => {}
        }
    }
}

/// Goes before the `;` or the brace that ends the statement.
fn skip_statement(input: &mut TokenInput<'_, '_>) {
    let mut depth = 0u32;
    while !ended(input) {
        match ahead(input).text {
            "{" => depth += 1,
            "}" | ";" if depth == 0 => return,
            "}" => depth -= 1,
            _ => {}
        }
        let _ = take(input);
    }
}

fn item(input: &mut TokenInput<'_, '_>, parts: &mut Parts, faults: &mut Vec<Fault>) -> Parsed<()> {
    let token = ahead(input);
    if token.is("instrument") {
        let header = header(input)?;
        if parts.header.is_some() {
            return stop(
                Fault::new(token.span, "This is the second instrument in one source.")
                    .help("Write each instrument into a file of its own."),
            );
        }
        parts.header = Some(header);
    } else if words::hook(token.text).is_some() {
        let probe = probe(input, faults)?;
        parts.probes.push(probe);
    } else if token.is("shared") || words::scope(token.text).is_some() {
        let declaration = declaration(input)?;
        parts.declarations.push(declaration);
    } else {
        return stop(no_item(&token, nth(input, 1).is("=")));
    }
    Ok(())
}

fn string(input: &mut TokenInput<'_, '_>, purpose: &str) -> Parsed<String> {
    let token = ahead(input);
    match (token.kind, unquote(token.text)) {
        (Kind::Text, Ok(text)) => {
            take(input)?;
            Ok(text)
        }
        _ => stop(Fault::new(
            token.span,
            format!(
                "{purpose} is expected here in quotes, not `{}`.",
                shown(&token)
            ),
        )),
    }
}

fn header(input: &mut TokenInput<'_, '_>) -> Parsed<Header> {
    // The word `instrument`.
    take(input)?;
    let mut header = Header::default();
    let first = ahead(input);
    let mut end = first.span.start;
    // Names have dashes, which are signs elsewhere: what touches is one name.
    while ahead(input).span.start == end
        && (matches!(ahead(input).kind, Kind::Name | Kind::Number) || ahead(input).is("-"))
    {
        let token = take(input)?;
        header.name.push_str(token.text);
        end = token.span.end;
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let good = header.name.starts_with(|c: char| c.is_ascii_lowercase())
        && !header.name.ends_with('-')
        && header.name.chars().all(plain);
    if !good {
        return stop(
            Fault::new(
                if header.name.is_empty() { first.span } else { Span { start: first.span.start, end } },
                "The name of the instrument is expected here.",
            )
            .help("Names have lower-case letters, digits and dashes: `instrument queue-length \"…\";`."),
        );
    }
    header.summary = string(input, "One sentence about the instrument")?;
    loop {
        let token = ahead(input);
        if accept(input, ";").is_some() {
            break;
        } else if accept(input, "unit").is_some() {
            header.unit = string(input, "The unit of the values")?;
        } else if accept(input, "once").is_some() {
            header.once = true;
        } else if let Some(meaning) = words::meaning(token.text) {
            take(input)?;
            if header.meaning.replace(meaning).is_some() {
                return stop(Fault::new(token.span, "The samples have one meaning only."));
            }
        } else {
            let fault = Fault::new(
                token.span,
                format!("`{}` says nothing about an instrument.", shown(&token)),
            );
            let known = [
                "unit", "once", "event", "count", "value", "duration", "level", "block",
            ];
            return stop(match nearest(token.text, known) {
                Some(near) => fault.replacement(near).help(format!("Did you mean `{near}`?")),
                None => fault.help(
                    "Write `unit \"…\"`, `once`, a meaning (`event`, `count`, `value`, `duration`, `level`, `block`), \
                     or `;` at the end.",
                ),
            });
        }
    }
    Ok(header)
}

fn variable(input: &mut TokenInput<'_, '_>) -> Parsed<Named> {
    let token = ahead(input);
    if token.kind != Kind::Variable {
        return stop(
            Fault::new(
                token.span,
                format!(
                    "The name of a variable is expected here, not `{}`.",
                    shown(&token)
                ),
            )
            .help("Names of variables begin with `@`."),
        );
    }
    take(input)?;
    if ahead(input).is("[") {
        return stop(Fault::new(token.span, "A variable has no keys.").help(
            "Write `@name[key] = count()` or another aggregate, `thread @name;` for one value a thread.",
        ));
    }
    Ok(Named {
        text: token.text.trim_start_matches('@').to_owned(),
        span: token.span,
    })
}

fn declaration(input: &mut TokenInput<'_, '_>) -> Parsed<Declaration> {
    let shared = accept(input, "shared").is_some();
    let token = ahead(input);
    let Some(scope) = words::scope(token.text) else {
        return stop(
            Fault::new(
                token.span,
                format!("The scope is expected here, not `{}`.", shown(&token)),
            )
            .help("Write `shared global @name;`, `shared cpu @name;` or `shared thread @name;`."),
        );
    };
    if shared && scope == Scope::Call {
        return stop(
            Fault::new(token.span, "What belongs to one call is not shared.")
                .help("Write `shared thread @name;`, or leave out `shared`."),
        );
    }
    take(input)?;
    let token = ahead(input);
    let mut signed = false;
    if token.kind == Kind::Name {
        signed = match token.text {
            "s64" => true,
            "u64" => false,
            _ => {
                return stop(
                    Fault::new(
                        token.span,
                        format!("Variables are not of type `{}`.", token.text),
                    )
                    .help("Variables have 64 bits: write `s64` for one with a sign, or nothing."),
                );
            }
        };
        take(input)?;
    }
    let mut names = vec![variable(input)?];
    while accept(input, ",").is_some() {
        names.push(variable(input)?);
    }
    expect(input, ";", "at the end of the declaration")?;
    Ok(Declaration {
        shared,
        scope,
        signed,
        names,
    })
}

fn probe(input: &mut TokenInput<'_, '_>, faults: &mut Vec<Fault>) -> Parsed<ProbeNode> {
    let start = take(input)?;
    let hook = words::hook(start.text).unwrap_or(Hook::Hit);
    let function = if accept(input, ":").is_some() {
        let name = name(input, "The name of a function")?;
        if !hook.of_function() {
            return stop(
                Fault::new(
                    name.span,
                    format!("`{hook}` is at the block where the instrument is placed."),
                )
                .help("Only `entry`, `return` and `leave` can name a function."),
            );
        }
        Some(name)
    } else {
        None
    };
    let predicate = if accept(input, "/").is_some() {
        let predicate = expression(input)?;
        if ahead(input).is("=") {
            return stop(
                Fault::new(ahead(input).span, "Nothing can be stored in a predicate.")
                    .help("Write `==` to compare."),
            );
        }
        expect(input, "/", "after the predicate")?;
        Some(predicate)
    } else {
        None
    };
    expect(input, "{", "before what the probe does")?;
    let statements = statements(input, faults);
    let end = expect(input, "}", "to end the probe")?;
    Ok(ProbeNode {
        hook,
        function,
        predicate,
        statements,
        span: start.span.to(end.span),
    })
}

/// Parses statements up to a closing brace; a fault leaves a statement out.
fn statements(input: &mut TokenInput<'_, '_>, faults: &mut Vec<Fault>) -> Vec<Statement> {
    let mut statements = Vec::new();
    while !ahead(input).is("}") && !ended(input) {
        if accept(input, ";").is_some() {
            continue;
        }
        if ahead(input).is("unroll") {
            match unroll(input, faults) {
                Ok(unrolled) => statements.extend(unrolled),
                Err(error) => {
                    faults.extend(inner(error));
                    skip_statement(input);
                }
            }
            continue;
        }
        let parsed = statement(input).and_then(|statement| {
            if !ahead(input).is("}") {
                expect(input, ";", "after the statement")?;
            }
            Ok(statement)
        });
        match parsed {
            Ok(statement) => statements.push(statement),
            Err(error) => {
                faults.extend(inner(error));
                skip_statement(input);
            }
        }
    }
    statements
}

/// Parses `unroll(4) { statements }`: the statements so many times.
fn unroll(
    input: &mut TokenInput<'_, '_>,
    faults: &mut Vec<Fault>,
) -> Parsed<impl Iterator<Item = Statement> + use<>> {
    let start = take(input)?;
    expect(input, "(", "after `unroll`")?;
    let times = take(input)?;
    let repetitions = number(times.text).ok();
    let repetitions = repetitions.filter(|_| times.kind == Kind::Number);
    let usage = |span, what: &str| {
        let help = "Write `unroll(4) { @n = count() }`; a probe has 64 statements at most.";
        Fault::new(span, what).help(help)
    };
    let Some(repetitions @ 1..=MOST_UNROLLED) = repetitions else {
        let what = "The number of repetitions is expected here, from 1 to 64.";
        return stop(usage(times.span, what));
    };
    expect(input, ")", "after the number of repetitions")?;
    expect(input, "{", "before the statements that are repeated")?;
    let once = statements(input, faults);
    let end = expect(input, "}", "to end the repeated statements")?;
    let all = repetitions.saturating_mul(once.len() as u64);
    if all > MOST_UNROLLED {
        let what = format!("These are {all} statements.");
        return stop(usage(start.span.to(end.span), &what));
    }
    let times = usize::try_from(repetitions).unwrap_or(usize::MAX);
    Ok(std::iter::repeat_n(once, times).flatten())
}

fn statement(input: &mut TokenInput<'_, '_>) -> Parsed<Statement> {
    let first = ahead(input);
    let kind = match first.kind {
        Kind::Variable => assignment(input)?,
        Kind::Name if first.is("sample") => {
            take(input)?;
            expect(input, "(", "after `sample`")?;
            let value = expression(input)?;
            expect(input, ")", "after the value of the sample")?;
            StatementKind::Sample(value)
        }
        Kind::Name if first.is("printf") => {
            take(input)?;
            expect(input, "(", "after `printf`")?;
            let format = expression(input)?;
            let mut arguments = Vec::new();
            while accept(input, ",").is_some() {
                arguments.push(expression(input)?);
            }
            expect(input, ")", "after the arguments of the format")?;
            StatementKind::Printf(format, arguments)
        }
        Kind::Name if first.is("delete") => delete(input)?,
        _ => return stop(no_statement(&first)),
    };
    Ok(Statement {
        kind,
        span: Span {
            start: first.span.start,
            end: end_of_last(input),
        },
    })
}

/// Parses `delete(@name)`, `delete(@name[tid])` and `delete(@name, tid)`: the variable is 0, and its entry free.
fn delete(input: &mut TokenInput<'_, '_>) -> Parsed<StatementKind> {
    let word = take(input)?;
    expect(input, "(", "after `delete`")?;
    let value = expression(input)?;
    let key = match accept(input, ",") {
        Some(_) => Some(expression(input)?),
        None => None,
    };
    expect(input, ")", "after the variable")?;
    let span = value.span;
    let zero = ExprNode {
        node: Node::Number(0),
        span,
    };
    let named = |text| Named { text, span };
    match (value.node, key) {
        (Node::Variable(text), None) => Ok(StatementKind::Assign(named(text), zero)),
        (Node::Variable(text), Some(key)) if key.is_thread() => {
            Ok(StatementKind::AssignOfThread(named(text), zero))
        }
        (Node::Index(of, key), None) if key.is_thread() => match of.node {
            Node::Variable(text) => {
                let named = Named {
                    text,
                    span: of.span,
                };
                Ok(StatementKind::AssignOfThread(named, zero))
            }
            _ => stop(no_variable(word.span.to(span))),
        },
        _ => stop(no_variable(word.span.to(span))),
    }
}

fn no_variable(span: Span) -> Fault {
    Fault::new(span, "Only a variable is deleted.")
        .help("Write `delete(@start[tid])`; totals of a key stay until the end.")
}

/// Parses `@name[keys] = aggregate`, `@name[keys]++`, and `@name[tid] = value` of a thread's variable.
fn keyed(input: &mut TokenInput<'_, '_>) -> Parsed<StatementKind> {
    let token = take(input)?;
    let named = Named {
        text: token.text.trim_start_matches('@').to_owned(),
        span: token.span,
    };
    let help = format!(
        "Write `@{0}[key] = count()` or another aggregate; for one value a thread declare `thread @{0};`.",
        named.text
    );
    expect(input, "[", "before the key")?;
    let mut keys = vec![expression(input)?];
    while accept(input, ",").is_some() {
        keys.push(expression(input)?);
    }
    expect(input, "]", "after the key")?;
    let sign = take(input)?;
    let (word, arguments, span) = match sign.text {
        "++" => {
            let text = "count".to_owned();
            let span = sign.span;
            (Named { text, span }, Vec::new(), span)
        }
        "=" => {
            let value = expression(input)?;
            match value.node {
                Node::Call(word, arguments)
                    if words::AGGREGATES.contains(&word.text.as_str())
                        || !matches!(keys.as_slice(), [key] if key.is_thread()) =>
                {
                    (word, arguments, value.span)
                }
                node if matches!(keys.as_slice(), [key] if key.is_thread()) => {
                    let span = value.span;
                    return Ok(StatementKind::AssignOfThread(
                        named,
                        ExprNode { node, span },
                    ));
                }
                _ => return stop(Fault::new(value.span, "Only aggregates have keys.").help(help)),
            }
        }
        _ => return stop(Fault::new(sign.span, "Only aggregates have keys.").help(help)),
    };
    let node = Node::Keyed(keys, word, arguments);
    Ok(StatementKind::Assign(named, ExprNode { node, span }))
}

fn assignment(input: &mut TokenInput<'_, '_>) -> Parsed<StatementKind> {
    if nth(input, 1).is("[") {
        return keyed(input);
    }
    let named = variable(input)?;
    let sign = ahead(input);
    let one = |span| ExprNode {
        node: Node::Number(1),
        span,
    };
    let kind = match sign.text {
        "=" => {
            take(input)?;
            StatementKind::Assign(named, expression(input)?)
        }
        "+=" | "-=" => {
            take(input)?;
            StatementKind::Add(named, expression(input)?, sign.text == "-=")
        }
        "++" | "--" => {
            take(input)?;
            StatementKind::Add(named, one(sign.span), sign.text == "--")
        }
        text => {
            let fault = Fault::new(
                sign.span,
                format!(
                    "`{}` is not something that is done with a variable.",
                    shown(&sign)
                ),
            );
            let operator = text.strip_suffix('=').filter(|_| text != "==");
            return stop(match operator {
                Some(operator) if !operator.is_empty() => {
                    fault.help(format!("Write `@{0} = @{0} {operator} …`.", named.text))
                }
                _ => fault.help("Write `=`, `+=`, `-=`, `++` or `--`."),
            });
        }
    };
    Ok(kind)
}
