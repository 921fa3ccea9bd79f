//! The checker: gives a source its meaning for one function. Names become inputs and variables, paths become
//! loads at offsets, constants are folded, and every fault is reported with its span and a suggestion.

mod aggregates;
mod build;
mod calls;
mod lines;
mod names;
mod onward;
mod operators;
mod place;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use gilk_samples::Meaning;
use gilk_samples::ids::{Id as _, Ids};

use crate::program::{
    Action, ActionKind, Aggregate, AggregateId, AggregateKind, Checked, ExprKind, Hook, Probe,
    Scope as VariableScope, Type, UnaryOp, Variable, VariableId,
};
use crate::source::ast::{self, Named, Node, StatementKind};
use crate::source::words::{self, AGGREGATES};
use crate::types::{Signature, Types};
use crate::{Fault, Faults, Source};

/// Most probes, statements of a probe, variables, and aggregates.
const MOST: usize = 64;
/// Most values that are waited with at a time.
const REGISTERS: u32 = 10;
/// Most instructions of one probe, by [`Cost`](crate::program::Cost).
const INSTRUCTIONS: u32 = 2000;

/// The place that a source is checked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The types of the kernel, or of the objects of a process, if type data are there.
    pub types: Option<&'a Types>,
    /// The function that the instrument is placed on, if that is known yet.
    pub function: Option<&'a str>,
    /// True if the target is a process: pointers are to its own memory.
    pub of_process: bool,
}

impl Context<'_> {
    /// Says that something needs type data, which are not there.
    fn lacks_types(&self, what: &str) -> String {
        match self.of_process {
            true => format!(
                "{what} the debug information (DWARF) of the object, which is not there or not read: compile it with -g, or install its debug package."
            ),
            false => format!("{what} the kernel's type data (BTF), which is not there."),
        }
    }

    /// The owner of the types, as messages begin with it.
    fn owner(&self) -> &'static str {
        match self.of_process {
            true => "The process",
            false => "The kernel",
        }
    }
}

/// The names that an expression may use.
pub(crate) struct HookScope<'a> {
    hook: Hook,
    signature: Result<Signature<'a>, String>,
}

pub(crate) struct Checker<'a> {
    context: Context<'a>,
    variables: BTreeMap<String, (VariableId, Variable)>,
    aggregates: BTreeMap<String, (AggregateId, Aggregate)>,
    /// Names of variables that are stored into.
    stored: Vec<String>,
    sampled: lines::Sampled,
    faults: Vec<Fault>,
}

impl Source {
    /// Checks the source for a function.
    ///
    /// # Errors
    /// All faults: one an expression.
    pub fn check(&self, context: &Context<'_>) -> Result<Checked, Faults> {
        let mut checker = Checker {
            context: *context,
            variables: BTreeMap::new(),
            aggregates: BTreeMap::new(),
            stored: Vec::new(),
            sampled: lines::Sampled::default(),
            faults: Vec::new(),
        };
        checker.declare(self);
        let mut probes: Vec<Probe> = self
            .parts
            .probes
            .iter()
            .map(|probe| checker.probe(probe))
            .collect();
        checker.unstored(self);
        if probes.is_empty() {
            checker.faults.push(
                Fault::new(crate::program::Span::default(), "The source has no probe.")
                    .help("Write `hit { … }`, `entry { … }` or `return { … }`."),
            );
        }
        let mut variables: Vec<_> = checker.variables.into_values().collect();
        variables.sort_by_key(|(id, _)| *id);
        let variables: Ids<VariableId, Variable> =
            variables.into_iter().map(|(_, known)| known).collect();
        calls::begin_at_zero(&variables, &mut probes);
        let mut aggregates: Vec<_> = checker.aggregates.into_values().collect();
        aggregates.sort_by_key(|(id, _)| *id);
        let program = Checked {
            name: Arc::from(self.name()),
            summary: self.summary().to_owned(),
            unit: self.unit().to_owned(),
            meaning: self.meaning(),
            texts: checker.sampled.texts(),
            once: self.once(),
            variables,
            aggregates: aggregates.into_iter().map(|(_, known)| known).collect(),
            probes,
        };
        let mut faults = checker.faults;
        faults.extend(checker.sampled.mixed());
        if let Some(span) = checker.sampled.line()
            && program.meaning != Meaning::Event
        {
            let what = "A line of text is an event.";
            faults.push(
                Fault::new(span, what)
                    .help("Write `event`, or no meaning, in the first statement."),
            );
        }
        limits(&program, &mut faults);
        hits_are_counted(&program, &mut faults);
        levels_are_one(&program, &mut faults);
        if faults.is_empty() {
            Ok(program)
        } else {
            Err(Faults::new(self.text(), faults))
        }
    }
}

