use super::*;
use crate::program::{
    AggregateKind, BinaryOp, Expr, ExprKind, Gpr, Input, Scope as VariableScope, Width,
};
use crate::trial::{self, check};
use crate::types::tests::types;

fn checked(text: &str, function: &str) -> Checked {
    let types = types();
    let context = Context {
        types: Some(&types),
        function: Some(function),
    };
    Source::parse(text)
        .and_then(|source| source.check(&context))
        .unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

/// The only expression of `hook { sample(expression) }`, as text.
fn shown(hook: &str, expression: &str, function: &str) -> String {
    let program = checked(&format!("{hook} {{ sample({expression}) }}"), function);
    show(program.probes[0].actions[0].kind.value().unwrap())
}

fn show(expr: &Expr) -> String {
    match &expr.kind {
        ExprKind::Constant(bits) => format!("{}", bits.cast_signed()),
        ExprKind::Input(input) => match input {
            Input::Argument(number) => format!("arg{number}"),
            other => format!("{other:?}").to_lowercase(),
        },
        ExprKind::Variable(id) => format!("@{}", id.0),
        ExprKind::Load {
            address,
            width,
            signed,
        } => {
            format!(
                "{}{}[{}]",
                if *signed { "s" } else { "u" },
                width.bytes() * 8,
                show(address)
            )
        }
        ExprKind::Extend {
            value,
            width,
            signed,
        } => {
            format!(
                "{}{}({})",
                if *signed { "s" } else { "u" },
                width.bytes() * 8,
                show(value)
            )
        }
        ExprKind::Unary(op, of) => format!("{}{}", op.sign(), show(of)),
        ExprKind::Binary(op, left, right) => {
            format!("({} {} {})", show(left), op.sign(), show(right))
        }
        ExprKind::And(left, right) => format!("({} && {})", show(left), show(right)),
        ExprKind::Or(left, right) => format!("({} || {})", show(left), show(right)),
        ExprKind::Select { condition, yes, no } => {
            format!("({} ? {} : {})", show(condition), show(yes), show(no))
        }
    }
}

#[test]
fn names_and_paths_become_loads_at_offsets() {
    for (expression, becomes) in [
        (
            "arg0->f_path.dentry->d_name.name",
            "u64[(u64[(arg0 + 16)] + 40)]",
        ),
        ("file->f_path.dentry->d_flags", "u32[u64[(arg0 + 16)]]"),
        ("file->f_small", "s32[(arg0 + 24)]"),
        ("file->f_three", "((u32[arg0] << 61) >> 61)"),
        ("file->f_five", "((u32[arg0] << 56) >> 59)"),
        ("file->f_wide", "((u64[(arg0 + 56)] << 1) >> 61)"),
        ("file->f_list[2]", "s32[(arg0 + 48)]"),
        ("file->f_list[count]", "s32[((arg0 + 40) + (arg2 * 4))]"),
        ("&file->f_list[1]", "(arg0 + 44)"),
        ("*pos", "s64[arg3]"),
        ("count", "arg2"),
        ("buf[3]", "s8[(arg1 + 3)]"),
        ("curtask->prio", "s32[(task + 8)]"),
        ("((struct dentry *)arg1)->d_flags", "u32[arg1]"),
        ("((u64 *)arg0)[2]", "u64[(arg0 + 16)]"),
        (
            "file->f_tag == \"ab\"",
            "((u16[(arg0 + 32)] == 25185) && (u8[(arg0 + 34)] == 0))",
        ),
        (
            "file->f_tag == \"12345678\"",
            "(u64[(arg0 + 32)] == 4050765991979987505)",
        ),
        (
            "comm != \"sh\"",
            "!((comm(first) == 26739) && (comm(second) == 0))",
        ),
        ("TASK_BUSY + 1", "8"),
        (
            "reg(\"r12\") + reg(\"eax\")",
            "(register(r12) + u32(register(rax)))",
        ),
        ("2 + 3 * 4 - (1 << 3)", "6"),
        ("-8 >> 1", "-4"),
        ("(u8)300", "44"),
        ("arg2 > 1 ? cpu : 0 && arg2", "((arg2 > 1) ? cpu : 0)"),
    ] {
        assert_eq!(
            shown("hit", expression, "vfs_read"),
            becomes,
            "{expression}"
        );
    }
    assert_eq!(
        shown("hit", "*(u16 *)((u64)arg0 + 6)", "vfs_read"),
        "u16[(arg0 + 6)]"
    );
    assert_eq!(shown("return", "retval", "vfs_read"), "returned");
    assert_eq!(
        shown("return", "retval < 0", "try_to_wake_up"),
        "(s32(returned) < 0)"
    );
    assert_eq!(shown("hit", "state", "try_to_wake_up"), "u32(arg1)");
    assert_eq!(shown("hit", "flags", "by_structure"), "s32(arg2)");
    assert_eq!(shown("entry:vfs_read", "count", "nowhere"), "arg2");
}

#[test]
fn signs_are_those_of_the_operands() {
    let op = |expression: &str, function: &str| {
        let program = checked(&format!("hit {{ sample({expression}) }}"), function);
        match program.probes[0].actions[0].kind.value().unwrap().kind {
            ExprKind::Binary(op, ..) => op,
            ref other => panic!("{other:?}"),
        }
    };
    assert_eq!(op("count < 5", "vfs_read"), BinaryOp::LessUnsigned);
    assert_eq!(op("wake_flags < 5", "try_to_wake_up"), BinaryOp::LessSigned);
    assert_eq!(
        op("state < wake_flags", "try_to_wake_up"),
        BinaryOp::LessSigned
    );
    assert_eq!(op("*pos / 2", "vfs_read"), BinaryOp::DivideSigned);
    assert_eq!(op("*pos / count", "vfs_read"), BinaryOp::DivideUnsigned);
    assert_eq!(op("*pos >> count", "vfs_read"), BinaryOp::ShiftRightSigned);
    assert_eq!(
        op("(s64)count >= -1", "vfs_read"),
        BinaryOp::GreaterOrEqualSigned
    );
}

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
    assert_eq!(program.variables[0].scope, VariableScope::Call);
    assert_eq!(
        (
            program.variables[1].scope,
            program.variables[1].shared,
            program.variables[1].ty
        ),
        (VariableScope::Cpu, true, Type::I64)
    );
    assert_eq!(
        program.aggregates[1].kind,
        AggregateKind::Linear {
            from: 0,
            to: 100,
            step: 30
        }
    );
    assert_eq!(program.aggregates[1].words(), 6);
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
    assert_eq!(load.cost_at(Hook::Hit).loads, 2);
    assert_eq!(
        load.cost_at(Hook::Hit).to_string(),
        "at most 34 instructions, 2 guarded loads"
    );
    let register = checked("hit { sample(reg(\"r15\")) }", "vfs_read");
    assert_eq!(
        register.probes[0].actions[0].kind.value().unwrap().kind,
        ExprKind::Input(Input::Register(Gpr::R15))
    );
    assert_eq!(Width::B4.extend(0xffff_ffff, true), u64::MAX);
}

