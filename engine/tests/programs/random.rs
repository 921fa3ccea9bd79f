//! Random programs.

use std::sync::Arc;

use gilk_instruments::program::{
    Action, ActionKind, Aggregate, AggregateId, AggregateKind, BinaryOp, Checked, Event, Expr,
    ExprKind, Gpr, Half, Hook, Input, Key, Keys, Mapped, Probe, Scope, Span, Type, UnaryOp,
    Variable, VariableId, Width,
};
use gilk_samples::Meaning;
use gilk_samples::ids::Ids;
use proptest::prelude::*;

/// Numbers at which things change.
fn numbers() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..5,
        any::<u64>(),
        any::<u32>().prop_map(u64::from),
        prop::sample::select(vec![
            u64::MAX,
            1 << 63,
            (1 << 63) - 1,
            1 << 31,
            (1 << 31) - 1,
            (-1i64 << 31) as u64,
            u64::MAX - 77,
            64,
        ]),
    ]
}

fn inputs() -> impl Strategy<Value = Input> {
    prop_oneof![
        (0u8..9).prop_map(Input::Argument),
        Just(Input::Returned),
        prop::sample::select(Gpr::ALL.to_vec()).prop_map(Input::Register),
        Just(Input::Task),
        Just(Input::Pid),
        Just(Input::Tid),
        Just(Input::Comm(Half::First)),
        Just(Input::Comm(Half::Second)),
        Just(Input::Cpu),
        Just(Input::Block),
        Just(Input::Identifier),
        prop::sample::select(vec![Event::Cycles, Event::CacheMisses]).prop_map(Input::Event),
    ]
}

fn types() -> impl Strategy<Value = Type> {
    prop::sample::select(vec![Type::I64, Type::U64])
}

/// With what constants make computed, as the checker does it.
fn folded(kind: ExprKind) -> ExprKind {
    let constant = |expression: &Expr| match expression.kind {
        ExprKind::Constant(bits) => Some(bits),
        _ => None,
    };
    let constant_value = match &kind {
        ExprKind::Extend {
            value,
            width,
            signed,
        } => constant(value).map(|bits| width.extend(bits, *signed)),
        ExprKind::Unary(op, one) => constant(one).map(|bits| op.apply(bits)),
        ExprKind::Binary(op, left, right) => {
            let both = constant(left).zip(constant(right));
            both.map(|(left, right)| op.apply(left, right))
        }
        ExprKind::And(left, right) => match (constant(left), constant(right)) {
            (Some(0), _) | (_, Some(0)) => Some(0),
            (Some(_), Some(_)) => Some(1),
            _ => None,
        },
        ExprKind::Or(left, right) => match (constant(left), constant(right)) {
            (Some(0), Some(0)) => Some(0),
            (Some(1..), _) | (_, Some(1..)) => Some(1),
            _ => None,
        },
        ExprKind::Select { condition, yes, no } => match constant(condition) {
            Some(0) => return no.kind.clone(),
            Some(_) => return yes.kind.clone(),
            None => None,
        },
        _ => None,
    };
    constant_value.map_or(kind, ExprKind::Constant)
}

fn expr(kind: ExprKind) -> Expr {
    let kind = folded(kind);
    Expr {
        kind,
        ty: Type::U64,
        span: Span::default(),
    }
}

/// Bytes of the running task that can be read.
pub(crate) const TASK_BYTES: u64 = 0x200;

/// An address made of a number: of the running task's memory, of the first page, where nothing is, or of
/// the upper half.
fn memory(number: Expr, kind: u8) -> Expr {
    let with = |op, left, right| expr(ExprKind::Binary(op, Box::new(left), Box::new(right)));
    let constant = |bits| expr(ExprKind::Constant(bits));
    let task = || expr(ExprKind::Input(Input::Task));
    // Whose address it is must not be known from how it is made: then a part of the code would never run.
    let any = |number| with(BinaryOp::Add, task(), number);
    match kind {
        0 => {
            let offset = with(BinaryOp::And, number, constant(TASK_BYTES - 8));
            with(BinaryOp::Add, task(), offset)
        }
        1 => with(BinaryOp::And, any(number), constant(0xff0)),
        _ => with(BinaryOp::Or, any(number), constant(1 << 63)),
    }
}

