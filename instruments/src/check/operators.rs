//! Operators, casts and calls.

use super::build::{self, Space};
use super::value::{Target, Ty, Value, View};
use super::{Checker, HookScope};
use crate::Fault;
use crate::fault::nearest;
use crate::program::{BinaryOp, Expr, Operator, Span, Type, UserRead, Width};
use crate::source::ast::{self, Base, Named, Node, TypeName};
use crate::source::words::AGGREGATES;

impl Checker<'_> {
    /// Returns the meaning of an expression.
    pub(super) fn value(
        &mut self,
        expr: &ast::ExprNode,
        scope: &HookScope<'_>,
    ) -> Result<Value, Fault> {
        let span = expr.span;
        match &expr.node {
            Node::Number(bits) => {
                let ty = if i64::try_from(*bits).is_ok() {
                    Type::I64
                } else {
                    Type::U64
                };
                Ok(Value::Number(build::constant(*bits, ty, span), None))
            }
            Node::Text(text) => Ok(Value::Text(text.clone(), span)),
            Node::Name(name) => self.name(name, scope, span),
            Node::Variable(name) => self.variable(name, scope, span),
            Node::Call(name, arguments) => self.call(name, arguments, scope, span),
            Node::Field(of, name, arrow) => self.field(of, name, *arrow, scope, span),
            Node::Index(of, index) => self.element(of, index, scope, span),
            Node::Pointed(of) => self.pointed(of, scope, span),
            Node::Address(of) => self.address(of, scope, span),
            Node::Group(inside) => self.value(inside, scope),
            Node::Keyed(_, word, _) => {
                debug_assert!(false, "internal error: statements handle keys");
                Err(Fault::new(word.span, "Keys are of statements."))
            }
            Node::Cast(to, of) => self.cast(to, of, scope, span),
            Node::Unary(op, of) => {
                let of = self.numeric(of, scope)?;
                Ok(Value::Number(build::unary(*op, of, span), None))
            }
            Node::Binary(operator, left, right) => self
                .binary(operator, left, right, scope, span)
                .map(|expr| Value::Number(expr, None)),
            Node::Select(condition, yes, no) => {
                let condition = self.numeric(condition, scope)?;
                let yes = self.numeric(yes, scope)?;
                let no = self.numeric(no, scope)?;
                Ok(Value::Number(build::select(condition, yes, no, span), None))
            }
        }
    }

    /// An expression's number.
    pub(super) fn numeric(
        &mut self,
        expr: &ast::ExprNode,
        scope: &HookScope<'_>,
    ) -> Result<Expr, Fault> {
        let value = self.value(expr, scope)?;
        self.number(value)
    }

    fn call(
        &mut self,
        name: &Named,
        arguments: &[ast::ExprNode],
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        if name.text == "str" {
            let [text] = arguments else {
                return Err(Fault::new(
                    span,
                    "`str` takes one pointer, or one array of characters.",
                )
                .help("Write `str(file->f_path.dentry->d_name.name)`."));
            };
            return self.text(text, scope, span);
        }
        if let word @ ("kstack" | "ustack") = name.text.as_str() {
            return self.stack(word, arguments, scope, span);
        }
        if let word @ ("ksym" | "usym" | "uptr") = name.text.as_str() {
            let [address] = arguments else {
                let fault = Fault::new(span, format!("`{word}` takes one address."));
                return Err(fault.help(match word {
                    "uptr" => "Write `str(uptr(arg0))`, or `*(u64 *)uptr(arg0)`.".to_owned(),
                    _ => format!("Write `printf(\"%s\", {word}(arg0))`."),
                }));
            };
            return match word {
                "uptr" => self.of_process(address, scope, span),
                "usym" => {
                    let address = self.numeric(address, scope)?;
                    let number = build::user(UserRead::Name, address, span);
                    Ok(Value::Number(number, None))
                }
                _ => Ok(Value::Symbol(self.numeric(address, scope)?)),
            };
        }
        if name.text == "reg" {
            let [
                ast::ExprNode {
                    node: Node::Text(register),
                    span: at,
                },
            ] = arguments
            else {
                return Err(Fault::new(span, "A register is named by one string.")
                    .help("Write `reg(\"ax\")`."));
            };
            return Ok(Value::Number(self.register(register, *at)?, None));
        }
        let fault = Fault::new(name.span, format!("{} is no value.", name.text));
        Err(match name.text.as_str() {
            text if AGGREGATES.contains(&text) => {
                fault.help(format!("Aggregates are statements: `@name = {text}(…)`."))
            }
            "sample" | "printf" => fault.help(format!("`{}(…)` is a statement.", name.text)),
            "stack" => {
                fault.help("Write `kstack`, the kernel's stack, or `ustack`, the process's.")
            }
            text => match nearest(text, AGGREGATES.into_iter().chain(["reg", "sample"])) {
                Some(near) => fault.did_you_mean(near),
                None => fault.help("Programs call nothing; `reg(\"ax\")` reads a register."),
            },
        })
    }

    fn cast(
        &mut self,
        to: &TypeName,
        of: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Value, Fault> {
        let of = self.value(of, scope)?;
        let (of, from) = self.pointer(of)?;
        // A cast changes the type of what is pointed to, and not whose memory it is.
        let user = matches!(
            from,
            Some(Target {
                space: Space::User,
                ..
            })
        );
        let base = match &to.base {
            Base::Void => Ty::Void,
            Base::Integer(width, signed) => Ty::Integer(*width, *signed),
            Base::Struct(name) => self.named_type(name, false, to.span)?,
            Base::Union(name) => self.named_type(name, true, to.span)?,
            Base::Enum(name) => self.named_enumeration(name, to.span)?,
        };
        let ty = (0..to.pointers).fold(base, |ty, _| Ty::Pointer(Box::new(ty)));
        match &ty {
            Ty::Pointer(to) => {
                let to = match user {
                    true => Ty::User(to.clone()),
                    false => ty,
                };
                Ok(Value::Number(
                    Expr {
                        ty: Type::U64,
                        span,
                        ..of
                    },
                    Some(to),
                ))
            }
            Ty::Integer(width, signed) => Ok(Value::Number(
                build::extend(of, *width, *signed, span),
                None,
            )),
            ty if matches!(self.view(ty), View::Integer(..)) => Ok(self.arrived(of, ty.clone())),
            _ => Err(
                Fault::new(to.span, "Numbers can be cast to numbers and pointers only.")
                    .help(format!("Write `({} *)`.", self.written(&ty))),
            ),
        }
    }

    fn binary(
        &mut self,
        operator: &Operator,
        left: &ast::ExprNode,
        right: &ast::ExprNode,
        scope: &HookScope<'_>,
        span: Span,
    ) -> Result<Expr, Fault> {
        let left = self.value(left, scope)?;
        let right = self.value(right, scope)?;
        let equality = [Some(BinaryOp::Equal), Some(BinaryOp::Unequal)].contains(&operator.signed);
        match (left, right) {
            (Value::Text(..), Value::Text(_, at)) => Err(Fault::new(
                at,
                "Two strings of the source are always the same or never.",
            )),
            (value, Value::Text(text, at)) | (Value::Text(text, at), value) if equality => {
                let equal = operator.signed == Some(BinaryOp::Equal);
                self.compare_text(value, &text, at, equal, span)
            }
            (left, right) => self.arithmetic(operator, left, right, span),
        }
    }

    fn arithmetic(
        &mut self,
        operator: &Operator,
        left: Value,
        right: Value,
        span: Span,
    ) -> Result<Expr, Fault> {
        let (left, left_to) = self.pointer(left)?;
        let (right, right_to) = self.pointer(right)?;
        let counts = matches!(operator.signed, Some(BinaryOp::Add | BinaryOp::Subtract));
        if counts
            && let Some(Target { ty: to, .. }) = left_to.or(right_to)
            && self.view(&to) != View::Integer(Width::B1, false)
        {
            return Err(Fault::new(
                span,
                format!("In C this would count in units of {}.", self.written(&to)),
            )
            .help("Write `pointer[n]`, or `(u64)pointer + bytes`."));
        }
        let shifts = matches!(
            operator.signed,
            Some(BinaryOp::ShiftLeft | BinaryOp::ShiftRightSigned)
        );
        let common = if shifts {
            left.ty
        } else {
            left.ty.with(right.ty)
        };
        let Some(op) = operator.operation(common.signed()) else {
            // `&&` and `||` have no operation on numbers.
            return Ok(match operator.sign {
                "&&" => build::and(left, right, span),
                _ => build::or(left, right, span),
            });
        };
        if let Some(fault) = pointless(op, &left, &right, span) {
            return Err(fault);
        }
        let ty = if op.compares() { Type::I64 } else { common };
        Ok(build::binary(op, left, right, ty, span))
    }
}