/// Refuses an instrument that takes itself out and counts nothing: its count shows that it was hit.
fn hits_are_counted(program: &Checked, faults: &mut Vec<Fault>) {
    let mut kinds = program
        .aggregates
        .values()
        .iter()
        .map(|aggregate| aggregate.kind);
    if program.once && !kinds.any(|kind| kind == AggregateKind::Count) {
        let span = program.probes.first().map(|probe| probe.span);
        let what = "An instrument that takes itself out once hit has to count its hits.";
        let fault = Fault::new(span.unwrap_or_default(), what);
        faults.push(fault.help("Write `@hits = count()`, or leave out `once`."));
    }
}

/// Refuses a level that is not one number of its placement: a variable with an instance for each processor,
/// thread or call, and one that other placements change too, since the samples of this one would miss changes.
fn levels_are_one(program: &Checked, faults: &mut Vec<Fault>) {
    let sampled = |action: &Action| match &action.kind {
        ActionKind::Sample(value) => Some(value.clone()),
        _ => None,
    };
    let actions = program.probes.iter().flat_map(|probe| &probe.actions);
    for value in actions.filter_map(sampled) {
        value.any(&mut |node| {
            let ExprKind::Variable(id) = node.kind else {
                return false;
            };
            let variable = &program.variables[id];
            let scope = match variable.scope {
                _ if program.meaning != Meaning::Level => return false,
                VariableScope::Cpu => "another number on each processor",
                VariableScope::Thread => "another number in each thread",
                VariableScope::Call => "another number in each call",
                VariableScope::Global if variable.shared => "changed by other instruments, too",
                VariableScope::Global => return false,
            };
            let what = format!(
                "A level is one number of all processors, and @{} is {scope}.",
                variable.name
            );
            let help =
                "Sample a `global` variable of its own, or write `value` in place of `level`.";
            faults.push(Fault::new(node.span, what).help(help));
            true
        });
    }
}

/// Refuses what is larger than a program at a hook should be.
fn limits(program: &Checked, faults: &mut Vec<Fault>) {
    for (count, what) in [
        (program.probes.len(), "probes"),
        (program.variables.len(), "variables"),
        (program.aggregates.len(), "aggregates"),
    ] {
        if count > MOST {
            let span = program.probes.last().map(|probe| probe.span);
            faults.push(Fault::new(
                span.unwrap_or_default(),
                format!("The source has {count} {what}; {MOST} is the most."),
            ));
        }
    }
    for probe in &program.probes {
        if probe.actions.len() > MOST {
            faults.push(Fault::new(
                probe.span,
                format!(
                    "The probe has {} statements; {MOST} is the most.",
                    probe.actions.len()
                ),
            ));
        }
        for expr in probe.expressions() {
            if expr.registers() > REGISTERS {
                faults.push(
                    Fault::new(
                        expr.span,
                        format!(
                            "This needs {} values at a time; {REGISTERS} is the most.",
                            expr.registers()
                        ),
                    )
                    .help("Store a part of it in a variable first."),
                );
            }
        }
        let cost = program.cost(probe);
        if cost.instructions > INSTRUCTIONS {
            faults.push(Fault::new(
                probe.span,
                format!("The probe takes {cost}; {INSTRUCTIONS} is the most."),
            ));
        }
    }
}

impl<'a> Checker<'a> {
    fn declare(&mut self, source: &Source) {
        for declaration in &source.parts.declarations {
            for name in &declaration.names {
                let id = VariableId::new(self.variables.len());
                let variable = Variable {
                    name: name.text.clone(),
                    scope: declaration.scope,
                    shared: declaration.shared,
                    ty: if declaration.signed {
                        Type::I64
                    } else {
                        Type::U64
                    },
                };
                if self.variables.contains_key(&name.text) {
                    self.faults.push(Fault::new(
                        name.span,
                        format!("@{} is declared twice.", name.text),
                    ));
                } else {
                    self.variables.insert(name.text.clone(), (id, variable));
                }
            }
        }
    }

