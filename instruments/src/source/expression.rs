//! The parser of expressions: C's operators and precedences, except for combinations that are mistakes in C.

use super::ast::{Base, ExprNode, Node, TypeName};
use super::input::{
    Parsed, TokenInput, accept, ahead, end_of_last, expect, name, nth, shown, stop, take,
};
use super::token::{Kind, number, unquote};
use super::words;
use crate::Fault;
use crate::program::{Operator, Span, UnaryOp};

/// An expression: `condition ? yes : no`, or an operator's.
pub(super) fn expression(input: &mut TokenInput<'_, '_>) -> Parsed<ExprNode> {
    let condition = binary(input, 0)?;
    if accept(input, "?").is_none() {
        return Ok(condition);
    }
    let yes = expression(input)?;
    expect(input, ":", "between the two values of `?`")?;
    let no = expression(input)?;
    let span = condition.span.to(no.span);
    Ok(ExprNode {
        node: Node::Select(Box::new(condition), Box::new(yes), Box::new(no)),
        span,
    })
}

fn compares(expr: &ExprNode) -> bool {
    matches!(&expr.node, Node::Binary(operator, ..) if operator.compares)
}

fn binary(input: &mut TokenInput<'_, '_>, least: u8) -> Parsed<ExprNode> {
    let mut left = unary(input)?;
    loop {
        let token = ahead(input);
        let known = Operator::ALL
            .iter()
            .find(|operator| token.is(operator.sign) && operator.power >= least);
        // A slash before the braces ends a predicate.
        let Some(operator) = known.filter(|_| !(token.is("/") && nth(input, 1).is("{"))) else {
            return Ok(left);
        };
        take(input)?;
        let right = binary(input, operator.power + 1)?;
        let span = left.span.to(right.span);
        let compared = compares(&left) || compares(&right);
        if compared && operator.compares {
            return stop(
                Fault::new(
                    span,
                    "Two comparisons in a row do not compare three values.",
                )
                .help("Write `a < b && b < c`, or brackets around one of them."),
            );
        }
        let sign = operator.sign;
        if compared && matches!(sign, "&" | "|" | "^") {
            return stop(
                Fault::new(
                    span,
                    format!("Here `{sign}` would be computed after the comparison, as in C."),
                )
                .help(format!(
                    "Write `(a {sign} b) == c`, or `{sign}{sign}` to combine two conditions."
                )),
            );
        }
        left = ExprNode {
            node: Node::Binary(operator, Box::new(left), Box::new(right)),
            span,
        };
    }
}

fn unary(input: &mut TokenInput<'_, '_>) -> Parsed<ExprNode> {
    let token = ahead(input);
    if token.kind != Kind::Sign {
        return postfix(input);
    }
    let build: fn(Box<ExprNode>) -> Node = match token.text {
        "-" => |of| Node::Unary(UnaryOp::Negate, of),
        "~" => |of| Node::Unary(UnaryOp::Invert, of),
        "!" => |of| Node::Unary(UnaryOp::Not, of),
        "*" => Node::Pointed,
        "&" => Node::Address,
        "(" if begins_type(input) => {
            take(input)?;
            let name = type_name(input)?;
            expect(input, ")", "after the type")?;
            let of = unary(input)?;
            let span = token.span.to(of.span);
            return Ok(ExprNode {
                node: Node::Cast(name, Box::new(of)),
                span,
            });
        }
        "--" | "++" => {
            return stop(
                Fault::new(
                    token.span,
                    "Values of expressions cannot be counted up or down.",
                )
                .help("Write `@name++` as a statement, and `-(-x)` for two signs."),
            );
        }
        _ => return postfix(input),
    };
    take(input)?;
    let of = unary(input)?;
    let span = token.span.to(of.span);
    Ok(ExprNode {
        node: build(Box::new(of)),
        span,
    })
}

/// Returns whether a type follows the bracket.
fn begins_type(input: &TokenInput<'_, '_>) -> bool {
    let token = nth(input, 1);
    let c_name = words::integer_of_c(token.text).is_some()
        && (nth(input, 2).is(")") || nth(input, 2).is("*") || nth(input, 2).kind == Kind::Name);
    token.kind == Kind::Name
        && (matches!(token.text, "struct" | "union" | "enum" | "void")
            || words::integer(token.text).is_some()
            || c_name)
}