/// Returns the fault of an operation whose result is always the same: a division by zero, a shift by 64 or
/// more, a comparison of an unsigned number with a negative one.
fn pointless(op: BinaryOp, left: &Expr, right: &Expr, span: Span) -> Option<Fault> {
    let fixed = build::as_constant(right);
    match op.sign() {
        "/" | "%" if fixed == Some(0) => {
            return Some(Fault::new(right.span, "This divides by zero."));
        }
        "<<" | ">>" if fixed.is_some_and(|by| by > 63) => {
            return Some(Fault::new(right.span, "Numbers have 64 bits.").help("Shift by 0 to 63."));
        }
        _ => {}
    }
    let unsigned = matches!(
        op,
        BinaryOp::LessUnsigned
            | BinaryOp::LessOrEqualUnsigned
            | BinaryOp::GreaterUnsigned
            | BinaryOp::GreaterOrEqualUnsigned
    );
    if !unsigned {
        return None;
    }
    let negative = |expr: &Expr| {
        build::as_constant(expr).is_some_and(|bits| expr.ty.signed() && bits.cast_signed() < 0)
    };
    let zero = |expr: &Expr| build::as_constant(expr) == Some(0);
    let never = match op {
        BinaryOp::LessUnsigned | BinaryOp::GreaterOrEqualUnsigned => zero(right),
        _ => zero(left),
    };
    let both = build::as_constant(left).is_some() && build::as_constant(right).is_some();
    (!both && (never || negative(left) || negative(right))).then(|| {
        Fault::new(
            span,
            "One side has no sign, so this always comes out the same.",
        )
        .help("Cast it: `(s64)value`, or `(s32)retval` where the function returns an int.")
    })
}