    /// Refuses variables that only ever are 0.
    fn unstored(&mut self, source: &Source) {
        for declaration in &source.parts.declarations {
            for name in &declaration.names {
                if !declaration.shared && !self.stored.contains(&name.text) {
                    self.faults.push(
                        Fault::new(name.span, format!("Nothing is ever stored in @{}.", name.text))
                            .help("Store something, leave it out, or declare it `shared` if another instrument stores it."),
                    );
                }
            }
        }
    }

    fn probe(&mut self, probe: &ast::ProbeNode) -> Probe {
        let function = probe.function.as_ref().map(|named| named.text.as_str());
        let signature = match (self.context.types, function.or(self.context.function)) {
            (None, _) => Err(self.context.lacks_types("Names of arguments need")),
            (_, None) => {
                Err("Names of arguments are known where the instrument is placed.".to_owned())
            }
            (Some(types), Some(function)) => types.signature(function),
        };
        let scope = HookScope {
            hook: probe.hook,
            signature,
        };
        let predicate = probe.predicate.as_ref().and_then(|predicate| {
            let checked = self.numeric(predicate, &scope);
            self.keep(checked)
        });
        if probe.statements.is_empty() {
            self.faults.push(
                Fault::new(probe.span, "The probe does nothing.")
                    .help("Write `@hits = count()` or `sample(value)` between its braces."),
            );
        }
        let actions = probe
            .statements
            .iter()
            .filter_map(|statement| {
                let checked = self.statement(&statement.kind, &scope);
                let kind = self.keep(checked)?;
                Some(Action {
                    kind,
                    span: statement.span,
                })
            })
            .collect();
        Probe {
            hook: probe.hook,
            function: function.map(str::to_owned),
            predicate,
            actions,
            span: probe.span,
        }
    }

    fn keep<T>(&mut self, checked: Result<T, Fault>) -> Option<T> {
        checked.map_err(|fault| self.faults.push(fault)).ok()
    }

    fn statement(
        &mut self,
        kind: &StatementKind,
        scope: &HookScope<'_>,
    ) -> Result<ActionKind, Fault> {
        match kind {
            StatementKind::Sample(value) => self.sample(value, scope),
            StatementKind::Printf(format, arguments) => self.printf(format, arguments, scope),
            StatementKind::Assign(name, value) => {
                if let Node::Call(word, arguments) = &value.node
                    && AGGREGATES.contains(&word.text.as_str())
                {
                    return self.update(name, word, arguments, scope);
                }
                if let Node::Keyed(keys, word, arguments) = &value.node {
                    return self.update_map(name, keys, (word, arguments), scope);
                }
                if let Node::Call(word, _) = &value.node
                    && !self.variables.contains_key(&name.text)
                    && words::find(&word.text).is_none()
                {
                    return Err(aggregates::unknown(word));
                }
                let id = self.target(name, scope)?;
                Ok(ActionKind::Store(id, self.numeric(value, scope)?))
            }
            StatementKind::AssignOfThread(name, value) => {
                self.of_thread(&name.text, name.span)?;
                let id = self.target(name, scope)?;
                Ok(ActionKind::Store(id, self.numeric(value, scope)?))
            }
            StatementKind::Add(name, value, minus) => {
                let id = self.target(name, scope)?;
                let value = self.numeric(value, scope)?;
                let span = value.span;
                Ok(ActionKind::Add(
                    id,
                    if *minus {
                        build::unary(UnaryOp::Negate, value, span)
                    } else {
                        value
                    },
                ))
            }
        }
    }

    /// The variable that is stored into.
    fn target(&mut self, name: &Named, scope: &HookScope<'_>) -> Result<VariableId, Fault> {
        let Some((id, variable)) = self.variables.get(&name.text) else {
            let fault = Fault::new(name.span, format!("@{} is an aggregate.", name.text));
            return Err(if self.aggregates.contains_key(&name.text) {
                fault.help("Give the variable another name.")
            } else {
                self.undeclared(&name.text, name.span)
            });
        };
        self.stored.push(name.text.clone());
        self.of_call(variable, scope, name.span)?;
        Ok(*id)
    }
}
