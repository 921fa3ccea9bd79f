use proptest::prelude::*;

use super::token::{Kind, tokens};
use super::*;

/// Sources of all that can be written, to be changed at random.
const GOOD: &[&str] = &[
    "instrument a-1 \"What it does.\" unit \"ns\" duration once;",
    "instrument queue-length \"Says \\\"how many\\\".\" value;\nshared thread s64 @a, @b; cpu @c;\nhit { sample(1) }",
    "thread @start; // when\n\n\nentry { @start = tsc }\nreturn / @start != 0 / { sample(tsc - @start); @start = 0 }",
    "entry:__schedule / arg0 > 4096 && comm == \"sh\" / { @bytes = hist(arg1); }",
    "taken { @t = count() } untaken { @u = count() }",
    "hit { sample(-(-arg0) + - -1 * *(u64 *)arg1 & ~!reg(\"ax\")) }",
    "hit { sample(arg0->f_path.dentry->d_name.name[3] ? (s32)(arg1) : -(u8)-arg2 << 2 >> 1 | 3 ^ 4) }",
    "global @n; pre { @n++; @n -= 0x10; // last\n @n--\n/* end */ }",
    "hit { @l = lhist((struct file *)arg0 == 0 || !arg1, 0, 100, 10); @v = values(&arg0->x % 7 / 2, 64) }",
    "global @n; hit { unroll(2) { @n++; /* each */ unroll(3) { @n += 2 } } printf(\"%s %d\\n\", comm, @n) }",
    "hit { unroll(2) // why\n { sample(1) /* last */ }; sample(2) }",
    "// only a comment",
    "hit // before the braces\n\n{ sample(1) }",
    "post / (arg0 & 4) == 4 / { sample(&arg0->a.b[2]) /* why */ }\n/* more */ hit {}",
];

/// The words and signs, which a formatter may not change, without semicolons, which it may add.
fn words(text: &str) -> Vec<String> {
    tokens(text)
        .iter()
        .filter(|token| !token.is(";"))
        .map(|token| token.text.trim_end().to_owned())
        .collect()
}

fn format_holds(text: &str) {
    let Ok(source) = Source::parse(text) else {
        return;
    };
    let once = source.formatted();
    let again =
        Source::parse(&once).unwrap_or_else(|faults| panic!("{text:?} became\n{once}\n{faults}"));
    assert_eq!(words(text), words(&once), "{text:?} became\n{once}");
    assert_eq!(again.formatted(), once, "{text:?} became\n{once}");
    assert_eq!(shape(&source), shape(&again), "{text:?} became\n{once}");
}

/// Returns the syntax tree without spans, as text.
fn shape(source: &Source) -> String {
    let text = format!("{:?}", source.parts);
    let mut shape = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("Span {") {
        shape.push_str(&rest[..at]);
        rest = &rest[at + rest[at..].find('}').unwrap() + 1..];
    }
    shape + rest
}

#[test]
fn what_is_good_is_parsed_and_formatted() {
    for text in GOOD {
        Source::parse(text).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
        format_holds(text);
    }
}

#[test]
fn the_format_is_the_one_of_the_library() {
    let source = Source::parse(GOOD[1]).unwrap();
    assert_eq!(
        source.formatted(),
        "instrument queue-length \"Says \\\"how many\\\".\" value;\n\
         shared thread s64 @a, @b;\ncpu @c;\nhit { sample(1) }\n"
    );
    assert_eq!(source.name(), "queue-length");
    assert_eq!(source.summary(), "Says \"how many\".");
    let formatted = |text: &str| Source::parse(text).unwrap().formatted();
    assert_eq!(
        formatted(GOOD[2]),
        "thread @start; // when\n\nentry { @start = tsc }\n\
         return / @start != 0 / {\n    sample(tsc - @start);\n    @start = 0;\n}\n"
    );
    assert_eq!(
        formatted(GOOD[5]),
        "hit { sample(-(-arg0) + - -1 * *(u64 *)arg1 & ~!reg(\"ax\")) }\n"
    );
    assert_eq!(
        formatted(GOOD[6]),
        "hit { sample(arg0->f_path.dentry->d_name.name[3] ? (s32)(arg1) : -(u8)-arg2 << 2 >> 1 | 3 ^ 4) }\n"
    );
    assert_eq!(
        formatted(GOOD[7]),
        "global @n;\npre {\n    @n++;\n    @n -= 0x10; // last\n    @n--;\n    /* end */\n}\n"
    );
}