fn type_name(input: &mut TokenInput<'_, '_>) -> Parsed<TypeName> {
    let token = take(input)?;
    let base = match token.text {
        "void" => Base::Void,
        "struct" => Base::Struct(name(input, "The name of a structure")?.text),
        "union" => Base::Union(name(input, "The name of a union")?.text),
        "enum" => Base::Enum(name(input, "The name of an enumeration")?.text),
        text => match (words::integer(text), words::integer_of_c(text)) {
            (Some((width, signed)), _) => Base::Integer(width, signed),
            (None, known) => {
                return stop(
                    Fault::new(token.span, format!("There is no type `{text}` here."))
                        .help(format!("Write `{}`.", known.unwrap_or("u64"))),
                );
            }
        },
    };
    let mut pointers = 0u8;
    while accept(input, "*").is_some() {
        pointers = pointers.saturating_add(1);
    }
    Ok(TypeName {
        base,
        pointers,
        span: Span {
            start: token.span.start,
            end: end_of_last(input),
        },
    })
}

fn postfix(input: &mut TokenInput<'_, '_>) -> Parsed<ExprNode> {
    let mut of = primary(input)?;
    loop {
        let start = of.span;
        let node = if accept(input, ".").is_some() {
            Node::Field(Box::new(of), name(input, "The name of a field")?, false)
        } else if accept(input, "->").is_some() {
            Node::Field(Box::new(of), name(input, "The name of a field")?, true)
        } else if accept(input, "[").is_some() {
            let index = expression(input)?;
            expect(input, "]", "after the index")?;
            Node::Index(Box::new(of), Box::new(index))
        } else {
            return Ok(of);
        };
        let span = Span {
            start: start.start,
            end: end_of_last(input),
        };
        of = ExprNode { node, span };
    }
}

fn primary(input: &mut TokenInput<'_, '_>) -> Parsed<ExprNode> {
    let token = ahead(input);
    let node = match token.kind {
        Kind::Number => match number(token.text) {
            Ok(value) => Node::Number(value),
            Err(help) => {
                return stop(
                    Fault::new(token.span, format!("`{}` is not a number.", token.text)).help(help),
                );
            }
        },
        Kind::Text => match unquote(token.text) {
            Ok(text) => Node::Text(text),
            Err(c) => {
                return stop(
                    Fault::new(
                        token.span,
                        format!("`\\{c}` stands for nothing in a string."),
                    )
                    .help("Write one of `\\\"`, `\\\\`, `\\n` and `\\t`."),
                );
            }
        },
        Kind::Variable => Node::Variable(token.text.trim_start_matches('@').to_owned()),
        Kind::Name => Node::Name(token.text.to_owned()),
        _ if token.is("(") => {
            take(input)?;
            let inside = expression(input)?;
            let end = expect(input, ")", "to close the bracket")?;
            return Ok(ExprNode {
                node: Node::Group(Box::new(inside)),
                span: token.span.to(end.span),
            });
        }
        _ => {
            return stop(
                Fault::new(
                    token.span,
                    format!("A value is expected here, not `{}`.", shown(&token)),
                )
                .help("Values are numbers, `arg0`, `retval`, `tsc`, `@name` and what the reference lists."),
            );
        }
    };
    take(input)?;
    let (Node::Name(_), Some(_)) = (&node, accept(input, "(")) else {
        return Ok(ExprNode {
            node,
            span: token.span,
        });
    };
    let mut arguments = Vec::new();
    while !ahead(input).is(")") {
        arguments.push(expression(input)?);
        if accept(input, ",").is_none() {
            break;
        }
    }
    let end = expect(
        input,
        ")",
        &format!("after the arguments of `{}`", token.text),
    )?;
    Ok(ExprNode {
        node: Node::Call(
            super::ast::Named {
                text: token.text.to_owned(),
                span: token.span,
            },
            arguments,
        ),
        span: token.span.to(end.span),
    })
}
