//! What a source means for one function: names become inputs and variables, paths become loads at
//! offsets, and what cannot be had is refused with the reason.

mod build;
mod names;
mod operators;
mod place;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::program::{
    Action, ActionKind, Aggregate, AggregateId, AggregateKind, Checked, Expr, Hook, Probe, Type,
    UnaryOp, Variable, VariableId,
};
use crate::source::ast::{self, Named, Node, StatementKind};
use crate::types::{Signature, Types};
use crate::{Fault, Faults, Source};

/// Words that add up.
pub(crate) const AGGREGATES: [&str; 8] = [
    "count", "sum", "min", "max", "avg", "hist", "lhist", "values",
];
/// Most probes, statements of a probe, variables, and aggregates.
const MOST: usize = 64;
/// Most values that are waited with at a time.
const REGISTERS: u32 = 10;
/// Most instructions of one probe, by [`Cost`](crate::program::Cost).
const INSTRUCTIONS: u32 = 2000;
/// Room of `values(expression)` where nothing is said.
const VALUES: u64 = 256;

/// Where a source is to run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// The kernel's types, if it has told them.
    pub types: Option<&'a Types>,
    /// The function that the instrument is placed on, if that is known yet.
    pub function: Option<&'a str>,
}

/// What an expression may use.
pub(crate) struct Scope<'a> {
    hook: Hook,
    signature: Result<Signature<'a>, String>,
}