/// Message and advice of the first fault.
fn fault(text: &str, function: Option<&str>, with_types: bool) -> String {
    let types = types();
    let context = Context {
        types: with_types.then_some(&types),
        function,
    };
    let faults = match Source::parse(text).unwrap().check(&context) {
        Ok(program) => panic!("{text} was taken: {program:?}"),
        Err(faults) => faults,
    };
    let first = &faults.list[0];
    let marked = &text[first.span.start as usize..first.span.end as usize];
    format!("{marked}: {} {}", first.message, first.help)
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    for (text, says) in [
        (
            "hit { sample(rdpmc) }",
            "rdpmc: There is no value named rdpmc. The processor's counters that can be read are cycles, instructions, ref_cycles, cache_references, cache_misses, branches, branch_misses.",
        ),
        (
            "hit { sample(conut) }",
            "conut: There is no value named conut. Did you mean count?",
        ),
        (
            "hit { sample(retval) }",
            "retval: What the function returns is not known at its blocks. Write it in a probe `return { … }`; `reg(\"ax\")` is what the register holds here.",
        ),
        (
            "return { sample(count) }",
            "count: Where the function returns it may have overwritten its arguments. Keep it: `thread @a; entry { @a = arg0 } return { sample(@a) }`.",
        ),
        (
            "hit { sample(arg6) }",
            "arg6: Arguments from arg6 on are on the stack, and where is known at the entry only. Keep it: `thread @a; entry { @a = arg6 }`.",
        ),
        (
            "entry { sample(arg4) }",
            "arg4: The function takes 4 arguments: file, buf, count, pos. Write `reg(\"r8\")` for whatever is in the register.",
        ),
        (
            "hit { sample(file->f_pat) }",
            "f_pat: struct file has no field f_pat. Did you mean f_path?",
        ),
        (
            "hit { sample(file.f_path) }",
            "f_path: This is a pointer to struct file. Write `->f_path`.",
        ),
        (
            "hit { sample(file->f_path->dentry) }",
            "dentry: This is no pointer, but a struct path. Write `.dentry`.",
        ),
        (
            "hit { sample(file->f_path.dentry.d_flags) }",
            "d_flags: This is a pointer (struct dentry *). Write `->d_flags`.",
        ),
        (
            "hit { sample(file->f_path) }",
            "file->f_path: This is a structure (struct path), not a number. Write `.field` behind it, or `&` before it.",
        ),
        (
            "hit { sample(file->f_list) }",
            "file->f_list: This is an array (int[4]), not a number. Write `[0]` behind it, or `&` before it.",
        ),
        (
            "hit { sample(file->f_list[4]) }",
            "4: The array has 4 elements, 0 to 3. ",
        ),
        (
            "hit { sample(count->x) }",
            "count: What this points to is not known. Cast it: `((struct name *)pointer)->field`.",
        ),
        (
            "hit { sample(*count) }",
            "count: How much is to be read here is not known. Cast it: `*(u64 *)address`, or `u32`, `u16`, `u8`.",
        ),
        (
            "hit { sample(&file->f_three) }",
            "&file->f_three: A bit field has no address. ",
        ),
        (
            "hit { sample(file + 8) }",
            "file + 8: In C this would count in units of struct file. Write `pointer[n]`, or `(u64)pointer + bytes`.",
        ),
        (
            "hit { sample((struct fiel *)arg1) }",
            "struct fiel *: The kernel has no struct fiel. Did you mean struct file?",
        ),
        (
            "hit { sample((struct file)arg1) }",
            "struct file: Numbers can be cast to numbers and pointers only. Write `(struct file *)`.",
        ),
        (
            "hit / count < 0 / { sample(1) }",
            "count < 0: One side has no sign, so this always comes out the same. Cast it: `(s64)value`, or `(s32)retval` where the function returns an int.",
        ),
        (
            "hit / comm / { sample(1) }",
            "comm: The name of a thread is not a number. Compare it with a string: `comm == \"sh\"`.",
        ),
        (
            "hit { sample(comm == \"a name that is too long\") }",
            "\"a name that is too long\": The string has 23 bytes; 15 is the most here. ",
        ),
        (
            "hit { sample(file->f_tag == \"123456789\") }",
            "\"123456789\": The text there has 8 bytes at most: this is never equal. ",
        ),
        (
            "hit { sample(count == \"x\") }",
            "count: This is not text that a string could be compared with. Compare `comm`, an array of characters, or a pointer: `(u8 *)address == \"text\"`.",
        ),
        (
            "hit { sample(reg(\"bh\")) }",
            "\"bh\": There is no register \"bh\" to be read. Did you mean `reg(\"bx\")`?",
        ),
        (
            "hit { @x = 1 }",
            "@x: @x is not declared. Write `thread @x;`, `call @x;`, `cpu @x;` or `global @x;` before the probes.",
        ),
        (
            "thread @start; hit { @strat = 1; @start = 2 }",
            "@strat: @strat is not declared. Did you mean @start?",
        ),
        (
            "thread @x; hit { sample(@x) }",
            "@x: Nothing is ever stored in @x. Store something, leave it out, or declare it `shared` if another instrument stores it.",
        ),
        (
            "call @x; pre { @x = 1 }",
            "@x: @x belongs to one call, which is known at its entry and exits only. Declare it `thread @x;`.",
        ),
        (
            "thread @x; hit { @x = hist(arg1) }",
            "@x: @x is declared as a variable. Aggregates are not declared: leave out the declaration.",
        ),
        (
            "hit { @n = count(); sample(@n) }",
            "@n: @n is added up, and not read by the program. Screens and files show it; a variable can be read: `global @name; … @name += 1`.",
        ),
        (
            "hit { @n = count(1) }",
            "count: count takes nothing. Write `@n = count()`.",
        ),
        (
            "hit { @n = lhist(count, 0, 100) }",
            "lhist: lhist takes a value, two bounds and a step. Write `@n = lhist(arg1, 0, 4096, 64)`.",
        ),
        (
            "hit { @n = lhist(count, 0, 100000, 1) }",
            "lhist: The histogram has 100000 buckets; 256 is the most. Take a larger step.",
        ),
        (
            "hit { @n = lhist(count, 0, cpu, 1) }",
            "cpu: This has to be a fixed number. ",
        ),
        (
            "hit { @n = values(count, 100) }",
            "values: There is no room of this size. Write 2, 4, 8 and so on up to 1024.",
        ),
        (
            "hit { @n = count(); @n = sum(1) }",
            "@n: @n adds up something else elsewhere. Give one of them another name.",
        ),
        ("hit { sample(1 / 0) }", "0: This divides by zero. "),
        (
            "hit { sample(hist(1)) }",
            "hist: hist is no value. Aggregates are statements: `@name = hist(…)`.",
        ),
        (
            "hit { }",
            "hit { }: The probe does nothing. Write `@hits = count()` or `sample(value)` between its braces.",
        ),
        (
            "global @a; hit { sample(1) }",
            "@a: Nothing is ever stored in @a. Store something, leave it out, or declare it `shared` if another instrument stores it.",
        ),
    ] {
        let said = fault(text, Some("vfs_read"), true);
        assert_eq!(said, says, "{text}");
    }
    assert!(
        fault("return { sample(retval) }", Some("wake_up_new_task"), true)
            .contains("returns nothing")
    );
    assert!(fault("hit { sample(path) }", Some("by_structure"), true).contains("whole structure"));
    assert!(fault("hit { sample(a) }", Some("twice"), true).contains("several functions twice"));
}