/// The first fault of a wrong source: where, what, and the advice.
fn fault(text: &str) -> String {
    let faults = Source::parse(text).unwrap_err();
    let (line, column) = faults.place(faults.list[0].span.start);
    format!(
        "{line}:{column} {} {}",
        faults.list[0].message, faults.list[0].help
    )
}

#[test]
fn faults_say_where_what_and_what_to_write() {
    for (text, says) in [
        (
            "entri { }",
            "1:1 A probe or a declaration is expected here, not `entri`. Did you mean `entry`?",
        ),
        (
            "kprobe:vfs_read { }",
            "1:1 A probe or a declaration is expected here, not `kprobe`. Write `entry { … }`: the function is chosen where the instrument is placed.",
        ),
        (
            "hit { sample(1 }",
            "1:16 This `}` does not close the `(`. Write `)` first.",
        ),
        (
            "hit { sample(1)",
            "1:5 This `{` is not closed. Write `}` where it ends.",
        ),
        (
            "hit { if (1) { } }",
            "1:7 A statement is expected here, not `if`. Write a predicate before the braces, `entry / condition / { … }`, or `condition ? a : b`.",
        ),
        (
            "hit { @x *= 2 }",
            "1:10 `*=` is not something that is done with a variable. Write `@x = @x * 2`.",
        ),
        (
            "global @[arg0];",
            "1:8 A variable has no keys. Write `@name[key] = count()` or another aggregate, `thread @name;` for one value a thread.",
        ),
        (
            "hit { @n[pid] = tsc }",
            "1:17 Only aggregates have keys. Write `@n[key] = count()` or another aggregate; for one value a thread declare `thread @n;`.",
        ),
        (
            "hit { @n[tid] += 2 }",
            "1:15 Only aggregates have keys. Write `@n[key] = count()` or another aggregate; for one value a thread declare `thread @n;`.",
        ),
        (
            "hit { sample(1 < 2 < 3) }",
            "1:14 Two comparisons in a row do not compare three values. Write `a < b && b < c`, or brackets around one of them.",
        ),
        (
            "hit / arg0 & 4 == 4 / { }",
            "1:7 Here `&` would be computed after the comparison, as in C. Write `(a & b) == c`, or `&&` to combine two conditions.",
        ),
        (
            "hit / arg0 = 4 / { }",
            "1:12 Nothing can be stored in a predicate. Write `==` to compare.",
        ),
        (
            "hit { sample(0755) }",
            "1:14 `0755` is not a number. Write 0o755 for a number in base 8, or leave out the zero in front.",
        ),
        (
            "hit { sample(99999999999999999999) }",
            "1:14 `99999999999999999999` is not a number. The largest number is 0xffff_ffff_ffff_ffff.",
        ),
        (
            "hit { sample((int)arg0) }",
            "1:15 There is no type `int` here. Write `s32`.",
        ),
        (
            "hit { $x = 1 }",
            "1:7 `$` begins nothing here. A hit has no variables: write the expression where it is needed, since it is computed once. What is kept until a return is declared before the probes: `call @name;`.",
        ),
        (
            "@x = 1;",
            "1:1 A probe or a declaration is expected here, not `@x`. Values are stored in probes: `entry { @name = … }`.",
        ),
        (
            "thread s32 @x;",
            "1:8 Variables are not of type `s32`. Variables have 64 bits: write `s64` for one with a sign, or nothing.",
        ),
        (
            "instrument Bad \"x\";",
            "1:12 The name of the instrument is expected here. Names have lower-case letters, digits and dashes: `instrument queue-length \"…\";`.",
        ),
        (
            "instrument a \"x\" durration;",
            "1:18 `durration` says nothing about an instrument. Did you mean `duration`?",
        ),
        (
            "pre:vfs_read { }",
            "1:5 `pre` is at the block where the instrument is placed. Only `entry`, `return` and `leave` can name a function.",
        ),
        (
            "hit { sample(\"open) }",
            "1:14 This string does not end on its line. Write `\"` at its end, and `\\\"` for one within it.",
        ),
        (
            "hit { unroll(65) { @n = count() } }",
            "1:14 The number of repetitions is expected here, from 1 to 64. Write `unroll(4) { @n = count() }`; a probe has 64 statements at most.",
        ),
        (
            "hit { unroll(40) { @n = count(); @m = count() } }",
            "1:7 These are 80 statements. Write `unroll(4) { @n = count() }`; a probe has 64 statements at most.",
        ),
        (
            "hit { for (;;) {} }",
            "1:7 A statement is expected here, not `for`. There are no loops, so that what a probe costs has a bound: `unroll(4) { … }` repeats statements.",
        ),
        (
            "hit { sample(1) sample(2) }",
            "1:17 A `;` is expected here after the statement, not `sample`. ",
        ),
    ] {
        assert_eq!(
            fault(text),
            says.replace("@x = @x * 2", "@x = @x * …"),
            "{text}"
        );
    }
}

