//! Scripts: what is read, the messages of what is not, and a property of all texts.

use gilk_engine::{Addr, Image};
use proptest::prelude::*;

use super::parse::Group;
use super::{Filter, Place, Script, TerminalAction, resolve, time_of_day};
use crate::sources::SourceLine;

fn wrong(text: &str) -> String {
    Script::parse(text).unwrap_err().to_string()
}

#[test]
fn a_script_has_probes_in_the_kernel_and_blocks_in_the_terminal() {
    let script = Script::parse(
        "thread @t; // when it began\n\
         entry:vfs_read, entry:vfs_write / arg2 / 2 > 1 / { @t = nsecs; }\n\
         return:vfs_* / @t != 0 / { @ns = hist(nsecs - @t) }\n\
         block:kernel_clone:* { @hits = count() }\n\
         begin { print(\"a;b\\n\"); printf(\"100 %%\") } interval:250ms { time(); print(@ns); clear(@ns) } end { exit() }",
    )
    .unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(script.clauses.len(), 3);
    assert_eq!(script.clauses[0].points.len(), 2);
    let predicate = script.clauses[0].predicate.unwrap();
    assert_eq!(script.slice(predicate), " arg2 / 2 > 1 ");
    let terminal = script.terminal();
    let texts = ["a;b\n", "100 %"].map(|text| TerminalAction::Text(text.into()));
    assert_eq!(terminal.begin, texts);
    let actions = vec![
        TerminalAction::Time("%H:%M:%S\n".into()),
        TerminalAction::Print("ns".into()),
        TerminalAction::Clear("ns".into()),
    ];
    assert_eq!(terminal.intervals, [(0.25, actions)]);
    assert_eq!(terminal.end, [TerminalAction::Exit]);
}

#[test]
fn times_of_day_are_in_utc() {
    let at = |format| time_of_day(format, 1_700_000_000);
    assert_eq!(at("%H:%M:%S\n").unwrap(), "22:13:20\n");
    assert_eq!(at("%%H").unwrap(), "%H");
    assert_eq!((at("%Y"), at("%")), (None, None));
    for (text, help) in [
        (
            "interval:1s { printf(\"%d\", 1) }",
            "no values in the terminal",
        ),
        ("begin { time(\"%Y\") }", "`%H`, `%M` and `%S`"),
    ] {
        let said = wrong(text);
        assert!(said.contains(help), "{said}");
    }
}

