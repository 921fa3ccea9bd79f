//! Variables of a call begin at 0: where a source does not store into one at every entry, a probe is put
//! in front that does. They are found by the stack pointer, which an earlier call had, too.

use crate::program::{
    Action, ActionKind, Expr, ExprKind, Hook, Probe, Scope, Type, Variable, VariableId,
};

/// Puts a probe in front for each function whose calls would read what an earlier one left.
pub(super) fn begin_at_zero(variables: &[Variable], probes: &mut Vec<Probe>) {
    let mut functions: Vec<Option<String>> = Vec::new();
    for probe in probes.iter() {
        if !functions.contains(&probe.function) {
            functions.push(probe.function.clone());
        }
    }
    let mut first = Vec::new();
    for function in functions {
        let own: Vec<&Probe> = { probes.iter() }
            .filter(|probe| probe.function == function)
            .collect();
        let stale = (0..).zip(variables).filter(|(id, variable)| {
            variable.scope == Scope::Call && is_stale(VariableId(*id), &own)
        });
        let span = own.first().map(|probe| probe.span).unwrap_or_default();
        let zero = |(id, _): (u32, &Variable)| Action {
            kind: ActionKind::Store(
                VariableId(id),
                Expr {
                    kind: ExprKind::Constant(0),
                    ty: Type::U64,
                    span,
                },
            ),
            span,
        };
        let actions: Vec<Action> = stale.map(zero).collect();
        if !actions.is_empty() {
            first.push(Probe {
                hook: Hook::Entry,
                function,
                predicate: None,
                actions,
                span,
            });
        }
    }
    probes.splice(0..0, first);
}

/// Whether a function's probes use a variable before one has surely stored into it at the entry.
fn is_stale(id: VariableId, own: &[&Probe]) -> bool {
    let reads = |expr: &Expr| expr.any(&mut |node| node.kind == ExprKind::Variable(id));
    let uses = |probe: &&Probe| {
        let stores = |action: &Action| match action.kind {
            ActionKind::Store(to, _) | ActionKind::Add(to, _) => to == id,
            _ => false,
        };
        probe.actions.iter().any(stores) || probe.expressions().any(reads)
    };
    let used = own.iter().any(uses);
    let entries = own.iter().filter(|probe| probe.hook == Hook::Entry);
    let Some(first) = entries.copied().find(uses) else {
        return used;
    };
    if first.predicate.is_some() {
        return true;
    }
    for action in &first.actions {
        match &action.kind {
            kind if kind.value().is_some_and(reads) => return true,
            ActionKind::Store(to, _) if *to == id => return false,
            ActionKind::Add(to, _) if *to == id => return true,
            _ => {}
        }
    }
    true
}