#[test]
fn one_go_finds_the_faults_of_several_statements() {
    let faults = Source::parse("hit { sample(; @x =; sample(1) }\nentri {}\nhit { sample(2 2) }")
        .unwrap_err();
    // An open bracket is reported alone: the text after it could mean anything.
    assert_eq!(faults.list.len(), 1, "{faults}");
    let faults = Source::parse("hit { sample(); @x =; sample(1) }\nentri {}\nhit { sample(2 2) }")
        .unwrap_err();
    let lines: Vec<usize> = faults
        .list
        .iter()
        .map(|fault| faults.place(fault.span.start).0)
        .collect();
    assert_eq!(lines, [1, 1, 2, 3], "{faults}");
}

#[test]
fn limits_hold() {
    let deep = format!("hit {{ sample({}1{}) }}", "(".repeat(100), ")".repeat(100));
    assert!(
        fault(&deep).contains("brackets within each other"),
        "{}",
        fault(&deep)
    );
    let long = format!("hit {{ sample({}1) }}", "-".repeat(1000));
    assert!(fault(&long).contains("more than 400"), "{}", fault(&long));
    let most = format!("hit {{ sample({}1) }}", "- ".repeat(390));
    Source::parse(&most).unwrap();
    let huge = "x ".repeat(40_000);
    assert!(
        fault(&huge).contains("65536 is the most"),
        "{}",
        fault(&huge)
    );
}

#[test]
fn words_are_found_and_completed() {
    let found: Vec<&str> = words::complete("ret").map(|word| word.word).collect();
    assert_eq!(found, ["return", "retval"]);
    let text = "cpu @x; entry { @x = hist(arg1 + cpu) } // end";
    let classes: Vec<(&str, Class)> = highlight(text)
        .into_iter()
        .map(|(span, class)| (&text[span.start as usize..span.end as usize], class))
        .collect();
    assert_eq!(classes[0], ("cpu", Class::Keyword));
    for expected in [
        ("@x", Class::Variable),
        ("entry", Class::Hook),
        ("hist", Class::Function),
        ("arg1", Class::Input),
        ("cpu", Class::Input),
        ("// end", Class::Comment),
    ] {
        assert!(classes.contains(&expected), "{expected:?} in {classes:?}");
    }
}