#[test]
fn faults_point_at_the_column_and_say_what_to_write() {
    let cases = [
        (
            "entyr:vfs_read { @n = count() }",
            "1:1: No probe is of the kind `entyr`.\n    entyr:vfs_read { @n = count() }\n    ^^^^^^^^^^^^^^\n    Write `entry:vfs_read`.",
        ),
        (
            "kprobe:vfs_read { @n = count() }",
            "1:1: No probe is of the kind `kprobe`.\n    kprobe:vfs_read { @n = count() }\n    ^^^^^^^^^^^^^^^\n    Write `entry:vfs_read`.",
        ),
        (
            "return:vfs_read / retval < / { @n = count() }",
            "1:28: A value is expected here, not `/`.\n    return:vfs_read / retval < / { @n = count() }\n                               ^\n    Values are numbers, `arg0`, `retval`, `tsc`, `@name` and what the reference lists.",
        ),
        (
            "entry:vfs_read @n = count()",
            "1:16: `{` is expected before the statements of the probe, not `@`.\n    entry:vfs_read @n = count()\n                   ^",
        ),
        (
            "entry:vfs_read { @n = count()",
            "1:16: This `{` is not closed.\n    entry:vfs_read { @n = count()\n                   ^\n    Write `}` where it ends.",
        ),
        (
            "tracepoint:syscalls:sys_enter_openat { @n = count() }",
            "1:1: `tracepoint:syscalls:sys_enter_openat` is no tracepoint: the kernel makes it of that of all calls.\n    tracepoint:syscalls:sys_enter_openat { @n = count() }\n    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n    Write `entry:__x64_sys_openat`.",
        ),
        (
            "tracepoint:sched:* { @n = count() }",
            "1:1: `tracepoint:sched:*` would switch every tracepoint on.\n    tracepoint:sched:* { @n = count() }\n    ^^^^^^^^^^^^^^^^^^\n    Write some letters of its name: `tracepoint:sched_*`.",
        ),
        (
            "block:vfs_read { @n = count() }",
            "1:1: `block:vfs_read` names no block.\n    block:vfs_read { @n = count() }\n    ^^^^^^^^^^^^^^\n    Write `block:vfs_read:3`, or `block:vfs_read:*` for all.",
        ),
        (
            "entry:f { @n = count() } interval:1y { print(@n) }",
            "1:26: `1y` is no interval.\n    entry:f { @n = count() } interval:1y { print(@n) }\n                             ^^^^^^^^^^^\n    Write `interval:1s` or `interval:250ms`; from 50ms to 1h.",
        ),
        (
            "entry:f { @n = count() } end { pirnt(@n) }",
            "1:32: `pirnt(@n)` does not run in the terminal.\n    entry:f { @n = count() } end { pirnt(@n) }\n                                   ^^^^^^^^^\n    Did you mean `print`?",
        ),
        (
            "entry:f { @m = max(arg0) } end { clear(@m) }",
            "1:40: @m cannot be cleared: it keeps one value, not a sum.\n    entry:f { @m = max(arg0) } end { clear(@m) }\n                                           ^^\n    Clear aggregates by count, sum, hist, lhist or values.",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(wrong(text), expected, "{text}");
    }
}

#[test]
fn places_are_in_the_order_of_their_numbers() {
    let place = |function: &str, hook: Option<&str>| Place {
        function: function.to_owned(),
        hook: hook.map(str::to_owned),
    };
    let sorted = [
        place("a", None),
        place("a", Some("block 2 post")),
        place("a", Some("block 2 pre")),
        place("a", Some("block 10 pre")),
        place("b", Some("block 0 pre")),
    ];
    assert!(sorted.is_sorted() && sorted[0] < sorted[1]);
    assert!(sorted[3] > sorted[2]);
}

#[test]
fn a_comment_in_a_declaration_does_not_end_it() {
    assert!(Script::parse("thread @a /* ; */; entry:f { @a = 1 }").is_ok());
    let open = "1:19: `;` is expected at the end of the declaration, not the end.";
    assert!(wrong("call ///thread @a;").starts_with(open));
}

#[test]
fn a_variable_by_thread_needs_no_declaration() {
    let script = Script::parse(
        "thread @known; entry:a { @t[tid] = nsecs; @known[tid] = 1; @n[tid] = count(); @n[tid]++ } \
         return:b / @t[ tid ] == 1 / { @ns = hist(nsecs - @t[tid]); @u [tid] = 0; delete(@t[tid]) }",
    )
    .unwrap_or_else(|faults| panic!("{faults}"));
    let names: Vec<&str> = script.threads().into_iter().collect();
    assert_eq!(names, ["t", "u"]);
}

#[test]
fn a_variable_of_calls_is_declared_where_it_is_named() {
    let script = Script::parse(
        "call s64 @a, @b; call @c; entry:f { @a = 1 } return:f / @b == 0 / { @n = count() } entry:g { @m = count() }",
    )
    .unwrap_or_else(|faults| panic!("{faults}"));
    let source = |clauses: &[usize]| {
        let clauses = clauses.iter().map(|&index| (index, None));
        script.source(&Group::of(clauses.collect()), None)
    };
    assert!(source(&[0, 1]).contains("call s64 @a, @b;") && !source(&[0, 1]).contains("@c"));
    assert!(source(&[0]).contains("call s64 @a;") && !source(&[0]).contains("@b"));
    assert!(!source(&[2]).contains("call"));
}

#[test]
fn an_empty_script_is_refused() {
    assert!(wrong("").contains("no probe in the kernel"));
    assert!(wrong("interval:1s { exit() }").contains("no probe in the kernel"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic_and_every_fault_is_inside_it(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "entry:", "return:", "tracepoint:", "usdt:", "vfs_*", "vfs_read", " ", "{", "}", "/", "@a", " = ", "count()",
            "hist(arg0)", ";", ",", "\"", "//", "/*", "*/", "\n", "thread @a;", "call ", "begin",
            "interval:1s", "print(@a)", "ä", "pre:f+0x", "block:f:", "3", "fs/a.c:4", "(", ")",
        ]), 0..24)
    ) {
        let text = pieces.concat();
        match Script::parse(&text) {
            Ok(script) => prop_assert!(!script.clauses.is_empty()),
            Err(faults) => {
                for fault in &faults.list {
                    prop_assert!(fault.span.start as usize <= text.len(), "{faults}");
                }
                // The display has a line and a column.
                prop_assert!(faults.to_string().contains(':'));
            }
        }
    }

    #[test]
    fn a_script_is_read_back_from_its_parts(
        functions in prop::collection::vec("[a-z_]{1,8}\\*?", 1..4),
        space in "[ \n]{0,3}",
        predicate: bool,
    ) {
        let points: Vec<String> = functions.iter().map(|f| format!("entry:{f}")).collect();
        let predicate = if predicate { " / arg0 / 2 > 1 /" } else { "" };
        let text = format!("{}{space}{predicate} {{{space} @n = count(); }}", points.join(&format!(",{space}")));
        let script = Script::parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
        prop_assert_eq!(script.clauses.len(), 1);
        prop_assert_eq!(script.clauses[0].points.len(), functions.len());
        prop_assert_eq!(script.clauses[0].predicate.is_some(), !predicate.is_empty());
    }
}

/// Checks source lines by lines that are made up for a saved kernel: every second one has instructions.
#[test]
fn a_line_without_instructions_is_answered_with_the_nearest_ones() {
    let saved = include_bytes!("../../../engine/tests/data/fork.image");
    let image = Image::from_live(&postcard::from_bytes(saved).unwrap()).unwrap();
    let start = image.function_named("kernel_clone").unwrap().span;
    let lines = |at: Addr| {
        start.contains(at).then(|| SourceLine {
            file: "kernel/fork.c".into(),
            line: 100 + 2 * u32::try_from((at.0 - start.start.0) / 64).unwrap(),
        })
    };
    let filter = Filter {
        duration: 1.0,
        pid: None,
    };
    let resolved = |text: &str| {
        let script = Script::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        resolve(&script, &image, filter, Some(&lines))
    };
    let query = resolved("fork.c:102 { @n = count() }").unwrap();
    assert_eq!(query.session.placements.len(), 1);
    let faults = resolved("kernel/fork.c:101 { @n = count() }").unwrap_err();
    let expected = "1:1: No instruction is of line 101 of kernel/fork.c.\n    kernel/fork.c:101 { @n = count() }\n    ^^^^^^^^^^^^^^^^^\n    Write `kernel/fork.c:100` or `kernel/fork.c:102`.";
    assert_eq!(faults.to_string(), expected);
}
