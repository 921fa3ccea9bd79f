//! Predicates: tests that skip all else, the cheapest way out first.

use gilk_instruments::program::{BinaryOp, Expr, ExprKind, UnaryOp};
use iced_x86::Code;

use super::{Compiler, ops};
use crate::patch::emit::Forward;

impl<'c> Compiler<'c> {
    /// Emits the tests; each of the branches is taken if it does not hold.
    pub(super) fn predicate(&mut self, expr: &'c Expr) -> Vec<Forward> {
        self.pin(expr);
        let mut skips = Vec::new();
        self.tests(expr, &mut skips);
        self.pinned.clear();
        skips
    }

    fn tests(&mut self, expr: &Expr, skips: &mut Vec<Forward>) {
        let compares = |op: BinaryOp| ops::condition(op).map(|(_, unless)| unless);
        match &expr.kind {
            ExprKind::And(left, right) => {
                self.tests(left, skips);
                self.tests(right, skips);
            }
            ExprKind::Constant(bits) if *bits != 0 => {}
            ExprKind::Unary(UnaryOp::Not, inner) => self.test(inner, Code::Jne_rel32_64, skips),
            ExprKind::Binary(op, left, right) => match compares(*op) {
                Some(unless) => {
                    self.plain(*op, left, right, 0);
                    skips.push(self.e.branch_forward(unless));
                }
                None => self.test(expr, Code::Je_rel32_64, skips),
            },
            _ => self.test(expr, Code::Je_rel32_64, skips),
        }
    }

    fn test(&mut self, expr: &Expr, skip: Code, skips: &mut Vec<Forward>) {
        self.value(expr, 0);
        if !sets_zero_flag(expr) {
            let value = self.work(0);
            self.op(Code::Test_rm64_r64, value, value);
        }
        skips.push(self.e.branch_forward(skip));
    }
}

/// Returns whether the last instruction of the expression sets the zero flag by its value.
fn sets_zero_flag(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::And(..) | ExprKind::Or(..) => true,
        ExprKind::Binary(op, ..) => !op.compares() && ops::plain(*op).is_some(),
        _ => false,
    }
}
