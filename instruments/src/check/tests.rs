//! The meaning of sources, by topic.

mod calls;
mod folding;
mod process;
mod refused;
mod values;
mod whole;

use super::*;
use crate::program::{Expr, Input};
use crate::types::tests::types;

fn checked(text: &str, function: &str) -> Checked {
    let types = types();
    let context = Context {
        types: Some(&types),
        function: Some(function),
        of_process: false,
    };
    Source::parse(text)
        .and_then(|source| source.check(&context))
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

/// The only expression of `hook { sample(expression) }`, as text.
fn shown(hook: &str, expression: &str, function: &str) -> String {
    let program = checked(&format!("{hook} {{ sample({expression}) }}"), function);
    show(program.probes[0].actions[0].kind.value().unwrap())
}

fn show(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Constant(bits) => format!("{}", bits.cast_signed()),
        ExprKind::Input(input) => match input {
            Input::Argument(number) => format!("arg{number}"),
            other => format!("{other:?}").to_lowercase(),
        },
        ExprKind::Variable(id) => format!("@{}", id.0),
        ExprKind::Load {
            address,
            width,
            signed,
        } => {
            format!(
                "{}{}[{}]",
                if *signed { "s" } else { "u" },
                width.bytes() * 8,
                show(address)
            )
        }
        ExprKind::Extend {
            value,
            width,
            signed,
        } => {
            format!(
                "{}{}({})",
                if *signed { "s" } else { "u" },
                width.bytes() * 8,
                show(value)
            )
        }
        ExprKind::Unary(op, of) => format!("{}{}", op.sign(), show(of)),
        ExprKind::Binary(op, left, right) => {
            format!("({} {} {})", show(left), op.sign(), show(right))
        }
        ExprKind::And(left, right) => format!("({} && {})", show(left), show(right)),
        ExprKind::Or(left, right) => format!("({} || {})", show(left), show(right)),
        ExprKind::Select { condition, yes, no } => {
            format!("({} ? {} : {})", show(condition), show(yes), show(no))
        }
        ExprKind::User { read, address } => format!("{read:?} of {}", show(address)),
        ExprKind::List(all) => all.iter().map(show).collect::<Vec<_>>().join(", "),
    }
}

/// Message and advice of the first fault.
fn fault(text: &str, function: Option<&str>, with_types: bool) -> String {
    let types = types();
    let context = Context {
        types: with_types.then_some(&types),
        function,
        of_process: false,
    };
    let faults = match Source::parse(text).unwrap().check(&context) {
        Ok(program) => panic!("{text} was taken: {program:?}"),
        Err(faults) => faults,
    };
    let first = &faults.list[0];
    let marked = &text[first.span.start as usize..first.span.end as usize];
    format!("{marked}: {} {}", first.message, first.help)
}
