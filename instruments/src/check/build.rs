//! Builds expressions, and computes at once what is constant.

use crate::program::{BinaryOp, Expr, ExprKind, Input, Span, Type, UnaryOp, UserRead, Width};

/// The memory that an address is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Kernel,
    /// The running process.
    User,
}

pub(super) fn constant(bits: u64, ty: Type, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Constant(bits),
        ty,
        span,
    }
}

pub(super) fn input(input: Input, span: Span) -> Expr {
    Expr {
        kind: ExprKind::Input(input),
        ty: Type::U64,
        span,
    }
}

pub(super) fn as_constant(expr: &Expr) -> Option<u64> {
    match expr.kind {
        ExprKind::Constant(bits) => Some(bits),
        _ => None,
    }
}

/// The type of an integer of C when it is computed with: whatever is narrower fits into an `i64`.
pub(super) fn promoted(width: Width, signed: bool) -> Type {
    if width == Width::B8 && !signed {
        Type::U64
    } else {
        Type::I64
    }
}

pub(super) fn unary(op: UnaryOp, of: Expr, span: Span) -> Expr {
    let ty = if op == UnaryOp::Not { Type::I64 } else { of.ty };
    match as_constant(&of) {
        Some(bits) => constant(op.apply(bits), ty, span),
        None => Expr {
            kind: ExprKind::Unary(op, Box::new(of)),
            ty,
            span,
        },
    }
}

pub(super) fn binary(op: BinaryOp, left: Expr, right: Expr, ty: Type, span: Span) -> Expr {
    let neutral = match op {
        BinaryOp::Add
        | BinaryOp::Subtract
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::ShiftLeft
        | BinaryOp::ShiftRightSigned
        | BinaryOp::ShiftRightUnsigned => Some(0),
        BinaryOp::Multiply | BinaryOp::DivideSigned | BinaryOp::DivideUnsigned => Some(1),
        _ => None,
    };
    match (as_constant(&left), as_constant(&right)) {
        (Some(x), Some(y)) => constant(op.apply(x, y), ty, span),
        (None, Some(y)) if Some(y) == neutral => Expr { ty, span, ..left },
        _ => Expr {
            kind: ExprKind::Binary(op, Box::new(left), Box::new(right)),
            ty,
            span,
        },
    }
}

pub(super) fn and(left: Expr, right: Expr, span: Span) -> Expr {
    let kind = match (as_constant(&left), as_constant(&right)) {
        (Some(0), _) => ExprKind::Constant(0),
        (Some(_), Some(right)) => ExprKind::Constant(u64::from(right != 0)),
        _ => ExprKind::And(Box::new(left), Box::new(right)),
    };
    Expr {
        kind,
        ty: Type::I64,
        span,
    }
}

pub(super) fn or(left: Expr, right: Expr, span: Span) -> Expr {
    let kind = match (as_constant(&left), as_constant(&right)) {
        (Some(0), Some(right)) => ExprKind::Constant(u64::from(right != 0)),
        (Some(left), _) if left != 0 => ExprKind::Constant(1),
        _ => ExprKind::Or(Box::new(left), Box::new(right)),
    };
    Expr {
        kind,
        ty: Type::I64,
        span,
    }
}

pub(super) fn select(condition: Expr, yes: Expr, no: Expr, span: Span) -> Expr {
    let ty = yes.ty.with(no.ty);
    match as_constant(&condition) {
        Some(0) => Expr { ty, span, ..no },
        Some(_) => Expr { ty, span, ..yes },
        None => Expr {
            kind: ExprKind::Select {
                condition: Box::new(condition),
                yes: Box::new(yes),
                no: Box::new(no),
            },
            ty,
            span,
        },
    }
}

/// The low bytes, extended; nothing where all are kept.
pub(super) fn extend(value: Expr, width: Width, signed: bool, span: Span) -> Expr {
    let ty = promoted(width, signed);
    if width == Width::B8 {
        return Expr { ty, span, ..value };
    }
    match as_constant(&value) {
        Some(bits) => constant(width.extend(bits, signed), ty, span),
        None => Expr {
            kind: ExprKind::Extend {
                value: Box::new(value),
                width,
                signed,
            },
            ty,
            span,
        },
    }
}

pub(super) fn load(
    (space, address): (Space, Expr),
    width: Width,
    signed: bool,
    span: Span,
) -> Expr {
    match space {
        Space::Kernel => Expr {
            kind: ExprKind::Load {
                address: Box::new(address),
                width,
                signed,
            },
            ty: promoted(width, signed),
            span,
        },
        // It is extended with zeroes.
        Space::User if !signed => Expr {
            ty: promoted(width, signed),
            ..user(UserRead::Bytes(width), address, span)
        },
        Space::User => extend(
            user(UserRead::Bytes(width), address, span),
            width,
            signed,
            span,
        ),
    }
}

pub(super) fn user(read: UserRead, address: Expr, span: Span) -> Expr {
    let address = Box::new(address);
    Expr {
        kind: ExprKind::User { read, address },
        ty: Type::U64,
        span,
    }
}

/// Returns the address some bytes further on: one addition, however many fields the path has.
pub(super) fn further(address: Expr, bytes: u64, span: Span) -> Expr {
    match address.kind {
        ExprKind::Binary(BinaryOp::Add, base, last) if as_constant(&last).is_some() => {
            let sum = as_constant(&last).unwrap_or(0).wrapping_add(bytes);
            let last = constant(sum, Type::U64, last.span);
            binary(BinaryOp::Add, *base, last, Type::U64, span)
        }
        kind => binary(
            BinaryOp::Add,
            Expr { kind, ..address },
            constant(bytes, Type::U64, span),
            Type::U64,
            span,
        ),
    }
}

/// Some bits of what is loaded, as a number.
pub(super) fn bit_field(
    place: (Space, Expr),
    first: u32,
    bits: u32,
    width: Width,
    signed: bool,
    span: Span,
) -> Expr {
    let whole = Expr {
        ty: Type::U64,
        ..load(place, width, false, span)
    };
    let by = |bits: u32| constant(u64::from(bits), Type::I64, span);
    // Up to the top, and down again with the sign or with zeroes.
    let top = binary(
        BinaryOp::ShiftLeft,
        whole,
        by(64 - first - bits),
        Type::U64,
        span,
    );
    let down = if signed {
        BinaryOp::ShiftRightSigned
    } else {
        BinaryOp::ShiftRightUnsigned
    };
    binary(down, top, by(64 - bits), Type::I64, span)
}
