//! Structural equality of expressions, wherever they are in the source.

use gilk_instruments::program::{BinaryOp, Expr, ExprKind};

/// The address of a load; equal to another up to the order of the operands of additions and the like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'e>(pub(super) &'e Expr);

impl Address<'_> {
    /// Returns the number of its nodes.
    pub(super) fn nodes(self) -> usize {
        let mut nodes = 0;
        self.0.any(&mut |_| {
            nodes += 1;
            false
        });
        nodes
    }
}

impl PartialEq for Address<'_> {
    fn eq(&self, other: &Self) -> bool {
        alike(self.0, other.0)
    }
}

impl Eq for Address<'_> {}

fn alike(first: &Expr, second: &Expr) -> bool {
    let nodes_match = match (&first.kind, &second.kind) {
        (ExprKind::Constant(first), ExprKind::Constant(second)) => first == second,
        (ExprKind::Input(first), ExprKind::Input(second)) => first == second,
        (ExprKind::Variable(first), ExprKind::Variable(second)) => first == second,
        (
            ExprKind::Load { width, signed, .. },
            ExprKind::Load {
                width: w,
                signed: s,
                ..
            },
        )
        | (
            ExprKind::Extend { width, signed, .. },
            ExprKind::Extend {
                width: w,
                signed: s,
                ..
            },
        ) => (width, signed) == (w, s),
        (ExprKind::User { read: first, .. }, ExprKind::User { read: second, .. }) => {
            first == second
        }
        (ExprKind::Unary(first, _), ExprKind::Unary(second, _)) => first == second,
        (ExprKind::Binary(first, ..), ExprKind::Binary(second, ..)) => first == second,
        (ExprKind::And(..), ExprKind::And(..))
        | (ExprKind::Or(..), ExprKind::Or(..))
        | (ExprKind::Select { .. }, ExprKind::Select { .. }) => true,
        _ => false,
    };
    if !nodes_match {
        return false;
    }
    let (ones, others) = (first.operands(), second.operands());
    let same = ones.len() == others.len();
    if same
        && ones
            .iter()
            .zip(&others)
            .all(|(first, second)| alike(first, second))
    {
        return true;
    }
    match (ones.as_slice(), others.as_slice()) {
        ([a, b], [c, d]) if commutes(first) => alike(a, d) && alike(b, c),
        _ => false,
    }
}

/// Returns whether its operands may be swapped.
fn commutes(expr: &Expr) -> bool {
    let of_two = |op: BinaryOp| {
        matches!(
            op,
            BinaryOp::Add | BinaryOp::Multiply | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor
        )
    };
    matches!(expr.kind, ExprKind::Binary(op, ..) if of_two(op))
}
