//! A whole instrument, and what it costs.

use super::{checked, show};
use crate::program::{ActionKind, AggregateKind, Expr, ExprKind, Gpr, Input, Scope, Type, Width};

#[test]
fn a_whole_instrument_is_checked() {
    let program = checked(
        "instrument elapsed \"Time.\" unit \"ticks\" duration;\ncall @start; shared cpu s64 @n;\n\
         entry { @start = tsc; @n++; @seen = count() }\n\
         return / @start != 0 / { sample(tsc - @start); @n -= 2; @t = lhist(tsc - @start, 0, 100, 30) }",
        "vfs_read",
    );
    assert_eq!(
        (&*program.name, program.unit.as_str()),
        ("elapsed", "ticks")
    );
    assert_eq!(program.meaning, gilk_samples::Meaning::Duration);
    assert!(program.of_function() && !program.once);
    let variables = program.variables.values();
    assert_eq!(variables[0].scope, Scope::Call);
    assert_eq!(
        (variables[1].scope, variables[1].shared, variables[1].ty),
        (Scope::Cpu, true, Type::I64)
    );
    assert_eq!(
        program.aggregates.values()[1].kind,
        AggregateKind::Linear {
            from: 0,
            to: 100,
            step: 30
        }
    );
    assert_eq!(program.aggregates.values()[1].words(), 6);
    let ActionKind::Add(id, value) = &program.probes[1].actions[1].kind else {
        panic!("{:?}", program.probes[1].actions)
    };
    assert_eq!((id.0, show(value)), (1, "-2".to_owned()));
    let cost = program.cost(&program.probes[1]);
    assert!(cost.instructions > 40 && cost.loads == 0, "{cost}");
    assert_eq!(
        program.probes[1]
            .expressions()
            .flat_map(Expr::inputs)
            .collect::<Vec<_>>(),
        [Input::Tsc, Input::Tsc]
    );
    let load = checked("hit { sample(file->f_path.dentry->d_flags) }", "vfs_read");
    let cost = load.cost(&load.probes[0]);
    assert_eq!(cost.to_string(), "at most 34 instructions, 2 guarded loads");
    let register = checked("hit { sample(reg(\"r15\")) }", "vfs_read");
    assert_eq!(
        register.probes[0].actions[0].kind.value().unwrap().kind,
        ExprKind::Input(Input::Register(Gpr::R15))
    );
    assert_eq!(Width::B4.extend(0xffff_ffff, true), u64::MAX);
}
