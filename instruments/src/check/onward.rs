//! Calls that a function passes on by a jump to another one come back where that one returns. So do other calls
//! of that one: which are meant, a variable of the call says, set before the jump and looked at behind.

use super::build::{and, binary, constant};
use crate::program::{
    Action, ActionKind, BinaryOp, Checked, Expr, ExprKind, Hook, Probe, Scope, Span, Type,
    Variable, VariableId,
};

impl Checked {
    /// The program with what it takes to see calls come back that are passed on. The probes that it has stay
    /// what and where they are. More are put behind them, for each function that has `return` probes: one
    /// [`Hook::Onward`] that marks the call, the function's `return` probes again at [`Hook::Back`], for marked
    /// calls only, and one there that takes the mark away.
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
        let Ok(mark) = u32::try_from(self.variables.len()).map(VariableId) else {
            return followed;
        };
        followed.variables.push(Variable {
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
                    Some(asked) => and(marked, asked, probe.span),
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
