//! Tail calls. A call that a function passes on by a jump to another function ends where that one returns, and so
//! do other calls of it. A variable of the call, set before the jump and tested at the return, distinguishes them.

use super::build::{and, binary, constant};
use crate::program::{
    Action, ActionKind, BinaryOp, Checked, Expr, ExprKind, Hook, Probe, Scope, Span, Type,
    Variable, VariableId,
};

impl Checked {
    /// Returns the program with probes that follow tail calls. Its own probes stay as they are. For each function
    /// with `return` probes the program gets one at [`Hook::Onward`] that marks the call, the function's `return`
    /// probes again at [`Hook::Back`], for marked calls only, and one there that removes the mark.
    #[must_use]
    pub fn followed(&self) -> Self {
        let mut followed = self.clone();
        let returns = || {
            self.probes
                .iter()
                .filter(|probe| probe.hook == Hook::Return)
        };
        let mut functions: Vec<&Option<String>> = returns().map(|probe| &probe.function).collect();
        functions.sort_unstable();
        functions.dedup();
        let mark = followed.variables.push(Variable {
            // No source can name it.
            name: String::from("passed on"),
            scope: Scope::Call,
            shared: false,
            ty: Type::U64,
        });
        for (number, function) in (1..).zip(functions) {
            let own = || returns().filter(|probe| probe.function == *function);
            let span = own().next().map(|probe| probe.span).unwrap_or_default();
            let put = |hook, predicate, value| Probe {
                hook,
                function: function.clone(),
                predicate,
                actions: vec![Action {
                    kind: ActionKind::Store(mark, constant(value, Type::U64, span)),
                    span,
                }],
                span,
            };
            followed.probes.push(put(Hook::Onward, None, number));
            let back = own().map(|probe| {
                let marked = is_marked(mark, number, probe.span);
                let predicate = match probe.predicate.clone() {
                    Some(predicate) => and(marked, predicate, probe.span),
                    None => marked,
                };
                Probe {
                    hook: Hook::Back,
                    predicate: Some(predicate),
                    ..probe.clone()
                }
            });
            followed.probes.extend(back);
            let marked = is_marked(mark, number, span);
            followed.probes.push(put(Hook::Back, Some(marked), 0));
        }
        followed
    }
}

fn is_marked(mark: VariableId, number: u64, span: Span) -> Expr {
    let variable = Expr {
        kind: ExprKind::Variable(mark),
        ty: Type::U64,
        span,
    };
    let number = constant(number, Type::U64, span);
    binary(BinaryOp::Equal, variable, number, Type::I64, span)
}