#[test]
fn without_types_names_and_paths_say_what_they_need() {
    assert_eq!(
        fault("hit { sample(arg0->x) }", Some("vfs_read"), false),
        "arg0: What this points to is not known. Fields need the kernel's type data (BTF), which is not there; \
         write `*(u64 *)(address + offset)`."
    );
    assert_eq!(
        fault("hit { sample(file) }", Some("vfs_read"), false),
        "file: There is no value named file. Names of arguments need the kernel's type data (BTF), which is not \
         there. Arguments are `arg0`, `arg1` and so on."
    );
    assert!(
        fault("hit { sample(((struct file *)arg0)->x) }", None, false)
            .contains("which is not there")
    );
    let source =
        Source::parse("entry { sample(*(u32 *)(arg0 + 8)) } return { sample((s32)retval < 0) }")
            .unwrap();
    let program = source.check(&Context::default()).unwrap();
    assert_eq!(
        show(program.probes[0].actions[0].kind.value().unwrap()),
        "u32[(arg0 + 8)]"
    );
}

/// Inputs with fixed values; nothing else.
struct Fixed;

/// The value of each argument.
const ARGUMENTS: [u64; 4] = [7, u64::MAX - 4, 0x8000_0000_0000_0000, 0xffff_fff0];

impl crate::interpret::Machine for Fixed {
    fn input(&mut self, input: Input) -> u64 {
        match input {
            Input::Argument(number) => ARGUMENTS[usize::from(number)],
            other => panic!("{other:?}"),
        }
    }
    fn load(&mut self, _: u64, _: Width) -> Option<u64> {
        None
    }
    fn read(&mut self, _: VariableId) -> u64 {
        0
    }
    fn write(&mut self, _: VariableId, _: u64) {}
    fn update(&mut self, _: AggregateId, _: u64) {}
    fn sample(&mut self, _: u64) {}
    fn fault(&mut self) {}
}