pub(crate) fn expressions() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        numbers().prop_map(ExprKind::Constant),
        inputs().prop_map(ExprKind::Input),
        (0u32..4).prop_map(|id| ExprKind::Variable(VariableId(id))),
    ]
    .prop_map(expr);
    leaf.prop_recursive(4, 24, 3, |inner| {
        let inner = inner.prop_map(Box::new);
        let widths = prop::sample::select(vec![Width::B1, Width::B2, Width::B4, Width::B8]);
        let load_widths = prop::sample::select(vec![Width::B1, Width::B2, Width::B4, Width::B8]);
        let unary = prop::sample::select(vec![UnaryOp::Negate, UnaryOp::Invert, UnaryOp::Not]);
        let binary = prop::sample::select(BinaryOp::ALL.to_vec());
        prop_oneof![
            (inner.clone(), widths, any::<bool>()).prop_map(|(value, width, signed)| {
                ExprKind::Extend {
                    value,
                    width,
                    signed,
                }
            }),
            (unary, inner.clone()).prop_map(|(op, one)| ExprKind::Unary(op, one)),
            (inner.clone(), load_widths, any::<bool>(), 0..3u8).prop_map(
                |(address, width, signed, kind)| ExprKind::Load {
                    address: Box::new(memory(*address, kind)),
                    width,
                    signed,
                }
            ),
            (binary.clone(), inner.clone(), inner.clone())
                .prop_map(|(op, left, right)| ExprKind::Binary(op, left, right)),
            (binary, inner.clone(), numbers()).prop_map(|(op, left, right)| {
                ExprKind::Binary(op, left, Box::new(expr(ExprKind::Constant(right))))
            }),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| ExprKind::And(left, right)),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| ExprKind::Or(left, right)),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(condition, yes, no)| ExprKind::Select { condition, yes, no }),
        ]
        .prop_map(expr)
    })
}

/// Keys of one to three words.
fn keys() -> impl Strategy<Value = Keys> {
    let number = || types().prop_map(Key::Number);
    let second = prop_oneof![Just(None), number().prop_map(Some), Just(Some(Key::Name)),];
    (number(), second).prop_map(|(first, second)| Keys(first, second))
}

fn mapped() -> impl Strategy<Value = Mapped> {
    prop_oneof![
        Just(Mapped::Count),
        Just(Mapped::Sum),
        Just(Mapped::Average),
        Just(Mapped::Log2),
        (-100i64..100, 1i64..200, 1u64..20).prop_map(|(from, room, step)| Mapped::Linear {
            from,
            to: from + room,
            step,
        }),
    ]
}

/// The argument of an update: a list for a map, made of the parts of an expression; none for a count.
fn argument(aggregate: &Aggregate, value: Option<Expr>) -> Option<Expr> {
    let (keys, of) = match aggregate.kind {
        AggregateKind::Count => return None,
        AggregateKind::Map { keys, of, .. } => (keys.words() as usize, of),
        _ => return value,
    };
    let value = value?;
    let (span, ty) = (value.span, aggregate.ty);
    let words = keys + usize::from(of != Mapped::Count);
    let operands: Vec<Expr> = value.operands().into_iter().cloned().collect();
    let parts = std::iter::once(value).chain(operands);
    let constant = |bits| Expr {
        kind: ExprKind::Constant(bits),
        ty,
        span,
    };
    let list = parts.chain((0u64..).map(|bits| constant(bits << 31 | 5)));
    let kind = ExprKind::List(list.take(words).collect());
    Some(Expr { kind, ty, span })
}