pub(crate) struct Checker<'a> {
    context: Context<'a>,
    variables: BTreeMap<String, (VariableId, Variable)>,
    aggregates: BTreeMap<String, (AggregateId, Aggregate)>,
    /// Names of variables that are stored into.
    stored: Vec<String>,
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
            faults: Vec::new(),
        };
        checker.declare(self);
        let probes: Vec<Probe> = self
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
        let mut aggregates: Vec<_> = checker.aggregates.into_values().collect();
        aggregates.sort_by_key(|(id, _)| *id);
        let program = Checked {
            name: Arc::from(self.name()),
            summary: self.summary().to_owned(),
            unit: self.unit().to_owned(),
            meaning: self.meaning(),
            once: self.once(),
            variables: variables.into_iter().map(|(_, known)| known).collect(),
            aggregates: aggregates.into_iter().map(|(_, known)| known).collect(),
            probes,
        };
        let mut faults = checker.faults;
        limits(&program, &mut faults);
        if faults.is_empty() {
            Ok(program)
        } else {
            Err(Faults::new(self.text(), faults))
        }
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
                let id = VariableId(u32::try_from(self.variables.len()).unwrap_or(u32::MAX));
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

    fn probe(&mut self, probe: &ast::Probe) -> Probe {
        let function = probe.function.as_ref().map(|named| named.text.as_str());
        let signature = match (self.context.types, function.or(self.context.function)) {
            (None, _) => Err(
                "Names of arguments need the kernel's type data (BTF), which is not there."
                    .to_owned(),
            ),
            (_, None) => {
                Err("Names of arguments are known where the instrument is placed.".to_owned())
            }
            (Some(types), Some(function)) => types.signature(function),
        };
        let scope = Scope {
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

    fn statement(&mut self, kind: &StatementKind, scope: &Scope<'_>) -> Result<ActionKind, Fault> {
        match kind {
            StatementKind::Sample(value) => Ok(ActionKind::Sample(self.numeric(value, scope)?)),
            StatementKind::Assign(name, value) => {
                if let Node::Call(word, arguments) = &value.node
                    && AGGREGATES.contains(&word.text.as_str())
                {
                    return self.update(name, word, arguments, scope);
                }
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
    fn target(&mut self, name: &Named, scope: &Scope<'_>) -> Result<VariableId, Fault> {
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

    fn update(
        &mut self,
        name: &Named,
        word: &Named,
        arguments: &[ast::Expr],
        scope: &Scope<'_>,
    ) -> Result<ActionKind, Fault> {
        if self.variables.contains_key(&name.text) {
            self.stored.push(name.text.clone());
            return Err(Fault::new(
                name.span,
                format!("@{} is declared as a variable.", name.text),
            )
            .help("Aggregates are not declared: leave out the declaration."));
        }
        let usage = |count: &str, example: &str| {
            Fault::new(word.span, format!("{} takes {count}.", word.text))
                .help(format!("Write `@{} = {example}`.", name.text))
        };
        let (kind, value) = match (word.text.as_str(), arguments) {
            ("count", []) => (AggregateKind::Count, None),
            ("count", _) => return Err(usage("nothing", "count()")),
            ("sum", [value]) => (AggregateKind::Sum, Some(value)),
            ("min", [value]) => (AggregateKind::Min, Some(value)),
            ("max", [value]) => (AggregateKind::Max, Some(value)),
            ("avg", [value]) => (AggregateKind::Average, Some(value)),
            ("hist", [value]) => (AggregateKind::Log2, Some(value)),
            ("lhist", [value, from, to, step]) => {
                (self.linear(from, to, step, word, scope)?, Some(value))
            }
            ("lhist", _) => {
                return Err(usage(
                    "a value, two bounds and a step",
                    "lhist(arg1, 0, 4096, 64)",
                ));
            }
            ("values", [value]) => (values(VALUES, word)?, Some(value)),
            ("values", [value, room]) => {
                let room = self.fixed(room, scope)?;
                (values(u64::try_from(room).unwrap_or(0), word)?, Some(value))
            }
            ("values", _) => {
                return Err(usage(
                    "a value, and how many there may be",
                    "values(arg1, 1024)",
                ));
            }
            (text, _) => return Err(usage("one value", &format!("{text}(arg1)"))),
        };
        let value = value.map(|value| self.numeric(value, scope)).transpose()?;
        let ty = value.as_ref().map_or(Type::U64, |value: &Expr| value.ty);
        let next = AggregateId(u32::try_from(self.aggregates.len()).unwrap_or(u32::MAX));
        let (id, known) = self.aggregates.entry(name.text.clone()).or_insert_with(|| {
            (
                next,
                Aggregate {
                    name: name.text.clone(),
                    kind,
                    ty,
                },
            )
        });
        if known.kind != kind {
            return Err(Fault::new(
                name.span,
                format!("@{} adds up something else elsewhere.", name.text),
            )
            .help("Give one of them another name."));
        }
        known.ty = known.ty.with(ty);
        Ok(ActionKind::Update(*id, value))
    }

    /// A number that has to be known before anything runs.
    fn fixed(&mut self, expr: &ast::Expr, scope: &Scope<'_>) -> Result<i64, Fault> {
        let value = self.numeric(expr, scope)?;
        build::as_constant(&value)
            .map(u64::cast_signed)
            .ok_or_else(|| Fault::new(expr.span, "This has to be a fixed number."))
    }

    fn linear(
        &mut self,
        from: &ast::Expr,
        to: &ast::Expr,
        step: &ast::Expr,
        word: &Named,
        scope: &Scope<'_>,
    ) -> Result<AggregateKind, Fault> {
        let bounds = (
            self.fixed(from, scope)?,
            self.fixed(to, scope)?,
            self.fixed(step, scope)?,
        );
        let wrong = Fault::new(word.span, "These are not bounds and a step of a histogram.");
        let (from, to, Ok(step)) = (bounds.0, bounds.1, u64::try_from(bounds.2)) else {
            return Err(wrong.help("The step is larger than 0."));
        };
        if step == 0 || from >= to {
            return Err(wrong
                .help("The first bound is smaller than the second, and the step larger than 0."));
        }
        let kind = AggregateKind::Linear { from, to, step };
        let words = Aggregate {
            name: String::new(),
            kind,
            ty: Type::I64,
        }
        .words();
        if words > Aggregate::LINEAR_WORDS {
            return Err(Fault::new(
                word.span,
                format!(
                    "The histogram has {} buckets; {} is the most.",
                    words - 2,
                    Aggregate::LINEAR_WORDS - 2
                ),
            )
            .help("Take a larger step."));
        }
        Ok(kind)
    }
}

fn values(room: u64, word: &Named) -> Result<AggregateKind, Fault> {
    if (2..=4096).contains(&room) && room.is_power_of_two() {
        Ok(AggregateKind::Values {
            pairs_log2: room.ilog2(),
        })
    } else {
        Err(Fault::new(word.span, "There is no room of this size.")
            .help("Write 2, 4, 8 and so on up to 4096."))
    }
}