fn expression() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        (0..4u8).prop_map(|number| format!("arg{number}")),
        (0..70u64).prop_map(|number| number.to_string()),
        Just("0xffff_ffff_ffff_ffff".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let sign = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
            "&&", "||",
        ]);
        let cast = prop::sample::select(vec!["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]);
        let before = prop::sample::select(vec!["-", "~", "!"]);
        prop_oneof![
            (inner.clone(), sign, inner.clone())
                .prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            (before, inner.clone()).prop_map(|(sign, a)| format!("{sign}({a})")),
            (cast, inner.clone()).prop_map(|(cast, a)| format!("({cast}){a}")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
        ]
    })
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]

    /// What is computed before anything runs is what would be computed then.
    #[test]
    fn constants_come_out_as_if_they_ran(text in expression()) {
        let check = |text: &str| {
            let source = Source::parse(&format!("hit {{ sample({text}) }}")).unwrap();
            let program = source.check(&Context::default()).ok()?;
            program.probes[0].actions[0].kind.value().cloned()
        };
        let fixed = ARGUMENTS.iter().enumerate().fold(text.clone(), |text, (number, value)| {
            text.replace(&format!("arg{number}"), &format!("(u64){value:#x}"))
        });
        // Some are refused: dividing by a zero that is known, asking whether no sign is below zero.
        if let (Some(open), Some(folded)) = (check(&text), check(&fixed)) {
            let bits = build::as_constant(&folded);
            proptest::prop_assert_eq!(
                Some(crate::interpret::evaluate(&open, &mut Fixed)),
                bits,
                "{} and {}", show(&open), show(&folded)
            );
            proptest::prop_assert_eq!(open.ty, folded.ty);
        }
    }
}