/// A good source with some tokens left out, doubled, exchanged or torn.
fn mutated() -> impl Strategy<Value = String> {
    (
        0..GOOD.len(),
        0..GOOD.len(),
        proptest::collection::vec((any::<u8>(), any::<u16>(), any::<u16>()), 1..6),
        "[ \n/*]{1,3}",
    )
        .prop_map(|(one, other, changes, between)| {
            let text = format!("{}\n{}", GOOD[one], GOOD[other]);
            let mut words: Vec<String> = tokens(&text)
                .iter()
                .map(|token| token.text.to_owned())
                .collect();
            for (what, a, b) in changes {
                let (a, b) = (usize::from(a) % words.len(), usize::from(b) % words.len());
                match what % 5 {
                    0 => words.swap(a, b),
                    1 => words[a] = words[b].clone(),
                    2 => words.insert(a, words[b].clone()),
                    3 => words.insert(a, format!("// c{b}\n")),
                    _ if words.len() > 1 => drop(words.remove(a)),
                    _ => {}
                }
            }
            let mut text = String::new();
            for word in &words {
                text.push_str(word);
                text.push_str(if word.starts_with("//") {
                    "\n"
                } else {
                    between.get(..1).unwrap()
                });
            }
            text
        })
}

/// A good source with comments and lines wherever white space may be.
fn commented() -> impl Strategy<Value = String> {
    (
        0..GOOD.len(),
        0..GOOD.len(),
        proptest::collection::vec(0u8..12, 1..120),
    )
        .prop_map(|(one, other, between)| {
            let text = format!("{}\n{}", GOOD[one], GOOD[other]);
            let tokens = tokens(&text);
            let mut out = String::new();
            let mut end = 0;
            for (token, what) in tokens.iter().zip(between.iter().cycle()) {
                // The parts of an instrument's name touch.
                if token.span.start != end || end == 0 {
                    out.push_str(match what {
                        0 => "// one\n",
                        1 => "\n\n\n",
                        2 => " /* two */ ",
                        3 => "\n  // three\n",
                        4 => "/* four\n lines */",
                        _ => " ",
                    });
                }
                out.push_str(token.text);
                if token.kind == Kind::Comment {
                    out.push('\n');
                }
                end = token.span.end;
            }
            out
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn no_text_panics_and_tokens_cover_it(text in "\\PC{0,200}") {
        let _ = Source::parse(&text);
        let mut end = 0;
        for (span, _) in highlight(&text) {
            prop_assert!(text[end..span.start as usize].trim().is_empty());
            end = span.end as usize;
        }
        prop_assert!(text[end..].trim().is_empty());
    }

    #[test]
    fn random_words_do_not_panic(words in proptest::collection::vec("[a-z0-9@(){};:/*\"<>=+-]{1,4}", 0..60)) {
        let _ = Source::parse(&words.join(" "));
    }

    #[test]
    fn mutated_sources_are_refused_or_formatted(text in mutated()) {
        match Source::parse(&text) {
            Ok(_) => format_holds(&text),
            Err(faults) => {
                prop_assert!(!faults.list.is_empty());
                prop_assert!(!faults.to_string().is_empty());
            }
        }
    }

    #[test]
    fn comments_anywhere_are_kept(text in commented()) {
        format_holds(&text);
    }
}

#[test]
fn a_count_by_key_is_a_table_of_values() {
    let parts = |text: &str| {
        let source = Source::parse(text).unwrap_or_else(|faults| panic!("{faults}"));
        let checked = source.check(&crate::Context::default());
        let checked = checked.unwrap_or_else(|faults| panic!("{faults}"));
        let probe = &checked.probes[0];
        format!(
            "{:?} {:?}",
            checked.aggregates,
            probe.expressions().map(|e| &e.kind).collect::<Vec<_>>()
        )
    };
    let values = parts("hit { @n = values(pid) }");
    assert_eq!(parts("hit { @n[pid] = count() }"), values);
    assert_eq!(parts("hit { @n[pid]++ }"), values);
    let source = Source::parse("hit{@n[pid]=count();@n[tid]++}").unwrap();
    let formatted = source.formatted();
    assert!(
        formatted.contains("@n[pid] = count();") && formatted.contains("@n[tid]++"),
        "{formatted}"
    );
}
