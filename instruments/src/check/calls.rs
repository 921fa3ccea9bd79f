//! Lifetime of variables of a call: they are 0 when the call begins, and their table entry is free when it ends.
//! The key of an entry is made of the stack pointer, which an earlier call may have had too. Where a source does
//! not store into such a variable at every entry, a probe that does is added before the others; where it does not
//! set it to 0 at the exits, one that does is added after them.

use gilk_samples::ids::Ids;

use crate::program::{
    Action, ActionKind, BinaryOp, Expr, ExprKind, Hook, Probe, Scope, Type, Variable, VariableId,
};

/// Adds a probe at the entry of each function whose calls would read values of an earlier call, and one at the
/// exits of each whose calls would leave values.
pub(super) fn begin_at_zero(variables: &Ids<VariableId, Variable>, probes: &mut Vec<Probe>) {
    let mut functions: Vec<Option<String>> = Vec::new();
    for probe in probes.iter() {
        if !functions.contains(&probe.function) {
            functions.push(probe.function.clone());
        }
    }
    let (mut first, mut last) = (Vec::new(), Vec::new());
    for function in functions {
        let siblings: Vec<&Probe> = probes
            .iter()
            .filter(|probe| probe.function == function)
            .collect();
        let end = end(&siblings);
        let stale = variables
            .iter()
            .filter(|&(id, variable)| variable.scope == Scope::Call && is_stale(id, &siblings));
        let span = siblings.first().map(|probe| probe.span).unwrap_or_default();
        let zero = |(id, _): (VariableId, &Variable)| Action {
            kind: ActionKind::Store(
                id,
                Expr {
                    kind: ExprKind::Constant(0),
                    ty: Type::U64,
                    span,
                },
            ),
            span,
        };
        let left = variables
            .iter()
            .filter(|&(id, variable)| variable.scope == Scope::Call && is_left(id, &siblings));
        for (hook, actions, probes) in [
            (Hook::Entry, stale.map(zero).collect::<Vec<_>>(), &mut first),
            (end, left.map(zero).collect(), &mut last),
        ] {
            if !actions.is_empty() {
                probes.push(Probe {
                    hook,
                    function: function.clone(),
                    predicate: None,
                    actions,
                    span,
                });
            }
        }
    }
    probes.splice(0..0, first);
    probes.append(&mut last);
}

/// Returns the hook of a function's last probes in a call.
fn end(siblings: &[&Probe]) -> Hook {
    if siblings.iter().any(|probe| probe.hook == Hook::Return) {
        Hook::Return
    } else {
        Hook::Leave
    }
}

/// Returns whether a variable may still have a value when the function has returned. Without a probe at the
/// exits that cannot be mended: the value stays until the next call with the same stack pointer.
fn is_left(id: VariableId, siblings: &[&Probe]) -> bool {
    let to = |action: &&Action| match action.kind {
        ActionKind::Store(to, _) | ActionKind::Add(to, _) => to == id,
        _ => false,
    };
    let stores = |probe: &&&Probe| probe.actions.iter().any(|action| to(&action));
    let (end, is_exit) = (end(siblings), |probe: &&&Probe| probe.hook.is_exit());
    if !siblings.iter().any(|probe| is_exit(&probe)) || !siblings.iter().any(|probe| stores(&probe))
    {
        return false;
    }
    // After the last of all exits, of which some are not the end of the call.
    let last = siblings
        .iter()
        .rfind(|probe| is_exit(probe) && stores(probe));
    let Some(last) = last.filter(|last| last.hook == end) else {
        return true;
    };
    let ends = last.actions.iter().rfind(to).is_some_and(|action| {
        matches!(&action.kind, ActionKind::Store(_, value) if value.kind == ExprKind::Constant(0))
    });
    // A probe that reads what is returned is not at every exit.
    !(ends && runs_if_kept(id, last) && !last.reads_returned())
}

/// Returns whether a probe runs whenever a variable is not 0.
fn runs_if_kept(id: VariableId, probe: &Probe) -> bool {
    let is_variable = |expr: &Expr| expr.kind == ExprKind::Variable(id);
    let is_zero = |expr: &Expr| expr.kind == ExprKind::Constant(0);
    probe
        .predicate
        .as_ref()
        .is_none_or(|expr| match &expr.kind {
            ExprKind::Binary(BinaryOp::Unequal, left, right) => is_variable(left) && is_zero(right),
            _ => is_variable(expr),
        })
}

/// Returns whether a function's probes may use a variable before one has stored into it at the entry.
fn is_stale(id: VariableId, siblings: &[&Probe]) -> bool {
    let reads = |expr: &Expr| expr.any(&mut |node| node.kind == ExprKind::Variable(id));
    let uses = |probe: &&Probe| {
        let stores = |action: &Action| match action.kind {
            ActionKind::Store(to, _) | ActionKind::Add(to, _) => to == id,
            _ => false,
        };
        probe.actions.iter().any(stores) || probe.expressions().any(reads)
    };
    let used = siblings.iter().any(uses);
    let entries = siblings.iter().filter(|probe| probe.hook == Hook::Entry);
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
