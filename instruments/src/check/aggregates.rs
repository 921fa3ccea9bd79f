//! Statements that add up.

use gilk_samples::ids::Id as _;

use super::value::Value;
use super::{Checker, HookScope, build};
use crate::program::{
    ActionKind, Aggregate, AggregateId, AggregateKind, Expr, ExprKind, Half, Input, Key, Keys,
    Mapped, Type, ValueNames,
};
use crate::source::ast::{self, Named};
use crate::source::words::{self, AGGREGATES};
use crate::{Fault, nearest};

/// Room of `values(expression)` where nothing is said.
const VALUES: u64 = 256;
/// Most words of a table of stacks: half a bank of counters of `ilk.ko` (`ILK_BANK_COUNTERS`), so that a session has
/// room for thirty of them.
const STACK_WORDS: u32 = 2048;

/// Returns the fault of a word that is neither an aggregate nor another word of the language.
pub(super) fn unknown(word: &Named) -> Fault {
    let fault = Fault::new(word.span, format!("There is no aggregate {}.", word.text));
    match nearest(&word.text, AGGREGATES) {
        Some(near) => fault.did_you_mean(near.to_owned()),
        None => fault.help(format!("Aggregates are {}.", AGGREGATES.join(", "))),
    }
}

impl Checker<'_> {
    pub(super) fn update(
        &mut self,
        name: &Named,
        word: &Named,
        arguments: &[ast::ExprNode],
        scope: &HookScope<'_>,
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
        let id = self.aggregate(name, kind, ty, &[])?;
        Ok(ActionKind::Update(id, value))
    }

    /// Returns the aggregate of a name, which is that of all its statements.
    fn aggregate(
        &mut self,
        name: &Named,
        kind: AggregateKind,
        ty: Type,
        names: &[ValueNames],
    ) -> Result<AggregateId, Fault> {
        let next = AggregateId::new(self.aggregates.len());
        let (id, aggregate) = self.aggregates.entry(name.text.clone()).or_insert_with(|| {
            (
                next,
                Aggregate {
                    name: name.text.clone(),
                    kind,
                    ty,
                    names: names.to_vec(),
                },
            )
        });
        if aggregate.kind != kind {
            return Err(Fault::new(
                name.span,
                format!("@{} adds up something else elsewhere.", name.text),
            )
            .help("Give one of them another name."));
        }
        aggregate.ty = aggregate.ty.with(ty);
        // Keys of two types have the names of neither.
        if aggregate.names.as_slice() != names {
            aggregate.names = Vec::new();
        }
        Ok(*id)
    }

    /// Checks `@name[keys] = word(arguments)`.
    pub(super) fn update_map(
        &mut self,
        name: &Named,
        keys: &[ast::ExprNode],
        (word, arguments): (&Named, &[ast::ExprNode]),
        scope: &HookScope<'_>,
    ) -> Result<ActionKind, Fault> {
        if self.variables.contains_key(&name.text) {
            self.stored.push(name.text.clone());
            let fault = Fault::new(name.span, format!("@{} is a variable.", name.text));
            return Err(fault.help("Give the map another name; aggregates are not declared."));
        }
        let usage = |example: &str| {
            let what = format!("{} does not fit here.", word.text);
            let help = format!("Write `@{}[key] = {example}`.", name.text);
            Err(Fault::new(word.span, what).help(help))
        };
        let (of, value) = match (word.text.as_str(), arguments) {
            ("count", []) => (Mapped::Count, None),
            ("sum", [value]) => (Mapped::Sum, Some(value)),
            ("avg", [value]) => (Mapped::Average, Some(value)),
            ("hist", [value]) => (Mapped::Log2, Some(value)),
            ("lhist", [value, from, to, step]) => {
                let AggregateKind::Linear { from, to, step } =
                    self.linear(from, to, step, word, scope)?
                else {
                    return usage("lhist(arg1, 0, 4096, 64)");
                };
                (Mapped::Linear { from, to, step }, Some(value))
            }
            ("min" | "max", [_]) => {
                let what = format!("{} has no keys.", word.text);
                let help = "A table of keys has sums only: `hist(value)` shows the range.";
                return Err(Fault::new(word.span, what).help(help));
            }
            ("count", _) => return usage("count()"),
            ("lhist", _) => return usage("lhist(arg1, 0, 4096, 64)"),
            ("values", _) => return usage("count()"),
            (text, _) if words::find(text).is_none() => return Err(unknown(word)),
            (text, _) if !AGGREGATES.contains(&text) => {
                let fault = Fault::new(word.span, "Only aggregates have keys.");
                return Err(fault.help(format!("Write `@{}[key] = count()`.", name.text)));
            }
            (text, _) => return usage(&format!("{text}(arg1)")),
        };
        let mut list = Vec::new();
        let mut parts = Vec::new();
        let mut names = Vec::new();
        for key in keys {
            let value = self.value(key, scope)?;
            names.push(self.value_names(&value));
            parts.push(match value {
                Value::Comm(span) => {
                    let half = |half| self.of_running(Input::Comm(half), span);
                    list.extend([Half::First, Half::Second].map(half));
                    Key::Name
                }
                Value::Memory(text, span) => {
                    list.extend(self.text_words(&text, span));
                    Key::Name
                }
                value => {
                    let number = self.number(value)?;
                    let ty = number.ty;
                    list.push(number);
                    Key::Number(ty)
                }
            });
        }
        if names.iter().all(ValueNames::is_empty) {
            names.clear();
        }
        // The values of one number are counted without its names.
        let by_stack = list.iter().any(Expr::is_stack);
        let plain = names.is_empty() && !by_stack;
        if let ([Key::Number(ty)], Mapped::Count, true) = (parts.as_slice(), of, plain)
            && let Some(number) = list.pop()
        {
            let id = self.aggregate(name, values(VALUES, word)?, *ty, &[])?;
            return Ok(ActionKind::Update(id, Some(number)));
        }
        let keys = match parts.as_slice() {
            [one] => Keys(*one, None),
            [one, two] => Keys(*one, Some(*two)),
            _ => {
                let fault = Fault::new(name.span, "A key has one or two values.");
                return Err(
                    fault.help("Leave one out, or put two small ones into one: `a << 32 | b`.")
                );
            }
        };
        if keys.words() > Keys::MOST_WORDS {
            return Err(Fault::new(name.span, "The key is too long.")
                .help("It has two texts, or one and a number: `@names[comm, str(pointer)]`."));
        }
        let mut ty = Type::U64;
        if let Some(value) = value {
            let value = self.numeric(value, scope)?;
            ty = value.ty;
            list.push(value);
        }
        let kind = AggregateKind::Map {
            keys,
            of,
            room_log2: room_log2(keys, of, by_stack),
        };
        let id = self.aggregate(name, kind, ty, &names)?;
        let list = Expr {
            kind: ExprKind::List(list.into()),
            ty,
            span: word.span,
        };
        Ok(ActionKind::Update(id, Some(list)))
    }

    /// A number that has to be known before anything runs.
    fn fixed(&mut self, expr: &ast::ExprNode, scope: &HookScope<'_>) -> Result<i64, Fault> {
        let value = self.numeric(expr, scope)?;
        build::as_constant(&value)
            .map(u64::cast_signed)
            .ok_or_else(|| Fault::new(expr.span, "This has to be a fixed number."))
    }

    fn linear(
        &mut self,
        from: &ast::ExprNode,
        to: &ast::ExprNode,
        step: &ast::ExprNode,
        word: &Named,
        scope: &HookScope<'_>,
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
            names: Vec::new(),
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

/// Returns the size of a map's table: as many buckets as fit into half a bank of counters for stacks, of which there
/// are many; twice as many as usual for histograms, whose entries are pairs of a key and an index, where they fit.
fn room_log2(keys: Keys, of: Mapped, by_stack: bool) -> u32 {
    let usual = VALUES.ilog2();
    if by_stack {
        return (STACK_WORDS / of.table(keys, 0).sums()).ilog2();
    }
    match of {
        Mapped::Log2 | Mapped::Linear { .. } if keys.words() <= 2 => usual + 1,
        _ => usual,
    }
}

fn values(room: u64, word: &Named) -> Result<AggregateKind, Fault> {
    if (2..=1024).contains(&room) && room.is_power_of_two() {
        Ok(AggregateKind::Values {
            room_log2: room.ilog2(),
        })
    } else {
        Err(Fault::new(word.span, "A table cannot have this size.")
            .help("Write 2, 4, 8 and so on up to 1024."))
    }
}