fn aggregates() -> impl Strategy<Value = Ids<AggregateId, Aggregate>> {
    let linear =
        (-100i64..100, 1i64..200, 1u64..20).prop_map(|(from, room, step)| AggregateKind::Linear {
            from,
            to: from + room,
            step,
        });
    let kinds = prop_oneof![
        Just(AggregateKind::Count),
        Just(AggregateKind::Sum),
        Just(AggregateKind::Min),
        Just(AggregateKind::Max),
        Just(AggregateKind::Average),
        Just(AggregateKind::Log2),
        (1u32..6).prop_map(|room_log2| AggregateKind::Values { room_log2 }),
        (keys(), mapped(), 1u32..6).prop_map(|(keys, of, room_log2)| AggregateKind::Map {
            keys,
            of,
            room_log2
        }),
        linear,
    ];
    let aggregate = (kinds, types()).prop_map(|(kind, ty)| Aggregate {
        name: String::from("a"),
        kind,
        ty,
        names: Vec::new(),
    });
    prop::collection::vec(aggregate, 1..4).prop_map(Ids::from)
}

fn actions(aggregates: usize) -> impl Strategy<Value = Action> {
    let variable = || (0u32..4).prop_map(VariableId);
    // Numbers around the bounds of histograms come seldom by chance.
    let small = (-120i64..220).prop_map(|small| expr(ExprKind::Constant(small as u64)));
    let near = (0u8..6, -120i64..220).prop_map(|(argument, by)| {
        let low = Box::new(expr(ExprKind::Binary(
            BinaryOp::And,
            Box::new(expr(ExprKind::Input(Input::Argument(argument)))),
            Box::new(expr(ExprKind::Constant(255))),
        )));
        let by = Box::new(expr(ExprKind::Constant(by as u64)));
        expr(ExprKind::Binary(BinaryOp::Subtract, low, by))
    });
    let values = prop_oneof![2 => expressions(), 1 => small, 1 => near];
    let update = (0..aggregates as u32, values)
        .prop_map(|(id, value)| ActionKind::Update(AggregateId(id), Some(value)));
    // The number of a line's format, and its arguments.
    let line = prop::collection::vec(expressions(), 0..4).prop_map(|words| {
        let format = expr(ExprKind::Constant(words.len() as u64));
        let list = std::iter::once(format).chain(words).collect();
        ActionKind::Sample(expr(ExprKind::List(list)))
    });
    prop_oneof![
        expressions().prop_map(ActionKind::Sample),
        line,
        (variable(), expressions()).prop_map(|(id, value)| ActionKind::Store(id, value)),
        (variable(), expressions()).prop_map(|(id, value)| ActionKind::Add(id, value)),
        update,
    ]
    .prop_map(|kind| Action {
        kind,
        span: Span::default(),
    })
}

/// A program of one probe, with a variable of each scope.
pub(crate) fn program() -> impl Strategy<Value = Checked> {
    aggregates().prop_flat_map(|aggregates| {
        let predicate = prop::option::of(expressions());
        let actions = prop::collection::vec(actions(aggregates.len()), 1..4);
        (Just(aggregates), predicate, actions).prop_map(|(aggregates, predicate, mut actions)| {
            for action in &mut actions {
                if let ActionKind::Update(id, value) = &mut action.kind {
                    *value = argument(&aggregates[*id], value.take());
                }
            }
            Checked {
                aggregates,
                ..of_probe(predicate, actions)
            }
        })
    })
}

pub(crate) fn of_probe(predicate: Option<Expr>, actions: Vec<Action>) -> Checked {
    let variable = |name: &str, scope| Variable {
        name: name.to_owned(),
        scope,
        shared: false,
        ty: Type::U64,
    };
    Checked {
        name: Arc::from("random"),
        summary: String::new(),
        unit: String::new(),
        meaning: Meaning::Duration,
        texts: None,
        once: false,
        variables: vec![
            variable("c", Scope::Cpu),
            variable("g", Scope::Global),
            variable("t", Scope::Thread),
            variable("a", Scope::Call),
        ]
        .into(),
        aggregates: vec![Aggregate {
            name: String::from("n"),
            kind: AggregateKind::Count,
            ty: Type::U64,
            names: Vec::new(),
        }]
        .into(),
        probes: vec![Probe {
            hook: Hook::Hit,
            function: None,
            predicate,
            actions,
            span: Span::default(),
        }],
    }
}