#[test]
fn a_variable_of_a_call_begins_at_0() {
    let probes = |text: &str| check(text, "nowhere").unwrap().probes.len();
    let source = |entry: &str| format!("call @a; {entry} return {{ sample(@a) }}");
    // Stored into at every entry, before it is read.
    assert_eq!(probes(&source("entry { @a = tsc }")), 3);
    assert_eq!(
        probes(&source("entry { sample(1); @a = tsc } entry { @a++ }")),
        4
    );
    for stale in [
        "entry / cpu / { @a = tsc }",
        "entry { @a++ }",
        "entry { @a = @a + 1 }",
        "entry { sample(@a); @a = 1 }",
        "entry / cpu / { @a = 1 } entry { @a = 2 }",
    ] {
        let program = check(&source(stale), "nowhere").unwrap();
        assert_eq!(program.probes[0].hook, Hook::Entry, "{stale}");
        assert!(program.probes[0].predicate.is_none(), "{stale}");
    }
    // Each function has calls of its own.
    let two = "call @a; entry:f / cpu / { @a = 1 } return:f { sample(@a) } entry { @a = 1 }";
    let program = check(two, "nowhere").unwrap();
    assert_eq!(program.probes.len(), 5);
    assert_eq!(program.probes[0].function.as_deref(), Some("f"));
    // What the call before at the same place left is gone.
    let program = check(
        "call @a; entry / cpu == 1 / { @a = 7 } return { sample(@a) }",
        "nowhere",
    );
    trial::run(
        &program.unwrap(),
        "entry call=1 cpu=1 -> @a = 7
         return call=1 -> sample 7
         entry call=1 cpu=0 -> @a = 0
         return call=1 -> sample 0",
    );
}

#[test]
fn a_variable_of_a_call_ends_with_it() {
    let last = |text: &str| check(text, "nowhere").unwrap().probes.pop().unwrap();
    let entry = "call @a; entry { @a = tsc }";
    for (left, text) in [
        (true, "return / @a / { sample(@a) }"),
        (true, "return / @a > 5 / { @a = 0 }"),
        (true, "return / @a / { @a = 0; @a++ }"),
        (true, "return / @a / { @a = 0 } return { @a = 1 }"),
        // Not behind the function's own return.
        (true, "return / @a / { @a = 0 } leave { @a = 1 }"),
        (false, "leave { @a = 1 } return { sample(1); @a = 0 }"),
        (false, "leave / @a / { sample(@a); @a = 0 }"),
        // Not at every exit.
        (true, "return / @a / { sample(retval); @a = 0 }"),
        (false, "return { @a = 0 }"),
        (false, "return / @a / { sample(@a); @a = 0 }"),
        (false, "return / @a != 0 / { @a = 0 } return { sample(1) }"),
        (false, ""),
    ] {
        let probe = last(&format!("{entry} {text}"));
        let put = probe.hook == Hook::Return
            && probe.predicate.is_none()
            && probe.actions.len() == 1
            && text != "return { @a = 0 }";
        assert_eq!(
            put && probe.actions[0]
                .kind
                .value()
                .is_some_and(|value| { build::as_constant(value) == Some(0) }),
            left,
            "{text}"
        );
    }
}

/// Calls that a function passes on are told from others of the function that they are passed to.
#[test]
fn a_call_that_is_passed_on_comes_back_once() {
    let text = "instrument mine \"x.\"; call @start; entry { @start = tsc } \
        return { @all = count() } return / @start / { sample(tsc - @start) } leave { @left = count() } \
        entry:f { @start = 1 } return:f { sample(7) }";
    let program = check(text, "nowhere").unwrap();
    let followed = program.followed();
    assert_eq!(followed.probes[..program.probes.len()], program.probes);
    assert_eq!(followed.variables.len(), 2);
    trial::run(
        &followed,
        "entry call=1 tsc=10 -> @start = 10
         back call=1 -> nothing
         leave -> @left = 1
         onward call=1 -> @start = 10
         entry call=2 tsc=20 -> @start = 20
         onward call=2 -> @all = 0
         back call=3 -> nothing
         back call=2 tsc=25 -> sample 5, @all = 1
         back call=2 -> nothing
         back call=1 tsc=90 -> sample 80, @all = 2, @start = 0
         back call=1 -> nothing
         return call=1 tsc=95 -> @all = 3
         onward:f call=4 -> @all = 3
         back call=4 -> nothing
         back:f call=4 -> sample 7
         back:f call=4 -> nothing",
    );
}
