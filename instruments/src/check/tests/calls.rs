//! Variables of calls.

use crate::check::build;
use crate::program::Hook;
use crate::trial::{self, check};

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
        // Not after the function's own return.
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

/// Tail calls are distinguished from other calls of the function that they target.
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
